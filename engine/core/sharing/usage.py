"""What each queue used of the cluster in the past, the less the longer ago.

Owns one number for each queue and resource: what is allocated over what the nodes offer, decayed
with a half-life. While both stay as they are it moves towards their ratio *a*:

    v(t) = a + (v0 - a) * 2^(-(t - t0) / half_life)

It is computed at changes alone, in whole milliseconds and in fixed point: floats of the powers of
two differ between machines, and queues may go by the last digit. It is *read* at multiples of the
sampling interval, so that time changes what policies see then and never in between. What nodes
offer is taken as of a change, or of the reading before.

With 32 bits after the point, the decay of ten milliseconds would lose a percent of a week's
half-life; there are 64.
"""

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from engine.core.sharing.amounts import LARGEST, NOT_DIVIDED, Amounts

_BITS: Final = 64
_ONE: Final = 1 << _BITS

#: What policies see is in these parts of the cluster, and what is saved.
THOUSANDTHS: Final = 1_000
BILLIONTHS: Final = 1_000_000_000

# A queue that had nothing for twenty half-lives after it had the whole cluster is forgotten.
_NEGLIGIBLE: Final = _ONE // 1_000_000


def _powers() -> Iterator[int]:
    """2^(-1/2), 2^(-1/4), ...: exact roots, each rounded once."""
    power, extra = 1 << (2 * _BITS - 1), _BITS
    for _ in range(_BITS):
        power = math.isqrt(power << (2 * _BITS))
        yield (power + (1 << (extra - 1))) >> extra


_POWERS: Final = tuple(_powers())


@functools.lru_cache(maxsize=1024)
def decay(elapsed: int, half_life: int) -> int:
    """2^(-elapsed / half_life) in parts of 2^64; both in the same unit, *half_life* above 0.

    Costs a product for each bit of what is left of a half-life.
    """
    halvings, rest = divmod(elapsed, half_life)
    if halvings > _BITS:
        return 0
    factor, fraction = _ONE, (rest << _BITS) // half_life
    for place, power in enumerate(_POWERS, start=1):
        if fraction >> (_BITS - place) & 1:
            factor = _rounded(factor * power)
    return factor >> halvings


def _rounded(product: int) -> int:
    return (product + (_ONE >> 1)) >> _BITS


@dataclass(slots=True)
class _Cell:
    """One resource of a queue.

    Attributes:
        value: What was used, in parts of 2^64 of what nodes offer, at the moment *at*.
        target: What that moves towards.
        allocated: What the queue has of the resource, of which *target* is made.
    """

    value: int
    at: int
    target: int
    allocated: int

    def value_at(self, now: int, half_life: int) -> int:
        """The value at *now* (milliseconds), if nothing changes until then."""
        if self.value == self.target or now <= self.at:
            return self.value
        return self.target + _rounded((self.value - self.target) * decay(now - self.at, half_life))

    def move(self, now: int, half_life: int) -> None:
        """Take the value of *now*."""
        self.value, self.at = self.value_at(now, half_life), max(now, self.at)


