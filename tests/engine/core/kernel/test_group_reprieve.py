"""Reprieve: in which order pods may stay, and which members are asked again when one does."""

from collections.abc import Sequence
from typing import Any

import pytest

from engine.core.caching.attachments import CLAIMS, VOLUMES
from engine.core.caching.cache import Cache
from engine.core.kernel.group_reprieve import Reprieve, Unit
from engine.core.model.objects import from_plain
from engine.core.model.pod import Pod
from engine.core.model.storage import PersistentVolume, PersistentVolumeClaim
from engine.core.queueing.nominator import Nominator
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.scheduling.disruption_budgets import Budgets
from engine.core.scheduling.placement import Placement
from engine.core.scheduling.scheduling_cycle import Scheduler
from tests.builders import HOSTNAME, ZONE, make_node, make_pod
from tests.profiles import default_bundle, default_evaluator
from tests.properties.test_dry_run_beside_reality import pod_terms
from tests.storage_builders import claim, uses, volume

#: n0 and n2 are in zone a, n1 and n3 in zone b.
NODES = [make_node(f"n{number}", cpu=3, zone="ab"[number % 2]) for number in range(4)]
APART = {"affinity": pod_terms(ZONE, "podAntiAffinity")}
TOGETHER = {"affinity": pod_terms(ZONE, "podAffinity"), "labels": {"app": "web"}}
OF_ONE_POD = {"volumes": uses("data")}
WEB = {"labels": {"app": "web"}}


class Asked(Scheduler):
    """Notes which members are asked whether they still fit, and how often it looks around."""

    def __init__(self) -> None:
        super().__init__(default_bundle(), default_evaluator())
        self.members: list[str] = []
        self.looks = 0

    def fits(self, pod: Pod, *more: Any) -> bool:
        self.members.append(pod.name)
        return super().fits(pod, *more)

    def cross_node_dependencies(self, *more: Any) -> Any:
        self.looks += 1
        return super().cross_node_dependencies(*more)


def reprieved(
    members: Sequence[tuple[str, dict[str, Any]]],
    units: Sequence[tuple[str, dict[str, Any]]],
    placed: Sequence[tuple[str, dict[str, Any]]] = (),
) -> tuple[Asked, list[str]]:
    """Who is asked, and who has to go, where *members*, *units* and *placed* are on these nodes."""
    cache, scheduler = Cache(), Asked()
    of_one_pod = claim(volume="disk", modes=["ReadWriteOncePod"])
    cache.objects.put(CLAIMS, from_plain(PersistentVolumeClaim, of_one_pod))
    cache.objects.put(VOLUMES, from_plain(PersistentVolume, volume()))
    for each in NODES:
        cache.add_node(each)
    for number, (node, words) in enumerate(placed):
        cache.add_pod(make_pod(f"placed{number}", node=node, priority=9, **words))
    placements = []
    for number, (node, words) in enumerate(members):
        pod = make_pod(f"m{number}", cpu=1, priority=9, **words)
        placements.append(Placement(QueuedPod(pod, (), 0.0, 0), pod, node, "", "", 0.0))
    goes = [
        Unit((make_pod(f"u{number}", node=node, **{"cpu": 1, **words}),), 0)
        for number, (node, words) in enumerate(units)
    ]
    before = {pod.uid for info in cache.infos() for pod in info.pods.values()}
    reprieve = Reprieve(placements, cache=cache, nominator=Nominator(), scheduler=scheduler)
    victims = reprieve.victims(goes, Budgets(cache.snapshot()))
    cache.check_invariants()
    gone = {pod.uid for unit in victims for pod in unit.pods}
    stays = {pod.uid for unit in goes for pod in unit.pods} - gone
    after = {pod.uid for info in cache.infos() for pod in info.pods.values()}
    assert after == before | stays, "members are counted, or victims, or not those that stay"
    return scheduler, [pod.name for unit in victims for pod in unit.pods]


EVERYWHERE: list[tuple[str, dict[str, Any]]] = [(f"n{number}", {}) for number in range(4)]


