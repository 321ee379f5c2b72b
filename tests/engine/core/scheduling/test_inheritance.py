"""Policies that take over from others: what is asked again, and what is not."""

from collections.abc import Sequence
from typing import Any

from engine.core.caching.cache import Cache
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import Call, InProcessEvaluator
from engine.policy.memo_reuse import unchanged_instances
from tests.builders import ZONE, make_node, make_pod
from tests.profiles import only

LIKES = 'def score(pod, node):\n    return int(node.labels["i"]) * {times}\n'
REFUSES = 'def filter(pod, node):\n    return "odd" if node.labels["i"] == "{which}" else None\n'
SPREADS = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
}


class _Asked:
    """Notes which policies it is asked."""

    def __init__(self, bundle: Bundle) -> None:
        self._inner = InProcessEvaluator(bundle.program)
        self._policies = [instance.policy for instance in bundle.program.instances]
        self.policies: set[str] = set()

    def close(self) -> None:
        pass

    def evaluate(self, calls: Sequence[Call]) -> list[Any]:
        self.policies.update(self._policies[call.instance] for call in calls)
        return list(self._inner.evaluate(calls))


def bundle_of(times: int = 1, which: int = 0, profile: str | None = None) -> Bundle:
    profile = profile or only("likes", "refuses", "NodeResourcesFit", "PodTopologySpread")
    files = {
        "likes.star": LIKES.format(times=times),
        "refuses.star": REFUSES.format(which=which),
        "p.yaml": profile,
    }
    return build_bundle(files)


def cluster() -> Cache:
    cache = Cache()
    for i in range(6):
        cache.add_node(make_node(f"n{i}", zone=f"z{i % 3}", labels={"i": str(i)}))
    return cache


def decided(
    bundle: Bundle, cache: Cache, heir_of: Scheduler | None = None
) -> tuple[Scheduler, list[tuple[str | None, str]], set[str]]:
    """A scheduler that has decided two pods, what it said, and which policies were asked for it."""
    asked = _Asked(bundle)
    scheduler = Scheduler(bundle, asked)
    if heir_of is not None:
        unchanged = unchanged_instances(heir_of.bundle.program, bundle.program)
        scheduler.reuse_from(heir_of, unchanged)
    pods = [make_pod("a", labels={"app": "web"}, spec=SPREADS), make_pod("b", cpu="900")]
    found = [scheduler.explain(pod, cache.snapshot()).decision for pod in pods]
    return scheduler, [(one.node, one.message()) for one in found], asked.policies


def test_only_what_changed_is_asked_again() -> None:
    cache = cluster()
    before, nodes, asked = decided(bundle_of(), cache)
    assert {"likes", "refuses", "NodeResourcesFit", "PodTopologySpread"} <= asked
    assert nodes[0][0] == "n5"
    _, same, asked = decided(bundle_of(), cache, before)
    assert same == nodes
    assert asked == set()
    _, other, asked = decided(bundle_of(which=5), cache, before)
    assert other[0][0] == "n4"
    assert asked == {"refuses"}


def test_a_policy_under_another_index_is_not_asked_again() -> None:
    cache = cluster()
    before, nodes, _ = decided(bundle_of(), cache)
    turned = only("PodTopologySpread", "NodeResourcesFit", "refuses", "likes")
    now = bundle_of(profile=turned)
    assert [i.policy for i in now.program.instances] != [
        i.policy for i in before.bundle.program.instances
    ]
    _, same, asked = decided(now, cache, before)
    assert same[0] == nodes[0]
    assert asked == set()


def test_what_changed_in_the_cluster_is_asked() -> None:
    cache = cluster()
    before, *_ = decided(bundle_of(), cache)
    cache.add_node(make_node("n9", cpu="7", zone="z0", labels={"i": "9"}))
    now = bundle_of(times=2)
    _, nodes, asked = decided(now, cache, before)
    _, fresh, _ = decided(now, cache)
    assert nodes == fresh
    assert nodes[0][0] == "n9"
    assert {"likes", "refuses", "NodeResourcesFit"} <= asked


def test_a_new_policy_may_come_while_a_node_changes() -> None:
    """An edit that read other fields than before died of an IndexError in its trial.

    The cluster had changed since the last decision, and the nodes that changed were noted for the
    new fields before anything was known for them.
    """
    cache = cluster()
    before, *_ = decided(bundle_of(), cache)
    cache.add_node(make_node("n5", zone="z2", labels={"i": "5", "disk": "ssd"}))
    cache.add_pod(make_pod("other", node="n4"))
    fast = 'def filter(pod, node):\n    return None if node.labels.get("disk") else "slow"\n'
    full = "def score(pod, node):\n    return 100 - node.pod_count\n"
    files = {"fast.star": fast, "full.star": full, "p.yaml": only("fast", "full")}
    _, nodes, _ = decided(build_bundle(files), cache, before)
    assert [node for node, _ in nodes] == ["n5", "n5"]


def test_the_one_before_goes_on_as_it_was() -> None:
    cache = cluster()
    before, nodes, _ = decided(bundle_of(), cache)
    heir, *_ = decided(bundle_of(which=5), cache, before)
    assert before.schedule(make_pod("c", labels={"app": "web"}), cache.snapshot()).node == "n5"
    assert heir.schedule(make_pod("c", labels={"app": "web"}), cache.snapshot()).node == "n4"
    assert nodes[0][0] == "n5"


def test_failures_are_asked_again() -> None:
    failing = LIKES.format(times=1).replace("int(", "int(1 // (3 - int(").replace('"])', '"])))')
    files = {"likes.star": failing, "p.yaml": only("likes")}
    cache = cluster()
    bundle = build_bundle(files)
    before = Scheduler(bundle, InProcessEvaluator(bundle.program))
    first = before.schedule(make_pod("a"), cache.snapshot())
    assert first.failures
    asked = _Asked(bundle)
    heir = Scheduler(bundle, asked)
    heir.reuse_from(before, unchanged_instances(bundle.program, bundle.program))
    second = heir.schedule(make_pod("a"), cache.snapshot())
    assert second.failures == first.failures
    assert asked.policies == {"likes"}
