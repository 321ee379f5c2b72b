"""A reflector with a store and handlers: reports what changed, each change once.

Owns the difference between what was reported to handlers and what the API server now says, whether
that arrives as events or as a list. Owns no request and no retry: those are the reflector's.

Per object: `unknown --on_add--> known --on_update--> known --on_delete--> unknown`. An object
replaced by another of the same name (another uid) is deleted and added. `on_delete` gets the
object as the handlers last saw it, so undoing is exact. A resourceVersion is reported once.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec
import structlog

from engine.io.kube.client import ApiClient
from engine.io.kube.resources import Resource
from engine.io.watching.reflector import (
    Currency,
    Reflector,
    Sleep,
    State,
    WatchOptions,
)
from engine.lib.deep_json import UNREADABLE, decoded_deeply

log = structlog.get_logger(__name__)

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

#: Malformed objects are logged with this much of the reason.
_REASON_LENGTH = 300


class Handler(Protocol[T_contra]):
    """Called for every change, synchronously and in the order of resourceVersions per object.

    An exception is logged and counted; the other handlers and the stream go on.
    """

    def on_add(self, obj: T_contra, /) -> None:
        """An object appeared, or existed when we started."""
        ...

    def on_update(self, old: T_contra, new: T_contra, /) -> None:
        """An object changed from the version last reported to *new*; others may be skipped."""
        ...

    def on_delete(self, obj: T_contra, /) -> None:
        """An object is gone (or left the selector); *obj* is the version last reported."""
        ...


def _ignore(*_: Any) -> None:
    """The default handler, which does nothing."""


@dataclass(frozen=True)
class Handlers(Generic[T]):
    """A handler made of functions; events without a function are ignored."""

    on_add: Callable[[T], None] = _ignore
    on_update: Callable[[T, T], None] = _ignore
    on_delete: Callable[[T], None] = _ignore


@dataclass(frozen=True)
class Decoding(Generic[T]):
    """How objects are made of their JSON.

    Attributes:
        decode: Makes one; whatever it raises marks the object as malformed: it is logged, counted
            and skipped, and a version known before stays.
        unread: What of an object *decode* could not read, each field with what came; logged once.
    """

    decode: Callable[[bytes], T]
    unread: Callable[[T], Sequence[str]] = lambda _: ()


class _Meta(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str
    resource_version: str
    namespace: str | None = None
    uid: str | None = None


class _Object(msgspec.Struct, frozen=True, gc=False):
    """The part of any object that says which one it is, readable when the rest is not.

    Objects of a list have no `kind`.
    """

    metadata: _Meta
    kind: str = ""


class _Known(NamedTuple, Generic[T]):
    """What was last reported to the handlers about one object."""

    uid: str | None
    resource_version: str
    obj: T


_decode_identity = msgspec.json.Decoder(_Object).decode


class Informer(Generic[T]):
    """Mirrors one resource and reports changes to handlers.

    Run `run()` as a task; cancel it to stop. All handlers are called on the event loop.

    Args:
        client: The API server.
        resource: What to mirror.
        decoding: Makes the objects.
        handlers: One handler or several, called in this order.
        on_synced: Called once, when every handler has processed the whole first list.
        on_served: Called with the version in which the server has the resource, one of *resource*
            and its older versions, or None; before `on_synced`, and whenever that changes.
        options: Selection and patience, see `WatchOptions`.
        sleep: See `Reflector`.
    """

    def __init__(
        self,
        client: ApiClient,
        resource: Resource,
        decoding: Decoding[T],
        handlers: Handler[T] | Sequence[Handler[T]] = (),
        *,
        on_synced: Callable[[], None] = _ignore,
        on_served: Callable[[Resource | None], None] = _ignore,
        options: WatchOptions | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.resource = resource
        self._decode = decoding.decode
        self._unread = decoding.unread
        self._handlers: list[Handler[T]] = (
            list(handlers) if isinstance(handlers, Sequence) else [handlers]
        )
        self._on_synced = on_synced
        self._store: dict[str, _Known[T]] = {}
        self._read_in_part: set[str] = set()
        self._unlisted: set[str] = set()  # while a list runs: known, but not seen in it yet
        self._synced = asyncio.Event()
        self._log = log.bind(resource=str(resource))
        self._reflector = Reflector(
            client,
            resource,
            self,
            options,
            sleep=sleep,
            on_served=on_served,
        )
        self.counts = self._reflector.counts

    async def run(self) -> None:
        """Mirror until cancelled."""
        await self._reflector.run()

    @property
    def has_synced(self) -> bool:
        """True once every handler has processed the whole first list; never False again."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Return when `has_synced`."""
        await self._synced.wait()

    async def catch_up(self, version: str, patience: float) -> None:
        """Return when the handlers know all up to *version* (see `Reflector.catch_up`)."""
        await self._reflector.catch_up(version, patience)

    @property
    def state(self) -> State:
        """What the reflector is doing."""
        return self._reflector.state

    @property
    def currency(self) -> Currency:
        """How current what was reported is."""
        return self._reflector.currency

    @property
    def resource_version(self) -> str:
        """Everything up to this version was reported."""
        return self._reflector.resource_version

    def get(self, key: str) -> T | None:
        """The object of *key* (`namespace/name`, or `name`) as last reported, or None."""
        known = self._store.get(key)
        return None if known is None else known.obj

    def values(self) -> Iterator[T]:
        """Every object as last reported."""
        return (known.obj for known in self._store.values())

    @property
    def unread_count(self) -> int:
        """How many objects there are of which a part cannot be read."""
        return len(self._read_in_part)

    def __len__(self) -> int:
        return len(self._store)

    # --- the sink of the reflector ------------------------------------------------------------

    def begin_list(self) -> None:
        """A list begins: whatever it does not mention will be deleted at its end."""
        self._unlisted = set(self._store)

    def put(self, raw: msgspec.Raw) -> str:
        """Report an object's current version to the handlers, unless they know it."""
        meta = self._identified(raw)
        if meta is None:
            return ""
        key = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
        self._unlisted.discard(key)
        known = self._store.get(key)
        if known is not None and known.uid != meta.uid:
            # Another object of that name: whatever its content, the old one is gone.
            self._forget(key, known)
            known = None
        if known is not None and known.resource_version == meta.resource_version:
            self.counts.unchanged += 1
            return meta.resource_version
        try:
            obj = self._decode(bytes(raw))
        except Exception as error:
            self._skip(key, error)
            return meta.resource_version
        self._store[key] = _Known(meta.uid, meta.resource_version, obj)
        fields = self._unread(obj)
        if not fields:
            self._read_in_part.discard(key)
        else:
            self._read_in_part.add(key)
            self.counts.malformed += 1
            if known is None or self._unread(known.obj) != fields:
                self._log.error("Cannot read a part of an object", object=key, fields=fields)
        for handler in self._handlers:
            try:
                if known is None:
                    handler.on_add(obj)
                else:
                    handler.on_update(known.obj, obj)
            except Exception:
                self._handler_failed(key)
        return meta.resource_version

    def remove(self, raw: msgspec.Raw) -> str:
        """Report to the handlers that an object is gone, if they knew it."""
        meta = self._identified(raw)
        if meta is None:
            return ""
        key = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
        known = self._store.get(key)
        if known is not None and known.uid == meta.uid:
            self._forget(key, known)
        return meta.resource_version

    def end_list(self) -> Iterator[str]:
        """Delete what the list did not mention, one key per step; then this is in sync."""
        # Deletions last: for a moment a pod too many is counted against a node, never one too few.
        for key in sorted(self._unlisted):
            self._forget(key, self._store[key])
            yield key
        self._unlisted = set()
        if not self._synced.is_set():
            self._synced.set()
            try:
                self._on_synced()
            except Exception:
                self._handler_failed("")

    def _identified(self, raw: msgspec.Raw) -> _Meta | None:
        """Which object *raw* is; None if that cannot be read, or if it is of another kind."""
        try:
            found = decoded_deeply(_decode_identity, raw)
            if found.kind and found.kind != self.resource.kind:
                want = self.resource.kind
                raise msgspec.ValidationError(f"want kind `{want}`, got `{found.kind}`")
        except UNREADABLE as error:
            self._skip("", error)
            return None
        return found.metadata

    def _forget(self, key: str, known: _Known[T]) -> None:
        del self._store[key]
        self._read_in_part.discard(key)
        for handler in self._handlers:
            try:
                handler.on_delete(known.obj)
            except Exception:
                self._handler_failed(key)

    def _skip(self, key: str, error: Exception) -> None:
        self.counts.malformed += 1
        self._log.warning("Skipped a malformed object", object=key, reason=_reason(error))

    def _handler_failed(self, key: str) -> None:
        self.counts.handler_errors += 1
        self._log.exception("Handler failed", object=key)


def _reason(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text[:_REASON_LENGTH]
