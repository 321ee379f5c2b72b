"""VolumeBinding's score: by the storage that is left on a node for the claims of a pod."""

from collections.abc import Sequence
from typing import Any

import pytest

from engine.core.framework.status import Status
from engine.core.scheduling.plugins.volume_binding import VolumeBinding
from engine.core.scheduling.plugins.volume_scoring import ClassStorage, storage_score
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.files.world import World
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.testing.full_decision import decide
from tests.builders import make_pod, node_manifest
from tests.storage_builders import (
    DRIVER,
    SELECTED_NODE,
    Json,
    capacity,
    claim,
    csi_driver,
    storage_class,
    uses,
    volume,
)

EMPTIEST = [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]
FULLEST = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
LOCAL = storage_class("local")
MADE = storage_class("made", provisioner=DRIVER)


def scores(
    objects: Sequence[Json], *claims: str, shape: Sequence[dict[str, int]] | None = None
) -> dict[str, int]:
    """The scores of the nodes where a pod with *claims* fits."""
    world = World.from_manifests([node_manifest("a"), node_manifest("b")], [], objects)
    plugin = VolumeBinding(world.cache.objects)
    arguments = {} if shape is None else {"shape": shape}
    state = plugin.pre_filter(make_pod(volumes=uses(*claims)), world.snapshot, arguments)
    assert not isinstance(state, Status), state
    infos = [info for name in ("a", "b") if (info := world.snapshot.info(name)) is not None]
    feasible = [info for info in infos if plugin.filter(state, info) is None]
    found = plugin.score(state, feasible)
    return {info.name: score for info, score in zip(feasible, found, strict=True)}


def waiting(name: str = "data", size: Any = "1Gi", **words: Any) -> Json:
    return claim(name, size=size, **{"storage_class": "made", **words})


@pytest.mark.parametrize(
    ("shape", "utilization", "want"),
    [
        pytest.param(EMPTIEST, 0, 100, id="nothing"),
        pytest.param(EMPTIEST, 33, 67, id="falling, in integers"),
        pytest.param(EMPTIEST, 100, 0, id="all"),
        pytest.param(FULLEST, 33, 33, id="rising"),
        pytest.param([{"utilization": 20, "score": 3}], 0, 30, id="before the first point"),
        pytest.param([{"utilization": 20, "score": 3}], 100, 30, id="after the last one"),
        pytest.param(
            [{"utilization": 0, "score": 10}, {"utilization": 70, "score": 0}],
            1,
            99,
            id="a fall is cut toward zero",
        ),
    ],
)
def test_the_score_follows_the_line(
    shape: list[dict[str, int]], utilization: int, want: int
) -> None:
    assert storage_score({"c": ClassStorage(utilization, 100)}, shape) == want


def test_classes_count_alike_and_their_mean_is_rounded() -> None:
    classes = {"one": ClassStorage(0, 100), "two": ClassStorage(99, 100), "six": ClassStorage(1, 4)}
    assert storage_score(classes, EMPTIEST) == 59  # (100 + 1 + 75) / 3
    halves = {"one": ClassStorage(0, 100), "two": ClassStorage(1, 100)}
    assert storage_score(halves, EMPTIEST) == 100  # 99.5


def test_more_than_there_is_counts_as_all() -> None:
    assert storage_score({"c": ClassStorage(1, 0)}, FULLEST) == 100
    assert storage_score({"c": ClassStorage(0, 0)}, EMPTIEST) == 0
    assert storage_score({"c": ClassStorage(300, 100)}, EMPTIEST) == 0
    assert storage_score({}, EMPTIEST) == 0


def test_the_node_with_more_capacity_is_better() -> None:
    left = [capacity("a", "10Gi", node="a"), capacity("b", "4Gi", node="b")]
    objects = [waiting(), MADE, csi_driver(), *left]
    assert scores(objects, "data") == {"a": 90, "b": 75}
    assert scores(objects, "data", shape=FULLEST) == {"a": 10, "b": 25}


def test_claims_of_a_class_draw_on_one_capacity() -> None:
    objects = [waiting("one"), waiting("two"), MADE, csi_driver(), capacity("a", "4Gi", node="a")]
    assert scores(objects, "one", "two") == {"a": 50}
    # Each of them fits; together they do not.
    objects = [waiting("one"), waiting("two"), MADE, csi_driver(), capacity("a", "1Gi", node="a")]
    assert scores(objects, "one", "two") == {"a": 0}


def test_a_smaller_volume_is_better_if_it_is_filled() -> None:
    objects = [claim(), LOCAL, volume("one", size="10Gi", node="a")]
    objects.append(volume("two", size="2Gi", node="b"))
    assert scores(objects, "data") == {"a": 90, "b": 50}


