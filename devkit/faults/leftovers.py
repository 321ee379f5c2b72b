"""What a program still keeps of things that are gone: names in its dicts and sets.

Owns the walk through the memory of a program. It knows nothing of what is in there.
"""

import functools
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping
from collections.abc import Set as AbstractSet
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any, Final

_ATOMS: Final = (str, bytes, int, float, bool, type(None), FunctionType, BuiltinMethodType, type)


def leftovers(
    root: object,
    gone: Container[str],
    *,
    is_followed: Callable[[object], bool],
    bounded: Container[str],
) -> Iterator[tuple[str, str]]:
    """The places below *root* that know a name of *gone*, each with one such name.

    Looked at are keys of mappings and members of sets, also as parts of tuples. A list or a value
    is no leftover by itself: what it is kept by is.

    Args:
        root: Where to begin.
        gone: Names of what is gone, such as uids.
        is_followed: Whether the attributes of an instance are looked at.
        bounded: Places, as `Class.attribute`, that may know what is gone: they grow no further.
    """
    seen = {id(root)}
    waiting: deque[tuple[str, Any]] = deque([(type(root).__name__, root)])
    while waiting:
        place, one = waiting.popleft()
        if place in bounded:
            continue
        if isinstance(one, Mapping | AbstractSet):
            for key in list(one):
                if (name := _name_in(key, gone)) is not None:
                    yield place, name
                    break
        for name, part in _parts(place, one, is_followed):
            if not isinstance(part, _ATOMS) and id(part) not in seen:
                seen.add(id(part))
                waiting.append((name, part))


def _name_in(key: object, gone: Container[str]) -> str | None:
    if isinstance(key, str):
        return key if key in gone else None
    if isinstance(key, tuple):
        return next((name for part in key if (name := _name_in(part, gone)) is not None), None)
    return None


def _parts(
    place: str, one: Any, is_followed: Callable[[object], bool]
) -> Iterator[tuple[str, Any]]:
    if isinstance(one, Mapping):
        yield from ((place, value) for value in list(one.values()))
    elif isinstance(one, list | tuple | deque | AbstractSet):
        yield from ((place, part) for part in list(one))
    elif isinstance(one, MethodType):
        yield place, one.__self__
    elif isinstance(one, functools.partial):
        yield from ((place, part) for part in (one.func, *one.args, *one.keywords.values()))
    elif is_followed(one):
        for name in _attributes(one):
            if (value := getattr(one, name, None)) is not None:
                yield f"{type(one).__name__}.{name}", value


def _attributes(one: object) -> list[str]:
    found = list(getattr(one, "__dict__", ()))
    for kind in type(one).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        found += [slots] if isinstance(slots, str) else list(slots)
    return [name for name in found if not name.startswith("__")]
