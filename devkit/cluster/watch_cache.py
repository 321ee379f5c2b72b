"""What one API server has seen of the store: everything, or while it is behind, less.

Owns how far watches and lists that need not be the newest have come. Writes, reads and ordinary
lists go to the store itself, as they do in the real server.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from devkit.cluster.store import Change, Store, Subscriber, Table, View

#: Of `WatchCache.fall_behind`: further and further.
STOPPED: Final = 1 << 62


class WatchCache:
    """The watch cache of one API server.

    `up to date --fall_behind--> behind --catch_up--> up to date`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tables: dict[str, CachedTable] = {}
        self._lag = 0
        self._seen: int | None = None  # None: everything
        #: How many changes were seen later than they happened.
        self.late = 0

    @property
    def revision(self) -> int:
        """Up to which revision it has seen the store."""
        return self._store.revision if self._seen is None else self._seen

    @property
    def is_behind(self) -> bool:
        """True if it does not see everything at once."""
        return self._seen is not None

    def table(self, name: str) -> "CachedTable":
        """The table called *name*, as far as it is seen."""
        found = self._tables.get(name)
        if found is None:
            found = self._tables[name] = CachedTable(self, self._store.table(name))
        return found

    def fall_behind(self, revisions: int = STOPPED) -> None:
        """Stay behind the store by *revisions* from now on."""
        self._seen, self._lag = self.revision, revisions
        self.advance()

    def catch_up(self) -> None:
        """See everything again, beginning with what was missed."""
        if self._seen is not None:
            self._lag = 0
            self.advance()
            self._seen = None

    def restart(self) -> None:
        """Begin again with what the store has now; nothing watches any more."""
        self._seen = None
        for table in self._tables.values():
            table.forget()

    def advance(self) -> None:
        """Show what is to be seen by now."""
        assert self._seen is not None, "nothing is held back"
        self._seen = max(self._seen, self._store.revision - self._lag)
        for table in self._tables.values():
            table.show(self._seen)


class CachedTable:
    """A table as a watch cache has it: what watches need of `Table`."""

    def __init__(self, cache: WatchCache, table: Table) -> None:
        self._subscribers: list[Subscriber] = []
        self._cache = cache
        self._table = table
        self._held: deque[Change] = deque()

    def since(self, revision: int) -> Iterable[Change]:
        """The changes after *revision* that are seen. Raises `CompactedError`."""
        seen = self._cache.revision
        return [change for change in self._table.since(revision) if change.revision <= seen]

    def at(self, revision: int) -> View:
        """The table as it was at *revision*. Raises `CompactedError`."""
        return self._table.at(min(revision, self._cache.revision))

    def follow(self, subscriber: Subscriber) -> None:
        """Pass every change on to *subscriber* once it is seen. Raises `CompactedError`."""
        if not self._subscribers:
            if self._cache.is_behind:
                self._held.extend(self._table.since(self._cache.revision))
            self._table.subscribers.append(self)
        self._subscribers.append(subscriber)

    def leave(self, subscriber: Subscriber) -> None:
        """Pass nothing on to *subscriber* any more."""
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)
            if not self._subscribers:
                self._table.subscribers.remove(self)
                self._held.clear()

    def offer(self, change: Change) -> None:
        """Take note of *change*, and of the time for older ones."""
        self._held.append(change)
        if self._cache.is_behind:
            self._cache.advance()
            self._cache.late += bool(self._held)
        else:
            self.show(change.revision)

    def show(self, revision: int) -> None:
        """Pass on what has happened up to *revision*."""
        while self._held and self._held[0].revision <= revision:
            change = self._held.popleft()
            for subscriber in tuple(self._subscribers):
                subscriber.offer(change)

    def forget(self) -> None:
        """Drop what is held back."""
        self._held.clear()
