"""The patch languages that the server takes: merge, strategic merge, server-side apply.

Owns how a patch changes plain data, and which lists merge by which key. Knows nothing of storage or
of validation. No function changes what it is given.

Server-side apply remembers per field manager the leaf fields it applied last: a field left out of
the next apply is removed, and a field that another manager applied with another value is a
conflict unless forced. Fields written by PUT or by the other patches have no owner here.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from engine.manifests.errors import ApiStatus, bad_request

Json = dict[str, Any]
FieldPath = tuple[str, ...]
Owned = Mapping[str, frozenset[FieldPath]]

# Lists that merge element by element: field name -> the key of an element.
_MERGE_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "ports": "containerPort",
    "reservedFor": "uid",
    "resourceClaimStatuses": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
# Lists of plain values that merge as sets.
_SETS = frozenset({"finalizers", "podCIDRs"})
_ORDER = "$setElementOrder/"
_REMOVE = "$deleteFromPrimitiveList/"
_RETAIN = "$retainKeys"


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: objects merge, null removes, everything else replaces.

    Null members within a list that replaces another are dropped, too, as the API server does.
    """
    if isinstance(patch, list):
        return [merge(None, item) for item in patch]
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def _merge_key(field: str, elements: list[Any]) -> str | None:
    key = _MERGE_KEYS.get(field)
    if field == "ports" and any("port" in item for item in elements if isinstance(item, dict)):
        return "port"  # a Service's
    return key


