"""Makes a case small: takes away whatever a difference does not need."""

import copy
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

Plain: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str | int, ...]

_BATCH: Final = 16

#: For each candidate, in order, whether it still shows what is looked for.
Test: TypeAlias = Callable[[list[Plain]], list[bool]]


def shrink(
    case: Plain,
    test: Test,
    *,
    untouched: frozenset[str] = frozenset(),
    is_needed: Callable[[Path], bool] = lambda path: False,
    batch: int = _BATCH,
) -> Plain:
    """The smallest case that *test* holds for, by taking away one part after the other.

    Whole nodes, pods and objects go first, then their fields, until nothing more can go.

    Args:
        case: Lists and objects of any depth.
        test: Holds for *case*.
        untouched: Members of *case* of which nothing goes.
        is_needed: True for the path of a part that stays, though something in it may go.
        batch: How many candidates *test* is asked about at once.
    """
    while True:
        smaller = _one_pass(case, test, untouched, is_needed, batch)
        if smaller == case:
            return case
        case = smaller


def _one_pass(
    case: Plain,
    test: Test,
    untouched: frozenset[str],
    is_needed: Callable[[Path], bool],
    size: int,
) -> Plain:
    skipped = 0
    while True:
        # What could not go stays in place, so the paths before `skipped` are as they were.
        paths = [path for path in _paths(case, untouched) if not is_needed(path)][skipped:]
        if not paths:
            return case
        batch = paths[:size]
        results = test([_without(case, path) for path in batch])
        try:
            first = results.index(True)
        except ValueError:
            skipped += len(batch)
            continue
        case = _without(case, batch[first])
        skipped += first


def _paths(case: Plain, untouched: frozenset[str]) -> Iterator[Path]:
    """Every part that could go, large ones first: breadth first."""
    level: list[tuple[Path, Any]] = [((), case)]
    while level:
        below: list[tuple[Path, Any]] = []
        for path, value in level:
            if isinstance(value, dict):
                children = [((*path, key), child) for key, child in value.items()]
            elif isinstance(value, list):
                # From the end: what comes later is less often referred to.
                children = [((*path, i), child) for i, child in reversed([*enumerate(value)])]
            else:
                continue
            below += children
        below = [(path, value) for path, value in below if path[0] not in untouched]
        yield from (path for path, _ in below)
        level = below


def _without(case: Plain, path: Path) -> Plain:
    *parents, last = path
    smaller: Any = dict(case)
    at = smaller
    for key in parents:
        at[key] = copy.copy(at[key])
        at = at[key]
    del at[last]
    return dict(smaller)


def shorter(items: list[Any], holds: Callable[[list[Any]], bool]) -> list[Any]:
    """Those of *items* that *holds* needs, by taking away halves, quarters and so on.

    For long lists: takes few questions if little is needed. *holds* holds for *items*.
    """
    if not items or holds([]):
        return []
    size = (len(items) + 1) // 2
    while True:
        start = 0
        while start < len(items):
            fewer = items[:start] + items[start + size :]
            if fewer and holds(fewer):
                items = fewer
            else:
                start += size
        if size == 1:
            return items
        size = (size + 1) // 2
