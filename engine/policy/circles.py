"""Finds cycles: functions that call each other, and files that load each other."""

import ast
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from engine.language.syntax import loads_of, parse
from engine.policy.errors import Problem


def circles(calls: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Shortest ways of calls from one of *calls* to itself, without the end; no two share one.

    In the order of *calls*. Those in no circle are put aside at once, not searched from each.
    """
    callers: dict[str, list[str]] = {name: [] for name in calls}
    for name, called in calls.items():
        for other in called:
            callers[other].append(name)
    left = set(calls)
    calling = {name: len(called) for name, called in calls.items()}
    called_by = {name: len(found) for name, found in callers.items()}

    def put_aside(names: Iterable[str]) -> None:
        """Put *names* aside, and with them those that call none then, or that none calls."""
        stack = list(names)
        left.difference_update(stack)
        while stack:
            name = stack.pop()
            for others, counts in ((calls[name], called_by), (callers[name], calling)):
                for other in others:
                    counts[other] -= 1
                    if not counts[other] and other in left:
                        left.discard(other)
                        stack.append(other)

    put_aside([name for name in calls if not (calling[name] and called_by[name])])
    for name in calls:
        way = _way_back(name, calls, left) if name in left else None
        if way is not None:
            yield way
            put_aside(way)


def _way_back(start: str, calls: Mapping[str, set[str]], among: set[str]) -> list[str] | None:
    """A shortest way from *start* to itself *among* some, without the end; None if none is."""
    came_from: dict[str, str] = {}
    queue = deque([start])
    while queue:
        last = queue.popleft()
        for name in sorted(calls[last] & among):
            if name == start:
                way = [last]
                while way[-1] != start:
                    way.append(came_from[way[-1]])
                return way[::-1]
            if name not in came_from:
                came_from[name] = last
                queue.append(name)
    return None


def load_circles(files: Mapping[str, str]) -> list[Problem]:
    """Files that load each other in a circle: one problem per circle, at its first file."""
    edges: dict[str, set[str]] = {}
    places: dict[tuple[str, str], ast.expr] = {}
    for file, text in files.items():
        tree = parse(text)
        edges[file] = set()
        for load in [] if tree is None else loads_of(tree):
            if load.module in files:
                edges[file].add(load.module)
                places.setdefault((file, load.module), load.call.args[0])
    problems = []
    for way in circles({file: edges[file] for file in sorted(edges)}):
        file = way[0]
        node = places[file, (way[1] if len(way) > 1 else file)]
        circle = " -> ".join([*way, file])
        message = f"files load each other in a circle: {circle}"
        problems.append(Problem(file, node.lineno, node.col_offset + 1, message))
    return problems
