"""Whether a replica agrees with the API server at rest: caches, stores, queue, nominations, memory.

Owns the comparison of a running `App` with the objects, and of its decisions with those of a
scheduler that has seen nothing but the objects as they are now.
"""

import random
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from devkit.cluster import DevCluster
from devkit.faults.hosts import HostClock
from devkit.faults.invariants import Violation
from devkit.faults.invariants.facts import is_over
from devkit.faults.leftovers import leftovers
from devkit.faults.sandbox import SimulatedPool, Trouble
from engine.app import App
from engine.core.caching.attachments import VolumeUsers
from engine.core.caching.cache import Cache
from engine.core.caching.objects import ObjectStore
from engine.core.caching.snapshot import Snapshot
from engine.core.model.pod import Pod
from engine.core.queueing.nominator import Nominator
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.plugins.dynamic_resources import DynamicResources
from engine.core.scheduling.plugins.registry import make_plugins
from engine.core.scheduling.plugins.volume_binding import VolumeBinding
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.io.kube.direct import DirectTransport
from engine.policy.sandbox.process import SandboxEvaluator

Json = dict[str, Any]

#: Who may know what is gone: these keep so many entries, or only as long as something else does.
BOUNDED: Final = frozenset(
    {
        "DecisionRecord._decided",
        "EventRecorder._series",
        "NodeInfo.pods",
        "NodeInfo.volumes",
        "PodKinds._pods",
        "_PodClaims.provisioning",
    }
)
#: What has the names of pods, and may outlive them.
_NAMED_AFTER_PODS: Final = ("pods", "persistentvolumeclaims", "resourceclaims.resource.k8s.io")
#: Time is looked at once a second.
_LATE_SECONDS: Final = 2.0
_MOST_PLACED: Final = 12


def disagreements(
    app: App, cluster: DevCluster, gone: Mapping[str, float], since: float
) -> Iterator[Violation]:
    """What *app* has otherwise than the API server.

    Args:
        gone: The uids and keys of pods that were deleted, and when.
        since: Those that were gone by then must be forgotten.
    """
    pods = {_key(pod): pod for pod in cluster.list("pods") if not is_over(pod)}
    yield from contradictions(app)
    yield from _placed(app, pods)
    yield from _stored(app, cluster, pods)
    if app.kernel.scheduler is not app.policies.rollout.active.scheduler:
        active = app.policies.rollout.active.bundle.revision
        yield _violation("policies", f"the kernel does not decide by revision {active}")
    pending = {key: pod for key, pod in pods.items() if not pod["spec"].get("nodeName")}
    yield from _queued(app, pending)
    yield from _nominated(app, pending)
    yield from stranded(app, cluster)
    known = {_key(one) for kind in _NAMED_AFTER_PODS for one in cluster.list(kind)}
    known |= {pod["metadata"]["uid"] for pod in cluster.list("pods")}
    forgotten = {name for name, at in gone.items() if at < since and name not in known}
    live = app.cache.snapshot()
    lives = [live, live.objects, live.volume_users]

    def is_followed(one: object) -> bool:
        """False for what is the world's, and for copies, which show an earlier moment."""
        if isinstance(one, Snapshot | ObjectStore | VolumeUsers):
            return any(one is known for known in lives)
        module = type(one).__module__
        return module.startswith("engine.")

    for place, name in leftovers(app, forgotten, is_followed=is_followed, bounded=BOUNDED):
        yield _violation(place, f"it still knows `{name}`, which is gone")


