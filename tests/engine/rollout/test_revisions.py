"""Which revision decides and which one it is taken back to, whatever happens in which order."""

from typing import Any, cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.policy.bundle import build_bundle
from engine.rollout.revisions import Revisions
from engine.rollout.trial import LoadedRevision

_RUNTIME = (
    "apiVersion: starsched.dev/v1\nkind: PolicyRuntime\n"
    "fallback: {errorRate: 0.5, minDecisions: 2, window: 60s}\n"
)
BUNDLE = build_bundle({"runtime.yaml": _RUNTIME})


def a_revision() -> LoadedRevision:
    nothing: Any = cast(Any, None)
    return LoadedRevision(BUNDLE, {}, nothing, nothing)


class _Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.revisions = Revisions()
        self.open: list[LoadedRevision] = []

    def close(self, unneeded: list[LoadedRevision]) -> None:
        for one in unneeded:
            self.open.remove(one)  # each is given up once

    @rule(on_probation=st.booleans())
    def replace(self, on_probation: bool) -> None:
        new, back_to = a_revision(), self.revisions.proven()
        self.open.append(new)
        self.close(self.revisions.replace(new, on_probation=on_probation))
        assert self.revisions.active is new
        assert self.revisions.previous is (back_to if on_probation else None)
        assert self.revisions.counts.decisions == 0

    @precondition(lambda self: self.revisions.active is not None)
    @rule(failed=st.booleans())
    def decide(self, failed: bool) -> None:
        self.revisions.counts.count(0.0, failed)

    @rule()
    def pass_probation(self) -> None:
        self.close(self.revisions.pass_probation())
        assert self.revisions.proven() is self.revisions.active

    @precondition(lambda self: self.revisions.failure() is not None)
    @rule()
    def roll_back(self) -> None:
        back_to = self.revisions.previous
        assert self.revisions.proven() is back_to
        self.close([self.revisions.roll_back()])
        assert self.revisions.active is back_to
        assert self.revisions.failure() is None

    @rule()
    def clear(self) -> None:
        self.close(self.revisions.clear())
        assert self.revisions.active_revision == ""

    @invariant()
    def what_is_needed_is_open_and_nothing_else(self) -> None:
        needed = (self.revisions.active, self.revisions.previous)
        assert {id(o) for o in self.open} == {id(o) for o in needed if o is not None}
        assert self.revisions.previous is None or self.revisions.active is not None


TestRevisions = _Machine.TestCase
