"""What is counted for the arms of a canary."""

import pytest

from engine.rollout import arms
from engine.rollout.arms import ArmCounter
from engine.rollout.measures import ArmMeasures, ShadowMeasures


def test_decisions_and_their_owners_are_counted() -> None:
    counter = ArmCounter()
    counter.decided("web", 1.0, failed=False, victims=0)
    counter.stays("web")
    counter.decided("web", 2.0, failed=False, victims=2)
    counter.stays("web")
    counter.decided("job", 0.0, failed=True, victims=0)
    counter.bound("job", 3.0)
    counter.bound("job", 4.0)
    assert counter.measures == ArmMeasures(
        decisions=3,
        failed=1,
        pending=2,
        victims=2,
        seconds=3.0,
        squares=5.0,
        bound=2,
        bind_seconds=7.0,
        bind_squares=25.0,
        owners=2,
        failed_owners=1,
        pending_owners=1,
        evicting_owners=1,
        bound_owners=1,
    )


def test_what_is_kept_from_being_decided_is_an_attempt() -> None:
    """A gate that lets nothing through, or fails, made no decision, and nothing was counted."""
    counter = ArmCounter()
    counter.held("web")
    counter.held("job", failed=True)
    assert counter.measures == ArmMeasures(held=2, failed=1, owners=2, failed_owners=1)
    assert counter.measures.attempts == 2


def test_owners_are_told_apart_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arms, "MOST_OWNERS", 2)
    counter = ArmCounter()
    for owner in "abcd":
        counter.decided(owner, 0.0, failed=False, victims=0)
    assert (counter.measures.decisions, counter.measures.owners) == (4, 2)


def test_times_of_a_shadow_are_summed_with_their_squares() -> None:
    measures = ShadowMeasures()
    measures.count_time(1.0, 2.0)
    measures.count_time(3.0, 4.0)
    assert measures == ShadowMeasures(
        seconds=4.0, seconds_before=6.0, squares=10.0, squares_before=20.0, timed=2
    )


def test_a_wait_that_is_over_counts_if_the_pod_is_still_pending() -> None:
    counter = ArmCounter()
    for uid, until in (("a", 1.0), ("b", 1.0), ("c", 5.0)):
        counter.waits(uid, f"owner of {uid}", until)
    counter.waits("a", "owner of a", 9.0)  # reported again: it waits since the first time
    counter.end_waits(2.0, lambda uid: uid != "b")
    assert counter.measures == ArmMeasures(pending=1, pending_owners=1)
    counter.end_waits(5.0, lambda _: True)
    assert counter.measures == ArmMeasures(pending=2, pending_owners=2)
