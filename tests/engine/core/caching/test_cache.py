"""The cache: what counts where, in whatever order the events come."""

import msgspec
import pytest

from engine.core.caching.cache import AlreadyAssumed, Cache
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from tests.builders import make_node, make_pod


@pytest.fixture
def cache() -> Cache:
    cache = Cache()
    for name in ("n1", "n2"):
        cache.add_node(make_node(name))
    return cache


def cpu_on(cache: Cache, name: str) -> int:
    cache.check_invariants()
    info = cache.node_info(name)
    return info.requested.get("cpu", 0) if info is not None else 0


def shown_cpu(cache: Cache, name: str) -> int | None:
    info = cache.snapshot().info(name)
    cache.check_invariants()
    return None if info is None else info.requested.get("cpu", 0)


def pod(uid: str = "u", node: str | None = None, cpu: str = "1", name: str = "p") -> Pod:
    return make_pod(name, cpu=cpu, uid=uid, node=node)


# --- assume, confirm, forget -------------------------------------------------------------------


def test_an_assumed_pod_counts_on_its_node(cache: Cache) -> None:
    placed = cache.assume(pod(), "n1")
    assert placed.node_name == "n1"
    assert cache.is_assumed("u")
    assert cache.get_pod("u") is placed
    assert (cpu_on(cache, "n1"), shown_cpu(cache, "n1")) == (1000, 1000)


def test_a_forgotten_pod_counts_nowhere(cache: Cache) -> None:
    cache.assume(pod(), "n1")
    assert cache.forget("u")
    assert (cpu_on(cache, "n1"), cache.pod_count, cache.assumed_count) == (0, 0, 0)
    assert not cache.forget("u")


def test_a_pod_is_assumed_once(cache: Cache) -> None:
    cache.assume(pod(), "n1")
    with pytest.raises(AlreadyAssumed, match="pod `default/p` is assumed on node `n1`"):
        cache.assume(pod(), "n2")
    assert (cpu_on(cache, "n1"), cpu_on(cache, "n2")) == (1000, 0)


def test_a_placed_pod_cannot_be_assumed(cache: Cache) -> None:
    cache.add_pod(pod(node="n1"))
    with pytest.raises(AlreadyAssumed, match="known to be on node `n1`"):
        cache.assume(pod(), "n2")


def test_the_informer_confirms_an_assumed_pod_and_its_version_counts(cache: Cache) -> None:
    cache.assume(pod(), "n1")
    seen = pod(node="n1", cpu="2")
    cache.add_pod(seen)
    assert not cache.is_assumed("u")
    assert cache.get_pod("u") is seen
    assert cpu_on(cache, "n1") == 2000


def test_a_confirmed_pod_is_not_forgotten(cache: Cache) -> None:
    """The answer to a binding was lost, the watch saw it bound, then the binding cycle undid."""
    cache.assume(pod(), "n1")
    cache.add_pod(pod(node="n1"))
    assert not cache.forget("u")
    assert cpu_on(cache, "n1") == 1000


def test_the_informer_is_right_about_the_node(cache: Cache) -> None:
    cache.assume(pod(), "n1")
    cache.add_pod(pod(node="n2"))
    assert (cpu_on(cache, "n1"), cpu_on(cache, "n2")) == (0, 1000)
    assert not cache.is_assumed("u")


def test_an_assumed_pod_that_is_deleted_counts_nowhere(cache: Cache) -> None:
    cache.assume(pod(), "n1")
    cache.remove_pod(pod())
    assert (cpu_on(cache, "n1"), cache.assumed_count) == (0, 0)
    assert not cache.forget("u")


# --- pods in any order -------------------------------------------------------------------------


def test_events_may_be_repeated(cache: Cache) -> None:
    for _ in range(3):
        cache.add_pod(pod(node="n1"))
        cache.add_pod(pod(node="n1"))
    assert (cpu_on(cache, "n1"), cache.pod_count) == (1000, 1)
    for _ in range(3):
        cache.remove_pod(pod(node="n1"))
    assert (cpu_on(cache, "n1"), cache.pod_count) == (0, 0)


def test_an_update_of_an_unknown_pod_adds_it(cache: Cache) -> None:
    cache.add_pod(pod(node="n1"))
    assert cpu_on(cache, "n1") == 1000


def test_a_pod_created_again_under_its_name_takes_the_old_one_s_place(cache: Cache) -> None:
    cache.add_pod(pod("old", node="n1"))
    cache.add_pod(pod("new", node="n2", cpu="2"))
    assert (cpu_on(cache, "n1"), cpu_on(cache, "n2")) == (0, 2000)
    cache.remove_pod(pod("old", node="n1"))
    assert (cpu_on(cache, "n2"), cache.pod_count) == (2000, 1)


