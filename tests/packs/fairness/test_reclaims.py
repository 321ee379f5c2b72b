"""The shipped policies have the pods give back that the originals were seen to take.

What is recorded is in `tests/data/fair-share`. Volcano's plugins name all that *may* go; what goes
is as many of them as are needed, by the order of its action: those of which it has too much.
"""

import re
from typing import Any, Final

import pytest

from tests.packs.fairness.test_recorded import CAPACITY, KUEUE, VOLCANO
from tests.packs.fairness.tree_world import TreeWorld

_VICTIMS: Final = re.compile(r"in (\w+) cpu (\d+) \[(\w*)\] -> victims \[(.*)\]")
_QUEUE: Final = re.compile(r'(\w+) +nominal (\d+) borrow "" lend "(\d*)" w "(\w*)" used (\d+): .*')
_PATHS: Final = {"l1": "root/left/l1", "l2": "root/left/l2", "r1": "root/right/r1"}
#: Workloads that are not of one core each, by the row: of each queue their cores. Of row 8 the
#: output does not say it: the first one goes, where the last would be the newest.
_SIZES: Final = {
    "6": {"a": [6], "b": [2]},
    "6b": {"a": [6], "b": [2]},
    "8": {"a": [6]},
    "10": {"ga": [100, 150], "be": [50]},
}
#: Rows in which not all have the priority 0: of those that run by their queue, and of who asks.
_PRIORITIES: Final = {"8": ({"a": 100}, -5), "10": ({}, 10)}
_BOTH: Final = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]