@pytest.mark.parametrize(
    ("members", "unit", "placed", "want"),
    [
        pytest.param(EVERYWHERE, ("n1", {}), [], ["m1"], id="on its node"),
        pytest.param(EVERYWHERE[:2], ("n3", {}), [], [], id="none is near"),
        pytest.param(
            [("n0", {}), ("n1", APART), ("n2", {})],
            ("n3", {}),
            [("n0", WEB)],
            [],
            id="no term selects it",
        ),
        pytest.param(
            [("n0", {}), ("n1", APART), ("n2", {})],
            ("n3", WEB),
            [("n0", WEB)],
            ["m1"],
            id="those of its zone",
        ),
        pytest.param(
            EVERYWHERE,
            ("n1", {"affinity": pod_terms(HOSTNAME, "podAntiAffinity")}),
            [],
            ["m0", "m1", "m2", "m3"],
            id="one with terms may matter anywhere",
        ),
        pytest.param(
            [("n0", TOGETHER), ("n2", TOGETHER)],
            ("n1", {}),
            [],
            ["m0", "m1"],
            id="members that are there for each other",
        ),
        pytest.param(EVERYWHERE, ("gone", {}), [], ["m0", "m1", "m2", "m3"], id="on no node"),
        pytest.param(
            [("n0", OF_ONE_POD), ("n1", {})],
            ("n1", {}),
            [],
            ["m0", "m1"],
            id="a member whose claim may be in use anywhere",
        ),
    ],
)
def test_the_members_are_asked_that_a_pod_may_matter_to(
    members: list[tuple[str, dict[str, Any]]],
    unit: tuple[str, dict[str, Any]],
    placed: list[tuple[str, dict[str, Any]]],
    want: list[str],
) -> None:
    scheduler, _ = reprieved(members, [unit], placed)
    assert scheduler.members == want


@pytest.mark.parametrize(
    ("members", "unit", "looks"),
    [
        # Twice for the first: without the members, and with them.
        pytest.param(EVERYWHERE, {}, 2, id="plain ones"),
        pytest.param(
            EVERYWHERE, {"affinity": pod_terms(HOSTNAME, "podAffinity")}, 0, id="with terms"
        ),
        pytest.param([("n0", OF_ONE_POD)], {}, 2, id="that may matter to any member"),
    ],
)
def test_it_is_looked_around_once_for_units_that_change_nothing_for_members(
    members: list[tuple[str, dict[str, Any]]], unit: dict[str, Any], looks: int
) -> None:
    scheduler, victims = reprieved(members, [("n1", unit), ("n2", unit), ("n3", unit)])
    assert scheduler.looks == looks
    assert not victims


def test_it_is_not_looked_around_again_after_a_pod_that_is_on_no_node() -> None:
    scheduler, victims = reprieved(EVERYWHERE, [("gone", {}), ("n1", {}), ("n2", {})])
    assert (scheduler.looks, victims) == (2, [])


def test_it_is_looked_around_again_when_a_pod_came_back_that_is_the_first_of_its_kind() -> None:
    """The first may matter to any member; those after it to the members of their zones alone."""
    members: list[tuple[str, dict[str, Any]]] = [("n0", {}), ("n1", APART), ("n2", {})]
    scheduler, victims = reprieved(members, [("n0", WEB), ("n2", WEB), ("n3", WEB)])
    assert scheduler.looks == 4
    assert victims == ["u2"]
    assert scheduler.members == ["m0", "m1", "m2", "m0", "m2", "m1"]


def test_no_member_is_asked_after_one_that_does_not_fit_any_more() -> None:
    members: list[tuple[str, dict[str, Any]]] = [("n0", {}), ("n0", {}), ("n0", {}), ("n1", {})]
    scheduler, victims = reprieved(members, [("n0", {}), ("n1", {"cpu": 2})])
    assert victims == ["u0"]
    assert scheduler.members == ["m0", "m1", "m2", "m3"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"priority": 2}, {"priority": 1}, id="priority"),
        pytest.param({"is_group": True}, {}, id="a group before a pod"),
        pytest.param({"count": 2, "is_group": True}, {"is_group": True}, id="the larger group"),
        pytest.param({"started": "2024-01-01T00:00:01Z"}, {}, id="one that has started"),
        pytest.param(
            {"started": "2024-01-01T00:00:01Z"},
            {"started": "2024-01-01T00:00:02Z"},
            id="the one that started first",
        ),
    ],
)
def test_the_most_important_stays_first(first: dict[str, Any], second: dict[str, Any]) -> None:
    def unit(
        count: int = 1, priority: int = 1, is_group: bool = False, started: str | None = None
    ) -> Unit:
        pods = tuple(make_pod(f"p{number}", start_time=started) for number in range(count))
        return Unit(pods, priority, is_group)

    one, other = unit(**first), unit(**second)
    assert one.order < other.order
    assert sorted([other, one], key=lambda each: each.order) == [one, other]
