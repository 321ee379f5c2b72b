"""The planted faults: each is where its table says, and the runner finds and counts them."""

import ast
from collections import Counter

import pytest

from tests.devkit.faults.planted.fault import ROOT, PlantedFault
from tests.devkit.faults.planted.hunt import Hunt
from tests.devkit.faults.planted.runner import begun, hunted, run
from tests.devkit.faults.planted.table import ALL, PARTS

FAULT = PlantedFault("one", "engine/lib/clock.py", "", "", "")


def test_there_are_a_hundred_of_different_names() -> None:
    names = Counter(fault.name for part in PARTS.values() for fault in part)
    assert names.total() == len(names) == len(ALL) == 100


def test_they_are_spread_over_the_parts_of_the_scheduler() -> None:
    assert {part: len(faults) for part, faults in PARTS.items()} == {
        "kernel": 20,
        "cache": 15,
        "queue": 15,
        "binding": 15,
        "watching": 15,
        "leader election": 8,
        "roll-out": 12,
    }


@pytest.mark.parametrize("part", PARTS)
def test_each_changes_one_place_to_something_that_compiles(part: str) -> None:
    for fault in PARTS[part]:
        before = (ROOT / fault.path).read_text()
        changed = fault.source()
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(before)), fault.name


def test_a_text_that_is_not_there_once_is_refused() -> None:
    with pytest.raises(ValueError, match=r"want its text once in `engine/lib/clock.py`, found it"):
        FAULT.source()


# --- the runner --------------------------------------------------------------------------------


def test_the_budget_is_shared_and_the_worlds_are_not_repeated() -> None:
    calls: list[tuple[str, int, float]] = []

    def hunt(name: str, first: int, cpu_seconds: float) -> Hunt:
        calls.append((name, first, cpu_seconds))
        if name == "easy":
            return Hunt("late", "a pod", "", first, 1.0)
        return Hunt("", "", "", first + 3, cpu_seconds)

    faults = [PlantedFault(name, "", "", "", "") for name in ("easy", "hard")]
    report = begun(faults, 7)
    run(report, budget=102.0, jobs=1, hunt=hunt)
    assert calls == [
        ("easy", 7, 17.0),
        ("hard", 7, 17.0),
        ("hard", 10, 42.0),
        ("hard", 13, 42.0),
        ("", 7, 0.0),
    ]
    assert [one.is_found for one in report.results] == [True, False]
    assert report.cpu_seconds == 102.0


def test_a_world_that_fails_without_a_fault_finds_none() -> None:
    def hunt(name: str, first: int, cpu_seconds: float) -> Hunt:
        return Hunt("late", "a pod", "", first, 1.0)

    report = begun([PlantedFault("one", "", "", "", "")])
    run(report, budget=100.0, jobs=1, hunt=hunt)
    assert report.found == 0
    assert [one.seed for one in report.control] == [1]


@pytest.mark.long("imports the program with a fault and simulates a cluster until it shows")
def test_a_planted_fault_is_found() -> None:
    found = hunted("removed pod still counts", 1, 60.0)
    assert found.rule
