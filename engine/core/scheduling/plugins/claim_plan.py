"""The interface by which a decision has device claims written.

Owns the protocol; knows neither how devices are chosen nor the API server.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from engine.core.model.devices import AllocationResult, ConsumerReference, ResourceClaim
from engine.core.model.pod import Pod


class ClaimReturns(Protocol):
    """Takes back what claims were given."""

    async def deallocate(self, claim: ResourceClaim) -> None:
        """Remove the allocation of a claim without users; a failure is left to a later attempt."""
        ...

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete a claim that a scheduler made; a failure is left to a later attempt."""
        ...

    def start_release(self, pod: Pod, claim: ResourceClaim) -> None:
        """Remove *pod* from the users of *claim*, without waiting for it."""
        ...

    def start_delete(self, claim: ResourceClaim, deleted: Callable[[], object]) -> None:
        """Delete *claim* without waiting for it, and call *deleted* once it is."""
        ...


class ClaimWriter(ClaimReturns, Protocol):
    """Writes claims. Every coroutine raises `PreBindError` with the reason if it cannot."""

    async def create(self, claim: ResourceClaim) -> ResourceClaim:
        """Make a claim of a generated name; returns it as stored."""
        ...

    async def reserve(
        self,
        pod: Pod,
        claim: ResourceClaim,
        allocation: AllocationResult | None,
        is_held: Callable[[], bool] = lambda: True,
        group: ConsumerReference | None = None,
    ) -> ResourceClaim:
        """Add *pod* to the users of *claim*, and write *allocation* if the claim has none.

        In place of the pod its *group*, if one is given. Not, when *is_held* says that its devices
        may have been given to another claim since.
        Returns the claim as stored.
        """
        ...

    async def write_extended_resource_status(
        self, pod: Pod, claim: ResourceClaim, mappings: Sequence[dict[str, str]]
    ) -> None:
        """Write into the pod's status which claim serves its extended resources."""
        ...

    async def wait(
        self, pod: Pod, node_name: str, is_met: Callable[[], bool], seconds: float
    ) -> bool:
        """Say that the pod waits for devices, and ask *is_met* whenever a claim changes.

        False if it took more than *seconds*. What *is_met* raises is raised.
        """
        ...
