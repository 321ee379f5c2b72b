"""Entries of nodes that only some pods want: each class is given its own, and sees them change."""

import gc
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.caching.cache import Cache
from engine.core.caching.snapshot import Snapshot
from engine.core.model.objects import from_plain
from engine.core.model.pod import Pod
from engine.core.model.storage import CSINode, PersistentVolume, PersistentVolumeClaim
from engine.core.scheduling.node_columns import NodeColumns
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.policy.projections import NodeColumn, WantedColumn
from tests.builders import make_node, make_pod
from tests.storage_builders import DRIVER, claim, csi_node, uses, volume

_FIELDS = ("wanted_allocatable", "wanted_requested", "pod_count")
_ALWAYS = {"cpu", "memory", "ephemeral-storage", "pods"}
_RESOURCES = [f"example.com/{letter}" for letter in "abc"]

_offers = st.dictionaries(st.sampled_from(_RESOURCES), st.integers(0, 4), max_size=3)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.integers(0, 4), _offers),
        st.tuples(st.just("node goes"), st.integers(0, 4)),
        st.tuples(st.just("pod"), st.integers(0, 4), _offers),
        st.tuples(st.just("look"), st.sets(st.sampled_from(_RESOURCES), min_size=1)),
        st.tuples(st.just("compact")),
        st.tuples(st.just("another snapshot")),
    ),
    min_size=5,
    max_size=40,
)


class _World:
    def __init__(self) -> None:
        self.cache = Cache()
        self.columns = NodeColumns()
        self._pods = 0
        # By names, the column, and what its reader knows.
        self.known: dict[frozenset[str], tuple[NodeColumn, int, dict[int, bytes]]] = {}

    def node(self, number: int, offers: dict[str, int]) -> None:
        amounts = {"cpu": "8", "memory": "8Gi", "pods": 110, **offers}
        self.cache.add_node(make_node(f"n{number}", allocatable=amounts))

    def node_goes(self, number: int) -> None:
        if self.cache.snapshot().slot_of.get(f"n{number}") is not None:
            self.cache.remove_node(f"n{number}")

    def pod(self, number: int, asked: dict[str, int]) -> None:
        self._pods += 1
        requests = {"cpu": "1", **asked}
        self.cache.add_pod(make_pod(f"p{self._pods}", node=f"n{number}", requests=requests))

    def compact(self) -> None:
        for column in self.columns.all():
            # As if very many projections were dead.
            column.values += [b"%d" % k for k in range(5000)]
            column.compact()

    def look(self, names: set[str]) -> None:
        key = frozenset(names)
        column = self.columns.column(_FIELDS, key)
        assert isinstance(column, WantedColumn)
        snapshot = self.cache.snapshot()
        self.columns.refresh(snapshot)
        column.follow(snapshot)
        seen = _seen(column, snapshot)
        assert {slot: msgspec.json.decode(text) for slot, text in seen.items()} == {
            slot: _expected(snapshot, slot, names) for slot in seen
        }
        # Whoever follows the column's log learns of all that differs.
        _, version, before = self.known.get(key, (column, -1, {}))
        changed = column.changes.since(version)
        if changed is not None:
            differ = {s for s in {*seen, *before} if seen.get(s) != before.get(s)}
            assert differ <= set(changed)
        self.known[key] = column, column.version, seen


def _seen(column: NodeColumn, snapshot: Snapshot) -> dict[int, bytes]:
    slots = range(len(snapshot.infos))
    return {slot: column.value_at(slot) for slot in slots if column.ids.item(slot) >= 0}


def _expected(snapshot: Snapshot, slot: int, names: set[str]) -> dict[str, Any]:
    info = snapshot.infos[slot]
    assert info is not None
    assert info.node is not None
    wanted = _ALWAYS | names
    return {
        "wanted_allocatable": {k: v for k, v in info.node.allocatable.items() if k in wanted},
        "wanted_requested": {k: v for k, v in info.requested.items() if k in wanted},
        "pod_count": info.pod_count,
    }


@given(_steps)
def test_a_column_has_what_is_always_given_and_what_is_wanted(steps: Sequence[Any]) -> None:
    world = _World()
    for number in range(3):
        world.node(number, {_RESOURCES[number]: 1})
    for action, *given_ in steps:
        if action == "another snapshot":
            world.cache = Cache()
            world.node(0, {_RESOURCES[0]: 2})
        else:
            getattr(world, action.replace(" ", "_"))(*given_)
    for name in _RESOURCES:
        world.look({name})


