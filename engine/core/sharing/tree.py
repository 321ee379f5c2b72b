"""The tree of queues: which there are, under which, and what is wrong with those that are not.

Owns building it of what was written down or read from objects, in any order, and never whole or
nothing: a queue that cannot be in the tree is left out with those below it, with a problem that
says why, and the others are as they would be without it.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

#: The path of the root, which is always there.
ROOT: Final = ""

#: Levels below the root. Each costs a sum for every pod; the schemes that exist use four at most.
DEEPEST: Final = 8
#: Queues in all. Of ten thousand, which the largest published clusters have, twice as many.
MOST_QUEUES: Final = 20_000


@dataclass(frozen=True, slots=True)
class GivenQueue:
    """A queue as it was given, before it is known where it is.

    Attributes:
        name: Its name, which no two have, or its path (`research/vision`) where *is_path*.
        parent: The name of the queue that it is under; "": the root. Not for a path.
        attributes: What a policy reads of it, by name.
        source: Where it was given, for people: `tree.yaml:7`, `Queue research`.
        is_path: Its name is its whole path; queues on the way are made if they were not given.
        is_implied: It is there because another names it, and gives way to one that is given.
    """

    name: str
    parent: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    is_path: bool = False
    is_implied: bool = False


@dataclass(frozen=True, slots=True)
class Alias:
    """Another name by which pods may name a queue, such as that of a LocalQueue."""

    name: str
    of: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class TreeProblem:
    """What keeps a queue out of the tree, or is not as it seems.

    Attributes:
        queue: The name or path as it was given.
        source: Where it was given.
        message: What is wrong, with the value and what is wanted.
        left_out: How many queues are not in the tree for it.
    """

    queue: str
    source: str
    message: str
    left_out: int = 1


@dataclass(slots=True, eq=False)
class Queue:
    """A queue in its place.

    Attributes:
        path: Names from the root down, with slashes; "" for the root.
        parent: The path of the queue that it is under; None for the root.
        attributes: What was given of it; of one that was made on the way, nothing.
        source: Where it was given.
        children: The paths of those under it, in order of their names.
    """

    path: str
    parent: str | None
    attributes: Mapping[str, Any]
    source: str
    children: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    @property
    def is_leaf(self) -> bool:
        """True if no queue is under it: pods are in leaves alone."""
        return not self.children


@dataclass(frozen=True, slots=True)
class QueueTree:
    """The queues by path, the root among them.

    Attributes:
        queues: Each before those under it.
        aliases: Other names of queues -> their paths.
        paths: Names of queues that were not given by path -> their paths.
        problems: What is wrong, in the order in which it was given.
    """

    queues: Mapping[str, Queue]
    aliases: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[TreeProblem, ...] = ()

    def find(self, name: str) -> Queue | None:
        """The queue of this path, name or alias."""
        path = self.aliases.get(name, name)
        return self.queues.get(self.paths.get(path, path))

    def above(self, path: str) -> list[Queue]:
        """The queue of *path* and those that it is under, the root last."""
        found = []
        at: str | None = path
        while at is not None:
            found.append(self.queues[at])
            at = found[-1].parent
        return found


def build_tree(given: Iterable[GivenQueue], aliases: Iterable[Alias] = ()) -> QueueTree:
    """The tree of *given*, whatever is wrong with some of them."""
    return _Builder(given).build(aliases)


class _Builder:
    def __init__(self, given: Iterable[GivenQueue]) -> None:
        self._problems: list[TreeProblem] = []
        self._by_name: dict[str, GivenQueue] = {}
        for one in sorted(given, key=lambda one: one.is_implied):
            if one.is_implied and one.name in self._by_name:
                continue
            problem = self._own_problem(one)
            if problem:
                self._report(one, problem)
            else:
                self._by_name[one.name] = one
        self._queues: dict[str, Queue] = {ROOT: Queue(ROOT, None, {}, "")}
        self._paths: dict[str, str] = {}

    def build(self, aliases: Iterable[Alias]) -> QueueTree:
        """The tree."""
        # 1. Where each is. Those that lead nowhere are left out with all below them.
        found: dict[str, GivenQueue] = {}
        for one in self._by_name.values():
            path, problem = self._path_of(one)
            if not problem and path in found:
                problem = f"there is `{path}` from {found[path].source or 'before'} already"
            if problem:
                self._report(one, problem)
                continue
            found[path] = one
            if not one.is_path:
                self._paths[one.name] = path
        # 2. From the root down, those on the way among them.
        for path in sorted(found, key=lambda path: path.split("/")):
            self._put(path, found)
        # 3. Who is under whom.
        children: dict[str, list[str]] = {}
        for path, queue in self._queues.items():
            if queue.parent is not None:
                children.setdefault(queue.parent, []).append(path)
        for path, under in children.items():
            self._queues[path].children = tuple(sorted(under))
        return QueueTree(self._queues, self._aliases(aliases), self._paths, tuple(self._problems))

    def _own_problem(self, one: GivenQueue) -> str:
        if len(self._by_name) >= MOST_QUEUES:
            return f"want at most {MOST_QUEUES:,} queues"
        if (before := self._by_name.get(one.name)) is not None:
            if before.parent != one.parent:
                first, second = (
                    f"`{at}`" if at else "the root" for at in (before.parent, one.parent)
                )
                return f"is given twice, under {first} and under {second}"
            return f"is given twice; the first is {before.source or 'before'}"
        if one.is_path:
            if not all(one.name.split("/")):
                return "want names with single slashes between them, such as `research/vision`"
        elif "/" in one.name or not one.name:
            return "want a name without a slash"
        return ""

    def _path_of(self, one: GivenQueue) -> tuple[str, str]:
        """The path of *one*, or what keeps it from having one."""
        if one.is_path:
            levels = one.name.count("/") + 1
            return one.name, self._too_deep(levels)
        names = [one.name]
        at = one
        while at.parent:
            above = self._by_name.get(at.parent)
            if above is None:
                return "", f"is under `{at.parent}`, which is not there{self._near(at.parent)}"
            if above.name in names:
                circle = " > ".join([*names[names.index(above.name) :], above.name])
                return "", f"is under itself: {circle}"
            if len(names) == DEEPEST:
                return "", self._too_deep(DEEPEST + 1)
            names.append(above.name)
            if above.is_path:
                break
            at = above
        path = "/".join(reversed(names))
        return path, self._too_deep(path.count("/") + 1)

    def _too_deep(self, levels: int) -> str:
        return f"is on level {levels}, want at most {DEEPEST}" if levels > DEEPEST else ""

    def _near(self, name: str) -> str:
        close = difflib.get_close_matches(name, self._by_name, 1)
        return f"; did you mean `{close[0]}`?" if close else ""

    def _put(self, path: str, found: Mapping[str, GivenQueue]) -> None:
        parent = path.rpartition("/")[0]
        if parent not in self._queues:
            self._put(parent, found)
        one = found.get(path)
        attributes, source = (one.attributes, one.source) if one is not None else ({}, "")
        self._queues[path] = Queue(path, parent, attributes, source)

    def _aliases(self, aliases: Iterable[Alias]) -> dict[str, str]:
        found: dict[str, str] = {}
        for one in aliases:
            path = self._paths.get(one.of, one.of)
            if path not in self._queues or path == ROOT:
                message = f"is another name of `{one.of}`, which is not there"
                self._problems.append(TreeProblem(one.name, one.source, message, 0))
            else:
                found[one.name] = path
        return found

    def _report(self, one: GivenQueue, message: str) -> None:
        self._problems.append(TreeProblem(one.name, one.source, message))
