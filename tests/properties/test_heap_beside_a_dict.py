"""The keyed heap beside a dict that is sorted on demand."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.lib.heap import KeyedHeap

pytestmark = pytest.mark.slow("searches for long")

KEYS = st.sampled_from("abcde")


class HeapBesideADict(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.heap: KeyedHeap[str, int] = KeyedHeap()
        self.model: dict[str, tuple[int, int]] = {}  # key -> (order, when it was pushed)
        self.pushes = 0

    @rule(key=KEYS, order=st.integers(0, 3))
    def push(self, key: str, order: int) -> None:
        self.pushes += 1
        self.heap.push(key, self.pushes, order)
        self.model[key] = (order, self.pushes)

    @rule(key=KEYS)
    def remove(self, key: str) -> None:
        want = self.model.pop(key, None)
        assert self.heap.remove(key) == (want and want[1])

    @rule()
    def pop(self) -> None:
        want = min(self.model.values(), default=None)
        assert self.heap.pop() == (want and want[1])
        self.model = {key: value for key, value in self.model.items() if value != want}

    @invariant()
    def agree(self) -> None:
        self.heap.check_invariants()
        assert sorted(self.heap) == sorted(pushed for _, pushed in self.model.values())


TestHeap = HeapBesideADict.TestCase
