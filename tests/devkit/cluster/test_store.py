"""The store beside a plain model: current state, past states, changes, under random operations."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from devkit.cluster.store import Change, CompactedError, Store
from tests.searching import examples

NAMES = st.sampled_from(["a/x", "a/y", "a-b/x", "b/x", "b/z"])
Json = dict[str, Any]


class Recorder:
    """A subscriber that remembers."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def offer(self, change: Change) -> None:
        self.changes.append(change)


class StoreMachine(RuleBasedStateMachine):
    """Every operation is done to the store and to dicts; every past state is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store(history=12)
        self.table = self.store.table("things")
        self.recorder = Recorder()
        self.table.subscribers.append(self.recorder)
        self.now: dict[str, int] = {}
        self.past: dict[int, dict[str, int]] = {0: {}}
        self.counter = 0

    def keep(self) -> None:
        self.past[self.store.revision] = dict(self.now)

    @rule(key=NAMES)
    def write(self, key: str) -> None:
        self.counter += 1
        version = self.store.write("things", key, {"metadata": {}, "value": self.counter})
        assert version.revision == self.store.revision
        self.now[key] = self.counter
        self.keep()

    @rule()
    def write_elsewhere(self) -> None:
        self.store.write("others", "x", {"metadata": {}})
        self.keep()

    @precondition(lambda self: self.now)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.now)))
        last = self.store.delete("things", key)
        assert last.manifest["value"] == self.now.pop(key)
        assert last.manifest["metadata"]["resourceVersion"] == str(self.store.revision)
        self.keep()

    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        self.store.compact(data.draw(st.integers(0, self.store.revision)))

    @rule(data=st.data())
    def look_back(self, data: st.DataObject) -> None:
        revision = data.draw(st.sampled_from(sorted(self.past)))
        if revision < self.table.floor:
            with pytest.raises(CompactedError):
                self.table.at(revision)
            return
        got = {version.key: version.manifest["value"] for version in self.table.at(revision).scan()}
        assert got == self.past[revision]
        assert list(got) == sorted(got)

    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        revision = data.draw(st.sampled_from(sorted(self.past)))
        if revision < self.table.floor:
            with pytest.raises(CompactedError):
                self.table.since(revision)
            return
        state = dict(self.past[revision])
        for change in self.table.since(revision):
            old = change.old.manifest["value"] if change.old else None
            assert state.get(change.key) == old
            if change.new is None:
                del state[change.key]
            else:
                state[change.key] = change.new.manifest["value"]
        assert state == self.now

    @rule(prefix=st.sampled_from(["a/", "a-b/", "b/", "c/"]))
    def scan(self, prefix: str) -> None:
        got = [version.key for version in self.table.at(self.store.revision).scan(prefix)]
        assert got == sorted(key for key in self.now if key.startswith(prefix))

    @invariant()
    def holds(self) -> None:
        self.store.check_invariants()
        seen = [change.revision for change in self.recorder.changes]
        assert seen == sorted(set(seen))


StoreMachine.TestCase.settings = settings(
    max_examples=examples(40), stateful_step_count=30, deadline=None
)
TestStore = StoreMachine.TestCase
