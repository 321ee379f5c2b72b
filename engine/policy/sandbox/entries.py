"""The decoded entries of a translated hook: each distinct text is decoded once, and kept.

Owns the store and its bounds. An entry of a column (see `projected`) is found by its number,
without a look at its text.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final

from engine.policy.sandbox.projected import Projected
from engine.policy.sandbox.translation.operations import TooMuchError

# Entries of a store, and how long their texts are together, unless one call has more. A cluster
# of 5,000 nodes fits: a store that is cleared has every node decoded again.
_MAX_ENTRIES: Final = 8192
_MAX_BYTES: Final = 16 << 20
# Columns of nodes whose entries are known by number.
_MAX_COLUMNS: Final = 64


class Entries:
    """What one hook was asked about lately, decoded. Bounded.

    Args:
        decode: Makes an entry from its JSON text.
        most_bytes: A longer text raises `TooMuchError`.
        is_named: True for an entry that shows the name of its node.

    Attributes:
        objects: The entries by place; places hold until the next call of `places`.
        are_named: True if *is_named* was true for some entry.
    """

    def __init__(
        self,
        decode: Callable[[bytes], Any],
        most_bytes: int,
        is_named: Callable[[Any], bool] = lambda entry: False,
    ) -> None:
        self._decode = decode
        self._is_named = is_named
        self._most_bytes = most_bytes
        self._clear()

    def _clear(self) -> None:
        self._places: dict[bytes, int] = {}
        self._bytes = 0
        self._by_column: dict[int, array[int]] = {}
        self.objects: list[Any] = []
        self.are_named = False

    def places(self, raws: Sequence[bytes]) -> list[int]:
        """The place of each entry. Raises `TooMuchError` if one is too large to be translated."""
        if type(raws) is not Projected:
            return self._places_of(raws)
        known = self._by_column.get(raws.column)
        if known is None or len(known) < len(raws.values):
            grown = array("q", [-1]) * (2 * len(raws.values) + 64)
            if known is not None:
                grown[: len(known)] = known
            elif len(self._by_column) >= _MAX_COLUMNS:
                self._by_column.clear()
            known = self._by_column[raws.column] = grown
        ids: list[int] = raws.ids.tolist()
        found = [known[i] for i in ids]
        if -1 not in found:
            return found
        missing = [i for i in ids if known[i] < 0]
        objects = self.objects
        places = self._places_of([raws.values[i] for i in missing])
        if self.objects is not objects:
            return self.places(raws)  # the store was cleared to make space for them
        for i, place in zip(missing, places, strict=True):
            known[i] = place
        return [known[i] for i in ids]

    def _places_of(self, raws: Sequence[bytes]) -> list[int]:
        known = self._places
        found = [known.get(raw, -1) for raw in raws]
        if -1 not in found:
            return found
        if known and (len(known) + found.count(-1) > _MAX_ENTRIES or self._bytes > _MAX_BYTES):
            self._clear()
            known, found = self._places, [-1] * len(raws)
        objects, decode = self.objects, self._decode
        for position, raw in enumerate(raws):
            if found[position] < 0:
                place = known.get(raw)
                if place is None:
                    if len(raw) > self._most_bytes:
                        raise TooMuchError
                    entry = decode(raw)
                    self.are_named = self.are_named or self._is_named(entry)
                    place = known[raw] = len(objects)
                    objects.append(entry)
                    self._bytes += len(raw)
                found[position] = place
        return found
