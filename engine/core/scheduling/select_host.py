"""Picks one of the best nodes: reproducibly, and evenly over many pods.

Owns ties only. The default order among equals is a hash of the pod's uid and the node's name, so
the same pod on the same cluster always goes to the same node, and many pods spread evenly.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B97F4A7C15
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_WORD = (1 << 64) - 1

SortKey = tuple[tuple[int, int | str], ...]
"""A key in which any two have an order; see `sort_key`."""


def highest(totals: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of the highest of *totals*, ascending."""
    # Finding a place of the maximum is several times as fast as finding the maximum.
    places: NDArray[np.int64] = (totals == totals[totals.argmax()]).nonzero()[0]
    return places


def sort_key(parts: Sequence[int | str]) -> SortKey:
    """A key of ints and strings in which any two have an order: ints before strings."""
    return tuple((1, part) if isinstance(part, str) else (0, part) for part in parts)


def name_hash(name: str) -> int:
    """A 64-bit hash of *name* that is the same in every process and on every machine."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def tie_order(uid: str, name_hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The rank of each node for the pod *uid*: smaller goes first.

    *name_hashes* are `name_hash` of the node names; different ones get different ranks. Both
    hashes are good ones, so that one odd multiplication, whose upper bits depend on all of both,
    lets equal nodes share pods evenly.
    """
    ranks: NDArray[np.uint64] = name_hashes ^ np.uint64(name_hash(uid) * _GOLDEN & _WORD)
    ranks *= _MIX  # arrays wrap around without a warning
    return ranks
