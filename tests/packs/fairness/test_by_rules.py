"""The policies over random trees, beside their originals' rules written down plainly in Python."""

from collections.abc import Mapping
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from tests.packs.fairness.cases import RESOURCES, Case, amounts, cohorts, elastic_quotas
from tests.packs.fairness.tree_world import TreeWorld, fractions


def world_of(policy: str, one: Case, **args: Any) -> TreeWorld:
    """The queues of a case, with a pod for what each leaf uses and one for what it waits for."""
    world = TreeWorld(policy, one.total, one.queues, **args)
    for path in one.leaves:
        for found, waits in ((one.uses, False), (one.waits, True)):
            if any(found[path].values()):
                world.put(path, {r: v for r, v in found[path].items() if v}, waits=waits)
    return world


# --- Koordinator 1.8.0: runtime_quota_calculator.go -------------------------------------------


def _limited(one: Case, path: str) -> dict[str, int]:
    """What a quota asks for of the one above it."""
    quota, below = one.queues[path], one.children(path)
    found: dict[str, int] = {}
    parts_: list[Mapping[str, int]] = [_limited(one, child) for child in below]
    for parts in parts_ if below else [one.uses[path], one.waits[path]]:
        for r, amount in parts.items():
            found[r] = found.get(r, 0) + amount
    if not quota["lends"]:
        for r, least in quota["min"].items():
            found[r] = max(found.get(r, 0), least)
    return {r: min(amount, quota["max"].get(r, amount)) for r, amount in found.items()}


def _runtimes(one: Case, path: str, total: dict[str, int], found: dict[str, Any]) -> None:
    below = one.children(path)
    found.update({child: {} for child in below})
    for r in {r for child in below for r in one.queues[child]["max"]}:
        runtime, open_ = {}, []
        for child in below:
            quota = one.queues[child]
            want, least = _limited(one, child).get(r, 0), quota["min"].get(r, 0)
            weights = quota["shared_weight"]
            if not any(weights.values()):
                weights = quota["max"]
            if want > least:
                runtime[child] = least
                open_.append((child, want, weights.get(r, 0)))
            else:
                runtime[child] = want if quota["lends"] else least
        left = total.get(r, 0) - sum(runtime.values())
        while left > 0 and open_ and (weight := sum(w for _, _, w in open_)) > 0:
            back, still = 0, []
            for child, want, mine in open_:
                runtime[child] += int(float(mine) * float(left) / float(weight) + 0.5)
                if runtime[child] < want:
                    still.append((child, want, mine))
                else:
                    back, runtime[child] = back + runtime[child] - want, want
            left, open_ = back, still
        for child in below:
            found[child][r] = runtime[child]
    for child in below:
        _runtimes(one, child, found[child], found)


@pytest.mark.parametrize("seed", range(60))
def test_elastic_quotas(seed: int) -> None:
    one = elastic_quotas(Random(seed))
    want: dict[str, Any] = {}
    _runtimes(one, "", dict(one.total), want)
    assert world_of("elastic_quota", one, scale_min=False).shares() == want


# --- Kueue 0.17.0: resource_node.go, fair_sharing.go -------------------------------------------


class _Cohorts:
    """Quotas and usage as Kueue keeps them: added up from below, what is used one by one."""

    def __init__(self, one: Case) -> None:
        self.case = one
        self.quota = {path: dict.fromkeys(RESOURCES, 0) for path in one.queues}
        self.usage = {path: dict.fromkeys(RESOURCES, 0) for path in one.queues}
        for path in reversed(list(one.queues)):
            for r in RESOURCES:
                self.quota[path][r] += one.queues[path]["nominal"].get(r, 0)
                if parent := path.rpartition("/")[0]:
                    self.quota[parent][r] += self.quota[path][r] - self.own(path, r)
        for path in one.leaves:
            self.use(path, one.uses[path], 1)

    def named(self, path: str) -> set[str]:
        """The resources of which it, or one below it, has a quota, even of 0."""
        below = (self.named(child) for child in self.case.children(path))
        return set(self.case.queues[path]["nominal"]).union(*below)

    def own(self, path: str, r: str) -> int:
        """What is seen below it alone."""
        limit = self.case.queues[path]["lending_limit"].get(r)
        return 0 if limit is None else max(0, self.quota[path][r] - limit)

    def use(self, path: str, more: Mapping[str, int], sign: int) -> None:
        """Add usage, or take it away."""
        for r, amount in more.items():
            at, left = path, amount
            while at and left > 0:
                own, used = self.own(at, r), self.usage[at][r]
                self.usage[at][r] += sign * left
                left = left - max(0, own - used) if sign > 0 else min(left, used - own)
                at = at.rpartition("/")[0]

    def available(self, path: str, r: str) -> int:
        """What is free for it."""
        parent = path.rpartition("/")[0]
        if not parent:
            return self.quota[path][r] - self.usage[path][r]
        free, own = self.available(parent, r), self.own(path, r)
        if (limit := self.case.queues[path]["borrowing_limit"].get(r)) is not None:
            stored = self.quota[path][r] - own
            free = min(free, stored - max(0, self.usage[path][r] - own) + limit)
        return free + max(0, own - self.usage[path][r])

    def potential(self, path: str, r: str) -> int:
        """What could be."""
        parent = path.rpartition("/")[0]
        if not parent:
            return self.quota[path][r]
        most = self.own(path, r) + self.potential(parent, r)
        limit = self.case.queues[path]["borrowing_limit"].get(r)
        return most if limit is None else min(most, self.quota[path][r] + limit)

    def key(self, path: str, asked: dict[str, int]) -> list[Any]:
        """Borrows for what is asked; has no weight and borrows; its share."""
        parent = path.rpartition("/")[0]
        borrows, share = 0, Fraction(0)
        for r in self.named(path) if parent else ():
            borrowed = self.usage[path][r] - self.quota[path][r]
            if borrowed > 0:
                borrows |= asked.get(r, 0) > 0
                if (lent := self.potential(parent, r)) > 0:
                    share = max(share, Fraction(borrowed * 1000, lent))
        weight = self.case.queues[path]["weight"]
        if share and not weight:
            return [int(borrows), 1, share]
        return [int(borrows), 0, share * 1000 / max(weight, 1)]


@pytest.mark.parametrize("seed", range(60))
def test_cohorts(seed: int) -> None:
    random = Random(seed)
    one = cohorts(random)
    world, want = world_of("kueue_fair", one), _Cohorts(one)
    for leaf in one.leaves:
        asked = {r: v for r, v in amounts(random, 6).items() if v}
        want.use(leaf, asked, 1)
        at = leaf
        while at:
            assert fractions(world.key(at, leaf, **asked)) == want.key(at, asked), (leaf, at)
            at = at.rpartition("/")[0]
        want.use(leaf, asked, -1)
        # What the queue itself has no quota of it cannot have, whatever its cohort has.
        never = [r for r in asked if r not in world.tree.queues[leaf].attributes["nominal"]]
        lacks = never or [r for r, v in asked.items() if v > want.available(leaf, r)]
        held = world.admit(leaf, preemptible=True, **asked)
        assert (held is not None) == bool(lacks)
        if held is not None and held[1] is not None:
            r, by = held[1]
            assert by == asked[r] - want.available(leaf, r)
        elif held is not None:
            assert never or any(v > want.potential(leaf, r) for r, v in asked.items())