def under_way(app: App) -> str:
    """What *app* has begun and not ended, in words; "" if nothing."""
    counts: dict[str, int] = {
        "bindings": app.carrying.bindings.at_work,
        "preemptions": app.carrying.preemptor.in_flight,
        "writes": len(app.reporting.writer) + app.reporting.writer.in_flight,
        "pods in flight": app.kernel.queue.counts()["in_flight"] - len(app.kernel.permits),
    }
    if app.leadership.leading.is_set():
        counts["pods to try"] = app.kernel.queue.counts()["active"]
    assumed = app.cache.assumed_count - len(app.kernel.permits) - app.carrying.bindings.in_flight
    counts["assumed pods that nothing waits for"] = max(0, assumed)
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def other_decisions(app: App) -> Iterator[Violation]:
    """Pods about which *app* would decide otherwise than a scheduler that begins now."""
    nodes, *others, pods = app.watching.informers
    cache = Cache()
    for node in nodes.values():
        cache.add_node(node)
    for informer in others:
        for found in informer.values():
            cache.objects.put(informer.resource.plural, found)
    _show_facts(app.cache, cache)
    nominator = Nominator()
    pending, placed = list[Pod](), list[Pod]()
    for pod in pods.values():
        if pod.node_name:
            cache.add_pod(pod)
            placed.append(pod.unplaced())
        elif pod.uid not in app.kernel.permits and not pod.is_terminating:
            nominator.nominate(pod)
            pending.append(pod)
    if app.cache.assumed_count:
        return  # which no other scheduler can know
    live = app.policies.rollout.active
    clock = app._clock
    assert isinstance(clock, HostClock)
    pool = SimulatedPool(clock, Trouble(random.Random(0), lambda _: None))
    evaluator = SandboxEvaluator(live.bundle.program, pool)
    fresh = Scheduler(live.bundle, evaluator)
    fresh.use_plugins(make_plugins(cache.objects, clock=clock))
    step = max(1, len(placed) // _MOST_PLACED)
    try:
        for pod in (*pending, *placed[::step][:_MOST_PLACED]):
            if live.scheduler.profile_of(pod) is None:
                continue
            options = {"has_post_filters": False}
            want = fresh.schedule(pod, cache.snapshot(), nominator, **options)
            got = live.scheduler.schedule(
                pod, app.cache.snapshot(), app.kernel.queue.nominator, **options
            )
            if _said(want) != _said(got):
                text = f"it decides `{_said(got)}`, and a new one decides `{_said(want)}`"
                yield _violation(pod.key, text)
    finally:
        evaluator.close()


def _show_facts(known: Cache, cache: Cache) -> None:
    """Have *cache* show the facts of *known*: they come from elsewhere."""
    for name, facts in known.node_facts().items():
        cache.set_node_facts(name, facts)
    shown = known.snapshot()
    cache.set_other_facts(cluster=shown.cluster_facts, types=shown.type_facts, pods=shown.pod_facts)
    cache.set_pod_type_labels(shown.pod_type_labels)


def _said(decision: Decision) -> tuple[str | None, str]:
    return decision.node, "" if decision.node is not None else decision.message()


def contradictions(app: App, connections: int | None = None) -> Iterator[Violation]:
    """What *app* says of itself, and cannot be at any moment.

    Args:
        connections: How many it has; None if that is not known.
    """
    yield from _unowned(app)
    transport = app._client._transport
    assert isinstance(transport, DirectTransport)
    counted = len(transport._pool._open)
    if connections is not None and counted > connections:
        yield _violation("connections", f"{counted} count, {connections} are there")
    checks: tuple[Callable[[], None], ...] = (
        app.kernel.check_invariants,
        app.cache.check_invariants,
    )
    for check in checks:
        try:
            check()
        except AssertionError as error:
            yield _violation("invariants", "".join(traceback.format_exception(error)))


def _unowned(app: App) -> Iterator[Violation]:
    """What is held for pods that have no node, and are not on their way to one."""
    if app.carrying.bindings.in_flight:
        return  # a pod may be gone while it is being bound
    if app._stop.is_set() or (
        app.leadership.elector is not None and not app.leadership.elector.is_leading
    ):
        return  # what was for a binding that the end has cut off stays
    for plugin in app.policies.rollout.active.scheduler.hooks.plugins.values():
        if isinstance(plugin, DynamicResources) and plugin._claims is not None:
            for claim, reservation in plugin._claims._reservations.items():
                for uid in reservation.pods:
                    if not app.cache.is_assumed(uid):
                        yield _violation(claim, f"its devices are held for `{uid}`, for no reason")
        elif isinstance(plugin, VolumeBinding) and not app.cache.assumed_count:
            for claim in plugin._assumed_claims._assumed:  # `is_assumed` would drop what is old
                yield _violation(claim, "it is assumed to have a node, for no pod")


def _placed(app: App, pods: Mapping[str, Json]) -> Iterator[Violation]:
    for key, pod in pods.items():
        uid = pod["metadata"]["uid"]
        known, node = app.cache.get_pod(uid), pod["spec"].get("nodeName") or None
        got = known.node_name if known is not None else None
        if got != node and uid not in app.kernel.permits and not app.carrying.bindings.in_flight:
            yield _violation(key, f"it has the pod on {got}, the API server on {node}")


def _stored(app: App, cluster: DevCluster, pods: Mapping[str, Json]) -> Iterator[Violation]:
    """Compare the stores of informers, and what the cache has of nodes and other objects."""
    for informer in app.watching.informers:
        resource = informer.resource
        if informer.state == "absent":
            continue
        name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
        if resource.plural == "pods":
            there = {key: pod["metadata"]["uid"] for key, pod in pods.items()}
        else:
            there = {_key(one): one["metadata"]["uid"] for one in cluster.list(name)}
        for key in sorted(there.keys() ^ _keys(informer)):
            where = "the API server" if key in there else "the informer"
            yield _violation(key, f"of {name}, only {where} has it")
        if resource.plural not in ("pods", "nodes"):
            count = app.cache.objects.count(resource.plural)
            if count != len(there):
                yield _violation(name, f"the cache has {count}, the API server {len(there)}")
    nodes = {_key(node) for node in cluster.list("nodes")}
    for name in sorted(nodes ^ app.cache.snapshot().slot_of.keys()):
        yield _violation(name, "only one of the cache and the API server has this node")


def _keys(informer: Any) -> set[str]:
    return set(informer._store)


def _queued(app: App, pending: Mapping[str, Json]) -> Iterator[Violation]:
    known = set(app.kernel.queue.keys())
    for key in sorted(known ^ pending.keys()):
        where = "in its queue and not" if key in known else "not in its queue, and"
        yield _violation(key, f"{where} pending in the API server")
    for key in sorted(known & pending.keys()):
        queued = app.kernel.queue.named(key)
        version = pending[key]["metadata"]["resourceVersion"]
        if queued is not None and queued.pod.resource_version != version:
            text = f"queued in version {queued.pod.resource_version}, it is {version}"
            yield _violation(key, text)


def _nominated(app: App, pending: Mapping[str, Json]) -> Iterator[Violation]:
    # A pod that holds a node and is not bound yet says so as a nomination.
    want = {
        key: node
        for key, pod in pending.items()
        if (node := (pod.get("status") or {}).get("nominatedNodeName"))
        and not app.cache.is_assumed(pod["metadata"]["uid"])
    }
    nominator = app.kernel.queue.nominator
    got = {pod.key: nominator.node_of(pod.uid) for pod in nominator}
    for key in sorted(want.keys() | got.keys()):
        if want.get(key) != got.get(key):
            text = f"nominated to {got.get(key)}, and in the API server to {want.get(key)}"
            yield _violation(key, text)


def stranded(app: App, cluster: DevCluster) -> Iterator[Violation]:
    """Pods that wait in permit although they are gone, or their node is, or their time is up."""
    pods, now = cluster.list("pods"), app._clock.monotonic()
    uids = {pod["metadata"]["uid"] for pod in pods if not pod["spec"].get("nodeName")}
    nodes = {_key(node) for node in cluster.list("nodes")}
    for queued, _ in app.kernel.permits.waiting():
        wait = app.kernel.permits.wait_of(queued.uid)
        if queued.uid not in uids:
            yield _violation(queued.pod.key, "it waits in permit, and is not pending")
        elif wait is not None and wait.node not in nodes:
            yield _violation(queued.pod.key, f"it waits on node `{wait.node}`, which is gone")
        elif wait is not None and wait.until is not None and wait.until + _LATE_SECONDS < now:
            yield _violation(queued.pod.key, f"it waits since {now - wait.until:.1f} s too long")


def _key(manifest: Json) -> str:
    metadata = manifest["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def _violation(about: str, text: str) -> Violation:
    return Violation("agreement", about, text)