def strategic_merge(target: Any, patch: Any) -> Any:
    """Like `merge`, but the lists that have a merge key merge element by element.

    Understands `$patch` (replace, delete, merge), `$setElementOrder`, `$deleteFromPrimitiveList`
    and `$retainKeys`.
    """
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    merged = dict(target) if isinstance(target, dict) else {}
    if _RETAIN in patch:
        retained = set(patch[_RETAIN])
        merged = {key: value for key, value in merged.items() if key in retained}
    for key, value in patch.items():
        if key.startswith(_REMOVE):
            field = key.removeprefix(_REMOVE)
            merged[field] = [item for item in merged.get(field) or [] if item not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            merged.pop(key, None)
        elif isinstance(value, list):
            merged[key] = _merge_list(key, merged.get(key), value)
        else:
            merged[key] = strategic_merge(merged.get(key), value)
    for key, order in patch.items():
        if key.startswith(_ORDER):
            field = key.removeprefix(_ORDER)
            if isinstance(merged.get(field), list):
                merged[field] = _ordered(field, merged[field], order)
    return merged


def _merge_list(field: str, current: Any, patch: list[Any]) -> list[Any]:
    current = current if isinstance(current, list) else []
    if field in _SETS:
        return [*current, *(item for item in patch if item not in current)]
    key = _merge_key(field, [*current, *patch])
    if key is None:
        return patch
    if {"$patch": "replace"} in patch:
        return [item for item in patch if item != {"$patch": "replace"}]
    merged = list(current)
    for element in patch:
        if not isinstance(element, dict) or key not in element:
            raise bad_request(f"map: {element} does not contain declared merge key: {key}")
        place = next((i for i, item in enumerate(merged) if item.get(key) == element[key]), None)
        if element.get("$patch") == "delete":
            if place is not None:
                del merged[place]
        elif place is None:
            merged.append(strategic_merge({}, element))
        else:
            merged[place] = strategic_merge(merged[place], element)
    return merged


def _ordered(field: str, items: list[Any], order: list[Any]) -> list[Any]:
    """*items* in the order given; what is not in it keeps its place after its predecessor."""
    key = _merge_key(field, items)

    def name(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    ranks = {name(item): rank for rank, item in enumerate(order)}
    placed = []
    last = -1
    for item in items:
        last = ranks.get(name(item), last)
        placed.append((last, item))
    return [item for _, item in sorted(placed, key=lambda pair: pair[0])]


# --- server-side apply ---------------------------------------------------------------------

_ABSENT = object()


def _element_key(field: str, items: list[Any]) -> str | None:
    key = _merge_key(field, items)
    return key if key and all(isinstance(item, dict) and key in item for item in items) else None


def _leaves(value: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, Any]]:
    """The leaf fields of *value*; an element of a keyed list is the step `[key=value]`."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaves(item, (*path, name))
        return
    if isinstance(value, list) and value and path:
        if path[-1] in _SETS:
            for item in value:
                yield (*path, f"[{item}]"), item
            return
        key = _element_key(path[-1], value)
        if key:
            for item in value:
                yield from _leaves(item, (*path, f"[{key}={item[key]}]"))
            return
    yield path, value


def _lookup(value: Any, path: FieldPath) -> Any:
    for step in path:
        if isinstance(value, list):
            place = _place(value, step)
            if place is None:
                return _ABSENT
            value = value[place]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return _ABSENT
    return value


def _place(items: list[Any], step: str) -> int | None:
    key, equals, wanted = step[1:-1].partition("=")
    for index, item in enumerate(items):
        if isinstance(item, dict):
            if equals and str(item.get(key)) == wanted:
                return index
        elif str(item) == step[1:-1]:
            return index
    return None


def _discard(value: Any, path: FieldPath) -> None:
    """Remove the leaf *path* from *value*, and what is empty after that, down from the root."""
    step, rest = path[0], path[1:]
    place: Any = _place(value, step) if isinstance(value, list) else step
    if place is None or (isinstance(value, dict) and place not in value):
        return
    if rest:
        child = value[place]
        _discard(child, rest)
        only_key = step.startswith("[") and isinstance(child, dict) and len(child) <= 1
        if child and not only_key:
            return
    del value[place]


def _text(path: FieldPath) -> str:
    """The path as the real server writes it: `.spec.containers[name="web"].image`."""
    steps = []
    for step in path:
        key, equals, value = step[1:-1].partition("=")
        if not step.startswith("["):
            steps.append(f".{step}")
        else:
            steps.append(f'[{key}="{value}"]' if equals else f'["{key}"]')
    return "".join(steps)


def apply(
    current: Json, wanted: Json, owned: Owned, manager: str, *, force: bool
) -> tuple[Json, dict[str, frozenset[FieldPath]]]:
    """*current* with the fields of *wanted* set, and the owners of all fields after that.

    Refuses with 409 if another manager applied one of the fields with another value, unless
    *force*, which takes the field over.
    """
    leaves = {
        path: value
        for path, value in _leaves(wanted)
        if path[0] not in ("apiVersion", "kind")
        and path[:2] not in (("metadata", "name"), ("metadata", "namespace"))
    }
    disputed = [
        (other, path)
        for other, paths in owned.items()
        if other != manager
        for path in leaves
        if path in paths and _lookup(current, path) != leaves[path]
    ]
    if disputed and not force:
        raise _apply_conflict(disputed)
    merged: Json = strategic_merge(current, wanted)
    others = {
        other: paths - {path for owner, path in disputed if owner == other}
        for other, paths in owned.items()
        if other != manager
    }
    left_out = owned.get(manager, frozenset()) - leaves.keys()
    shared = frozenset().union(*others.values()) if others else frozenset()
    if left_out:
        merged = copy.deepcopy(merged)
        for path in sorted(left_out - shared):
            if not path[-1].startswith("[") or _lookup(wanted, path) is _ABSENT:
                _discard(merged, path)
    return merged, {**others, manager: frozenset(leaves)}


def _apply_conflict(disputed: list[tuple[str, FieldPath]]) -> ApiStatus:
    plural = "" if len(disputed) == 1 else "s"
    if len(disputed) == 1:
        owner, path = disputed[0]
        listed = f'conflict with "{owner}": {_text(path)}'
    else:
        owners = sorted({owner for owner, _ in disputed})
        listed = "conflicts with " + ":\n".join(
            f'"{owner}":\n'
            + "\n".join(f"- {_text(path)}" for manager, path in disputed if manager == owner)
            for owner in owners
        )
    return ApiStatus(
        409,
        f"Apply failed with {len(disputed)} conflict{plural}: {listed}",
        details={
            "causes": [
                {
                    "reason": "FieldManagerConflict",
                    "message": f'conflict with "{owner}"',
                    "field": _text(path),
                }
                for owner, path in disputed
            ]
        },
    )
