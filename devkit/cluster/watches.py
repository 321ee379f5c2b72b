"""Watches: the changes of one resource as a client asked to see them.

Owns the translation of changes into watch lines (an object that leaves the selector is DELETED,
one that enters it ADDED), replay from a resourceVersion, bookmarks and the end of a watch. Knows
nothing of HTTP: a server takes the lines and sends them.
"""

import asyncio
from collections.abc import Callable

import msgspec

from devkit.cluster.event_forms import new_event
from devkit.cluster.selectors import Predicate
from devkit.cluster.store import Change, CompactedError, Version
from devkit.cluster.watch_cache import CachedTable
from engine.core.manifests import kinds
from engine.core.manifests.errors import ApiStatus, expired
from engine.core.manifests.kinds import Kind

# A client this far behind is cut off, as the real server cuts off slow ones.
MAX_BACKLOG = 200_000
_encode = msgspec.json.Encoder().encode
_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


def encoded(kind: Kind, version: Version) -> bytes:
    """The object as it stands in a list: without `kind` and `apiVersion`."""
    if kind is not kinds.NEW_EVENTS:
        return version.raw
    form = version.forms.get(kind)
    if form is None:
        form = version.forms[kind] = _encode(new_event(version.manifest))
    return form


def typed(kind: Kind, version: Version) -> bytes:
    """The object as it stands alone."""
    head = b'{"kind":"%s","apiVersion":"%s",' % (kind.kind.encode(), kind.api_version.encode())
    return head + encoded(kind, version)[1:]


class Watch:
    """One client's watch of one table.

    Lines gather until `take` is awaited. The watch ends when it is closed, when its history is
    gone, or when the client falls too far behind.

    Args:
        prefix: Keys must begin with it: `namespace/`, or nothing.
        matches: The selectors, or None.
    """

    def __init__(
        self, kind: Kind, table: CachedTable, prefix: str, matches: Predicate | None
    ) -> None:
        self.kind = kind
        self.stalled = False
        #: What is sent instead of the next line, once.
        self.alter: Callable[[bytes], bytes] | None = None
        #: Called instead of sending a bookmark; None if bookmarks are sent.
        self.skip_bookmark: Callable[[], None] | None = None
        self._table = table
        self._prefix = prefix
        self._matches = matches
        self._after = 0
        self._lines: list[bytes] = []
        self._ready = asyncio.Event()
        self._closed = False
        self._aborted = False

    # --- beginning -------------------------------------------------------------------------

    def begin(self, revision: int, *, current: int, initial: bool, bookmark: bool) -> None:
        """Replay what the client has missed and follow the table from now on.

        Args:
            revision: The client's resourceVersion; 0 for none.
            initial: Send the current objects as ADDED first.
            bookmark: Mark the end of those by a bookmark.
        """
        self._after = revision
        try:
            if initial:
                self._begin_with_objects(current, bookmark=bookmark)
            else:
                for change in self._table.since(revision):
                    self.offer(change)
            self._table.follow(self)
        except CompactedError as error:
            self.fail(expired(f"too old resource version: {revision} ({error.floor})"))
            return
        if self._lines:
            self._ready.set()

    def _begin_with_objects(self, current: int, *, bookmark: bool) -> None:
        self._lines += (
            self._line(b"ADDED", version)
            for version in self._table.at(current).scan(self._prefix)
            if self._matches is None or self._matches(version.manifest)
        )
        self._after = current
        if bookmark:
            self._lines.append(self._bookmark(current, _INITIAL_EVENTS_END))

    # --- following -------------------------------------------------------------------------

    def offer(self, change: Change) -> None:
        """Take note of *change*, if the client may see it."""
        # After an abort nothing may follow: a line after dropped ones would make the client believe
        # that it has seen those.
        if self._aborted or change.revision <= self._after:
            return
        if not change.key.startswith(self._prefix):
            return
        line = self._seen(change)
        if line is None:
            return
        if self.alter is not None:
            alter, self.alter = self.alter, None
            line = alter(line)
        self._lines.append(line)
        if len(self._lines) > MAX_BACKLOG:
            self.abort()
        elif not self.stalled:
            self._ready.set()

    def _seen(self, change: Change) -> bytes | None:
        matches = self._matches
        was = change.old is not None and (matches is None or matches(change.old.manifest))
        now = change.new is not None and (matches is None or matches(change.new.manifest))
        if now:
            return self._shared(change, b"MODIFIED" if was else b"ADDED", change.last)
        if not was:
            return None
        if change.new is None or change.old is None:
            return self._shared(change, b"DELETED", change.last)
        # Out of the selector: the client sees the object as it last matched, at this revision.
        metadata = {
            **change.old.manifest["metadata"],
            "resourceVersion": str(change.revision),
        }
        left = {**change.old.manifest, "metadata": metadata}
        return self._line(b"DELETED", Version(change.key, left, change.revision, {}))

    def _shared(self, change: Change, event: bytes, version: Version) -> bytes:
        """The line of *change*, made once for all the watches that see it the same way."""
        line = change.forms.get((self.kind, event))
        if line is None:
            line = change.forms[self.kind, event] = self._line(event, version)
        return line

    def _line(self, event: bytes, version: Version) -> bytes:
        return b'{"type":"%s","object":%s}\n' % (event, typed(self.kind, version))

    def _bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> bytes:
        metadata: dict[str, object] = {"resourceVersion": str(revision)}
        if annotations:
            metadata["annotations"] = annotations
        body = {
            "kind": self.kind.kind,
            "apiVersion": self.kind.api_version,
            "metadata": metadata,
        }
        return b'{"type":"BOOKMARK","object":%s}\n' % _encode(body)

    def send_bookmark(self, revision: int) -> None:
        """Send the client a bookmark: it has seen everything up to *revision*."""
        if self._aborted or revision < self._after:
            return  # a server that is behind has nothing to say to a client that knows more
        if self.skip_bookmark is not None:
            self.skip_bookmark()
            return
        self._lines.append(self._bookmark(revision))
        if not self.stalled:
            self._ready.set()

    def send(self, line: bytes) -> None:
        """Send *line* as it is, after what has gathered."""
        if self._aborted:
            return
        self._lines.append(line)
        if not self.stalled:
            self._ready.set()

    # --- end -------------------------------------------------------------------------------

    def fail(self, error: ApiStatus) -> None:
        """End the watch with an ERROR event."""
        self._lines.append(b'{"type":"ERROR","object":%s}\n' % _encode(error.as_status()))
        self.close()

    def close(self) -> None:
        """End the watch after what has gathered."""
        self._closed = True
        self.stalled = False
        self._ready.set()

    def abort(self) -> None:
        """End the watch at once; the connection breaks."""
        self._aborted = True
        self._lines.clear()
        self.close()

    def resume(self) -> None:
        """Let a stalled watch go on, with all that it has missed."""
        self.stalled = False
        if self._lines:
            self._ready.set()

    def leave(self) -> None:
        """Stop following the table."""
        self._table.leave(self)

    @property
    def is_aborted(self) -> bool:
        """True if the connection is to be broken, not ended."""
        return self._aborted

    async def take(self) -> bytes:
        """The next lines; waits for one. Empty when the watch has ended."""
        while self.stalled or not (self._lines or self._closed):
            self._ready.clear()
            await self._ready.wait()
        lines, self._lines = self._lines, []
        return b"".join(lines)
