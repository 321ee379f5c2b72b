"""How much capacity other placements would strand: what is free where typical pods do not fit.

Owns the estimate. It is that of `simulation_report.fragmentation`, for the nodes of one decision at
a time: each is compared on the snapshot that it was made on, so effects of several do not add up.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from engine.core.caching.snapshot import Snapshot
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod

#: Kinds of pods, by what they request, that count as typical.
MOST_KINDS: Final = 32

_Amounts = Mapping[str, int]


class Stranding:
    """Sums up what is stranded by placements that differ."""

    def __init__(self) -> None:
        self._kinds: Counter[tuple[tuple[str, int], ...]] = Counter()
        self._requested: Counter[str] = Counter()
        self._stranded: dict[str, float] = {}

    def note(self, pod: Pod, before: str, after: str, snapshot: Snapshot) -> None:
        """Count *pod*, which goes to the node *before*, and under the candidate to *after*."""
        requests = pod.requests
        self._requested.update(requests)
        kind = tuple(sorted(requests.items()))
        if kind in self._kinds or len(self._kinds) < MOST_KINDS:
            self._kinds[kind] += 1
        if before == after:
            return
        for node, sign in ((before, -1), (after, 1)):
            info = snapshot.info(node)
            assert info is not None
            for name, amount in self._effect(info, requests).items():
                self._stranded[name] = self._stranded.get(name, 0.0) + sign * amount

    @property
    def share(self) -> float | None:
        """How much more is stranded, of what the pods request; of the resource where it is most.

        None: no pod was counted.
        """
        if not self._kinds:
            return None
        return max(
            (
                self._stranded.get(name, 0.0) / sum_
                for name, sum_ in self._requested.items()
                if sum_
            ),
            default=0.0,
        )

    def _effect(self, info: NodeInfo, requests: _Amounts) -> dict[str, float]:
        """How much more is stranded on a node with a pod than without."""
        assert info.node is not None
        free = {
            name: amount - info.requested.get(name, 0)
            for name, amount in info.node.allocatable.items()
        }
        left = {name: amount - requests.get(name, 0) for name, amount in free.items()}
        before, after = self._lost(free), self._lost(left)
        return {name: left[name] * after - free[name] * before for name in requests if name in free}

    def _lost(self, free: _Amounts) -> float:
        """The share of typical pods that do not fit."""
        lost = sum(
            number
            for kind, number in self._kinds.items()
            if any(amount > free.get(name, 0) for name, amount in kind)
        )
        return lost / self._kinds.total()