def test_nodes_without_what_a_pod_wants_are_asked_about_once() -> None:
    bundle = build_bundle({})
    cache = Cache()
    for number in range(20):
        amounts = {"cpu": "8", "memory": "8Gi", "pods": 110, f"example.com/{number}": 1}
        cache.add_node(make_node(f"n{number}", allocatable=amounts))
    scheduler = Scheduler(bundle, InProcessEvaluator(bundle.program))
    for number in range(3):
        before = scheduler.memo.asked
        pod = make_pod(f"p{number}", requests={f"example.com/{number}": 1})
        assert scheduler.schedule(pod, cache.snapshot()).node == f"n{number}"
        cache.assume(pod, f"n{number}")
    # Two kinds of nodes for the filter, three hooks for the one that has it, and the pod alone.
    assert scheduler.memo.asked - before <= 10
    again = make_pod("again", requests={"example.com/0": 1})
    decision = scheduler.schedule(again, cache.snapshot())
    assert decision.node is None
    reasons = sorted(
        reason for status in decision.diagnosis.rejections for reason in status.reasons
    )
    assert reasons == ["Insufficient example.com/0", "Insufficient example.com/0"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_policies_that_take_over_see_what_pods_want(order: Sequence[int]) -> None:
    """A revision begins with the columns of the one before, maybe on a copy of the snapshot."""
    bundle = build_bundle({})
    before, after = (Scheduler(bundle, InProcessEvaluator(bundle.program)) for _ in range(2))

    def cluster(numbers: Sequence[int]) -> Cache:
        cache = Cache()
        for number in numbers:
            amounts = {"cpu": "8", "memory": "8Gi", "pods": 110, f"example.com/{number}": 1}
            cache.add_node(make_node(f"n{number}", allocatable=amounts))
        return cache

    def pod(name: str, number: int) -> Pod:
        return make_pod(f"{name}{number}", requests={f"example.com/{number}": 1})

    cache = cluster((0, 1, 2))
    for number in range(3):
        assert before.schedule(pod("p", number), cache.snapshot()).node == f"n{number}"
    after.reuse_from(before, {place: place for place in range(len(bundle.program.instances))})
    cache = cluster(order)
    for number in range(3):
        assert after.schedule(pod("q", number), cache.snapshot()).node == f"n{number}"
        cache.assume(pod("q", number), f"n{number}")
        assert after.schedule(pod("r", number), cache.snapshot()).node is None


def test_columns_of_pods_that_are_gone_are_not_kept() -> None:
    columns = NodeColumns()
    column = columns.column(_FIELDS, frozenset({"example.com/a"}))
    assert columns.column(_FIELDS, frozenset({"example.com/a"})) is column
    del column
    gc.collect()
    assert len(columns._wanted) == 0


def test_pods_that_name_volumes_in_turn_are_decided_as_alone() -> None:
    """Pods that differ in what they share with others, on nodes of which some have that."""
    bundle = build_bundle({})
    cache = Cache()
    for number in range(40):
        cache.add_node(make_node(f"n{number}", labels={"place": str(number % 4)}))
        limited = csi_node(f"n{number}", limits={DRIVER: 2})
        cache.objects.put("csinodes", from_plain(CSINode, limited))
    for number in range(6):
        name = f"c{number}"
        made, claimed = volume(name, storage_class=""), claim(name, volume=name)
        cache.objects.put("persistentvolumes", from_plain(PersistentVolume, made))
        cache.objects.put("persistentvolumeclaims", from_plain(PersistentVolumeClaim, claimed))
    # Each volume is in use on some nodes, and some of these are full.
    for number in range(60):
        user = make_pod(f"user-{number}", node=f"n{number % 23}", volumes=uses(f"c{number % 6}"))
        cache.add_pod(user)
    kept = Scheduler(bundle, InProcessEvaluator(bundle.program))
    for turn in range(18):
        pod = make_pod(f"p{turn}", volumes=uses(f"c{turn % 6}"), requests={"cpu": "1"})
        snapshot = cache.snapshot()
        got = kept.explain(pod, snapshot)
        alone = Scheduler(bundle, InProcessEvaluator(bundle.program)).explain(pod, snapshot)
        assert got.rejected == alone.rejected
        assert got.feasible == alone.feasible
        assert got.totals.tolist() == alone.totals.tolist()
        for one, other in zip(got.scores, alone.scores, strict=True):
            assert one.policy == other.policy
            assert one.raw.tolist() == other.raw.tolist()
            assert one.normalized.tolist() == other.normalized.tolist()
        node = got.decision.node
        assert node == alone.decision.node
        assert node is not None
        if turn % 3:
            cache.assume(pod, node)
    assert "node(s) exceed max volume count" in str(got.rejected)
