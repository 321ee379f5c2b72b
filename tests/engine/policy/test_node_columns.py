"""Nodes as columns: many nodes are projected at once as they are one by one."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.caching.cache import Cache
from engine.core.caching.snapshot import Snapshot
from engine.core.model.fact import Fact, NodeFacts
from engine.core.model.node_info import NodeInfo
from engine.language.effects import AGES
from engine.policy.node_views import NODE_FIELDS
from engine.policy.projections import EVERYTHING, NodeColumn, Projector
from tests.builders import ZONE, make_node, make_pod

PATHS = (
    *NODE_FIELDS,
    EVERYTHING,
    AGES,
    f"labels[{ZONE}]",
    "labels[none]",
    "annotations[text]",
    "requested[cpu]",
    "facts[load]",
    "facts[none]",
    "pod_facts[reward]",
    "pod_annotations[index-]",
)
FACTS = NodeFacts({"load": Fact(0.5, "0.5", 20)}, {"reward": {"web": Fact(1, "1", 5)}})


def _cluster() -> Cache:
    cache = Cache()
    for i in range(4):
        texts = {"text": f'two\nlines, "quoted" é {i}\r\n', "none": ""}
        images = [{"names": ["example.com/a\nb"], "sizeBytes": i}] if i % 2 else []
        cache.add_node(make_node(f"n{i}", zone=f"z{i}", annotations=texts, images=images))
    for i in range(6):
        own = {"index-0": f"{i}\n"}
        cache.add_pod(make_pod(f"p{i}", node=f"n{i % 3}", cpu=str(i), annotations=own))
    return cache


def _values(column: NodeColumn, snapshot: Snapshot) -> list[bytes | None]:
    infos = snapshot.infos
    ids = column.ids.tolist()
    assert not any(number >= 0 for number in ids[len(infos) :])
    return [column.values[number] if number >= 0 else None for number in ids[: len(infos)]]


@given(st.lists(st.sampled_from(PATHS), max_size=5))
def test_all_at_once_and_one_by_one_are_the_same(paths: Sequence[str]) -> None:
    snapshot = _cluster().snapshot()
    bare = NodeInfo("bare", make_node("bare"))
    items = [*(info for info in snapshot.infos if info is not None), bare, bare.with_facts(FACTS)]
    projector = Projector("node", paths)
    fixed, whole = projector.project_all(items, snapshot)
    assert fixed == [projector.fixed(item, snapshot) for item in items]
    assert whole == [projector.project(item, snapshot) for item in items]


@pytest.mark.parametrize("whole", [EVERYTHING, "pod_annotations"])
def test_what_is_there_when_it_is_named_is_there_with_the_whole_too(whole: str) -> None:
    """A hook that also handed its node on found no annotations of pods on any node."""
    snapshot = _cluster().snapshot()
    info = snapshot.info("n0")
    reported = Projector("node", [whole, "pod_annotations[index-]"]).project(info, snapshot)
    assert b'"pod_annotations":{"index-":[{"index-0":"0\\n"},{"index-0":"3\\n"}]}' in reported


def test_no_nodes_have_no_projections() -> None:
    assert Projector("node", ["name"]).project_all([], Cache().snapshot()) == ([], [])


@pytest.mark.parametrize("paths", [["name", "requested"], ["labels"], ["images"], []])
def test_what_is_updated_at_once_goes_on_one_by_one(paths: Sequence[str]) -> None:
    cache = _cluster()
    column = NodeColumn(Projector("node", paths))
    column.update_all(cache.snapshot())
    before, version = _values(column, cache.snapshot()), column.version
    cache.add_pod(make_pod("more", node="n1", cpu="3"))
    cache.add_node(make_node("n2", zone="elsewhere"))
    cache.remove_node("n3")
    snapshot = cache.snapshot()
    fresh = NodeColumn(Projector("node", paths))
    fresh.update_all(snapshot)
    for slot in range(len(snapshot.infos)):
        column.update(snapshot, slot)
    assert _values(column, snapshot) == _values(fresh, snapshot)
    after = _values(column, snapshot)
    differ = [slot for slot, value in enumerate(before) if value != after[slot]]
    assert column.changes.since(version) == differ
    version = column.version
    column.update_all(snapshot)
    assert column.changes.since(version) == []


def test_nodes_that_come_at_once_are_reported_as_changes() -> None:
    cache = _cluster()
    column = NodeColumn(Projector("node", ["name"]))
    column.update_all(cache.snapshot())
    version = column.version
    for i in range(10):
        cache.add_node(make_node(f"more-{i}"))
    column.update_all(cache.snapshot())
    assert column.changes.since(version) == list(range(4, 14))
