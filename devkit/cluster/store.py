"""Versioned objects: one revision counter, the current version of each, and a window of history.

Owns revisions, the change log, compaction and the fan-out of changes to watches. Knows nothing of
HTTP, of resources or of what an object means. Single threaded; every write is atomic.

An object handed to the store belongs to it and is never changed again: a new version is a new dict
(which may share unchanged parts with the old one). Each version is serialised once, when written.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

Json = dict[str, Any]

_encode = msgspec.json.Encoder().encode


class Version:
    """One version of one object.

    Attributes:
        key: `namespace/name`, or the name of a cluster-scoped object.
        manifest: The object without `kind` and `apiVersion`. Never changed.
        revision: When it was written.
        raw: The manifest as JSON.
        forms: Other encodings, made on demand.
        owned: Server-side apply: the leaf paths that each field manager applied last.
    """

    __slots__ = ("forms", "key", "manifest", "owned", "raw", "revision")

    def __init__(
        self,
        key: str,
        manifest: Json,
        revision: int,
        owned: Mapping[str, frozenset[tuple[str, ...]]],
    ) -> None:
        self.key = key
        self.manifest = manifest
        self.revision = revision
        self.raw = _encode(manifest)
        self.forms: dict[Any, bytes] = {}
        self.owned = owned

    def copy(self) -> Json:
        """A manifest of one's own, to change."""
        copied: Json = msgspec.json.decode(self.raw)
        return copied


class Change:
    """One step of a table: `old` is None for a creation, `new` for a deletion.

    After a deletion `last` is the object as it was, with the revision of the deletion.
    """

    __slots__ = ("forms", "last", "new", "old", "revision")

    def __init__(self, revision: int, old: Version | None, new: Version | None, last: Version):
        self.revision = revision
        self.old = old
        self.new = new
        self.last = last
        self.forms: dict[Any, bytes] = {}

    @property
    def key(self) -> str:
        """The key of the object."""
        return self.last.key


class Subscriber(Protocol):
    """A receiver of the changes of a table, in order, as they happen."""

    def offer(self, change: Change) -> None:
        """Take note of *change*. Must not write to the store."""
        ...


class CompactedError(Exception):
    """The revision asked for is older than the history kept; `floor` is the oldest that is not."""

    def __init__(self, floor: int) -> None:
        super().__init__(f"history before revision {floor} is gone")
        self.floor = floor


class Table:
    """The objects of one resource."""

    def __init__(self, name: str, history: int) -> None:
        self.name = name
        self.objects: dict[str, Version] = {}
        self.log: deque[Change] = deque()
        self.floor = 0
        self.subscribers: list[Subscriber] = []
        self._history = history
        self._order: list[str] | None = []

    def keys(self) -> list[str]:
        """Every key, in the order of lists."""
        if self._order is None:
            self._order = sorted(self.objects)
        return self._order

    def record(self, change: Change) -> None:
        """Make *change* the newest: current objects, log and subscribers."""
        key = change.key
        if change.new is None:
            del self.objects[key]
            self._order = None
        else:
            if change.old is None:
                self._order = None
            self.objects[key] = change.new
        self.log.append(change)
        if len(self.log) > self._history:
            self.floor = self.log.popleft().revision
        for subscriber in tuple(self.subscribers):
            subscriber.offer(change)

    def since(self, revision: int) -> Iterator[Change]:
        """The changes after *revision*, oldest first. Raises `CompactedError`."""
        if revision < self.floor:
            raise CompactedError(self.floor)
        newer = 0
        for change in reversed(self.log):
            if change.revision <= revision:
                break
            newer += 1
        start = len(self.log) - newer
        return (self.log[index] for index in range(start, len(self.log)))

    def compact(self, revision: int) -> None:
        """Forget the history up to and including *revision*."""
        while self.log and self.log[0].revision <= revision:
            self.log.popleft()
        self.floor = max(self.floor, revision)

    def restore(self, objects: Mapping[str, Version], revision: int) -> None:
        """Have *objects* and no history; nothing is known of what was before *revision*."""
        self.objects = dict(objects)
        self.log.clear()
        self.floor = revision
        self._order = None

    def at(self, revision: int) -> "View":
        """The table as it was at *revision*. Raises `CompactedError`."""
        if revision < self.floor:
            raise CompactedError(self.floor)
        then: dict[str, Version | None] = {}
        for change in reversed(self.log):
            if change.revision <= revision:
                break
            then[change.key] = change.old
        if not then:
            return View(self.keys(), self.objects)
        objects = {key: version for key, version in self.objects.items() if key not in then}
        objects.update({key: version for key, version in then.items() if version is not None})
        return View(sorted(objects), objects)


