"""The patch languages that the server takes: merge, strategic merge, server-side apply.

Owns how a patch changes plain data. Which lists merge, and by which key, is the OpenAPI document's
to say. Knows nothing of storage or of validation. No function changes what it is given.

Server-side apply remembers per field manager the leaf fields it applied last: a field left out of
the next apply is removed, and a field that another manager applied with another value is a
conflict unless forced. Fields written by PUT or by the other patches have no owner here.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from engine.core.manifests.errors import ApiStatus, bad_request, internal_error
from engine.core.manifests.schema import Shape

Json = dict[str, Any]
FieldPath = tuple[str, ...]
Owned = Mapping[str, frozenset[FieldPath]]
#: The merged elements of a list in their order: of those that the server had and those that were
#: sent, which are both in order, and the list as it was.
_Join = Callable[[list[Any], list[Any], list[Any], str | None], list[Any]]

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


# --- strategic merge -----------------------------------------------------------------------


def strategic_merge(target: Any, patch: Any, shape: Shape) -> Any:
    """Like `merge`, but the lists that *shape* says merge do so element by element.

    Understands `$patch` (replace, delete), `$setElementOrder`, `$deleteFromPrimitiveList` and
    `$retainKeys`. What was sent comes before what was there, unless both were there before: a new
    element is the first.

    Raises:
        ApiStatus: 400 or 500, as the API server has it, for a patch that cannot be understood.
    """
    return _merged(target, patch, shape, _sent_first)


def _merged(target: Any, patch: Any, shape: Shape, join: _Join) -> Any:
    if not isinstance(patch, dict):
        return patch
    if "$patch" in patch:
        return _directed(patch)
    current = target if isinstance(target, dict) else {}
    merged = dict(current)
    if _RETAIN in patch:
        retained = _retained(patch)
        merged = {key: value for key, value in merged.items() if key in retained}
    for key, value in patch.items():
        there = merged.get(key)
        if key.startswith((_REMOVE, _ORDER)) and not isinstance(value, list):
            raise internal_error(f"{key}: expected a list")
        if key.startswith(_REMOVE):
            field = key.removeprefix(_REMOVE)
            if isinstance(merged.get(field), list):
                merged[field] = [item for item in merged[field] if item not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            merged.pop(key, None)
        elif isinstance(value, list) and isinstance(there, list):
            merged[key] = _merged_list(there, value, shape.member(key), join)
        elif isinstance(value, dict) and isinstance(there, dict):
            member = shape.member(key)
            merged[key] = value if member.is_replaced else _merged(there, value, member, join)
        else:
            _set(merged, key, value)
    for key, order in patch.items():
        if key.startswith(_ORDER):
            field = key.removeprefix(_ORDER)
            if isinstance(merged.get(field), list):
                member = shape.member(field)
                _check_order(patch.get(field) or [], order, member)
                live = current.get(field) or []
                merged[field] = _ordered(merged[field], order, live, member.merge_key, _sent_first)
    return merged


def _directed(patch: Json) -> Json:
    match patch["$patch"]:
        case "replace":
            return {key: value for key, value in patch.items() if key != "$patch"}
        case "delete":
            return {}
        case other:
            raise internal_error(f"unknown patch type: {other} in map: {patch}")


def _retained(patch: Json) -> list[Any]:
    retained: Any = patch[_RETAIN]
    if not isinstance(retained, list) or any(
        key not in retained
        for key, value in patch.items()
        if value is not None and not key.startswith("$")
    ):
        raise bad_request("invalid patch format of retainKeys")
    return retained


def _set(merged: Json, key: str, value: Any) -> None:
    """Set what was not there before: directives in it have nothing to direct."""
    if isinstance(value, dict) and "$patch" in value:
        merged.pop(key, None)
    else:
        merged[key] = _without_directives(value)


def _without_directives(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_directives(item) for item in value if not _is_directed(item)]
    if isinstance(value, dict):
        return {
            key: _without_directives(item)
            for key, item in value.items()
            if item is not None and not key.startswith("$") and not _is_directed(item)
        }
    return value


def _is_directed(value: Any) -> bool:
    return isinstance(value, dict) and "$patch" in value


def _merged_list(current: list[Any], patch: list[Any], shape: Shape, join: _Join) -> list[Any]:
    if not shape.is_merged:
        return patch
    key = shape.merge_key
    if key is None:
        together = [*current, *(item for item in patch if item not in current)]
        return _ordered(together, patch, current, None, join)
    _check_keys(key, [*current, *(one for one in patch if one != {"$patch": "replace"})])
    sent = [element for element in patch if "$patch" not in element]
    if len(sent) < len(patch):
        directives = [element for element in patch if "$patch" in element]
        if any(element["$patch"] == "replace" for element in directives):
            return sent
        gone = [element[key] for element in directives if not _directed(element)]
        current = [item for item in current if item[key] not in gone]
    together = list(current)
    for element in sent:
        place = next((i for i, one in enumerate(together) if one[key] == element[key]), None)
        if place is None:
            together.append(_without_directives(element))
        else:
            together[place] = _merged(together[place], element, shape.element, join)
    return _ordered(together, sent, current, key, join)


def _check_keys(key: str, elements: list[Any]) -> None:
    for element in elements:
        if not isinstance(element, dict) or key not in element:
            raise internal_error(f"map: {element} does not contain declared merge key: {key}")


def _check_order(patch: list[Any], order: list[Any], shape: Shape) -> None:
    """Refuse a list whose elements are not those of *order*, or in another one."""
    if not patch or not order:
        return
    names = (_name(item, shape.merge_key) for item in order)
    if not all(_name(item, shape.merge_key) in names for item in patch if not _is_directed(item)):
        raise internal_error(
            f"The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n"
        )


def _name(item: Any, key: str | None) -> Any:
    return item.get(key) if key and isinstance(item, dict) else item


def _ordered(
    items: list[Any], order: list[Any], live: list[Any], key: str | None, join: _Join
) -> list[Any]:
    """*items*, those of *order* as there, the others as in *live*, and both joined."""

    def ranked(names: list[Any]) -> Callable[[Any], int]:
        return lambda item: names.index(_name(item, key))

    sent_names, live_names = ([_name(item, key) for item in one] for one in (order, live))
    sent = [item for item in items if _name(item, key) in sent_names]
    other = [item for item in items if _name(item, key) not in sent_names]
    return join(
        sorted(other, key=ranked(live_names)), sorted(sent, key=ranked(sent_names)), live, key
    )


def _sent_first(own: list[Any], sent: list[Any], live: list[Any], key: str | None) -> list[Any]:
    """What was sent first, but for what was before it in *live*."""
    names = [_name(item, key) for item in live]
    joined, rest = [], list(own)
    for item in sent:
        name = _name(item, key)
        if name in names:
            while rest and names.index(_name(rest[0], key)) < names.index(name):
                joined.append(rest.pop(0))
        joined.append(item)
    return joined + rest


# --- server-side apply ---------------------------------------------------------------------

_ABSENT = object()


def _own_first(own: list[Any], sent: list[Any], live: list[Any], key: str | None) -> list[Any]:
    """What was there first, but for what came in *live* after the next that was sent."""
    left = [_name(item, key) for item in live]
    shared = [name for name in (_name(item, key) for item in sent) if name in left]
    rest = list(own)
    joined: list[Any] = []
    for item in [*sent, None]:
        while left and left[:1] != shared[:1]:
            if left.pop(0) == _name(rest[0] if rest else None, key):
                joined.append(rest.pop(0))
        if item is not None:
            joined.append(item)
            if shared and _name(item, key) == shared[0]:
                del shared[0], left[:1]
    return joined


def _leaves(value: Any, shape: Shape, path: FieldPath = ()) -> Iterator[tuple[FieldPath, Any]]:
    """The leaf fields of *value*; an element of a keyed list is the step `[key=value]`."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaves(item, shape.member(name), (*path, name))
        return
    if isinstance(value, list) and value and shape.is_merged:
        key = shape.merge_key
        if key is None:
            for item in value:
                yield (*path, f"[{item}]"), item
            return
        if all(isinstance(item, dict) and key in item for item in value):
            for item in value:
                yield from _leaves(item, shape.element, (*path, f"[{key}={item[key]}]"))
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
    current: Json, wanted: Json, shape: Shape, owned: Owned, manager: str, *, force: bool
) -> tuple[Json, dict[str, frozenset[FieldPath]]]:
    """*current* with the fields of *wanted* set, and the owners of all fields after that.

    Refuses with 409 if another manager applied one of the fields with another value, unless
    *force*, which takes the field over.
    """
    leaves = {
        path: value
        for path, value in _leaves(wanted, shape)
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
    merged: Json = _merged(current, wanted, shape, _own_first)
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
