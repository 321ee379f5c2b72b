"""Shares of single devices: what is left of each one, by the annotations of the node's pods.

Owns one convention, that of device plugins that share GPUs. A node offers `PREFIXcount` devices. A
pod requests them by annotations: `PREFIXcount` of them, and if it is one, thousandths of it by
`PREFIXmilli`; `PREFIXindex` says which it was given (`2-3`). What follows is the policy's business.
"""

import functools
from typing import Final

from engine.core.model.node_info import NodeInfo
from engine.language.numbers import parse_int

WHOLE: Final = 1000
# A node may say any number of its devices, and each of them is looked at.
MOST_DEVICES: Final = 1024


class DeviceShares(dict[str, list[int]]):
    """What is left of a node's devices, by the prefix of their names, computed on look-up.

    As a whole it is empty: only a policy knows which prefixes are devices.
    """

    def __init__(self, info: NodeInfo) -> None:
        super().__init__()
        self._info = info

    def __contains__(self, prefix: object) -> bool:
        return True

    def __getitem__(self, prefix: str) -> list[int]:
        # Several hooks ask for the same about the node that changed last.
        known = _last.get(prefix)
        if known is None or known[0] is not self._info:
            if len(_last) >= _MOST_PREFIXES:
                _last.clear()
            known = _last[prefix] = self._info, shares_left(self._info, prefix)
        return known[1]


_MOST_PREFIXES: Final = 16
_last: Final[dict[str, tuple[NodeInfo, list[int]]]] = {}


def shares_left(info: NodeInfo, prefix: str) -> list[int]:
    """Thousandths left of each device of *info* whose names start with *prefix*, by index.

    A pod that names no device counts on those with least left that take it, large pods first.
    Indices that the node does not have, those beyond the number that a pod asks for, and amounts
    that are no numbers, take nothing. Devices beyond the first `MOST_DEVICES` do not count.
    """
    count, milli, index = f"{prefix}count", f"{prefix}milli", f"{prefix}index"
    offered = 0 if info.node is None else info.node.allocatable.get(count, 0)
    left = [WHOLE] * max(0, min(offered, MOST_DEVICES))
    unnamed: list[tuple[int, int]] = []
    for pod in info.pods.values():
        given = pod.annotations
        if not given or not (index in given or count in given or milli in given):
            continue
        number, each, named = _share(given.get(count), given.get(milli), given.get(index))
        if named is None:
            unnamed.append((number, each))
            continue
        for i in named:
            if i < len(left):
                left[i] = max(0, left[i] - each)
    for number, each in sorted(unnamed, reverse=True):
        fitting = sorted((amount, i) for i, amount in enumerate(left) if amount >= each)
        if len(fitting) >= number:
            for _, i in fitting[:number]:
                left[i] -= each
    return left


@functools.lru_cache(maxsize=4096)
def _share(
    count: str | None, milli: str | None, index: str | None
) -> tuple[int, int, tuple[int, ...] | None]:
    """How many devices, thousandths of each, and which ones; None: it names none."""
    each = parse_int(milli or "", 0)
    number = parse_int(count or "", 1 if each > 0 else 0)
    is_share = number == 1 and 0 < each < WHOLE
    named = None
    if index is not None:
        parts = (parse_int(part, -1) for part in index.split("-"))
        # A pod may name any; it takes no more than it requests.
        named = tuple(dict.fromkeys(i for i in parts if i >= 0))[: max(0, number)]
    return max(0, number), each if is_share else WHOLE, named
