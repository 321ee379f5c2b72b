"""The other objects that decisions read: namespaces, services, budgets, volumes, classes.

Owns their last known state by kind and key. Pods and nodes live in `cache.py`.
"""

from typing import Any, Protocol

from engine.model.objects import ObjectMeta


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


class ObjectStore:
    """Objects by kind (the plural resource name, such as `services`) and key."""

    def __init__(self) -> None:
        self._by_kind: dict[str, dict[str, Any]] = {}
        self._by_namespace: dict[tuple[str, str], dict[str, Any]] = {}
        self._generations: dict[str, int] = {}

    def put(self, kind: str, obj: ApiObject) -> None:
        """Add *obj*, or replace the one of the same key."""
        key = object_key(obj)
        self._by_kind.setdefault(kind, {})[key] = obj
        if obj.metadata.namespace:
            self._by_namespace.setdefault((kind, obj.metadata.namespace), {})[key] = obj
        self._generations[kind] = self.generation(kind) + 1

    def delete(self, kind: str, key: str) -> None:
        """Remove the object of *key*; nothing happens if there is none."""
        if self._by_kind.get(kind, {}).pop(key, None) is None:
            return
        namespace, slash, _ = key.partition("/")
        if slash:
            peers = self._by_namespace[kind, namespace]
            del peers[key]
            if not peers:
                del self._by_namespace[kind, namespace]
        self._generations[kind] = self.generation(kind) + 1

    def get(self, kind: str, key: str) -> Any | None:
        """The object of *key*, or None."""
        return self._by_kind.get(kind, {}).get(key)

    def list(self, kind: str, namespace: str | None = None) -> list[Any]:
        """All objects of *kind*, or those of one namespace, in the order they first came."""
        if namespace is not None:
            return list(self._by_namespace.get((kind, namespace), {}).values())
        return list(self._by_kind.get(kind, {}).values())

    def count(self, kind: str) -> int:
        """How many objects of *kind* there are."""
        return len(self._by_kind.get(kind, {}))

    def generation(self, kind: str) -> int:
        """A number that grows with each change of *kind*; 0 before the first."""
        return self._generations.get(kind, 0)
