"""What a decision leads to: a placement, a rejection, or a preemption.

Owns the records; knows neither policies nor the API server.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol

from engine.core.framework.reasons import BACKING_OFF, Reason
from engine.core.model.pod import Pod
from engine.core.queueing.queued_pod import QueuedPod

#: The reason of the event and of the condition of a pod that has a node and waits in permit.
WAITING_REASON: Final = "WaitingOnPermit"
#: The reason of the event and of the condition of a pod that policies which wasted time throttle.
THROTTLED_REASON: Final = "Throttled"


class PreBindError(Exception):
    """A placement could not be prepared for its binding; the text is the reason."""


class Reserver(Protocol):
    """A plugin that holds something for a placement beyond what the cache counts."""

    name: ClassVar[str]

    def unreserve(self, state: Any, pod: Pod, node_name: str) -> None:
        """Release it; must not raise."""
        ...

    async def pre_bind(self, state: Any, pod: Pod, node_name: str) -> None:
        """Write it to the API; returns when the pod may be bound. Raises `PreBindError`."""
        ...


@dataclass(slots=True)
class Placement:
    """A pod with the node that was chosen for it, assumed there and not yet bound.

    `started_at` is when the attempt began (monotonic seconds); `pod` is the copy that the cache
    counts, which names the node. `reserves` are the plugins that hold something for it, each with
    its state, in order: released in reverse.
    """

    queued: QueuedPod
    pod: Pod
    node: str
    profile: str
    revision: str
    started_at: float
    reserves: tuple[tuple[Reserver, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why an attempt did not end in a binding.

    `rejectors` names the policies that said no; of an error, the plugins for which objects are at
    fault, if nothing else is. `is_error` separates "fits
    nowhere now" from "something went wrong". `reason` is the dominant cause.
    """

    message: str
    is_error: bool
    rejectors: frozenset[str] = field(default_factory=frozenset)
    #: New nominated node, "" to clear it, None to leave it. Only preemption leaves it.
    nominated_node: str | None = ""
    #: False when it concerns no user: the pod is gone or bound.
    is_reported: bool = True
    reason: Reason = BACKING_OFF


@dataclass(frozen=True, slots=True)
class Preemption:
    """Which pods have to go so that a pod fits on a node, most important first.

    The disruption budgets of so many as `violations` of them do not allow it.
    """

    node: str
    victims: tuple[Pod, ...]
    violations: int = 0
