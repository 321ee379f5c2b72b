"""Makes a case small: takes away whatever a difference does not need."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

Plain = dict[str, Any]
Path = tuple[str | int, ...]

_BATCH = 16
# What makes it a case is never taken away, nor is what was answered.
_UNTOUCHED = frozenset({"id", "answers"})
_NEEDED = frozenset({"nodes", "incoming"})

#: For each candidate, in order, whether it still shows what is looked for.
Test = Callable[[list[Plain]], list[bool]]


def shrink(case: Plain, test: Test) -> Plain:
    """The smallest case that *test* holds for, by taking away one part after the other.

    Whole nodes, pods and objects go first, then their fields, until nothing more can go.
    """
    while True:
        smaller = _one_pass(case, test)
        if smaller == case:
            return case
        case = smaller


def _one_pass(case: Plain, test: Test) -> Plain:
    skipped = 0
    while True:
        # What could not go stays in place, so the paths before `skipped` are as they were.
        paths = list(_paths(case))[skipped:]
        if not paths:
            return case
        batch = paths[:_BATCH]
        results = test([_without(case, path) for path in batch])
        try:
            first = results.index(True)
        except ValueError:
            skipped += len(batch)
            continue
        case = _without(case, batch[first])
        skipped += first


def _paths(case: Plain) -> Iterator[Path]:
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
        below = [(path, value) for path, value in below if path[0] not in _UNTOUCHED]
        yield from (path for path, _ in below if len(path) > 1 or path[0] not in _NEEDED)
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
