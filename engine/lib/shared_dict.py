"""A dict whose changed copies share most of it.

Owns how the entries are shared out: in chunks, in the order in which the keys came. A change copies
one chunk and the list of chunks, whatever the size.
"""

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from itertools import chain
from typing import Final, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

#: Entries of a chunk: more than the pods that most nodes have, so that their lookups see one.
_MOST_ENTRIES: Final = 256


class SharedDict(Mapping[Key, Value]):
    """A mapping that never changes; iterates in the order in which the keys came.

    A lookup takes as many steps as there are chunks.
    """

    __slots__ = ("_chunks", "_count")

    def __init__(self) -> None:
        # None of them is empty.
        self._chunks: list[dict[Key, Value]] = []
        self._count = 0

    def having(self, key: Key, value: Value) -> "SharedDict[Key, Value]":
        """The same with *value* at *key*: at its place if it is there, else at the end."""
        copy = self._copy()
        number = self._find(key)
        if number is None:
            copy._count += 1
            number = len(self._chunks) - 1
            if not self._chunks or len(self._chunks[-1]) >= _MOST_ENTRIES:
                number += 1
                copy._chunks.append({})
        copy._chunks[number] = {**copy._chunks[number], key: value}
        return copy

    def without(self, key: Key) -> "SharedDict[Key, Value]":
        """The same without *key*. Raises `KeyError` if it is not there."""
        number = self._find(key)
        if number is None:
            raise KeyError(key)
        copy = self._copy()
        copy._count -= 1
        left = self._chunks[number].copy()
        del left[key]
        copy._chunks[number : number + 1] = [left] if left else []
        return copy

    def _find(self, key: object) -> int | None:
        """The number of the chunk that has *key*; None: it is not there."""
        for number, chunk in enumerate(self._chunks):
            if key in chunk:
                return number
        return None

    def _copy(self) -> "SharedDict[Key, Value]":
        copy: SharedDict[Key, Value] = SharedDict()
        copy._chunks = self._chunks.copy()
        copy._count = self._count
        return copy

    def __getitem__(self, key: Key) -> Value:
        number = self._find(key)
        if number is None:
            raise KeyError(key)
        return self._chunks[number][key]

    def __contains__(self, key: object) -> bool:
        return self._find(key) is not None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Key]:
        return chain.from_iterable(self._chunks)

    def values(self) -> ValuesView[Value]:
        """Its values, in the order of its keys."""
        return _Values(self)

    def items(self) -> ItemsView[Key, Value]:
        """Its keys and values, in their order."""
        return _Items(self)


class _Values(ValuesView[Value]):
    _mapping: SharedDict[object, Value]

    def __iter__(self) -> Iterator[Value]:
        return chain.from_iterable(map(dict.values, self._mapping._chunks))


class _Items(ItemsView[Key, Value]):
    _mapping: SharedDict[Key, Value]

    def __iter__(self) -> Iterator[tuple[Key, Value]]:
        return chain.from_iterable(map(dict.items, self._mapping._chunks))
