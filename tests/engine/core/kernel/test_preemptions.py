"""Preemptions under way beside a plain list of them: who is evicted, and who must not be tried."""

import random
from dataclasses import dataclass

import pytest

from engine.core.kernel.preemptions import (
    WAITING,
    WAITING_AS_GROUP,
    WAITING_FOR_OTHERS,
    Preemptions,
)


@dataclass(frozen=True)
class _Preemption:
    preemptor: str
    node: str
    victims: tuple[str, ...]
    group: tuple[str, ...]


@pytest.mark.parametrize("seed", range(6))
def test_pods_are_evicted_and_held_while_a_preemption_says_so(seed: int) -> None:
    """A pod that was turned away is named as soon as its gate may be open."""
    rng = random.Random(seed)
    preemptions, under_way = Preemptions(), dict[str, _Preemption]()
    turned_away: dict[str, str] = {}  # by uid, for which node
    for _ in range(150):
        uid, node = rng.choice("abcd"), rng.choice(("n1", "n2"))
        if uid in under_way or rng.random() < 0.1:
            ended = under_way.pop(uid, None)
            want = set() if ended is None else set(ended.group)
            if ended is not None and all(p.node != ended.node for p in under_way.values()):
                want |= {held for held, of_node in turned_away.items() if of_node == ended.node}
                turned_away = {k: v for k, v in turned_away.items() if k not in want}
            assert set(preemptions.end(uid)) == want
        elif not any(uid in one.group for one in under_way.values()):
            victims = tuple(rng.sample("vwxyz", rng.randint(1, 3)))
            free = [one for one in "efgh" if all(one not in p.group for p in under_way.values())]
            group = (uid, *rng.sample(free, min(1, len(free)))) if rng.random() < 0.4 else ()
            under_way[uid] = _Preemption(uid, node, victims, group)
            preemptions.begin(uid, node, list(victims), group)
        preemptions.check_invariants()
        for victim in "vwxyz":
            is_victim = any(victim in one.victims for one in under_way.values())
            assert preemptions.is_evicted(victim) is is_victim
        asked, nominated = rng.choice("abcdefgh"), rng.choice((None, "n1", "n2"))
        for one in "abcd":
            assert (one in preemptions) is (one in under_way)
        why = None
        if any(asked in one.group for one in under_way.values()):
            why = WAITING_AS_GROUP
        elif asked in under_way:
            why = WAITING
        elif any(one.node == nominated for one in under_way.values()):
            why = WAITING_FOR_OTHERS
            assert nominated is not None
            turned_away[asked] = nominated
        gate = preemptions.gate(asked, nominated)
        assert (None if gate is None else gate[1]) == why
