"""Objects of the API as they will be once our own writes have come back through the watch.

Owns the overlay: a decision that changes a volume or a claim shows it changed at once, so that the
next decision does not give the same thing away again. Only the watch writes to the store below.
"""

from typing import Any

from engine.core.caching.objects import ApiObject, ObjectStore, object_key


class AssumedObjects:
    """One kind of the store, with changes that the API server has not confirmed yet.

    An object, by key::

        as stored --assume--> assumed --restore--> as stored
        assumed --the store has another version, or none--> as stored

    The watch is authoritative: any other version that it brings ends the assumption.
    """

    def __init__(self, objects: ObjectStore, kind: str) -> None:
        self._objects = objects
        self._kind = kind
        # key -> (the object as assumed, the stored one that it was made from)
        self._assumed: dict[str, tuple[Any, Any]] = {}

    def get(self, key: str) -> Any | None:
        """The object of *key* as assumed, else as stored; None if there is none."""
        stored = self._objects.get(self._kind, key)
        if key in self._assumed:
            assumed, base = self._assumed[key]
            if stored is base:
                return assumed
            del self._assumed[key]
        return stored

    def list(self, namespace: str | None = None) -> list[Any]:
        """All objects, or those of one namespace, in the order they first came."""
        stored = self._objects.list(self._kind, namespace)
        if not self._assumed:
            return stored
        return [self.get(object_key(obj)) for obj in stored]

    def assume(self, obj: ApiObject) -> None:
        """Show *obj* instead of the stored one of its key. Raises `KeyError` if there is none."""
        key = object_key(obj)
        stored = self._objects.get(self._kind, key)
        if stored is None:
            raise KeyError(key)
        self._assumed[key] = (obj, stored)

    def restore(self, key: str) -> None:
        """Show the stored object of *key* again; nothing happens if none was assumed."""
        self._assumed.pop(key, None)

    def changed(self, before: ApiObject | None, after: ApiObject | None) -> None:
        """Drop what was assumed of an object that the store has another version of, or none.

        A listener of the store, for assumptions that last: the key of an object that is gone is
        never asked for again.
        """
        one = before if after is None else after
        assert one is not None, "nothing changed"
        known = self._assumed.get(object_key(one))
        if known is not None and known[1] is not after:
            self.restore(object_key(one))

    def is_assumed(self, key: str) -> bool:
        """True while the object of *key* is shown otherwise than stored."""
        self.get(key)
        return key in self._assumed