class Usage:
    """What queues used, by path and resource; all times are in milliseconds of one clock.

    Args:
        half_life: After so long without anything, half is left.
        sampling: It is read at multiples of this.
    """

    def __init__(self, half_life: int, sampling: int) -> None:
        self._half_life = half_life
        self._sampling = sampling
        self._cells: dict[str, dict[str, _Cell]] = {}
        self._shown: dict[str, dict[str, int]] = {}
        self._next = 0

    def __getitem__(self, path: str) -> Amounts:
        """What the queue of *path* used, as read last: thousandths by resource, none of them 0."""
        return self._shown.get(path, {})

    @property
    def next_reading(self) -> int | None:
        """When it is to be read next; None: nothing was used, and nothing is."""
        return self._next if self._cells else None

    @property
    def paths(self) -> list[str]:
        """The queues that had something, and had not always nothing."""
        return list(self._cells)

    def retime(self, half_life: int, sampling: int, now: int) -> None:
        """Go on with another half-life and sampling interval from *now* on."""
        for cells in self._cells.values():
            for cell in cells.values():
                cell.move(now, self._half_life)
        self._half_life, self._sampling, self._next = half_life, sampling, now

    def follow(self, path: str, allocated: Amounts, offered: Amounts, now: int) -> None:
        """The queue of *path* has *allocated* from *now* on, of what the nodes offer.

        What is due before has been read.
        """
        cells = self._cells.setdefault(path, {})
        for resource in allocated.keys() | cells.keys():
            if resource in NOT_DIVIDED:
                continue
            amount, cell = allocated.get(resource, 0), cells.get(resource)
            if cell is None:
                cell = cells[resource] = _Cell(0, now, 0, 0)
            if cell.allocated != amount:
                cell.move(now, self._half_life)
                cell.allocated, cell.target = amount, _part(amount, offered.get(resource, 0))
        if not cells:
            del self._cells[path]

    def read(self, offered: Amounts, now: int) -> set[str]:
        """Read it as of the last multiple of the sampling interval, if that has not been.

        Returns the queues that policies see something else of. Costs a product for each queue and
        resource that has, or had, something.
        """
        if now < self._next:
            return set()
        at = now - now % self._sampling
        self._next = at + self._sampling
        changed = set()
        for path, cells in list(self._cells.items()):
            for resource, cell in list(cells.items()):
                cell.move(at, self._half_life)
                cell.target = _part(cell.allocated, offered.get(resource, 0))
                if not cell.allocated and cell.value < _NEGLIGIBLE:
                    del cells[resource]
            if not cells:
                del self._cells[path]
            found = {r: parts for r, cell in cells.items() if (parts := _shown(cell.value))}
            if found != self._shown.get(path, {}):
                changed.add(path)
                if found:
                    self._shown[path] = found
                else:
                    del self._shown[path]
        return changed

    def to_plain(self, now: int) -> dict[str, dict[str, int]]:
        """What to save: billionths by path and resource, the queues first that used most."""
        found: dict[str, dict[str, int]] = {}
        for path, cells in self._cells.items():
            values = {r: cell.value_at(now, self._half_life) for r, cell in cells.items()}
            parts = {r: _rounded(value * BILLIONTHS) for r, value in sorted(values.items())}
            if kept := {r: part for r, part in parts.items() if part}:
                found[path] = kept
        largest = sorted(found, key=lambda path: (-max(found[path].values()), path))
        return {path: found[path] for path in largest}

    def restore(self, saved: Mapping[str, Mapping[str, int]], age: int, now: int) -> None:
        """Go on from what was *saved* so long ago, in place of what was learned since.

        Meanwhile queues are taken to have had what they have now.
        """
        for path, parts in saved.items():
            cells = self._cells.setdefault(path, {})
            for resource, part in parts.items():
                cell = cells.setdefault(resource, _Cell(0, now, 0, 0))
                cell.value, cell.at = part * _ONE // BILLIONTHS, now - age
                cell.move(now, self._half_life)
        self._next = min(self._next, now)

    def check_invariants(self, allocated: Mapping[str, Amounts], now: int) -> None:
        """Raise `AssertionError` unless it follows what the queues have *allocated*."""
        for path in allocated.keys() | self._cells.keys():
            cells = self._cells.get(path, {})
            has = {r: amount for r, cell in cells.items() if (amount := cell.allocated)}
            wanted = {r: v for r, v in allocated.get(path, {}).items() if r not in NOT_DIVIDED}
            assert has == wanted, f"usage of `{path or 'root'}` follows {has}, not {wanted}"
            for resource, cell in cells.items():
                assert cell.value >= 0, f"usage of {resource} in `{path}` is below 0"
                assert cell.at <= now, f"usage of {resource} in `{path}` is of the future"
                if cell.at == self._next - self._sampling:  # nothing has changed since the reading
                    shown = self[path].get(resource, 0)
                    assert shown == _shown(cell.value), f"usage of {resource} in `{path}`: shown"


def _part(amount: int, offered: int) -> int:
    """*amount* of what is *offered*; nothing of what no node has."""
    return (amount << _BITS) // offered if offered else 0


def _shown(value: int) -> int:
    return min(_rounded(value * THOUSANDTHS), LARGEST)
