"""The index of a plan: what moves it, and what does not."""

from collections.abc import Callable
from typing import Any

import pytest

from engine.core.model.objects import ConfigMap, ManagedMeta
from engine.rollout.last_good import LastGood
from workbench.plan.in_force import in_force
from workbench.plan.plan_index import PlanIndex, generation_of

TEXT = "4c1f0a7be2d9.48213.9f3ac21b07d4.a41b22c09e57"

Json = dict[str, Any]


def node(name: str, memory: str = "16001420Ki") -> Json:
    labels = {"kubernetes.io/hostname": name, "zone": "z1", "example.com/node": name}
    return {
        "metadata": {"name": name, "labels": labels, "resourceVersion": "1"},
        "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "4", "memory": memory}, "conditions": [{"a": "b"}]},
    }


def test_an_index_is_read_as_it_is_written() -> None:
    assert str(PlanIndex.parse(TEXT)) == TEXT


@pytest.mark.parametrize("text", ["", "a.b.c", TEXT + ".x", TEXT.replace("4c", "zz"), TEXT[:-1]])
def test_what_is_no_index_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"want REVISION.RESOURCEVERSION.GENERATION.CANDIDATE"):
        PlanIndex.parse(text)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        pytest.param(0, "other policies are in force", id="revision"),
        pytest.param(1, "the ConfigMap was written", id="resourceVersion"),
        pytest.param(2, "other shapes of nodes", id="generation"),
        pytest.param(3, "not the ones that were planned", id="candidate"),
    ],
)
def test_each_part_is_told_by_name(part: int, said: str) -> None:
    parts = TEXT.split(".")
    parts[part] = "7" * len(parts[part])
    now = PlanIndex.parse(".".join(parts))
    (sentence,) = PlanIndex.parse(TEXT).moved(now)
    assert said in sentence
    assert now.moved(now) == []


def heartbeat(nodes: list[Json]) -> None:
    nodes[0]["metadata"]["resourceVersion"] = "2"
    nodes[0]["status"]["conditions"] = [{"lastHeartbeatTime": "now"}]


def cordon(nodes: list[Json]) -> None:
    nodes[0]["spec"]["unschedulable"] = True
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    nodes[0]["spec"]["taints"].append(taint)


def another_machine(nodes: list[Json]) -> None:
    nodes.append(node("c", "16001388Ki"))


def one_less(nodes: list[Json]) -> None:
    del nodes[0]


def larger(nodes: list[Json]) -> None:
    nodes.append(node("c", "32001420Ki"))


def label(nodes: list[Json]) -> None:
    nodes[0]["metadata"]["labels"]["zone"] = "z2"


def taint(nodes: list[Json]) -> None:
    nodes[0]["spec"]["taints"] = []


@pytest.mark.parametrize("change", [heartbeat, cordon, another_machine, one_less])
def test_what_happens_all_the_time_does_not_move_the_generation(
    change: Callable[[list[Json]], None],
) -> None:
    nodes = [node("a"), node("b")]
    before = generation_of(nodes)
    change(nodes)
    assert generation_of(nodes) == before


@pytest.mark.parametrize("change", [larger, label, taint])
def test_another_shape_of_nodes_moves_the_generation(
    change: Callable[[list[Json]], None],
) -> None:
    nodes = [node("a"), node("b")]
    before = generation_of(nodes)
    change(nodes)
    assert generation_of(nodes) != before


def config_map(**data: str) -> ConfigMap:
    return ConfigMap(metadata=ManagedMeta(resource_version="7"), data=data)


def test_what_was_saved_is_in_force_and_not_the_text_that_was_refused() -> None:
    found = in_force("a/p", config_map(x="new"), LastGood("r1", {"x": "old"}))
    assert (found.revision, found.files, found.resource_version) == ("r1", {"x": "old"}, "7")
    assert "`a/p` is not in force" in found.notes[0]
    assert in_force("a/p", config_map(x="old"), LastGood("r1", {"x": "old"})).notes == ()


def test_without_what_was_saved_the_text_is_taken_as_in_force() -> None:
    found = in_force("a/p", config_map(x="new"), None)
    assert (found.revision, found.files) == ("", {"x": "new"})
    assert "taken as in force" in found.notes[0]


def test_without_any_config_map_the_built_in_policies_are_in_force() -> None:
    found = in_force("a/p", None, None)
    assert (found.files, found.resource_version) == ({}, "0")
    assert in_force("a/p", None, LastGood("r1", {"x": "old"})).files == {"x": "old"}
