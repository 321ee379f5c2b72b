"""Whole worlds: the same seed does the same, and fixed seeds hold."""

import json
import os
import subprocess
import sys
import traceback
from dataclasses import replace
from typing import Any

import pytest

from devkit.faults.command import Totals, as_json
from devkit.faults.faults import all_kinds
from devkit.faults.invariants import Violation
from devkit.faults.life import FEATURES
from devkit.faults.plans import decode, encode, plan_of, smaller
from devkit.faults.reached import possible
from devkit.faults.story import simulated
from devkit.faults.world import Outcome, Plan
from engine.lib.clock import SystemClock

#: The worlds of `test_fixed_seeds_hold`, and the seconds of faults in each: together all kinds of
#: faults and all features. The one of `make test` has fewer.
SEEDS = (1, 2, 3, 4, 8, 9, 10, 11)
#: So many of them are simulated by `make test`, all of them by `make test-long`.
_SHORT = 1
SECONDS, FEWER_SECONDS = 120.0, 40.0
PLAN = Plan(5, 120.0, features=frozenset(FEATURES), faults=frozenset(all_kinds()), every=2.0)


def told(outcome: Outcome) -> str:
    """What is wrong, and how to see it again."""
    found = "\n".join(f"{one.rule}: {one.about}: {one.text}" for one in outcome.violations)
    return f"{found}\n{encode(outcome.plan).decode()}"


# --- the same seed -----------------------------------------------------------------------------


def digest(seed: int, hash_seed: str) -> str:
    """Of the world of *seed*, in a process of its own, where sets have an order of their own."""
    arguments = ["--seed", str(seed), "--seconds", "60", "--jobs", "1", "--output", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "devkit.faults", *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
        timeout=300,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return str(found["totals"]["digests"][str(seed)])


@pytest.mark.long("runs the world of one seed twice")
def test_the_same_seed_sends_the_same_bytes_at_the_same_moments() -> None:
    assert digest(10, "1") == digest(10, "2")


@pytest.mark.long("runs the worlds of two seeds")
def test_another_seed_is_another_world_and_none_asks_for_the_real_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def ask(_: SystemClock) -> float:
        asked.append("".join(traceback.format_stack(limit=5)))
        return 0.0

    monkeypatch.setattr(SystemClock, "monotonic", ask)
    monkeypatch.setattr(SystemClock, "now", ask)
    one, other = (simulated(replace(PLAN, seed=seed, seconds=8.0)) for seed in (1, 2))
    assert one.digest != other.digest
    assert not asked, asked[0]


# --- what must hold ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seed", "seconds"),
    [
        *((seed, FEWER_SECONDS) for seed in SEEDS[:_SHORT]),
        *(
            pytest.param(seed, SECONDS, marks=pytest.mark.long("more of the same"))
            for seed in SEEDS
        ),
    ],
)
@pytest.mark.slow("simulates minutes of a cluster full of faults")
def test_fixed_seeds_hold(seed: int, seconds: float) -> None:
    # In a process of its own, as users run it: what other worlds left in caches decides nothing.
    arguments = ["--seed", str(seed), "--seconds", str(seconds), "--jobs", "1", "--no-shrink"]
    done = subprocess.run(
        [sys.executable, "-m", "devkit.faults", *arguments, "--output", "json"],
        capture_output=True,
        check=False,
        timeout=600,
    )
    assert done.stdout, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["failed"] is None, found["failed"]
    assert found["totals"]["counts"]["bound"] > 0
    assert found["totals"]["faults"]
    assert found["totals"]["reached"].keys() <= possible(all_kinds())


@pytest.mark.long("simulates a cluster whose store is restored again and again")
def test_what_a_restore_forgets_is_done_again() -> None:
    """A standby that took over after one bound pods to nodes that it had not seen become full."""
    plan = replace(plan_of(3, 200.0), faults=frozenset({"restored from a backup"}), every=30.0)
    outcome = simulated(plan)
    assert not outcome.violations, told(outcome)
    assert outcome.faults["restored from a backup"] > 1


def test_a_world_that_fails_is_printed_as_json() -> None:
    failed = Outcome(PLAN, violations=[Violation("late", "default/a", "pending")])
    failed.log.append("1.000 replica-0 info")
    shown = json.loads(as_json(Totals(), failed))["failed"]
    assert shown["violations"] == [["late", "default/a", "pending"]]
    assert shown["log"] == ["1.000 replica-0 info"]


# --- plans -------------------------------------------------------------------------------------


def test_a_plan_survives_being_written() -> None:
    for seed in range(50):
        assert decode(encode(plan_of(seed))) == plan_of(seed)


def test_the_fixed_seeds_have_every_kind_of_fault_and_every_feature() -> None:
    plans = [plan_of(seed) for seed in SEEDS]
    assert frozenset.union(*(plan.faults for plan in plans)) == frozenset(all_kinds())
    assert frozenset.union(*(plan.features for plan in plans)) == frozenset(FEATURES)


def test_seeds_choose_different_faults_and_features() -> None:
    plans = [plan_of(seed) for seed in range(40)]
    assert frozenset.union(*(plan.faults for plan in plans)) == frozenset(all_kinds())
    assert frozenset.union(*(plan.features for plan in plans)) == frozenset(FEATURES)
    assert len({plan.faults for plan in plans}) == len(plans)


def test_a_plan_that_fails_is_made_as_small_as_it_fails() -> None:
    needed = {"request lost", "replica killed"}
    plan = replace(plan_of(1, 1000.0), faults=frozenset(all_kinds()), replicas=3, pieces=30)

    found = smaller(plan, lambda one: needed <= one.faults and one.seconds >= 50)
    assert found.faults == needed
    assert found.features == frozenset()
    assert found.seconds < 100
    assert (found.replicas, found.pieces) == (1, 0)
