"""The claims that a pod names, and whether they exist, are usable and belong to the pod."""

from collections.abc import Iterator

from engine.core.model.devices import ResourceClaim
from engine.core.model.objects import PodResourceClaim
from engine.core.model.pod import Pod
from engine.core.scheduling.devices.claims import Claims


class ClaimNotReady(Exception):
    """A claim of the pod is missing, unusable or not the pod's; the text is the reason."""


def pod_claims(pod: Pod, claims: Claims) -> list[ResourceClaim]:
    """The claims that *pod* names, in its order.

    A name that its status says needs no claim has none. Raises `ClaimNotReady`.
    """
    return list(_found(pod, claims))


def _found(pod: Pod, claims: Claims) -> Iterator[ResourceClaim]:
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
        if wanted.resource_claim_name is None and not _is_made_for(claim, pod):
            raise ClaimNotReady(
                f"ResourceClaim {key} was not created for Pod {pod.key} (Pod is not owner)"
            )
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


def _is_made_for(claim: ResourceClaim, pod: Pod) -> bool:
    return any(o.controller and o.uid == pod.uid for o in claim.metadata.owner_references)
