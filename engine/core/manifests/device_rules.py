"""Field rules of what devices are claimed by and offered in: claims, templates, slices, classes.

Owns the tables, and what may not change. Expressions (CEL) are not compiled here.

Source:
    pkg/apis/resource/validation of Kubernetes 1.37.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from engine.core.manifests.errors import Cause
from engine.core.manifests.field_rules import (
    Check,
    Json,
    Rules,
    at_least,
    at_most,
    denied,
    dns_label,
    driver_name,
    is_set,
    is_there,
    label_if_set,
    label_value_problem,
    name_problems,
    node_selector,
    of,
    one_of,
    qualified,
    qualified_name,
    required,
    subdomain_if_set,
    too_long,
    too_many,
    unique,
    unsupported,
    wrong,
)
from engine.core.manifests.quantities import amount

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VERSION: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
)
_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
_LONGEST_IDENTIFIER: Final = 32
_LONGEST_VALUE: Final = 64
# The API server takes so many devices in a slice, fewer if one has taints or consumes counters; of
# one device so many attributes and capacities together, and so many values of a request policy.
_MOST_DEVICES: Final = 128
_MOST_ADVANCED_DEVICES: Final = 64
_MOST_PROPERTIES: Final = 32
_MOST_VALUES: Final = 10


# --- names and values ---------------------------------------------------------------------------


def _pool(field: str, value: Any, _: Any) -> Iterator[Cause]:
    if not value:
        yield required(field)
    for part in (value or "").split("/") if value else ():
        yield from name_problems(field, part)


def _property_name(field: str, name: str) -> Iterator[Cause]:
    domain, slash, short = name.rpartition("/")
    if slash:
        yield from driver_name(field, domain, None)
    if len(short) > _LONGEST_IDENTIFIER:
        yield too_long(field, _LONGEST_IDENTIFIER)
    if not _IDENTIFIER.fullmatch(short):
        yield wrong(field, short, "a valid C identifier is wanted")


def _property_names(field: str, value: Any, _: Any) -> Iterator[Cause]:
    for name in value or ():
        yield from _property_name(field, name)


def _attribute_of_all(field: str, value: Any, _: Any) -> Iterator[Cause]:
    """The name of an attribute with its domain."""
    if value is None:
        return
    yield from _property_name(field, value)
    if "/" not in value:
        yield wrong(field, value, "a fully qualified name must be a domain and a name")


def _key_if_set(field: str, value: Any, _: Any) -> Iterator[Cause]:
    if value:
        yield from qualified(field, value)


def _taint_value(field: str, value: Any, _: Any) -> Iterator[Cause]:
    problem = label_value_problem(value or "")
    if problem:
        yield wrong(field, value, problem)


def _only_true(field: str, value: Any, _: Any) -> Iterator[Cause]:
    if value is False:
        yield wrong(field, "false", "must be either unset or set to true")


def _at_most_text(most: int) -> Check:
    def check(field: str, value: Any, _: Any) -> Iterator[Cause]:
        if len(value or "") > most:
            yield too_long(field, most)

    return check


# --- claims -------------------------------------------------------------------------------------


def _count(field: str, value: Any, request: Json) -> Iterator[Cause]:
    mode = request.get("allocationMode")
    if mode == "All" and value:
        yield wrong(field, value, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount" and (value or 0) <= 0:
        yield wrong(field, value or 0, "must be greater than zero")


def _expression(field: str, value: Any, _: Any) -> Iterator[Cause]:
    if not value:
        yield wrong(field, "", "compilation failed: no expression")


def _toleration(field: str, toleration: Any, _: Any) -> Iterator[Cause]:
    operator = toleration.get("operator")
    if not operator:
        yield required(f"{field}.operator")
    elif operator not in ("Equal", "Exists"):
        yield unsupported(f"{field}.operator", operator, ("Equal", "Exists"))
    elif operator == "Equal":
        yield from _taint_value(f"{field}.value", toleration.get("value"), toleration)
    elif toleration.get("value"):
        shown = "must be empty for operator `Exists`"
        yield wrong(f"{field}.value", toleration["value"], shown)


_TOLERATIONS: Final[list[tuple[str, Check]]] = [
    ("tolerations[]", _toleration),
    ("tolerations[].key", _key_if_set),
    ("tolerations[].effect", of(*_EFFECTS)),
]
_CLASS_NAME: Final[list[tuple[str, Check]]] = [
    ("deviceClassName", is_set),
    ("deviceClassName", subdomain_if_set),
]
_ASKED: Final[list[tuple[str, Check]]] = [
    *_CLASS_NAME,
    ("selectors", at_most(32)),
    ("selectors[].cel", is_there),
    ("selectors[].cel.expression", _expression),
    ("allocationMode", of("All", "ExactCount")),
    ("count", _count),
    *_TOLERATIONS,
]


def _within(path: str, rules: list[tuple[str, Check]]) -> list[tuple[str, Check]]:
    return [(f"{path}.{inner}", check) for inner, check in rules]


_WAYS: Final = Rules(
    [
        *_within("exactly", _ASKED),
        ("firstAvailable", at_most(8)),
        ("firstAvailable", unique("name")),
        ("firstAvailable[].name", dns_label),
        *_within("firstAvailable[]", _ASKED),
    ]
)
# Less is asked of a request that has both.
_BOTH_WAYS: Final = Rules(
    [
        ("firstAvailable", at_most(8)),
        ("firstAvailable", unique("name")),
        *_within("firstAvailable[]", _CLASS_NAME),
    ]
)
_one_way: Final = one_of("exactly", "firstAvailable")


def _request(field: str, request: Any, holder: Any) -> Iterator[Cause]:
    yield from _one_way(field, request, holder)
    has_both = request.get("exactly") is not None and request.get("firstAvailable")
    yield from (_BOTH_WAYS if has_both else _WAYS).problems(field, request)


def _request_names(devices: Json) -> set[str]:
    """The requests of a claim, and `request/alternative`."""
    names = set()
    for request in devices.get("requests") or ():
        name = request.get("name") or ""
        alternatives = request.get("firstAvailable") or ()
        names |= {name, *(f"{name}/{one.get('name')}" for one in alternatives)}
    return names


def _known_requests(field: str, devices: Any, _: Any) -> Iterator[Cause]:
    """What constraints and configurations refer to is asked for."""
    if devices is None:
        return
    names = _request_names(devices)
    for part in ("constraints", "config"):
        for index, item in enumerate(devices.get(part) or ()):
            for at, name in enumerate(item.get("requests") or ()):
                if name not in names:
                    yield _unknown_request(f"{field}.{part}[{index}].requests[{at}]", name)


def _unknown_request(field: str, name: str) -> Cause:
    return wrong(field, name, "must be the name of a request in the claim")


def _constraint(field: str, value: Any, _: Any) -> Iterator[Cause]:
    if value.get("matchAttribute") is None and value.get("distinctAttribute") is None:
        yield required(field, "exactly one of `matchAttribute` or `distinctAttribute` is required")


_CONFIG: Final[list[tuple[str, Check]]] = [
    ("config", at_most(32)),
    ("config[].requests", unique()),
    ("config[].opaque", is_there),
    ("config[].opaque.driver", driver_name),
    ("config[].opaque.parameters", is_there),
]
_DEVICES: Final[list[tuple[str, Check]]] = [
    ("requests", at_most(32)),
    ("requests", unique("name")),
    ("requests[]", _request),
    ("requests[].name", dns_label),
    ("constraints", at_most(32)),
    ("constraints[]", _constraint),
    ("constraints[].requests", unique()),
    ("constraints[].matchAttribute", _attribute_of_all),
    ("constraints[].distinctAttribute", _attribute_of_all),
    *_CONFIG,
]


def _claims(path: str) -> Rules:
    return Rules([(path, _known_requests), *_within(path, _DEVICES)])


CLAIM: Final = _claims("spec.devices")
TEMPLATE: Final = _claims("spec.spec.devices")


def _extended_name(field: str, value: Any, _: Any) -> Iterator[Cause]:
    if value is None:
        return
    foreign = "/" in value and "kubernetes.io/" not in value
    if not foreign or value.startswith("requests.") or list(qualified(field, value)):
        yield wrong(field, value, "must be a valid extended resource name")


CLASS: Final = Rules(
    _within(
        "spec",
        [
            ("selectors", at_most(32)),
            ("selectors[].cel", is_there),
            ("selectors[].cel.expression", _expression),
            *_CONFIG,
            ("extendedResourceName", _extended_name),
        ],
    )
)


# --- the status of claims -----------------------------------------------------------------------

_STATUS: Final = Rules(
    [
        ("reservedFor", at_most(256)),
        ("reservedFor", unique("uid")),
        ("reservedFor[].resource", is_set),
        ("reservedFor[].name", is_set),
        ("reservedFor[].uid", is_set),
    ]
)
_ALLOCATION: Final = Rules(
    [
        ("devices.results", at_most(32)),
        ("devices.results[].driver", driver_name),
        ("devices.results[].pool", _pool),
        ("devices.results[].device", dns_label),
        *_within("devices.results[]", _TOLERATIONS),
        ("nodeSelector", node_selector),
    ]
)


def claim_status(new: Json, old: Json) -> Iterator[Cause]:
    """What an update of a claim's status may not do."""
    status, before = new.get("status") or {}, old.get("status") or {}
    yield from _STATUS.problems("status", status)
    allocation, reserved = status.get("allocation"), status.get("reservedFor") or []
    if reserved and allocation is None:
        yield denied("status.reservedFor", "may not be specified when `allocated` is not set")
    elif new["metadata"].get("deletionTimestamp"):
        known = before.get("reservedFor") or []
        if any(one not in known for one in reserved):
            shown = "new entries may not be added while `deletionTimestamp` is set"
            yield denied("status.reservedFor", shown)
    results = ((allocation or {}).get("devices") or {}).get("results") or ()
    allocated = {_device_key(one) for one in results}
    for index, one in enumerate(status.get("devices") or ()):
        if _device_key(one) not in allocated:
            shown = "must be an allocated device in the claim"
            yield wrong(f"status.devices[{index}]", _device_key(one)[2], shown)
    if allocation is None:
        return
    if before.get("allocation") is not None:
        if allocation != before["allocation"]:
            yield wrong("status.allocation", "", "field is immutable")
        return
    field = "status.allocation"
    yield from _ALLOCATION.problems(field, allocation)
    names = _request_names(new["spec"].get("devices") or {})
    for index, one in enumerate(results if len(results) <= 32 else ()):
        if one.get("request") not in names:
            at = f"{field}.devices.results[{index}].request"
            yield _unknown_request(at, one.get("request") or "")


