"""The other objects that decisions read: namespaces, services, budgets, volumes, classes.

Owns their last known state by kind and key. Pods and nodes live in `cache.py`.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from engine.core.framework.behaviors import RELEASED, Behaviors, behaviors_of
from engine.core.model.objects import ObjectMeta


class ApiObject(Protocol):
    """Any decoded object: all that the store needs of it is its metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """Name and namespace identify the object within its kind."""
        ...


def object_key(obj: ApiObject) -> str:
    """`namespace/name`, or `name` for an object of the cluster."""
    meta = obj.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


Value = Callable[[Any], str | None]
"""What an index files an object under; None leaves it out."""
Listener = Callable[[Any | None, Any | None], None]
"""Called with a change: the object before (None: new) and after it (None: gone)."""


class ObjectStore:
    """Objects by kind (the plural resource name, such as `services`) and key.

    Attributes:
        unknown: Kinds that cannot be read any more, pods and nodes among them, each with the reason
            for people. What is stored of them is too old to decide by.
        unread: The objects of which a part cannot be read, placed pods and nodes among them, by
            kind and key (a pod's is its uid). What is stored of them lacks that part.
        behaves: What is decided as the kube-scheduler of the cluster's minor version does it.
    """

    def __init__(self) -> None:
        self.unknown: Mapping[str, str] = {}
        self.unread: Mapping[tuple[str, str], ApiObject] = {}
        self.behaves: Behaviors = behaviors_of(RELEASED)
        self._noted: dict[tuple[str, str], ApiObject] | None = None
        self._by_kind: dict[str, dict[str, Any]] = {}
        self._by_namespace: dict[tuple[str, str], dict[str, Any]] = {}
        self._generations: dict[str, int] = {}
        self._listeners: dict[str, list[Listener]] = {}
        # (kind, what is indexed) -> value -> key -> object
        self._indexes: dict[tuple[str, Value], dict[str, dict[str, Any]]] = {}

    def put(self, kind: str, obj: ApiObject) -> None:
        """Add *obj*, or replace the one of the same key."""
        key = object_key(obj)
        peers = self._by_kind.setdefault(kind, {})
        before = peers.get(key)
        peers[key] = obj
        if obj.metadata.namespace:
            self._by_namespace.setdefault((kind, obj.metadata.namespace), {})[key] = obj
        self._changed(kind, key, before, obj)

    def delete(self, kind: str, key: str) -> None:
        """Remove the object of *key*; nothing happens if there is none."""
        before = self._by_kind.get(kind, {}).pop(key, None)
        if before is None:
            return
        namespace, slash, _ = key.partition("/")
        if slash:
            peers = self._by_namespace[kind, namespace]
            del peers[key]
            if not peers:
                del self._by_namespace[kind, namespace]
        self._changed(kind, key, before, None)

    def get(self, kind: str, key: str) -> Any | None:
        """The object of *key*, or None."""
        if self._noted is not None and (kind, key) in self.unread:
            self._noted[kind, key] = self.unread[kind, key]
        return self._by_kind.get(kind, {}).get(key)

    def note(self, kind: str, key: str, obj: ApiObject | None) -> None:
        """Follow in `unread` that *obj* is the object of *key* now; None: there is none."""
        if obj is not None and obj.metadata.unread:
            self.unread = {**self.unread, (kind, key): obj}
        elif (kind, key) in self.unread:
            self.unread = {k: one for k, one in self.unread.items() if k != (kind, key)}

    @contextlib.contextmanager
    def noting(self) -> Iterator[Mapping[tuple[str, str], ApiObject]]:
        """Inside, the objects of `unread` that `get` gives are noted in what is yielded."""
        before, self._noted = self._noted, {}
        try:
            yield self._noted
        finally:
            self._noted = before

    def indexed(self, kind: str, by: Value, value: str) -> list[Any]:
        """The objects of *kind* for which *by* gives *value*, in the order of their keys.

        So what is decided on a frozen copy, whose indexes are made later, is what is decided on the
        original. *by* is a function of the object alone, always the same one: the first call makes
        an index of it, which is kept from then on.
        """
        index = self._indexes.get((kind, by))
        if index is None:
            index = self._indexes[kind, by] = {}
            for key, obj in self._by_kind.get(kind, {}).items():
                _file(index, by, key, None, obj)
        return [obj for _, obj in sorted(index.get(value, {}).items())]

    def list(self, kind: str, namespace: str | None = None) -> list[Any]:
        """All objects of *kind*, or those of one namespace, in the order they first came."""
        if namespace is not None:
            return list(self._by_namespace.get((kind, namespace), {}).values())
        return list(self._by_kind.get(kind, {}).values())

    def listen(self, kind: str, listener: Listener) -> Callable[[], None]:
        """Call *listener* after every change of *kind*; returns a function that ends that."""
        listeners = self._listeners.setdefault(kind, [])
        listeners.append(listener)
        return lambda: listeners.remove(listener)

    def count(self, kind: str) -> int:
        """How many objects of *kind* there are."""
        return len(self._by_kind.get(kind, {}))

    def generation(self, kind: str) -> int:
        """A number that grows with each change of *kind*; 0 before the first."""
        return self._generations.get(kind, 0)

    def frozen(self, before: "ObjectStore | None" = None) -> "ObjectStore":
        """A copy that stays as it is; it shares with *before*, an earlier one, what is equal.

        Indexes of kinds that have changed are made again when they are asked for. Another thread
        may read *before* meanwhile.
        """
        if (
            before is not None
            and before._generations == self._generations
            and before.unknown == self.unknown
            and before.unread is self.unread
            and before.behaves is self.behaves
        ):
            return before
        same = set() if before is None else self._same_as(before)
        copy = ObjectStore()
        copy.unknown, copy.unread, copy.behaves = self.unknown, self.unread, self.behaves
        copy._generations = self._generations.copy()
        for kind, objects in self._by_kind.items():
            if before is not None and kind in same:
                copy._by_kind[kind] = before._by_kind[kind]
            else:
                copy._by_kind[kind] = objects.copy()
        for key, peers in self._by_namespace.items():
            if before is not None and key[0] in same:
                copy._by_namespace[key] = before._by_namespace[key]
            else:
                copy._by_namespace[key] = peers.copy()
        if before is not None:
            # In one step: a reader of *before* makes indexes as they are asked for.
            known = before._indexes.copy()
            copy._indexes = {key: one for key, one in known.items() if key[0] in same}
        return copy

    def _same_as(self, before: "ObjectStore") -> set[str]:
        """The kinds of which nothing has changed since *before*."""
        return {kind for kind in self._by_kind if self.generation(kind) == before.generation(kind)}

    def _changed(self, kind: str, key: str, before: Any | None, after: Any | None) -> None:
        self._generations[kind] = self.generation(kind) + 1
        self.note(kind, key, after)
        for (indexed, by), index in self._indexes.items():
            if indexed == kind:
                _file(index, by, key, before, after)
        for listener in tuple(self._listeners.get(kind, ())):
            listener(before, after)


def _file(
    index: dict[str, dict[str, Any]], by: Value, key: str, before: Any | None, after: Any | None
) -> None:
    """Move the object of *key* from where *by* filed it before to where it belongs now."""
    old = None if before is None else by(before)
    new = None if after is None else by(after)
    if old is not None and old != new:
        peers = index[old]
        del peers[key]
        if not peers:
            del index[old]
    if new is not None:
        index.setdefault(new, {})[key] = after