def _cohort(number: str, strategies: list[str]) -> tuple[TreeWorld, dict[str, str]]:
    found = [m.groups() for row in KUEUE[number][1:] if (m := _QUEUE.fullmatch(row))]
    paths = {name: _PATHS.get(name, f"all/{name}") for name, *_ in found}
    queues: dict[str, dict[str, Any]] = {}
    for name, nominal, lend, weight, _ in found:
        queues[paths[name]] = {
            "nominal": {"cpu": 1000 * int(nominal)},
            "lending_limit": {"cpu": 1000 * int(lend)} if lend else {},
            "weight": int(weight[:-1]) if weight.endswith("m") else 1000 * int(weight or 1),
            "reclaim_within_cohort": "Any",
            "within_cluster_queue": "LowerPriority",
        }
    if "l1" in paths:
        queues["root/left"] = {"weight": 2000}
    world = TreeWorld("kueue_fair", {"cpu": 1_000_000}, queues, strategies=strategies)
    priorities, _ = _PRIORITIES.get(number, ({}, 0))
    for name, *_, used in found:
        sizes = _SIZES.get(number, {}).get(name) or [1] * (int(used) // 1000)
        assert sum(sizes) * 1000 == int(used)
        for place, cores in enumerate(sizes):
            world.put(
                paths[name],
                name=f"{name}{place}",
                priority=priorities.get(name, 0),
                cpu=1000 * cores,
            )
    return world, paths


@pytest.mark.parametrize("number", [n for n in KUEUE if n != "3"])
def test_the_workloads_go_that_kueue_takes(number: str) -> None:
    (row,) = [m.groups() for line in KUEUE[number][1:] if (m := _VICTIMS.fullmatch(line))]
    leaf, cores, strategy, wanted = row
    world, paths = _cohort(number, [strategy] if strategy else _BOTH)
    _, priority = _PRIORITIES.get(number, ({}, 0))
    victims = world.victims(paths[leaf], priority=priority, cpu=1000 * int(cores))
    assert victims == [name.partition(":")[0] for name in wanted.split()]


def _named(number: str) -> list[str]:
    (found,) = re.findall(r"victims \[(.*)\]", "\n".join(VOLCANO[number]))
    return sorted(found.split())


@pytest.mark.parametrize(
    ("number", "running", "asked"),
    [
        ("6", [{"cpu": 4000}] * 3, {"cpu": 6000}),
        ("7", [{"nvidia.com/gpu": 7}, {"cpu": 1000}], {"cpu": 1000}),
    ],
)
def test_what_is_beyond_its_share_goes_as_in_volcano(
    number: str, running: list[dict[str, int]], asked: dict[str, int]
) -> None:
    world = TreeWorld("proportion", {"cpu": 12000, "nvidia.com/gpu": 8}, {"a": {}, "b": {}})
    for place, amounts in enumerate(running):
        world.put("a", amounts, name=f"a-r{place}")
    for _ in range(6):
        world.put("b", waits=True, cpu=1000)
    assert len(world.victims("b", **asked)) == len(_named(number))


@pytest.mark.parametrize("number", [n for n in CAPACITY if n != "c6"])
def test_what_is_beyond_what_it_deserves_goes_as_in_volcano(number: str) -> None:
    """As many as are named go, if so much is asked for; and none beyond them."""
    mine, theirs, _, (count, cpu, gpus) = CAPACITY[number]
    named = [] if number == "c3" else _named(number)  # there the action asks for none of them
    total = {"cpu": count * cpu, "memory": 1000 * count * cpu, "nvidia.com/gpu": count * gpus}
    queues = {"a": {"deserved": mine}, "b": {"deserved": theirs}}
    world = TreeWorld("capacity", total, queues)
    for place in range(count):
        world.put("a", name=f"a-r{place}", cpu=cpu, memory=1000 * cpu, gpu=gpus)
    for pods in range(1, count + 1):
        some = {"cpu": pods * cpu, "memory": 1000 * pods * cpu, "gpu": pods * gpus}
        goes = len(world.victims("b", **some))
        assert goes == (pods if pods <= len(named) else 0)


def test_what_was_lent_of_a_min_is_given_back() -> None:
    queues = {name: {"min": {"cpu": 4000}} for name in "ab"}
    world = TreeWorld("capacity_scheduling", {"cpu": 8000}, queues)
    for place in range(8):
        world.put("b", name=f"b{place}", priority=9, cpu=1000)
    assert world.victims("a", cpu=2000) == ["b6", "b7"], "of any priority"
    assert world.victims("a", cpu=5000) == [], "beyond its own min it takes nothing"
    assert world.victims("b", priority=5, cpu=1000) == [], "of its own only less important ones"
    assert world.victims("b", priority=10, cpu=1000) == ["b7"]


def test_what_a_guarantee_is_short_of_is_given_back() -> None:
    queues: dict[str, dict[str, Any]] = {
        "a": {"guaranteed": {"cpu": 4000}},
        "b": {"guaranteed": {"cpu": 2000}},
        "c": {"preemption": "disabled"},
    }
    world = TreeWorld("yunikorn_fair", {"cpu": 12000}, queues)
    for place in range(6):
        world.put("b", name=f"b{place}", cpu=1000)
        world.put("c", name=f"c{place}", cpu=1000)
    assert world.victims("a", cpu=2000) == ["b4", "b5"]
    assert world.victims("a", cpu=4000) == ["b2", "b3", "b4", "b5"]
    assert world.victims("a", cpu=5000) == [], "beyond its guarantee it takes nothing"
    assert world.victims("a", priority=-1, cpu=2000) == [], "nor what is more important"


def test_a_quota_is_given_back_by_who_is_beyond_its_own() -> None:
    quota = {"cpu": 4000, "memory": 0, "nvidia.com/gpu": 0}
    queues = {name: {"quota": quota} for name in "ab"}
    world = TreeWorld("kai_fair", {"cpu": 8000}, queues)
    for place in range(8):
        world.put("b", name=f"b{place}", preemptible=place < 7, cpu=1000)
    for _ in range(4):
        world.put("a", waits=True, cpu=1000)
    assert world.victims("a", cpu=2000) == ["b5", "b6"]
    assert world.victims("a", cpu=4000) == ["b3", "b4", "b5", "b6"]
    assert world.victims("a", cpu=5000) == [], "beyond its share it takes nothing"


def test_the_queue_with_the_largest_dominant_share_gives_first() -> None:
    world = TreeWorld("drf", {"cpu": 12000}, {"a": {}, "b": {"weight": 2}, "c": {}})
    for place in range(6):
        world.put("b", name=f"b{place}", cpu=1000)
        world.put("c", name=f"c{place}", cpu=1000)
    assert world.victims("a", cpu=2000) == ["c4", "c5"]
    # It would have 3 and leave 3: then the other could take them back.
    assert world.victims("a", cpu=3000) == []


def test_quotas_of_koordinator_give_to_their_own_alone() -> None:
    queues = {name: {"min": {"cpu": 2000}, "max": {"cpu": 4000}} for name in "ab"}
    world = TreeWorld("elastic_quota", {"cpu": 4000}, queues)
    for place in range(4):
        world.put("b", name=f"b{place}", preemptible=place < 3, cpu=1000)
    world.put("b", waits=True, cpu=1000)
    assert world.victims("a", priority=9, cpu=1000) == []
    assert world.victims("b", priority=9, cpu=1000) == ["b2"]
    assert world.victims("b", cpu=1000) == []
