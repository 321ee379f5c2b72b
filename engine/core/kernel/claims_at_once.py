"""Takes back devices where there is no API server to write to.

Owns what becomes of a claim. Reporting the change is the shell's, as a watch would.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from engine.core.kernel.events import ObjectChanged
from engine.core.model.devices import ResourceClaim, ResourceClaimStatus
from engine.core.model.pod import Pod

_CLAIMS: Final = "resourceclaims"


class ClaimsAtOnce:
    """A `ClaimReturns` whose changes are reported at once."""

    def __init__(self, report: Callable[[ObjectChanged], None]) -> None:
        self._report = report

    async def deallocate(self, claim: ResourceClaim) -> None:
        """Remove the allocation of a claim without users."""
        self._replace(claim, ResourceClaimStatus())

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete a claim that a scheduler made."""
        self._report(ObjectChanged(_CLAIMS, claim, None))

    def start_release(self, pod: Pod, claim: ResourceClaim) -> None:
        """Remove *pod* from the users of *claim*."""
        others = tuple(one for one in claim.status.reserved_for if one.uid != pod.uid)
        self._replace(claim, msgspec.structs.replace(claim.status, reserved_for=others))

    def start_delete(self, claim: ResourceClaim, deleted: Callable[[], object]) -> None:
        """Delete *claim*, and call *deleted*."""
        self._report(ObjectChanged(_CLAIMS, claim, None))
        deleted()

    def _replace(self, claim: ResourceClaim, status: ResourceClaimStatus) -> None:
        changed = msgspec.structs.replace(claim, status=status)
        self._report(ObjectChanged(_CLAIMS, claim, changed))
