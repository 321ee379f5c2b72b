"""The volumes that a pod's claims get on its node, and the interface that writes them.

Owns the record and the protocol; knows neither the choice nor the API server.
"""

from dataclasses import dataclass
from typing import Protocol

from engine.core.model.pod import Pod
from engine.core.model.storage import PersistentVolume, PersistentVolumeClaim


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """Existing volumes, each with its claim, and claims for which volumes are to be made.

    Once reserved, the objects are as they have to become: volumes with their claims' reference,
    claims with their node.
    """

    bindings: tuple[tuple[PersistentVolume, PersistentVolumeClaim], ...] = ()
    provisions: tuple[PersistentVolumeClaim, ...] = ()


class VolumeWriter(Protocol):
    """Carries a plan out."""

    async def bind(self, pod: Pod, node_name: str, plan: VolumePlan, seconds: float) -> None:
        """Write *plan* and wait until every claim in it is bound, for *seconds* at most.

        Raises `PreBindError` with the reason if that is impossible or takes too long.
        """
        ...
