"""The cluster as an extender knows it: from the request alone, or from watching it.

Owns the snapshot that the policies see and the pods for the trial of new policies. Both worlds
answer the same questions, so the rest need not know which one it is.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from engine.core.caching.cache import Cache
from engine.core.caching.objects import ObjectStore
from engine.core.caching.snapshot import Snapshot
from engine.core.framework.behaviors import RELEASED, behaviors_of
from engine.core.kernel.events import NODES, PODS, Event, ReadabilityChanged
from engine.core.kernel.kernel import Kernel
from engine.core.model.clock_facts import clock_facts
from engine.core.model.node import Node
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.scheduling.plugins.registry import make_plugins
from engine.io.emulation import Emulation
from engine.io.event_handlers import ObjectReporter
from engine.io.facts.assembly import FactSources
from engine.io.facts.board import FactBoard
from engine.io.facts.learned import NoLearnedStore
from engine.io.facts.live_facts import LiveFacts
from engine.io.informers import PolicyInformers, make_informers
from engine.io.kube.client import ApiClient
from engine.io.kube.resources import Resource
from engine.io.watching.readable import MOST_AGE_SECONDS, Readability
from engine.lib.clock import Clock
from engine.lib.time_zones import zone_of
from engine.policy.analysis import TimeReads
from engine.policy.bundle import Bundle
from engine.policy.fact_config import FactsConfig
from engine.rollout import trial
from engine.surfaces.extender_server.requests import BadRequest, NodesRequest, node_of
from engine.telemetry.metrics import Metrics

NOT_WATCHING: Final = (
    "this extender does not watch the cluster: want `nodeCacheCapable: false`, or the extender "
    "started with --watch"
)
_SAMPLE: Final = 24


class World(trial.World, Protocol):
    """What the policies see of the cluster, and the pods that new ones are tried on."""

    def use(self, facts: FactsConfig, reads: TimeReads) -> None:
        """Show *facts*, and what is read of the time, from now on."""
        ...

    def for_request(self, request: NodesRequest) -> Snapshot:
        """The cluster for this request. Raises `BadRequest` if it cannot be known."""
        ...

    def for_victims(self) -> Snapshot:
        """The cluster for a request about victims, which has no nodes in it."""
        ...


class _RequestedPods:
    """The pods of the last requests."""

    def __init__(self) -> None:
        self._pods: deque[Pod] = deque(maxlen=_SAMPLE)

    def note(self, pod: Pod) -> None:
        self._pods.append(pod)

    def sample_pods(self) -> list[Pod]:
        """One version of each, the newest."""
        return list({pod.uid: pod for pod in self._pods}.values())

    def waiting_pods(self) -> list[Pod]:
        """As `sample_pods`: no others are known to wait."""
        return list({pod.uid: pod for pod in self._pods}.values())

    def rejected_pods(self) -> list[Pod]:
        """None: kube-scheduler knows which pods wait."""
        return []

    def pods_by_queue(self) -> Mapping[str, int]:
        """None: kube-scheduler has no queues."""
        return {}

    async def watch(self, bundle: Bundle) -> Sequence[str]:
        """Nothing: a request holds everything that is known."""
        return ()

    async def prepare(self, bundle: Bundle) -> None:
        """Return at once: a request holds everything that is known."""

    async def until_idle(self) -> None:
        """Return at once: nothing announces the next request of kube-scheduler."""

    async def until_decided(self) -> None:
        """Return at once: a request is answered without a pause."""


class RequestWorld(_RequestedPods):
    """The nodes of the request and the time, nothing else: no pods on them, no other objects.

    The same request gets the same answer in the same minute, whatever came before. A node whose
    text is the same as in the last request costs no decoding. It is answered like Kubernetes
    1.*minor*.
    """

    def __init__(self, clock: Clock, minor: int = RELEASED) -> None:
        super().__init__()
        self._clock = clock
        self._time_zone = FactsConfig().time_zone
        self._objects = ObjectStore()
        self._objects.behaves = behaviors_of(minor)
        self._snapshot = Snapshot(self._objects)
        self._known: dict[str, tuple[bytes, NodeInfo]] = {}

    def use(self, facts: FactsConfig, reads: TimeReads) -> None:
        """Show the clock in the time zone of *facts*; their sources are not followed."""
        self._time_zone = facts.time_zone

    def _with_clock(self, snapshot: Snapshot) -> Snapshot:
        snapshot.cluster_facts = dict(clock_facts(self._clock.now(), zone_of(self._time_zone)))
        return snapshot

    def for_request(self, request: NodesRequest) -> Snapshot:
        """The cluster of the request's nodes. Raises `BadRequest` if it has only names."""
        if request.texts is None:
            raise BadRequest(NOT_WATCHING)
        fresh: dict[str, tuple[bytes, NodeInfo]] = {}
        for name, text in request.texts.items():
            raw = bytes(text)
            known = self._known.get(name)
            if known is None or known[0] != raw:
                known = raw, NodeInfo(name, node_of(text))
            fresh[name] = known
        for name in [name for name in self._snapshot.slot_of if name not in fresh]:
            self._snapshot.put(name, None)
        for name, (_, info) in fresh.items():
            self._snapshot.put(name, info)
        self._known = fresh
        self.note(request.pod)
        return self._with_clock(self._snapshot)

    def for_victims(self) -> Snapshot:
        """No nodes: those of an earlier request may be out of date."""
        return self._with_clock(Snapshot(self._objects))

    def snapshot(self) -> Snapshot:
        """The cluster of the last request."""
        return self._with_clock(self._snapshot)


