"""The record of decisions keeps what is shown of them, and not what was to be done."""

import gc
import weakref
from typing import Any

from engine.core.scheduling.decision import Decision
from engine.core.scheduling.diagnosis import Diagnosis
from engine.surfaces.live.decision_record import DecisionRecord


class Found:
    """What a plugin has found for a pod, which may be much."""


def test_what_plugins_found_is_not_kept() -> None:
    """It was kept for 4,096 pods: 100 kB each where devices are searched on 50 nodes."""
    record, plugin, found = DecisionRecord(), object(), Found()
    is_there = weakref.ref(found)
    reserves: Any = ((plugin, found),)
    record.note("a", Decision("node-1", Diagnosis(5), "rev1", 3, reserves=reserves), 7.0)
    del found, reserves
    gc.collect()
    assert is_there() is None
    kept = record.of("a")
    assert kept is not None
    assert (kept.decision.node, kept.decision.feasible_count, kept.at) == ("node-1", 3, 7.0)


def test_the_pods_decided_last_are_kept() -> None:
    record = DecisionRecord(most=2)
    for uid in ("a", "b", "a", "c"):
        record.note(uid, Decision(None, Diagnosis(1), "rev1"), 0.0)
    assert [record.of(uid) is not None for uid in ("a", "b", "c")] == [True, False, True]
