"""Request arithmetic: what the containers of a pod add up to.

Owns the rules by which init containers, sidecars, pod-level requests, overhead and in-place resize
make one sum per resource. Works on nano units and rounds once, at the end.

Source: component-helpers `resource/helpers.go` and `NodeInfo` of kube-scheduler.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from engine.core.model.objects import Container, ContainerStatus, PodManifest
from engine.core.model.quantity import (
    INT64_MAX,
    NANO,
    QuantityError,
    milli_from_nano,
    nano_value,
    whole_from_nano,
)

Quantities = Mapping[str, str | int | float]
Amounts = dict[str, int]

# What a container that names no request is taken to use, for scoring only: 0.1 core, 200 MiB.
DEFAULT_CPU_MILLIS: Final = 100
DEFAULT_MEMORY_BYTES: Final = 200 * 1024 * 1024
_DEFAULTS_NANO: Final[Mapping[str, int]] = {
    "cpu": DEFAULT_CPU_MILLIS * 10**6,
    "memory": DEFAULT_MEMORY_BYTES * NANO,
}
#: What every pod requests at least a default of.
NONZERO_RESOURCES: Final = frozenset(_DEFAULTS_NANO)
_NO_DEFAULTS: Final[Mapping[str, int]] = {}

_NAME_PART: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX_PART: Final = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
)


@lru_cache(maxsize=1_024)
def is_qualified_name(text: str) -> bool:
    """True for what the API takes as a label key or a resource name: `[prefix/]name`."""
    prefix, slash, name = text.rpartition("/")
    if slash and not is_subdomain(prefix):
        return False
    return _NAME_PART.fullmatch(name) is not None


#: What an error says of a text for which `is_subdomain`, or `is_namespace_name`, is False.
WANT_SUBDOMAIN: Final = (
    "want a name of at most 253 lower-case letters, digits, `-` and `.`, the first and the last of "
    "them a letter or digit"
)
WANT_NAMESPACE: Final = (
    "want a name of at most 63 lower-case letters, digits and `-`, the first and the last of them "
    "a letter or digit"
)


def is_subdomain(text: str) -> bool:
    """True for what the API takes as the name of most objects: lower-case labels between dots."""
    return len(text) <= 253 and _PREFIX_PART.fullmatch(text) is not None


def is_namespace_name(text: str) -> bool:
    """True for what the API takes as the name of a namespace."""
    return len(text) <= 63 and "." not in text and is_subdomain(text)


@lru_cache(maxsize=4_096)
def is_extended_resource(name: str) -> bool:
    """True for a resource outside Kubernetes' own names, such as `nvidia.com/gpu`."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return is_qualified_name(f"requests.{name}")


@lru_cache(maxsize=4_096)
def is_scalar_resource(name: str) -> bool:
    """True for a resource counted in whole units, other than cpu, memory and storage."""
    return (
        "kubernetes.io/" in name
        or name.startswith(("hugepages-", "attachable-volumes-"))
        or is_extended_resource(name)
    )


@lru_cache(maxsize=4_096)
def is_counted_resource(name: str) -> bool:
    """True for a resource that a node's sums hold; any other name is ignored."""
    return name in ("cpu", "memory", "ephemeral-storage") or is_scalar_resource(name)


def is_pod_level_resource(name: str) -> bool:
    """True for a resource that `spec.resources` of a pod may set for the pod as a whole."""
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def exact_amounts(quantities: Quantities) -> Amounts:
    """*quantities* in nano units. What is malformed or negative counts as 0."""
    amounts = {}
    for name, quantity in quantities.items():
        try:
            amounts[name] = max(nano_value(quantity), 0)
        except QuantityError:
            amounts[name] = 0
    return amounts


def rounded_amounts(nanos: Mapping[str, int]) -> Amounts:
    """Nano units as millicores and whole units; names that nodes do not count are left out."""
    return {
        name: milli_from_nano(amount) if name == "cpu" else whole_from_nano(amount)
        for name, amount in nanos.items()
        if is_counted_resource(name)
    }