class WatchedWorld(_RequestedPods):
    """The cluster as the API server shows it: nodes, the pods on them, and the other objects.

    A kernel in which no policies come into force, so that it queues and decides nothing. What
    kube-scheduler has decided and the API server does not show yet is not in it.
    """

    def __init__(
        self,
        client: ApiClient,
        clock: Clock,
        metrics: Metrics,
        bundles: Callable[[], Iterable[Bundle]],
        most_watch_age: float = MOST_AGE_SECONDS,
        minor: int | None = None,
    ) -> None:
        super().__init__()
        self._clock = clock
        self._is_known = False  # what is watched whatever the policies read
        self.cache = Cache()
        self._kernel = Kernel(self.cache, make_plugins(self.cache.objects), metrics=metrics)
        self.emulation = Emulation(client, self.cache.objects, self._report, given=minor)
        self.facts = LiveFacts(
            FactBoard(self.cache, self._report),
            clock=clock,
            # What is learned from pods is learned again after each start.
            make_source=FactSources(client, clock, NoLearnedStore(), lambda: False).make,
            on_change=lambda: None,
            on_age=lambda: None,
            objects=self._known_objects,
        )
        self.informers = make_informers(
            client,
            nodes=[self.facts.of_nodes, ObjectReporter(NODES, self._report)],
            pods=[self.facts.of_pods, ObjectReporter(PODS, self._report)],
            others=self._handler_of,
        )
        self.policy_informers = PolicyInformers(
            client,
            self.informers,
            others=self._handler_of,
            bundles=bundles,
            on_synced=self.look,
        )
        self.readability = Readability(self.informers, clock, most_watch_age)

    def use(self, facts: FactsConfig, reads: TimeReads) -> None:
        """Follow the sources of *facts*, and the time as *reads* says."""
        self.facts.configure(facts, reads)

    async def follow_readability(self) -> None:
        """Keep the kernel informed of what cannot be read any more; never returns."""
        self._is_known = True
        while True:
            self.look()
            await asyncio.sleep(1.0)

    def look(self) -> None:
        """Watch what the policies read, and inform the kernel of what cannot be read."""
        if not self._is_known:
            return  # nothing is answered yet
        self.emulation.follow(self.informers[0])
        self.policy_informers.follow()
        changed = self.readability.change(self.cache.objects.unknown)
        if changed is not None:
            self._report(ReadabilityChanged(changed))

    def _handler_of(self, resource: Resource) -> ObjectReporter:
        return ObjectReporter(resource.plural, self._report)

    def _report(self, event: Event) -> None:
        # Instructions are dropped: kube-scheduler decides.
        self._kernel.handle(event, self._clock.monotonic())

    def for_request(self, request: NodesRequest) -> Snapshot:
        """The cluster as it is now."""
        self.note(request.pod)
        return self.cache.snapshot()

    def for_victims(self) -> Snapshot:
        """The cluster as it is now."""
        return self.cache.snapshot()

    def snapshot(self) -> Snapshot:
        """The cluster as it is now, for the trial of new policies."""
        return self.facts.with_clock(self.cache.snapshot())

    def sample_pods(self) -> list[Pod]:
        """The pods of the last requests, and some placed ones, as if they were pending."""
        infos = [info for info in self.cache.snapshot().infos if info is not None and info.pods]
        step = max(1, len(infos) // 8)
        placed = [next(iter(info.pods.values())).unplaced() for info in infos[::step][:8]]
        return super().sample_pods() + placed

    def pods_by_queue(self) -> Mapping[str, int]:
        """None: kube-scheduler has no queues."""
        return {}

    async def watch(self, bundle: Bundle) -> Sequence[str]:
        """Watch what *bundle* reads; returns why that cannot be read which is not known soon."""
        return await self.policy_informers.known(bundle)

    async def prepare(self, bundle: Bundle) -> None:
        """Wait until the fact sources of *bundle* have reported."""
        await self.facts.prepare(bundle.runtime.facts)

    def _known_objects(self) -> tuple[Iterable[Node], Iterable[Pod]]:
        infos = [info for info in self.cache.snapshot().infos if info is not None]
        nodes = [info.node for info in infos if info.node is not None]
        cluster = self._kernel.cluster
        return nodes, [*cluster.pending_pods(), *cluster.placed_pods()]