def test_volumes_of_a_class_add_up() -> None:
    objects = [claim("one"), claim("two", size="3Gi"), LOCAL]
    objects += [volume("s", size="1Gi", node="a"), volume("l", size="7Gi", node="a")]
    assert scores(objects, "one", "two") == {"a": 50}


def test_what_is_to_be_made_does_not_count_beside_volumes_that_are_there() -> None:
    objects = [claim(), LOCAL, volume("disk", size="2Gi"), waiting("new"), MADE, csi_driver()]
    objects += [capacity("a", "100Gi", node="a"), capacity("b", "1Gi", node="b")]
    assert scores(objects, "data", "new") == {"a": 50, "b": 50}


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([claim(volume="disk"), volume(size="9Gi")], id="bound"),
        pytest.param([waiting(), MADE], id="the driver is not known"),
        pytest.param([waiting(), MADE, csi_driver(counts_storage=None)], id="it does not count"),
        pytest.param([waiting(size=None), MADE, csi_driver()], id="no size is requested"),
    ],
)
def test_without_capacity_to_look_at_all_nodes_get_0(objects: list[Json]) -> None:
    assert scores(objects, "data") == {"a": 0, "b": 0}


def test_a_capacity_that_says_only_how_large_a_volume_may_be_is_none() -> None:
    objects = [waiting(), MADE, csi_driver(), capacity("a", None, node="a", largest="5Gi")]
    assert scores(objects, "data") == {"a": 0}


def test_of_two_capacities_the_first_that_is_enough_counts() -> None:
    """kube-scheduler takes any of them."""
    left = [capacity(name, size, node="a") for name, size in (("x", "1Mi"), ("y", "2Gi"))]
    objects = [waiting(), MADE, csi_driver(), *left, capacity("z", "9Gi", node="a")]
    assert scores(objects, "data") == {"a": 50}


def test_a_claim_that_has_its_node_is_scored_there() -> None:
    selected = waiting(annotations={SELECTED_NODE: "b"})
    left = [capacity("a", "10Gi", node="a"), capacity("b", "4Gi", node="b")]
    assert scores([selected, MADE, csi_driver(), *left], "data") == {"b": 75}


@pytest.mark.parametrize(
    ("storage", "want"),
    [
        pytest.param([capacity("a", "2Gi", node="a"), capacity("b", "9Gi", node="b")], "b"),
        pytest.param([capacity("a", "9Gi", node="a"), capacity("b", "2Gi", node="b")], "a"),
    ],
)
def test_it_decides_where_the_pod_goes(storage: list[Json], want: str) -> None:
    bundle = build_bundle({})
    scheduler = Scheduler(bundle, InProcessEvaluator(bundle.program))
    nodes = [node_manifest("a"), node_manifest("b")]
    world = World.from_manifests(nodes, [], [waiting(), MADE, csi_driver(), *storage])
    assert scheduler.schedule(make_pod(volumes=uses("data")), world.snapshot).node == want


def test_a_profile_weighs_it_and_may_switch_it_off() -> None:
    objects = [waiting(), MADE, csi_driver(), capacity("a", "4Gi", node="a")]
    world = World.from_manifests([node_manifest("a")], [], objects)

    def shown(plugins: str, args: str = "") -> int | None:
        text = f"""
            apiVersion: kubescheduler.config.k8s.io/v1
            kind: KubeSchedulerConfiguration
            profiles:
              - plugins: {{{plugins}}}
                pluginConfig: [{args}]
        """
        bundle = build_bundle({"config.yaml": text})
        scheduler = Scheduler(bundle, InProcessEvaluator(bundle.program))
        return (
            decide(world, scheduler, make_pod(volumes=uses("data")))
            .scores["a"]
            .get("VolumeBinding")
        )

    assert shown("") == 75
    assert shown("score: {enabled: [{name: VolumeBinding, weight: 3}]}") == 225
    assert shown("score: {disabled: [{name: VolumeBinding}]}") is None
    args = "{name: VolumeBinding, args: {shape: [{utilization: 0, score: 2}]}}"
    assert shown("", args) == 20
    assert shown("", "{name: VolumeBinding, args: {shape: []}}") == 75


def test_a_pod_without_claims_is_chosen_by_its_class_alone() -> None:
    """Scores that are all 0 cost nothing, and are shown."""
    plugin = VolumeBinding()
    world = World.from_manifests([node_manifest("a")], [], [claim(volume="disk"), volume()])
    assert not plugin.has_scores(None)
    state = plugin.pre_filter(make_pod(volumes=uses("data")), world.snapshot, {})
    assert not plugin.has_scores(state)
    info = world.snapshot.info("a")
    assert info is not None
    assert list(plugin.score(None, [info])) == [0]