def test_an_assumed_pod_created_again_is_another_pod(cache: Cache) -> None:
    cache.assume(pod("old"), "n1")
    cache.assume(pod("new"), "n2")
    assert (cache.is_assumed("old"), cache.is_assumed("new")) == (False, True)
    assert (cpu_on(cache, "n1"), cpu_on(cache, "n2")) == (0, 1000)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_came_to_its_end_holds_nothing(cache: Cache, phase: str) -> None:
    cache.add_pod(pod(node="n1"))
    cache.add_pod(make_pod("p", cpu="1", uid="u", node="n1", phase=phase))
    assert (cpu_on(cache, "n1"), cache.pod_count) == (0, 0)


def test_a_terminating_pod_counts_until_it_is_gone(cache: Cache) -> None:
    cache.add_pod(make_pod("p", cpu="1", uid="u", node="n1", terminating=True))
    assert cpu_on(cache, "n1") == 1000


def test_a_pod_without_a_node_is_refused(cache: Cache) -> None:
    with pytest.raises(ValueError, match="pod `default/p` names no node"):
        cache.add_pod(pod())


# --- nodes in any order ------------------------------------------------------------------------


def test_a_pod_may_come_before_its_node() -> None:
    cache = Cache()
    cache.add_pod(pod(node="late"))
    assert (cache.node_count, shown_cpu(cache, "late")) == (0, None)
    cache.add_node(make_node("late"))
    assert (cache.node_count, shown_cpu(cache, "late")) == (1, 1000)


def test_a_node_removed_under_its_pods_comes_back_with_them(cache: Cache) -> None:
    cache.add_pod(pod(node="n1"))
    cache.remove_node("n1")
    assert (cache.node_count, shown_cpu(cache, "n1"), cpu_on(cache, "n1")) == (1, None, 1000)
    cache.add_node(make_node("n1"))
    assert (cache.node_count, shown_cpu(cache, "n1")) == (2, 1000)


def test_a_removed_node_is_forgotten_with_its_last_pod(cache: Cache) -> None:
    cache.add_pod(pod(node="n1"))
    cache.remove_node("n1")
    cache.remove_pod(pod(node="n1"))
    assert cache.node_info("n1") is None
    cache.check_invariants()


def test_a_pod_may_be_assumed_on_a_node_that_is_gone_by_then(cache: Cache) -> None:
    cache.remove_node("n1")
    cache.assume(pod(), "n1")
    assert (shown_cpu(cache, "n1"), cache.node_count) == (None, 1)
    cache.forget("u")
    assert cache.node_info("n1") is None


def test_node_events_may_be_repeated(cache: Cache) -> None:
    for _ in range(2):
        cache.add_node(make_node("n3"))
        cache.add_node(make_node("n3", cpu="8"))
    assert cache.node_count == 3
    for _ in range(2):
        cache.remove_node("n3")
    cache.remove_node("unknown")
    assert cache.node_count == 2
    cache.check_invariants()


def test_what_a_trial_did_is_seen_inside_it_and_not_after(cache: Cache) -> None:
    """The snapshot went on showing the node without the pod that was taken off on trial."""
    placed = pod(node="n1")
    cache.add_pod(placed)
    assert shown_cpu(cache, "n1") == 1000
    with cache.trial():
        cache.remove_pod(placed)
        cache.assume(pod("v", name="q", cpu="3"), "n2")
        assert (shown_cpu(cache, "n1"), shown_cpu(cache, "n2")) == (0, 3000)
    assert (shown_cpu(cache, "n1"), shown_cpu(cache, "n2")) == (1000, 0)
    assert (cpu_on(cache, "n1"), cpu_on(cache, "n2")) == (1000, 0)
    assert cache.get_pod("u") is placed
    assert not cache.is_assumed("v")


def test_a_trial_without_a_pod_that_cannot_be_read_leaves_it_unread(cache: Cache) -> None:
    """Else it would be decided afterwards as if all was known of its node."""
    placed = pod(node="n1")
    meta = msgspec.structs.replace(placed.manifest.metadata, unread=("spec: want an object",))
    cache.add_pod(unread := Pod(msgspec.structs.replace(placed.manifest, metadata=meta)))
    key = "pods", unread.uid
    with cache.trial():
        assert key in cache.objects.unread
        cache.remove_pod(unread)
        assert key not in cache.objects.unread
    assert key in cache.objects.unread


def test_a_node_that_cannot_be_read_is_unread_until_it_is_gone_or_can_be(cache: Cache) -> None:
    node = make_node("n1")
    meta = msgspec.structs.replace(node.manifest.metadata, unread=("spec: want an object",))
    unread = Node(msgspec.structs.replace(node.manifest, metadata=meta))
    for is_removed in (True, False):
        cache.add_node(unread)
        assert ("nodes", "n1") in cache.objects.unread
        if is_removed:
            cache.remove_node("n1")
        else:
            cache.add_node(node)
        assert not cache.objects.unread
