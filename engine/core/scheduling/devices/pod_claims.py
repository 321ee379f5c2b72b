"""The claims that a pod names, and whether they exist, are usable and belong to the pod."""

from collections.abc import Iterator

from engine.core.model.devices import SCHEDULING_GROUP, ConsumerReference, ResourceClaim
from engine.core.model.objects import PodResourceClaim
from engine.core.model.pod import Pod
from engine.core.model.pod_group import GroupClaim, PodGroup
from engine.core.scheduling.devices.claims import Claims


class ClaimNotReady(Exception):
    """A claim of the pod is missing, unusable or not the pod's; the text is the reason."""


def pod_claims(pod: Pod, claims: Claims, *, with_group: bool = False) -> list[ResourceClaim]:
    """The claims that *pod* names, in its order.

    A name that its status says needs no claim has none. *with_group*: those that were made for its
    PodGroup are its own, too. Raises `ClaimNotReady`.
    """
    return list(_found(pod, claims, group_name(pod) if with_group else ""))


def group_name(pod: Pod) -> str:
    """The name of the PodGroup that *pod* names; "" if it names none."""
    group = pod.manifest.spec.scheduling_group
    return "" if group is None else group.pod_group_name or ""


def uses_by_group(pod: Pod, group: PodGroup) -> dict[str, ConsumerReference]:
    """By key, the claims of *pod* that its *group* names alike, and the group as their user."""
    reference = ConsumerReference(
        api_group=SCHEDULING_GROUP,
        resource="podgroups",
        name=group.metadata.name,
        uid=group.metadata.uid,
    )
    shared = group.claims
    return {
        f"{pod.namespace}/{_name(pod, wanted)}": reference
        for wanted in pod.manifest.spec.resource_claims
        if GroupClaim(wanted.name, wanted.resource_claim_name, wanted.resource_claim_template_name)
        in shared
    }


def _found(pod: Pod, claims: Claims, group: str) -> Iterator[ResourceClaim]:
    for wanted in pod.manifest.spec.resource_claims:
        name = _name(pod, wanted)
        if name is None:
            continue
        key = f"{pod.namespace}/{name}"
        claim = claims.get(key)
        if claim is None:
            raise ClaimNotReady(f'could not find ResourceClaim "{key}"')
        if claim.metadata.deletion_timestamp is not None:
            raise ClaimNotReady(f'resourceclaim "{name}" is being deleted')
        if claim.is_too_deep:
            raise ClaimNotReady(f'resourceclaim "{name}" has parameters that nest too deep')
        if wanted.resource_claim_name is None and not _is_made_for(claim, pod, group):
            why = f"neither Pod nor PodGroup {group} is the owner" if group else "Pod is not owner"
            raise ClaimNotReady(f"ResourceClaim {key} was not created for Pod {pod.key} ({why})")
        yield claim


def _name(pod: Pod, wanted: PodResourceClaim) -> str | None:
    if wanted.resource_claim_name is not None:
        return wanted.resource_claim_name
    if wanted.resource_claim_template_name is None:
        raise ClaimNotReady(
            f'pod "{pod.key}", spec.resourceClaim "{wanted.name}": '
            "none of the supported fields are set"
        )
    for status in pod.manifest.status.resource_claim_statuses:
        if status.get("name") == wanted.name:
            name = status.get("resourceClaimName")
            return str(name) if name else None
    raise ClaimNotReady(f'pod "{pod.key}": ResourceClaim not created yet')


def _is_made_for(claim: ResourceClaim, pod: Pod, group: str) -> bool:
    owner = claim.metadata.controller
    if owner is None:
        return False
    # A pod does not say the uid of its group.
    is_group = owner.kind == "PodGroup" and owner.api_version.startswith(f"{SCHEDULING_GROUP}/")
    return owner.uid == pod.uid or bool(group and is_group and owner.name == group)