def _device_key(device: Json) -> tuple[str, ...]:
    return tuple(device.get(key) or "" for key in ("driver", "pool", "device", "shareID"))


# --- slices -------------------------------------------------------------------------------------

_NODES: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")


def _slice_nodes(field: str, spec: Any, _: Any) -> Iterator[Cause]:
    if spec.get("nodeName") == "":
        yield wrong(f"{field}.nodeName", "", "must be either unset or set to a non-empty string")
    terms = (spec.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    if "nodeSelector" in spec and len(terms) != 1:
        at = f"{field}.nodeSelector.nodeSelectorTerms"
        yield wrong(at, "", "must have exactly one node selector term")
    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        yield wrong(field, "", "only one of `sharedCounters` or `devices` is allowed")


def _devices(field: str, devices: Any, _: Any) -> Iterator[Cause]:
    advanced = any(one.get("taints") or one.get("consumesCounters") for one in devices or ())
    most = _MOST_ADVANCED_DEVICES if advanced else _MOST_DEVICES
    if len(devices or ()) > most:
        yield too_many(field, len(devices), most)


def _device_nodes(field: str, spec: Any, _: Any) -> Iterator[Cause]:
    """Each device has nodes of its own if the slice says so, and else none has."""
    own = _NODES[:3]
    per_device = spec.get("perDeviceNodeSelection")
    for index, device in enumerate(spec.get("devices") or ()):
        at = f"{field}.devices[{index}]"
        if per_device:
            yield from one_of(*own)(at, device, None)
            yield from subdomain_if_set(f"{at}.nodeName", device.get("nodeName"), None)
        elif any(device.get(name) is not None for name in own):
            yield wrong(at, "", "can only be set if `perDeviceNodeSelection` is set to true")


def _device(field: str, device: Any, _: Any) -> Iterator[Cause]:
    count = len(device.get("attributes") or ()) + len(device.get("capacity") or ())
    if count > _MOST_PROPERTIES:
        shown = f"the total number of attributes and capacities must not exceed {_MOST_PROPERTIES}"
        yield wrong(field, count, shown)
    for name, capacity in (device.get("capacity") or {}).items():
        policy = capacity.get("requestPolicy")
        at = f"{field}.capacity[{name}].requestPolicy"
        if policy is None:
            continue
        if device.get("allowMultipleAllocations"):
            yield from _policy(at, policy, capacity.get("value") or "0")
        else:
            yield denied(at, "allowMultipleAllocations must be true")
    conditions = device.get("bindingConditions") or ()
    failures = device.get("bindingFailureConditions") or ()
    if conditions and not failures:
        shown = "must be set when `bindingConditions` is set"
        yield wrong(f"{field}.bindingFailureConditions", "", shown)
    elif failures and not conditions:
        shown = "must be set when `bindingFailureConditions` is set"
        yield wrong(f"{field}.bindingConditions", "", shown)


_unique_amounts: Final = unique()


def _policy(field: str, policy: Json, capacity: str) -> Iterator[Cause]:
    values, bounds = policy.get("validValues") or [], policy.get("validRange")
    if values and bounds is not None:
        yield denied(field, "exactly one policy can be specified")
    elif not values and bounds is None:
        return
    elif policy.get("default") is None:
        yield required(f"{field}.default", "required when values are restricted")
    elif values:
        most, default = amount(capacity), amount(policy["default"])
        amounts = [amount(one) for one in values]
        at = f"{field}.validValues"
        for index, value in enumerate(amounts):
            if index and value < amounts[index - 1]:
                yield wrong(f"{at}[{index}]", values[index], "must be sorted in ascending order")
        if len(amounts) > _MOST_VALUES:
            yield too_many(at, len(amounts), _MOST_VALUES)
            amounts = []  # none of them is looked at
        for index, value in enumerate(amounts):
            if value > most:
                yield wrong(f"{at}[{index}]", values[index], "larger than the capacity")
        yield from _unique_amounts(at, amounts, None)
        if default not in amounts:
            yield wrong(at, policy["default"], "default value is not valid")
    else:
        yield from _range(f"{field}.validRange", bounds or {}, amount(policy["default"]), capacity)


def _range(field: str, bounds: Json, default: Any, capacity: str) -> Iterator[Cause]:
    if bounds.get("min") is None:
        yield required(f"{field}.min", "required when validRange is defined")
        return
    whole, least = amount(capacity), amount(bounds["min"])
    most = None if bounds.get("max") is None else amount(bounds["max"])
    step = None if bounds.get("step") is None else amount(bounds["step"])
    for name, is_wrong, shown in (
        ("min", least > whole, "min is larger than capacity value"),
        ("default", default < least, "default is less than min"),
        ("max", most is not None and least > most, "min is larger than max"),
        ("max", most is not None and most > whole, "max is larger than capacity value"),
        ("default", most is not None and default > most, "default is more than max"),
        ("step", step is not None and step <= 0, "must be greater than zero"),
    ):
        if is_wrong:
            yield wrong(f"{field}.{name}", bounds.get(name) or "", shown)
    if step is not None and step > 0:
        off = [one for one in (default, most) if one is not None and (one - least) % step]
        if off or least + step > whole:
            yield wrong(f"{field}.step", bounds["step"], "does not fit the range")


def _attribute(field: str, value: Any, _: Any) -> Iterator[Cause]:
    if len(value or ()) != 1:
        yield wrong(field, "", "exactly one value must be specified")


def _version(field: str, value: Any, _: Any) -> Iterator[Cause]:
    if value is not None and not _VERSION.fullmatch(value):
        yield wrong(field, value, "must be a string compatible with semver.org spec 2.0.0")


SLICE: Final = Rules(
    [
        ("spec!", one_of(*_NODES)),
        ("spec!", _slice_nodes),
        ("spec!", _device_nodes),
        *_within(
            "spec!",
            [
                ("driver", driver_name),
                ("pool!.name", _pool),
                ("pool!.resourceSliceCount", at_least(1)),
                ("pool!.generation", at_least(0)),
                ("nodeName", subdomain_if_set),
                ("nodeSelector", node_selector),
                ("allNodes", _only_true),
                ("perDeviceNodeSelection", _only_true),
                ("devices", _devices),
                ("devices", unique("name")),
                ("devices[]", _device),
                ("devices[].name", dns_label),
                ("devices[].attributes", _property_names),
                ("devices[].attributes{}", _attribute),
                ("devices[].attributes{}.string", _at_most_text(_LONGEST_VALUE)),
                ("devices[].attributes{}.version", _at_most_text(_LONGEST_VALUE)),
                ("devices[].attributes{}.version", _version),
                ("devices[].capacity", _property_names),
                ("devices[].taints", at_most(16)),
                ("devices[].taints[].key", qualified_name),
                ("devices[].taints[].value", _taint_value),
                ("devices[].taints[].effect", is_set),
                ("devices[].taints[].effect", of(*_EFFECTS)),
                ("devices[].nodeSelector", node_selector),
                ("devices[].allNodes", _only_true),
                ("devices[].consumesCounters", at_most(2)),
                ("devices[].consumesCounters", unique("counterSet")),
                ("devices[].consumesCounters[].counterSet", is_set),
                ("devices[].consumesCounters[].counterSet", label_if_set),
                ("devices[].consumesCounters[].counters", is_set),
                ("devices[].bindingConditions", at_most(4)),
                ("devices[].bindingConditions[]", qualified_name),
                ("devices[].bindingFailureConditions", at_most(4)),
                ("devices[].bindingFailureConditions[]", qualified_name),
                ("sharedCounters", at_most(8)),
                ("sharedCounters", unique("name")),
                ("sharedCounters[].name", is_set),
                ("sharedCounters[].name", label_if_set),
                ("sharedCounters[].counters", is_set),
            ],
        ),
    ]
)
