"""Nominations by slot, kept from one decision to the next, are those looked up from scratch."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.caching.cache import Cache
from engine.core.caching.counters import PodChanges
from engine.core.caching.snapshot import Snapshot
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.queueing.nominator import Nominator
from engine.core.scheduling.feasibility import Feasibility, Filters
from engine.core.scheduling.nominations import NominatedPods, NominatedVerdicts, Nominations
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.policy.verdicts import FITS
from tests.builders import HOSTNAME, make_node, make_pod
from tests.profiles import only

NODES = [f"n{i}" for i in range(4)]
PODS = [make_pod(f"p{i}", uid=f"u{i}", priority=i % 3) for i in range(6)]

node_names = st.sampled_from(NODES)
pods = st.sampled_from(PODS)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("promise"), pods, node_names),
        st.tuples(st.just("take back"), pods),
        st.tuples(st.just("new version"), pods),
        st.tuples(st.just("node comes"), node_names),
        st.tuples(st.just("node goes"), node_names),
        st.tuples(st.just("pod comes"), node_names),
        st.tuples(st.just("another nominator")),
        st.tuples(st.just("ask"), pods),
    ),
    max_size=40,
)


def looked_up_anew(
    pod: Pod, snapshot: Snapshot, nominator: Nominator
) -> dict[int, tuple[Pod, ...]]:
    found = {}
    for name, slot in snapshot.slot_of.items():
        neighbour = [
            other
            for other in nominator.pods_on(name)
            if other.priority >= pod.priority and other.uid != pod.uid
        ]
        if neighbour:
            found[slot] = tuple(neighbour)
    return found


class Verdicts:
    """Verdicts that are another number for each other node and other pods, kept and made anew."""

    def __init__(self) -> None:
        self._kept = NominatedVerdicts()
        self._numbers: dict[tuple[object, ...], int] = {}
        self._infos: list[object] = []  # so that no other object gets the id of one

    def check(self, nominated: NominatedPods, snapshot: Snapshot) -> None:
        for slot in self._kept.stale(nominated, snapshot):
            self._kept.codes[slot] = self._verdict(slot, nominated, snapshot)
        want = [self._verdict(slot, nominated, snapshot) for slot in range(len(snapshot.infos))]
        assert self._kept.codes.tolist() == want

    def _verdict(self, slot: int, nominated: NominatedPods, snapshot: Snapshot) -> int:
        info, pods = snapshot.infos[slot], nominated.get(slot)
        if info is None or not pods:
            return FITS
        self._infos.append(info)
        key = (id(info), *((pod.uid, pod.priority) for pod in pods))
        return self._numbers.setdefault(key, len(self._numbers) + 1)


@given(steps)
def test_what_is_kept_is_what_would_be_found(done: list[tuple[object, ...]]) -> None:
    cache, nominator, nominations = Cache(), Nominator(), Nominations()
    verdicts = [Verdicts() for _ in range(3)]  # by priority
    placed = 0
    nodes: dict[str, object] = {}
    for what, *about in done:
        match what, about:
            case "promise", [Pod() as pod, str() as name]:
                nominator.nominate(pod, name)
            case "take back", [Pod() as pod]:
                nominator.remove(pod.uid)
            case "new version", [Pod() as pod]:
                nominator.refresh(make_pod(pod.name, uid=pod.uid, priority=(pod.priority + 1) % 3))
            case "node comes", [str() as name] if name not in nodes:
                nodes[name] = make_node(name)
                cache.add_node(make_node(name))
            case "node goes", [str() as name] if name in nodes:
                cache.remove_node(name)
                del nodes[name]
            case "pod comes", [str() as name] if name in nodes:
                placed += 1
                cache.add_pod(make_pod(f"placed-{placed}", node=name))
            case "another nominator", []:
                nominator = Nominator()
            case "ask", [Pod() as pod]:
                snapshot = cache.snapshot()
                found = nominations.others(pod, snapshot, nominator)
                assert found == looked_up_anew(pod, snapshot, nominator)
                verdicts[pod.priority].check(found, snapshot)
        found = nominations.others(PODS[0], cache.snapshot(), nominator)
        verdicts[0].check(found, cache.snapshot())
    nominator.check_invariants()


def test_verdicts_hold_until_the_node_or_its_nominations_change() -> None:
    cache, nominator, nominations, verdicts = Cache(), Nominator(), Nominations(), Verdicts()
    for name in NODES:
        cache.add_node(make_node(name))
    mine, other, third = (make_pod(f"p{i}", uid=f"u{i}") for i in range(3))

    def check(pod: Pod) -> None:
        verdicts.check(nominations.others(pod, cache.snapshot(), nominator), cache.snapshot())

    for pod in (mine, other):
        nominator.nominate(pod, "n0")
    nominator.nominate(third, "n1")
    # Without its own nomination, then without that of another pod.
    for pod in (mine, other, third, mine):
        check(pod)
    cache.add_pod(make_pod("placed", node="n1"))
    check(mine)
    nominator.remove(third.uid)
    check(mine)
    cache.remove_node("n0")
    check(other)


def test_a_reader_far_behind_looks_at_every_nomination() -> None:
    cache, nominator, nominations = Cache(), Nominator(), Nominations()
    for name in NODES:
        cache.add_node(make_node(name))
    one, other = PODS[0], PODS[3]
    nominator.nominate(other, "n0")
    before = nominator.generation
    assert nominations.others(one, cache.snapshot(), nominator) == {0: (other,)}
    for number in range(20_000):
        nominator.nominate(other, NODES[number % 2])
    assert nominator.changed_since(before) is None
    assert nominations.others(one, cache.snapshot(), nominator) == {1: (other,)}
    nominator.check_invariants()


def test_a_nomination_on_a_node_outside_the_pre_filters_choice_changes_no_reason() -> None:
    choice = (
        'def pre_filter(pod):\n    return only_nodes(["n1"])\n\n'
        'def filter(pod, node):\n    return "full"\n'
    )
    bundle = build_bundle({"choice.star": choice, "p.yaml": only("choice")})
    cache, nominator = Cache(), Nominator()
    for name in NODES:
        cache.add_node(make_node(name))
    nominator.nominate(make_pod("other", uid="other"), "n3")
    scheduler = Scheduler(bundle, InProcessEvaluator(bundle.program))
    decision = scheduler.schedule(make_pod(), cache.snapshot(), nominator)
    assert decision.message() == (
        "0/4 nodes are available: 1 full, 3 node(s) didn't satisfy plugin(s) [choice]."
    )


def test_another_nomination_on_the_same_node_is_another_question() -> None:
    bundle = build_bundle({})
    scheduler = Scheduler(bundle, InProcessEvaluator(bundle.program))
    cache, nominator = Cache(), Nominator()
    cache.add_node(make_node("n", cpu="4"))
    other = make_pod("other", uid="other", priority=9, requests={"cpu": "1"})
    more = make_pod("other", uid="other", priority=9, requests={"cpu": "3"})

    def decide(number: int) -> str | None:
        pod = make_pod(f"p{number}", uid=f"p{number}", requests={"cpu": "2"})
        return scheduler.schedule(pod, cache.snapshot(), nominator).node

    nominator.nominate(other, "n")
    assert decide(0) == "n"
    nominator.refresh(more)
    assert decide(1) is None
    nominator.refresh(other)
    assert decide(2) == "n"
    nominator.remove("other")
    assert decide(3) == "n"


def test_nodes_that_a_filter_before_the_late_ones_rejects_are_asked_about_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of the time, where each of hundreds of pods with a volume evicted others."""
    asked: list[str] = []
    plain = Feasibility._at

    def noting(self: Feasibility, filters: Filters, info: NodeInfo, changes: PodChanges) -> Any:
        asked.append(info.name)
        return plain(self, filters, info, changes)

    monkeypatch.setattr(Feasibility, "_at", noting)
    bundle = build_bundle({})
    scheduler = Scheduler(bundle, InProcessEvaluator(bundle.program))
    cache, nominator = Cache(), Nominator()
    for number, name in enumerate(NODES):
        cache.add_node(make_node(name, cpu="4"))
        cpu = "1" if name == NODES[-1] else "4"
        other = make_pod(f"o{number}", uid=f"o{number}", priority=9, requests={"cpu": cpu})
        nominator.nominate(other, name)
    away = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": HOSTNAME}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [away]}}
    labels = {"app": "web"}
    cache.add_pod(make_pod("there", uid="there", node=NODES[0], labels=labels))

    def decide(number: int) -> str | None:
        asked.clear()
        name = f"p{number}"
        pod = make_pod(name, uid=name, labels=labels, affinity=affinity, requests={"cpu": "1"})
        return scheduler.schedule(pod, cache.snapshot(), nominator).node

    assert decide(0) == NODES[-1]
    assert sorted(asked) == NODES
    # Of the last one only the per-pod filter knows, and what it counts may have changed.
    assert decide(1) == NODES[-1]
    assert asked == [NODES[-1]]
    cache.add_pod(make_pod("more", uid="more", node=NODES[1]))
    assert decide(2) == NODES[-1]
    assert sorted(asked) == [NODES[1], NODES[-1]]