def _add(sums: Amounts, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        sums[name] = sums.get(name, 0) + amount


def _raise_to(sums: Amounts, floor: Mapping[str, int]) -> None:
    for name, amount in floor.items():
        if name not in sums or amount > sums[name]:
            sums[name] = amount


def _is_resize_infeasible(manifest: PodManifest) -> bool:
    for condition in manifest.status.conditions:
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def is_sidecar(container: Container) -> bool:
    """True for an init container that runs for the life of the pod."""
    return container.restart_policy == "Always"


def _aggregate(
    manifest: PodManifest,
    defaults: Mapping[str, int],
    amounts_of: Callable[[Container], Amounts],
) -> Amounts:
    """Sum over the containers; each init container runs next to the sidecars before it."""

    def with_defaults(container: Container) -> Amounts:
        amounts = amounts_of(container)
        for name, amount in defaults.items():
            amounts.setdefault(name, amount)
        return amounts

    sums: Amounts = {}
    for container in manifest.spec.containers:
        _add(sums, with_defaults(container))
    if manifest.spec.init_containers:
        sidecars: Amounts = {}
        peak: Amounts = {}
        for container in manifest.spec.init_containers:
            use = with_defaults(container)
            if is_sidecar(container):
                _add(sums, use)
                _add(sidecars, use)
                use = sidecars
            else:
                _add(use, sidecars)
            _raise_to(peak, use)
        _raise_to(sums, peak)
    return sums


def _spec_requests(container: Container) -> Amounts:
    return exact_amounts(container.resources.requests)


def _sum_while_resized(manifest: PodManifest, defaults: Mapping[str, int]) -> Amounts:
    """The largest of three sums, per resource: of what is specified, allocated and applied.

    Specified requests that the node can never satisfy count for nothing: the pod keeps what it has.
    """
    status = manifest.status
    is_infeasible = _is_resize_infeasible(manifest)
    actuated = None if status.resources is None else status.resources.requests
    largest = {} if is_infeasible else _aggregate(manifest, defaults, _spec_requests)
    if actuated is not None and status.allocated_resources is not None:
        # The kubelet reports both sums itself.
        _raise_to(largest, exact_amounts(status.allocated_resources))
        _raise_to(largest, exact_amounts(actuated))
        return largest
    statuses: dict[str, ContainerStatus] = {}
    for one in (*status.container_statuses, *status.init_container_statuses):
        statuses.setdefault(one.name, one)

    def allocated_to(container: Container) -> Amounts:
        reported = statuses.get(container.name)
        if reported is not None and reported.allocated_resources is not None:
            return exact_amounts(reported.allocated_resources)
        return {} if is_infeasible else _spec_requests(container)

    def applied_to(container: Container) -> Amounts:
        reported = statuses.get(container.name)
        applied = None if reported is None else reported.resources
        if applied is None or applied.requests is None:
            return allocated_to(container)
        return exact_amounts(applied.requests)

    _raise_to(largest, _aggregate(manifest, defaults, allocated_to))
    _raise_to(largest, _aggregate(manifest, defaults, applied_to))
    return largest


def has_pod_level_requests(manifest: PodManifest) -> bool:
    """True if the pod requests cpu, memory or huge pages for itself as a whole."""
    resources = manifest.spec.resources
    return resources is not None and any(is_pod_level_resource(n) for n in resources.requests)


def _pod_level_requests(manifest: PodManifest, *, use_status: bool) -> Amounts:
    resources, status = manifest.spec.resources, manifest.status
    amounts = {} if resources is None else exact_amounts(resources.requests)
    if use_status and status.resources is not None:
        if _is_resize_infeasible(manifest):
            amounts = {}
        _raise_to(amounts, exact_amounts(status.resources.requests or {}))
        _raise_to(amounts, exact_amounts(status.allocated_resources or {}))
    return {name: amount for name, amount in amounts.items() if is_pod_level_resource(name)}


def _pod_requests(
    manifest: PodManifest,
    *,
    use_status: bool = False,
    defaults: Mapping[str, int] = _NO_DEFAULTS,
    use_pod_level: bool = True,
) -> Amounts:
    """What the pod requests, in nano units.

    Args:
        use_status: Count what it has as well, as for a pod on a node that may be being resized.
        defaults: What a container that does not name a resource is taken to request of it.
        use_pod_level: Let the requests of the pod as a whole replace those of its containers.
    """
    if use_status:
        sums = _sum_while_resized(manifest, defaults)
    else:
        sums = _aggregate(manifest, defaults, _spec_requests)
    if use_pod_level and has_pod_level_requests(manifest):
        sums.update(_pod_level_requests(manifest, use_status=use_status))
    if manifest.spec.overhead:
        _add(sums, exact_amounts(manifest.spec.overhead))
    return sums


def spec_limits(manifest: PodManifest) -> Amounts:
    """What a pod may use at most, counted as its requests are.

    A container without a limit counts with its request: it may use more, but it is unknown how
    much. A limit of the pod as a whole takes the place of those of its containers.
    """

    def most_of(container: Container) -> Amounts:
        return exact_amounts({**container.resources.requests, **container.resources.limits})

    sums = _aggregate(manifest, _NO_DEFAULTS, most_of)
    if manifest.spec.resources is not None:
        whole = exact_amounts(manifest.spec.resources.limits)
        sums.update({name: n for name, n in whole.items() if is_pod_level_resource(name)})
    if manifest.spec.overhead:
        _add(sums, exact_amounts(manifest.spec.overhead))
    return rounded_amounts(sums)


class RequestSums(NamedTuple):
    """What one pod adds up to; `Pod` says what each means. Shared: the dicts are not changed."""

    requests: Amounts
    nonzero: Amounts
    scoring: Amounts
    containers_scoring: Amounts


def _sums(manifest: PodManifest, *, use_status: bool) -> RequestSums:
    raw = _pod_requests(manifest, use_status=use_status)
    defaults = _DEFAULTS_NANO
    if has_pod_level_requests(manifest):
        # A pod with pod-level requests gets a default only for what these do not set.
        defaults = {name: amount for name, amount in defaults.items() if name not in raw}
    nonzero = _pod_requests(manifest, use_status=use_status, defaults=defaults)
    containers = _pod_requests(manifest, defaults=_DEFAULTS_NANO, use_pod_level=False)
    scoring = containers
    if has_pod_level_requests(manifest):
        scoring = _pod_requests(manifest, defaults=_DEFAULTS_NANO)
    return RequestSums(
        requests=rounded_amounts(raw),
        nonzero={
            "cpu": milli_from_nano(nonzero.get("cpu", 0)),
            "memory": whole_from_nano(nonzero.get("memory", 0)),
        },
        scoring=rounded_amounts(scoring),
        containers_scoring=rounded_amounts(containers),
    )


# Most pods of a cluster come from few templates: equal containers share one result, which saves
# the arithmetic and, for tens of thousands of cached pods, the memory. Emptied when full.
_MEMO_SIZE: Final = 20_000
_by_containers: dict[tuple[tuple[tuple[str, str | int | float], ...], ...], RequestSums] = {}
_by_value: dict[tuple[tuple[tuple[str, int], ...], ...], RequestSums] = {}


def _shared(sums: RequestSums) -> RequestSums:
    if len(_by_value) >= _MEMO_SIZE:
        _by_value.clear()
    return _by_value.setdefault(tuple(tuple(part.items()) for part in sums), sums)


def spec_sums(manifest: PodManifest) -> RequestSums:
    """The sums of a pod that is not placed yet: what the spec says."""
    spec = manifest.spec
    if spec.init_containers or spec.overhead or spec.resources is not None:
        return _shared(_sums(manifest, use_status=False))
    key = tuple([tuple(c.resources.requests.items()) for c in spec.containers])
    sums = _by_containers.get(key)
    if sums is None:
        if len(_by_containers) >= _MEMO_SIZE:
            _by_containers.clear()
        sums = _by_containers[key] = _shared(_sums(manifest, use_status=False))
    return sums


def running_sums(manifest: PodManifest) -> RequestSums:
    """The sums of a pod on a node: the spec, or more while a resize is under way."""
    if _has_what_it_requests(manifest):
        return spec_sums(manifest)
    return _shared(_sums(manifest, use_status=True))


def _has_what_it_requests(manifest: PodManifest) -> bool:
    """True if nothing in the status differs from the spec, as for most pods."""
    spec, status = manifest.spec, manifest.status
    if status.resources is not None or _is_resize_infeasible(manifest):
        return False
    statuses = (*status.container_statuses, *status.init_container_statuses)
    if not any(s.resources is not None or s.allocated_resources is not None for s in statuses):
        return True
    requests = {c.name: c.resources.requests for c in (*spec.init_containers, *spec.containers)}
    return all(
        requests.get(one.name) == part
        for one in statuses
        for part in (one.allocated_resources, one.resources and one.resources.requests)
        if part is not None
    )


@lru_cache(maxsize=_MEMO_SIZE)
def _is_good(quantity: str | int | float) -> bool:
    """True if *quantity* counts as it is written."""
    try:
        return 0 <= nano_value(quantity) <= INT64_MAX * NANO
    except QuantityError:
        return False


def quantity_problems(path: str, quantities: Quantities) -> Iterable[str]:
    """One line for each of *quantities* that does not count as it is written."""
    return () if all(map(_is_good, quantities.values())) else _problems(path, quantities)


def _problems(path: str, quantities: Quantities) -> Iterator[str]:
    for name, quantity in quantities.items():
        try:
            nanos = nano_value(quantity)
        except QuantityError as error:
            yield f'{path}["{name}"]: {error}'
            continue
        if nanos < 0:
            yield f'{path}["{name}"]: want a quantity of at least 0, got `{quantity}`'
        elif nanos > INT64_MAX * NANO:
            yield f'{path}["{name}"]: want a quantity below 2^63, got `{str(quantity)[:80]}`'
