"""Extended resources that devices serve: turns what containers request into a claim.

Owns which class stands for a resource name and how the requests of containers become requests for
devices. Init containers use the devices of the containers after them before they get their own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from engine.core.model.devices import (
    EXACT_COUNT,
    EXTENDED_CLAIM_ANNOTATION,
    IMPLICIT_RESOURCE_PREFIX,
    ClaimMeta,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from engine.core.model.objects import Container, OwnerReference
from engine.core.model.pod import Pod
from engine.core.model.quantity import QuantityError, whole_value
from engine.core.model.resources import is_extended_resource, is_sidecar
from engine.core.model.times import epoch_seconds

CLAIM_NAME: Final = "<extended-resources>"
"""The name of such a claim while it exists only here; the API server would not accept it."""


@dataclass(frozen=True, slots=True)
class RequestMapping:
    """Which request of the claim serves a container's resource."""

    container: str
    resource: str
    request: str

    def plain(self) -> dict[str, str]:
        """As in the pod's status."""
        return {
            "containerName": self.container,
            "resourceName": self.resource,
            "requestName": self.request,
        }


class ResourceClasses:
    """Device classes by the extended resource that they stand for.

    Where two classes name the same resource, the newer one is meant: that is how one class is
    replaced by another.
    """

    def __init__(self, classes: Iterable[DeviceClass]) -> None:
        self._by_resource: dict[str, DeviceClass] = {}
        # Oldest first; of the same age, the lower name goes last and so wins.
        by_name = sorted(classes, key=lambda c: c.metadata.name, reverse=True)
        for each in sorted(by_name, key=_created_at):
            self._by_resource[IMPLICIT_RESOURCE_PREFIX + each.metadata.name] = each
            if each.spec.extended_resource_name:
                self._by_resource[each.spec.extended_resource_name] = each

    def get(self, resource: str) -> DeviceClass | None:
        """The class that stands for *resource*, or None."""
        return self._by_resource.get(resource)

    def requested(self, pod: Pod) -> dict[str, int]:
        """What *pod* requests of resources that devices may stand for, by name.

        Empty if no class stands for any of them.
        """
        if not self._by_resource:
            return {}
        wanted = {
            name: amount
            for name, amount in pod.requests.items()
            if amount and (is_extended_resource(name) or name.startswith(IMPLICIT_RESOURCE_PREFIX))
        }
        return wanted if any(name in self._by_resource for name in wanted) else {}


def _created_at(each: DeviceClass) -> float:
    return epoch_seconds(each.metadata.creation_timestamp) or 0.0


def claim_for(pod: Pod) -> ResourceClaim:
    """The claim for the extended resources of *pod*, without requests: they depend on the node."""
    owner = OwnerReference(
        kind="Pod", name=pod.name, uid=pod.uid, api_version="v1", controller=True
    )
    return ResourceClaim(
        metadata=ClaimMeta(
            name=CLAIM_NAME,
            namespace=pod.namespace,
            uid=f"{CLAIM_NAME}/{pod.uid}",
            generate_name=f"{pod.name}-extended-resources-",
            annotations={EXTENDED_CLAIM_ANNOTATION: "true"},
            owner_references=(owner,),
        )
    )


def with_requests(
    claim: ResourceClaim, pod: Pod, resources: Iterable[str], classes: ResourceClasses
) -> tuple[ResourceClaim, tuple[RequestMapping, ...]]:
    """*claim* with requests for *resources*, and which of them serves which container."""
    requests: list[DeviceRequest] = []
    mappings: list[RequestMapping] = []
    for name in sorted(resources):
        device_class = classes.get(name)
        if device_class is not None:
            made, maps = _requests(pod, name, device_class.metadata.name)
            requests += made
            mappings += maps
    requests.sort(key=lambda request: request.name)
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=tuple(requests)))
    return msgspec.structs.replace(claim, spec=spec), tuple(mappings)


def _requests(
    pod: Pod, resource: str, class_name: str
) -> tuple[list[DeviceRequest], list[RequestMapping]]:
    spec = pod.manifest.spec
    containers = [*spec.init_containers, *spec.containers]
    passing = {i for i, c in enumerate(spec.init_containers) if not is_sidecar(c)}
    staying: dict[int, DeviceRequest] = {}
    mappings: list[RequestMapping] = []
    for i, container in enumerate(containers):
        if i not in passing:
            request, maps = _request(i, container, resource, class_name, ())
            mappings += maps
            if request is not None:
                staying[i] = request
    # Init containers run one after another: the largest of their needs serves them all.
    largest: DeviceRequest | None = None
    own_names: set[str] = set()
    passing_mappings: list[RequestMapping] = []
    for i in sorted(passing):
        later = [request for k, request in staying.items() if k >= i]
        request, maps = _request(i, containers[i], resource, class_name, later)
        passing_mappings += maps
        if request is not None:
            own_names.add(request.name)
            if largest is None or _count(largest) < _count(request):
                largest = request
    if largest is not None:
        name = largest.name
        passing_mappings = [
            RequestMapping(m.container, m.resource, name if m.request in own_names else m.request)
            for m in passing_mappings
        ]
    made = [*([largest] if largest is not None else []), *staying.values()]
    return made, [*mappings, *passing_mappings]


def _count(request: DeviceRequest) -> int:
    return request.exactly.count if request.exactly is not None else 0


def _request(
    index: int,
    container: Container,
    resource: str,
    class_name: str,
    reusable: Iterable[DeviceRequest],
) -> tuple[DeviceRequest | None, list[RequestMapping]]:
    """What a container needs in addition to *reusable* requests, and what serves it."""
    requests = container.resources.requests
    wanted = _amount(requests, resource)
    if not wanted:
        return None, []
    mappings: list[RequestMapping] = []
    had = 0
    for other in reusable:
        had += _count(other)
        mappings.append(RequestMapping(container.name, resource, other.name))
        if had >= wanted:
            return None, mappings
    name = f"container-{index}-request-{sorted(requests).index(resource)}"
    exactly = ExactDeviceRequest(
        device_class_name=class_name, allocation_mode=EXACT_COUNT, count=wanted - had
    )
    mappings.append(RequestMapping(container.name, resource, name))
    return DeviceRequest(name=name, exactly=exactly), mappings


def _amount(requests: Mapping[str, str | int | float], resource: str) -> int:
    try:
        return whole_value(requests.get(resource, 0))
    except QuantityError:
        return 0