class View:
    """A table at one revision."""

    def __init__(self, keys: list[str], objects: Mapping[str, Version]) -> None:
        self._keys = keys
        self._objects = objects

    def scan(self, prefix: str = "", start: str = "") -> list[Version]:
        """The versions whose keys begin with *prefix*, from the key *start* on, in key order."""
        first = bisect_left(self._keys, max(prefix, start))
        # No key holds a character after the last ASCII one.
        last = bisect_left(self._keys, prefix + "\x7f") if prefix else len(self._keys)
        objects = self._objects
        return [objects[key] for key in self._keys[first:last]]


class Backup(NamedTuple):
    """What a store had at one revision."""

    revision: int
    objects: Mapping[str, Mapping[str, Version]]


class Store:
    """Every table, under one revision counter.

    Args:
        history: Changes kept per table; a watch or a paged list that starts before them fails
            because its resourceVersion has expired.
    """

    def __init__(self, *, history: int = 20_000) -> None:
        if history < 1:
            raise ValueError(f"history: want an int of at least 1, got `{history}`")
        self.revision = 0
        self._history = history
        self._tables: dict[str, Table] = {}

    def table(self, name: str) -> Table:
        """The table called *name*, made when first asked for."""
        found = self._tables.get(name)
        if found is None:
            found = self._tables[name] = Table(name, self._history)
            found.floor = 0
        return found

    def get(self, table: str, key: str) -> Version | None:
        """The current version, or None."""
        return self.table(table).objects.get(key)

    def write(
        self,
        table: str,
        key: str,
        manifest: Json,
        *,
        owned: Mapping[str, frozenset[tuple[str, ...]]] | None = None,
    ) -> Version:
        """Make *manifest* the current version of *key*; sets its resourceVersion."""
        target = self.table(table)
        old = target.objects.get(key)
        self.revision += 1
        manifest["metadata"]["resourceVersion"] = str(self.revision)
        if owned is None:
            owned = old.owned if old else {}
        version = Version(key, manifest, self.revision, owned)
        target.record(Change(self.revision, old, version, version))
        return version

    def delete(self, table: str, key: str) -> Version:
        """Remove *key*. Returns its last state, with the revision of the deletion."""
        target = self.table(table)
        old = target.objects[key]
        self.revision += 1
        metadata = {**old.manifest["metadata"], "resourceVersion": str(self.revision)}
        last = Version(key, {**old.manifest, "metadata": metadata}, self.revision, old.owned)
        target.record(Change(self.revision, old, None, last))
        return last

    def compact(self, revision: int | None = None) -> int:
        """Forget history up to *revision* (default: all of it). Returns the revision."""
        revision = self.revision if revision is None else min(revision, self.revision)
        for table in self._tables.values():
            table.compact(revision)
        return revision

    def backup(self) -> Backup:
        """Everything that there is."""
        objects = {name: dict(table.objects) for name, table in self._tables.items()}
        return Backup(self.revision, objects)

    def restore(self, backup: Backup, *, bump: int) -> None:
        """Have what *backup* has, at its revision plus *bump*, without any history.

        As `etcdutl snapshot restore --bump-revision --mark-compacted`: subscribers learn nothing
        of it, and objects keep the revisions that they had.
        """
        self.revision = backup.revision + bump
        for name, table in self._tables.items():
            table.restore(backup.objects.get(name, {}), self.revision)

    def check_invariants(self) -> None:
        """Assert what must hold between any two writes."""
        for table in self._tables.values():
            revisions = [change.revision for change in table.log]
            assert revisions == sorted(set(revisions)), f"{table.name}: log out of order"
            assert not revisions or table.floor < revisions[0], f"{table.name}: floor in the log"
            assert table.keys() == sorted(table.objects), f"{table.name}: order is stale"
            for key, version in table.objects.items():
                assert version.key == key
                assert version.manifest["metadata"]["resourceVersion"] == str(version.revision)
                assert version.revision <= self.revision
                assert msgspec.json.decode(version.raw) == version.manifest, f"{key}: changed"
