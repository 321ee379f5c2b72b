"""The snapshot: slots, what changed, images; at the cost of what changed."""

from engine.core.caching import snapshot as snapshot_module
from engine.core.caching.cache import Cache
from tests.builders import make_node, make_pod


def cache_with(*names: str) -> Cache:
    cache = Cache()
    for name in names:
        cache.add_node(make_node(name))
    cache.snapshot()
    return cache


def test_a_node_keeps_its_slot_while_it_exists() -> None:
    cache = cache_with("a", "b", "c")
    cache.remove_node("a")
    cache.add_pod(make_pod(node="c"))
    cache.add_node(make_node("b", cpu="8"))
    snapshot = cache.snapshot()
    assert snapshot.slot_of == {"b": 1, "c": 2}
    assert snapshot.infos[0] is None
    assert snapshot.node_count == 2


def test_the_lowest_freed_slot_is_given_to_the_next_new_node() -> None:
    cache = cache_with("a", "b", "c")
    cache.remove_node("c")
    cache.remove_node("a")
    cache.snapshot()
    cache.add_node(make_node("d"))
    cache.add_node(make_node("e"))
    cache.add_node(make_node("f"))
    assert cache.snapshot().slot_of == {"b": 1, "d": 0, "e": 2, "f": 3}
    cache.check_invariants()


def test_node_infos_of_an_older_snapshot_stay_as_they_were() -> None:
    cache = cache_with("a")
    before = cache.snapshot().infos[0]
    cache.assume(make_pod(cpu="1"), "a")
    after = cache.snapshot().infos[0]
    assert before is not None
    assert after is not None
    assert (before.requested, after.requested) == ({}, {"cpu": 1000})


def test_between_two_snapshots_nothing_moves() -> None:
    cache = cache_with("a")
    snapshot = cache.snapshot()
    cache.assume(make_pod(cpu="1"), "a")
    info = snapshot.info("a")
    assert info is not None
    assert info.pod_count == 0


def test_only_changed_slots_are_named_each_once() -> None:
    cache = cache_with("a", "b", "c")
    generation = cache.snapshot().generation
    cache.add_pod(make_pod("p", node="c"))
    cache.snapshot()
    cache.add_pod(make_pod("q", node="c"))
    cache.add_pod(make_pod("r", node="a"))
    snapshot = cache.snapshot()
    assert snapshot.changed_since(generation) == [2, 0]
    assert snapshot.changed_since(snapshot.generation) == []


def test_no_change_leaves_the_generation_alone() -> None:
    cache = cache_with("a")
    generation = cache.snapshot().generation
    assert cache.snapshot().generation == generation
    cache.remove_node("unknown")
    assert cache.snapshot().generation == generation


def test_a_slot_given_to_another_node_counts_as_changed() -> None:
    cache = cache_with("a")
    generation = cache.snapshot().generation
    cache.remove_node("a")
    cache.add_node(make_node("b"))
    assert cache.snapshot().changed_since(generation) == [0]


def test_a_reader_too_far_behind_has_to_look_at_everything() -> None:
    cache = cache_with("a")
    versions = [make_pod(node="a"), make_pod(node="a")]
    generation = cache.snapshot().generation
    for number in range(2 * snapshot_module._LOG_SIZE + 1):
        cache.add_pod(versions[number % 2])
        cache.snapshot()
    snapshot = cache.snapshot()
    assert snapshot.changed_since(generation) is None
    assert snapshot.changed_since(snapshot.generation - 1) == [0]
    cache.check_invariants()


def test_images_are_counted_over_nodes() -> None:
    cache = Cache()
    cache.add_node(make_node("a", images={"x": 1, "y": 1}))
    cache.add_node(make_node("b", images={"x": 1}))
    assert cache.snapshot().image_nodes == {"x": 2, "y": 1}
    cache.add_node(make_node("a", images={"z": 1}))
    assert cache.snapshot().image_nodes == {"x": 1, "z": 1}
    cache.remove_node("b")
    assert cache.snapshot().image_nodes == {"z": 1}
    cache.check_invariants()


def test_the_image_generation_grows_with_images_and_with_the_number_of_nodes_only() -> None:
    cache = Cache()
    cache.add_node(make_node("a", images={"x": 1}))
    generation = cache.snapshot().image_generation
    cache.add_node(make_node("a", cpu="8", images={"x": 1}))
    assert cache.snapshot().image_generation == generation
    cache.add_node(make_node("a", images={"x": 2}))
    cache.add_pod(make_pod(node="a"))
    assert cache.snapshot().image_generation == generation
    cache.add_node(make_node("a", images={"x": 1, "y": 1}))
    grown = cache.snapshot().image_generation
    assert grown > generation
    cache.add_node(make_node("b"))
    assert cache.snapshot().image_generation > grown
