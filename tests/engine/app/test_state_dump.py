"""What the scheduler believes, next to what the watches reported."""

from structlog.testing import capture_logs

from engine.core.caching.cache import Cache
from engine.core.queueing.events import NODE_ADD
from engine.surfaces.state_dump import dump, mismatches
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import World
from tests.engine.core.queueing.test_scheduling_queue import Bench


def test_a_cache_that_followed_has_no_mismatch() -> None:
    cache = Cache()
    node, placed, assumed = make_node("n"), make_pod("placed", node="n"), make_pod("assumed")
    cache.add_node(node)
    cache.add_pod(placed)
    cache.assume(assumed, "n")
    assert mismatches(cache, [node], [placed, assumed, make_pod("pending")]) == {}


def test_what_one_side_alone_has_is_named() -> None:
    cache = Cache()
    cache.add_node(make_node("gone"))
    cache.add_pod(make_pod("gone", node="gone"))
    cache.add_pod(make_pod("elsewhere", node="unknown"))
    reported = [make_pod("new", node="n")]
    assert mismatches(cache, [make_node("n")], reported) == {
        "nodes": {"missed": ["n"], "redundant": ["gone"]},
        "pods": {"missed": ["default/new"], "redundant": ["default/elsewhere", "default/gone"]},
    }


async def test_the_dump_says_of_each_pod_in_the_queue_why_it_is_tried() -> None:
    bench = Bench()
    bench.reject(make_pod("web"))
    bench.queue.move(NODE_ADD, None, make_node("node-3", cpu="64"))
    with capture_logs() as lines:
        kernel = World().kernel
        await dump(Cache(), bench.queue, kernel.shares, kernel.turns, [], [])
    (line,) = [line for line in lines if line["event"] == "Dump of scheduling queue"]
    assert (line["pod"], line["queue"]) == ("default/web", "backoff")
    assert line["tried_because"] == "NodeAdd node-3 (NodeResourcesFit)"
    assert line["moves"][-1].endswith("unschedulable -> backoff: NodeAdd node-3 (NodeResourcesFit)")
