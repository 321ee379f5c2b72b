"""Answers of kube-scheduler that ours differ from on purpose.

Owns telling them from other differences, as narrowly as an answer allows; docs/parity.md says why
each is there and which test shows it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from engine.core.model.quantity import INT64_MAX, QuantityError, resource_amount
from engine.testing.full_decision import FullDecision

Plain = Mapping[str, Any]

_PLUGIN: Final = "DynamicResources"
_POOL: Final = re.compile(
    r"asks for all devices, but resource pool \S+ is currently (being updated|invalid)$"
)
_IN_SEARCH: Final = re.compile(
    r'running "DynamicResources" filter plugin: claim \S+ selector #\d+ on device '
)
#: kube-scheduler multiplies what is requested of a storage capacity by this, in 64 bits.
_MAX_SCORE: Final = 100
_NO_DEVICES: Final = ("cannot allocate all claims",)


def is_deliberate(
    answer: Plain, decision: FullDecision, pod: Plain, objects: Sequence[Plain]
) -> bool:
    """True if *decision* on *pod* differs from kube-scheduler's *answer* on purpose."""
    if _differs_in_scores_of_volumes_alone(answer, decision):
        return any(map(_is_beyond_int64, _volume_claims(pod, objects)))
    error = str(answer.get("error") or "")
    is_for_admins = any(map(_is_for_admins, _claims(pod, objects)))
    if _IN_SEARCH.match(error) and is_for_admins:
        # Refused a device that ours gives, it goes on to others, whose selectors fail.
        return not decision.failures
    if error:
        return bool(_POOL.search(error)) and _leaves_out_a_pool(decision)
    if _NO_DEVICES[0] in str(answer.get("postFilter") or ""):
        # Of a node that other pods fill: without them, ours has devices there.
        return bool(is_for_admins and decision.preemption) and not decision.failures
    refused = [
        name
        for name, rejection in (answer.get("rejected") or {}).items()
        if rejection["plugin"] == _PLUGIN and tuple(rejection["reasons"]) == _NO_DEVICES
    ]
    is_answered = decision.failures or any(not _has_no_devices(decision, one) for one in refused)
    return bool(refused and is_answered) and is_for_admins


def _differs_in_scores_of_volumes_alone(answer: Plain, decision: FullDecision) -> bool:
    def others(scores: Mapping[str, Mapping[str, int]]) -> Plain:
        return {
            node: {plugin: score for plugin, score in row.items() if plugin != "VolumeBinding"}
            for node, row in scores.items()
        }

    wanted = answer.get("scores") or {}
    is_same = others(wanted) == others(decision.scores)
    return is_same and wanted != decision.scores and not decision.failures


def _volume_claims(pod: Plain, objects: Sequence[Plain]) -> Iterator[Plain]:
    """The PersistentVolumeClaims that *pod* names."""
    namespace = pod["metadata"].get("namespace", "default")
    named = {
        one["persistentVolumeClaim"].get("claimName")
        for one in (pod.get("spec") or {}).get("volumes") or ()
        if one.get("persistentVolumeClaim")
    }
    for one in objects:
        metadata = one.get("metadata") or {}
        is_here = metadata.get("namespace", "default") == namespace
        if one.get("kind") == "PersistentVolumeClaim" and is_here and metadata.get("name") in named:
            yield one


def _is_beyond_int64(claim: Plain) -> bool:
    """True if what *claim* requests, times the highest score, is beyond 64 bits."""
    asked = (((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}).get(
        "storage"
    )
    try:
        return resource_amount("storage", asked or 0) * _MAX_SCORE > INT64_MAX
    except QuantityError:
        return False


def _has_no_devices(decision: FullDecision, node: str) -> bool:
    """Whether ours finds no devices there either; what it says after that is another check's."""
    rejection = decision.rejected.get(node)
    return rejection is not None and tuple(rejection.reasons) == _NO_DEVICES


def _leaves_out_a_pool(decision: FullDecision) -> bool:
    """True if some node, and not the attempt, was rejected for a pool that is not usable."""
    return any(
        rejection.plugin == _PLUGIN
        and any("of a resource pool" in one for one in rejection.reasons)
        for rejection in decision.rejected.values()
    )


def _claims(pod: Plain, objects: Sequence[Plain]) -> Iterator[Plain]:
    """The ResourceClaims that *pod* names, or that were made for it."""
    made = {
        one["name"]: one.get("resourceClaimName")
        for one in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    named = {
        one.get("resourceClaimName") or made.get(one["name"])
        for one in (pod.get("spec") or {}).get("resourceClaims") or ()
    }
    namespace = pod["metadata"].get("namespace", "default")
    for one in objects:
        metadata = one.get("metadata") or {}
        is_here = metadata.get("namespace", "default") == namespace
        if one.get("kind") == "ResourceClaim" and is_here and metadata.get("name") in named:
            yield one


def _is_for_admins(claim: Plain) -> bool:
    requests = ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ()
    return any((one.get("exactly") or {}).get("adminAccess") for one in requests)