def test_verdicts_on_nominated_nodes_hold_for_the_same_late_filters_alone() -> None:
    cache, nominator, nominations = Cache(), Nominator(), Nominations()
    cache.add_node(make_node("n0"))
    nominator.nominate(PODS[1], "n0")
    snapshot, known = cache.snapshot(), NominatedVerdicts()
    found = nominations.others(PODS[0], snapshot, nominator)
    stale = []
    for positions in ((), (), (8,), (8,), (5, 8), None, None, (5, 8)):
        known.follow(positions)
        stale.append(list(known.stale(found, snapshot)))
    assert stale == [[0], [], [0], [], [0], [0], [0], [0]]


def test_eviction_is_tried_again_where_the_nominations_are_others() -> None:
    bundle = build_bundle({})
    scheduler = Scheduler(bundle, InProcessEvaluator(bundle.program))
    cache, nominator = Cache(), Nominator()
    cache.add_node(make_node("n", cpu="4"))
    for number in range(4):
        name = f"low-{number}"
        cache.add_pod(make_pod(name, uid=name, node="n", requests={"cpu": "1"}))

    def victims(number: int) -> int:
        pod = make_pod(f"p{number}", uid=f"p{number}", priority=5, requests={"cpu": "1"})
        eviction = scheduler.schedule(pod, cache.snapshot(), nominator).eviction
        return len(eviction.victims) if eviction is not None else 0

    assert victims(0) == 1
    for number, cpu in enumerate(("1", "2", "3", "4"), start=1):
        nominator.nominate(make_pod("other", uid="other", priority=9, requests={"cpu": cpu}), "n")
        assert victims(number) == (0 if cpu == "4" else number + 1)
    nominator.remove("other")
    assert victims(5) == 1
