"""Builds every part of the scheduler and connects them; the only module that knows them all.

Owns the order of starting and stopping. The parts know each other through what they are given.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from engine.binding.binder import Binder
from engine.binding.binding_cycle import MOST_IN_FLIGHT, BindingCycle
from engine.binding.claim_writer import DeviceClaimWriter
from engine.binding.deferred_writer import DeferredWriter
from engine.binding.event_recorder import CONTROLLER, NORMAL, EventRecorder, Reference
from engine.binding.outcomes import AttemptOutcomes
from engine.binding.pod_status import PodStatusUpdater
from engine.binding.preemptor import Preemptor
from engine.binding.volume_binder import VolumeBinder
from engine.caching.cache import Cache
from engine.event_handlers import (
    GroupHandler,
    NodeHandler,
    ObjectHandler,
    PodHandler,
    SampledHandler,
)
from engine.extender_calls import ExtenderBinder, ExtenderCalls, taken_turn
from engine.facts.assembly import FactSources
from engine.facts.keeper import FactKeeper
from engine.facts.learned import Keeper, KeepsNothing
from engine.informers import make_informers
from engine.kube import resources
from engine.kube.client import ApiClient
from engine.kube.resources import Resource
from engine.leader_election import LeaderElector, LeadershipLost, LeaseSettings, make_identity
from engine.lib.background import Background, cancelled
from engine.lib.clock import Clock, SystemClock
from engine.model.node import Node
from engine.model.pod import Pod
from engine.policy.analysis import reads_ages
from engine.policy.bundle import Bundle
from engine.policy.verdicts import VerdictMemo
from engine.pulled_metrics import (
    show_cache,
    show_facts,
    show_in_flight,
    show_policies,
    show_queue,
    show_recording,
    show_watches,
)
from engine.queue_hooks import QueueHooks
from engine.queueing.events import FACTS_AGE, FACTS_UPDATE
from engine.queueing.hints import Hints
from engine.queueing.scheduling_queue import SchedulingQueue
from engine.queueing.throttle import Failures, Throttle, Work
from engine.queueing.transitions import Trigger
from engine.recording.recorder import Recorder
from engine.rollout.last_good import NoStore, Store
from engine.rollout.rollout import Rollout
from engine.rollout.sources import PolicySource
from engine.rollout.trial import Deployment, Examiner
from engine.scheduling.loop import SchedulingLoop
from engine.scheduling.permit import Permits
from engine.scheduling.plugins.registry import make_plugins
from engine.scheduling.pod_groups import PodGroups
from engine.state_dump import dump
from engine.telemetry.health import HealthServer, ping
from engine.telemetry.metrics import Metrics
from engine.telemetry.pauses import DecisionPauses
from engine.watching.informer import Handler

log = structlog.get_logger(component="app")

#: Seconds of deciding before other tasks get a turn: short enough that answers of bindings and
#: watch events are not kept waiting, long enough that the turns cost nothing.
SLICE_SECONDS: Final = 0.004
#: After a decision that took so long, others get so long: an answer takes several turns of the
#: event loop, and one turn between two policies that run into their deadlines is not enough.
LONG_SECONDS: Final = 0.25
REST_SECONDS: Final = 0.05
DRAIN_SECONDS: Final = 10.0
FLUSH_SECONDS: Final = 5.0
# How long the trial of the first policies waits for a quiet moment at most, and how often it looks.
_IDLE_SECONDS: Final = 5.0
_IDLE_TICK: Final = 0.05
_SAMPLE_CLASSES: Final = 64
_SAMPLE_PENDING: Final = 24
_SAMPLE_PLACED: Final = 8


@dataclass(frozen=True)
class Settings:
    """How a scheduler process runs.

    Attributes:
        lease: The lease to compete for; None to schedule without one.
        metrics_address: Host and port of the HTTP endpoints (port 0: a free one); None for none.
        initial_backoff, max_backoff: Seconds that a rejected pod waits at least and at most.
        max_unschedulable: Seconds after which a rejected pod is tried again in any case.
        bindings: Most bindings in flight.
        configuration: What `/configz` shows.
    """

    lease: LeaseSettings | None = None
    metrics_address: tuple[str, int] | None = None
    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    max_unschedulable: float = 300.0
    bindings: int = MOST_IN_FLIGHT
    configuration: dict[str, Any] = field(default_factory=dict)


class App:
    """A scheduler process: everything between the API server and the policies.

    `new --run--> starting --synced--> standby --lease--> scheduling --stop--> stopped`.

    Args:
        client: The API server; closed by whoever made it.
        source: Where policies come from.
        examiner: Builds, tests and loads them.
        store: Where the last good ones are kept.
        keeper: Where facts are kept that were learned.
        settings: See there.
        clock: Time.
        recorder: Keeps a log of decisions and of what they read; started by whoever made it.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        source: PolicySource,
        examiner: Examiner,
        store: Store | None = None,
        keeper: Keeper | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.settings = settings if settings is not None else Settings()
        self._client = client
        self._clock = clock if clock is not None else SystemClock()
        self._stop = asyncio.Event()
        self._ready = asyncio.Event()
        self._is_synced = False
        self._background = Background()
        self._keeping: asyncio.Task[None] | None = None
        self.synced = asyncio.Event()
        self.leading = asyncio.Event()
        self.port = 0
        self._sandbox_restarts = 0
        self._incoming: dict[tuple[str, str], Any] = {}

        # 1. Measuring.
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.metrics = Metrics(self.registry)
        self._pauses = DecisionPauses(self.metrics.decision_pauses)
        # 2. The cluster as we know it.
        self.journal = recorder
        self.cache = Cache() if recorder is None else recorder.cache
        self.throttle = Throttle(self._clock, self._hook_failed)
        self.hooks = QueueHooks(
            cache=self.cache,
            scheduler=lambda: self.rollout.active.scheduler,
            held_back=lambda pod: self.preemptor.gate(pod),
            throttle=self.throttle,
            on_gated=self._tell_gate,
            on_throttled=self._tell_throttled,
            metrics=self.metrics,
            clock=self._clock,
        )
        self.queue = SchedulingQueue(
            self._clock,
            key_of=self.hooks.key_of,
            pre_enqueue=self.hooks.gate_of,
            initial_backoff=self.settings.initial_backoff,
            max_backoff=self.settings.max_backoff,
            max_unschedulable=self.settings.max_unschedulable,
            on_ready=self._wake,
            on_incoming=self._count_incoming,
        )
        # 3. Telling the API server.
        self.writer = DeferredWriter(clock=self._clock, is_busy=self._is_busy)
        self.recorder = EventRecorder(
            client,
            self.writer,
            clock=self._clock,
            metrics=self.metrics,
            instance=socket.gethostname(),
        )
        self.status = PodStatusUpdater(client, self.writer, clock=self._clock, metrics=self.metrics)
        self.outcomes = AttemptOutcomes(
            queue=self.queue,
            recorder=self.recorder,
            status=self.status,
            metrics=self.metrics,
            clock=self._clock,
        )
        self.extenders = ExtenderCalls(metrics=self.metrics, clock=self._clock)
        binder = Binder(client, clock=self._clock, metrics=self.metrics, may_act=self._may_act)
        self.bindings = BindingCycle(
            cache=self.cache,
            queue=self.queue,
            binder=ExtenderBinder(self.extenders, binder),
            outcomes=self.outcomes,
            metrics=self.metrics,
            clock=self._clock,
            limit=self.settings.bindings,
        )
        self.preemptor = Preemptor(
            client,
            queue=self.queue,
            recorder=self.recorder,
            status=self.status,
            metrics=self.metrics,
            clock=self._clock,
            reject_waiting=lambda uid: self.permits.preempt(uid),
            cancel_pre_bind=self.bindings.call_off,
            is_going=self._is_going,
            may_act=self._may_act,
        )
        self.groups = PodGroups(
            self.cache, on_change=self._wake, throttle=self.throttle, clock=self._clock
        )
        self.permits = Permits(
            groups=self.groups,
            cache=self.cache,
            queue=self.queue,
            bindings=self.bindings,
            outcomes=self.outcomes,
            metrics=self.metrics,
            clock=self._clock,
            throttle=self.throttle,
        )
        self.outcomes.on_not_placed = self.permits.failed
        # 4. Plugins that hold and write more than bindings: volumes, devices.
        self.plugins = make_plugins(
            self.cache.objects,
            volumes=VolumeBinder(client, self.cache, clock=self._clock),
            claims=DeviceClaimWriter(
                client,
                self.cache,
                clock=self._clock,
                recorder=self.recorder,
                may_act=self._may_act,
            ),
            clock=self._clock,
        )
        # 5. The policies.
        examiner.evaluations.stopwatch = self.metrics.evaluation_seconds
        self._evaluations = examiner.evaluations
        self.rollout = Rollout(
            source=source,
            store=store if store is not None else NoStore(),
            examiner=examiner,
            world=self,
            on_switch=self._switch,
            tell=self.recorder.policies,
            metrics=self.metrics,
            clock=self._clock,
        )
        self.loop: SchedulingLoop | None = None
        # 6. Hearing from the API server.
        self.nodes = NodeHandler(self.cache, self.queue, self.permits.node_gone)
        self.pods = PodHandler(self.cache, self.queue, self.status, self._is_ours)
        self.facts = FactKeeper(
            self.cache,
            clock=self._clock,
            make_source=FactSources(
                client, self._clock, keeper or KeepsNothing(), self._may_save_facts
            ).make,
            on_change=self._facts_changed,
            on_age=self._facts_aged,
            objects=self._known_objects,
        )
        pods = GroupHandler(self.pods, self.groups, self.permits)
        self._informers = make_informers(
            client,
            self._clock,
            nodes=[self.facts.of_nodes, self._timed(self.nodes, resources.NODES)],
            pods=[self.facts.of_pods, self._timed(pods, resources.PODS)],
            others=self._handler_of,
        )
        self._dumping: asyncio.Task[None] | None = None
        # 7. Leading.
        self.elector: LeaderElector | None = None
        if self.settings.lease is not None:
            self.elector = LeaderElector(
                client,
                self.settings.lease,
                identity=make_identity(),
                clock=self._clock,
                on_transition=self._tell_leadership,
            )
            # A standby has to be seen, or nobody is told when there are but standbys.
            self.metrics.leader.labels(self.settings.lease.name).set(0)
        self._show_metrics()

    # --- life ------------------------------------------------------------------------------

    def request_stop(self) -> None:
        """Make `run` finish what is under way and return; safe to call from a signal handler."""
        self._stop.set()

    def request_dump(self) -> None:
        """Write what is in the cache and in the queue to the log; safe to call from a handler.

        Nothing happens while the last dump is under way.
        """
        if self._dumping is None or self._dumping.done():
            nodes, *_, pods = self._informers
            writing = dump(self.cache, self.queue, list(nodes.values()), list(pods.values()))
            self._dumping = asyncio.ensure_future(writing)

    async def run(self) -> None:
        """Schedule until `request_stop`.

        Raises `LeadershipLost` when the lease is lost: the process must exit, so that nothing of
        it acts any more. Raises what makes a start impossible.
        """
        health = await self._serve_health()
        stopping = asyncio.ensure_future(self._stop.wait())
        writing = self._background.start(self.writer.run())
        main = asyncio.ensure_future(self._start_and_schedule())
        try:
            # Whatever ends first ends the process: a stop, or a part that must not end.
            await asyncio.wait({stopping, writing, main}, return_when=asyncio.FIRST_COMPLETED)
            for task in (main, writing):
                if task.done():
                    task.result()
        finally:
            stopping.cancel()
            await self._shut_down(main)
            if health is not None:
                await health.stop()

    async def _start_and_schedule(self) -> None:
        # 1. The cluster, because nothing is decided on half of it.
        for informer in self._informers:
            self._background.start(informer.run())
        # 2. Beside it the policies. Pods that were seen before them are queued when they come.
        self.rollout.is_active = self.elector is None
        synced = (informer.wait_synced() for informer in self._informers)
        await self._background.unless_broken(asyncio.gather(self.rollout.start(), *synced))
        self._is_synced = True
        self.synced.set()
        log.info("In sync", nodes=self.cache.node_count, pods=self.cache.pod_count)
        # 3. Following the policies' source; also as a standby, so that it takes over warm.
        self._background.start(self.rollout.run())
        self._background.start(self._tick())
        self._background.start(self.facts.run())
        await self._background.unless_broken(self.facts.wait_spoken())
        # 4. Leading.
        if self.elector is not None:
            await self._background.unless_broken(self.elector.acquire())
            self._keeping = self._background.start(self.elector.keep())
            self.metrics.leader.labels(self.elector.settings.name).set(1)
            await self.rollout.lead()
        self.leading.set()
        self.queue.rekey()  # asks every gate again, and tells this time
        # 5. Scheduling.
        await self._background.unless_broken(self._schedule())

    async def _shut_down(self, main: asyncio.Task[None]) -> None:
        """Stop deciding, finish bindings, release the lease, write what is left, in this order."""
        elector = self.elector
        lost_lease = elector is not None and self.leading.is_set() and not elector.is_leading
        # 1. No new decisions.
        await cancelled([main])
        if waiting := self.permits.close():
            log.info("Pods that waited for leave stay pending", count=waiting)
        # 2. Bindings and evictions on their way. Without the lease they are not ours to finish.
        patience = 0.0 if lost_lease else DRAIN_SECONDS
        given_up, unfinished = await asyncio.gather(
            self.bindings.drain(patience), self.preemptor.drain(patience)
        )
        if given_up:
            log.warning("Bindings given up at shutdown", count=given_up)
        if unfinished:
            log.warning("Preemptions given up at shutdown", count=unfinished)
        # 3. The lease: a standby may go on now.
        if elector is not None:
            if self._keeping is not None:
                await cancelled([self._keeping])
            await elector.release()
            self.metrics.leader.labels(elector.settings.name).set(0)
        # 4. Events and conditions.
        if lost_lease:
            left = len(self.writer) + self.writer.in_flight
        else:
            left = await self.writer.flush(FLUSH_SECONDS)
        if left:
            self.metrics.events_dropped.labels("shutdown").inc(left)
            log.warning("Events dropped at shutdown", count=left)
        # 5. Everything else.
        if self._dumping is not None:
            await cancelled([self._dumping])
        await self._background.cancel()
        await self.rollout.stop()
        await self.extenders.close()

    # --- scheduling ------------------------------------------------------------------------

    async def _schedule(self) -> None:
        """Decide pods for ever, leaving turns to everything else."""
        assert self.loop is not None
        monotonic = self._clock.monotonic
        loop = self.loop
        while True:
            if not self.bindings.has_room:
                self._pauses.rest()
                await self.bindings.wait_for_room()
            if not self._may_act():
                # Stopped or starved for too long: somebody else may lead by now.
                self._pauses.rest()
                await asyncio.sleep(0.1)
                continue
            self.permits.work()
            now = monotonic()
            self._pauses.begin(now)
            ends_at = now + SLICE_SECONDS
            is_idle = False
            while self.bindings.has_room and now < ends_at:
                if loop.asks_extenders:
                    is_idle = not await taken_turn(loop.turn(), self.extenders.answer)
                else:
                    is_idle = not loop.schedule_one()
                if is_idle:
                    break
                now = monotonic()
                self._pauses.decided(now)
            if is_idle and not self.groups.has_changes:
                self._ready.clear()
                self._pauses.rest()
                await self._ready.wait()
            else:
                is_long = now - ends_at > LONG_SECONDS
                await asyncio.sleep(REST_SECONDS if is_long else 0)

    async def _tick(self) -> None:
        """Let the queue look at its clocks, once a second on the second."""
        while True:
            await asyncio.sleep(1.0 - self._clock.monotonic() % 1.0)
            self.queue.flush()
            self.throttle.retry(self._try_again)
            self.status.retry()
            if not self.leading.is_set():
                self.groups.take_changes()  # whoever leads begins with how they are then
            if len(self.permits):
                self._ready.set()  # somebody's time may be up

    def _wake(self) -> None:
        """There is something to decide."""
        if not self._ready.is_set():
            self._pauses.begin(self._clock.monotonic())
            self._ready.set()

    def _is_busy(self) -> bool:
        return self.bindings.at_work > 0 or self.queue.counts()["active"] > 0

    # --- policies --------------------------------------------------------------------------

    def _switch(self, new: Deployment, old: Deployment | None) -> None:
        """Decide with *new* from the next pod on."""
        if self.loop is None:
            self.loop = SchedulingLoop(
                cache=self.cache,
                queue=self.queue,
                scheduler=new.scheduler,
                bindings=self.permits,
                outcomes=self.outcomes,
                metrics=self.metrics,
                clock=self._clock,
                preemptions=self.preemptor,
                journal=self.journal,
                throttle=self.throttle,
            )
        if self.journal is not None:
            self.journal.policies(new.bundle.revision, new.files)
        new.scheduler.use_plugins(self.plugins)
        self.loop.use(new.scheduler, self.rollout.counts)
        self.extenders.use(new.bundle.extenders)
        if old is not None:
            self._sandbox_restarts += getattr(old.evaluator, "restarts", 0)
        # What is throttled is so because of the policies before.
        self.throttle.clear()
        # Groups are known before anybody is asked about a pod: its hooks may want to see its own.
        waited = self.permits.use(new.scheduler, self._known_pods)
        self.pods.profiles_changed(
            lambda pod: old is not None and old.scheduler.profile_of(pod) is not None
        )
        self.facts.configure(new.bundle.runtime.facts, reads_ages=_reads_ages(new))
        self.queue.rekey(Hints.of(new.bundle, self.cache))
        self.queue.activate(waited)

    def _hook_failed(self, pod: Pod, failures: Failures, lost: Failures, seconds: float) -> None:
        """Count hooks that failed outside of a decision; *lost* are those that lost time."""
        for failure in failures:
            labels = failure.policy, failure.hook, failure.kind
            self.metrics.policy_failures.labels(*labels).inc()
        if lost:
            self.metrics.lost_seconds.labels(lost[0].policy, pod.scheduler_name).inc(seconds)
        # As a failed decision: what keeps pods from being tried is no better than what fails them.
        if self.leading.is_set():
            self.rollout.counts.count(seconds, True, lost)

    def _try_again(self, work: Work, uid: str) -> bool:
        """Do what was throttled or failed about a pod again; True if the pod may be tried now."""
        match work:
            case Work.ATTEMPT:
                return self.queue.recheck(uid, Trigger.THROTTLE_ENDED)
            case Work.GATE:
                return self.queue.recheck(uid, Trigger.GATE_RETRIED)
            case Work.GROUP:
                return self.groups.ask_again(uid)
            case Work.SORT_KEY:
                self.queue.reorder(uid)
                return True

    def _may_act(self) -> bool:
        return self.elector is None or self.elector.may_act

    def _may_save_facts(self) -> bool:
        return self.leading.is_set() and self._may_act()

    def _facts_changed(self) -> None:
        self.queue.move(FACTS_UPDATE)

    def _facts_aged(self) -> None:
        self.queue.move(FACTS_AGE)

    def _known_objects(self) -> tuple[Iterable[Node], Iterable[Pod]]:
        infos = [info for info in self.cache.snapshot().infos if info is not None]
        placed = [pod for info in infos for pod in info.pods.values()]
        return [i.node for i in infos if i.node is not None], [*self.pods.pending_pods(), *placed]

    def _known_pods(self) -> Iterable[Pod]:
        """Every pod; what the API server says of one comes after what is only assumed."""
        pods = {pod.uid: pod for pod in self._known_objects()[1]}
        return (pods | {pod.uid: pod for pod in self.pods.pending_pods()}).values()

    def _is_ours(self, pod: Pod) -> bool:
        # Without a loop no policies have come into force yet; pods are remembered until then.
        return self.loop is not None and self.rollout.active.scheduler.profile_of(pod) is not None

    def _is_going(self, uid: str) -> bool:
        known = self.cache.get_pod(uid)
        return known is None or known.is_terminating

    def snapshot(self) -> Any:
        """The live snapshot, for the trial of new policies."""
        return self.cache.snapshot()

    def sample_pods(self) -> list[Pod]:
        """Pods for the trial: pending ones, and some that run, as if they were pending.

        First one of each class that was decided lately: what the trial has evaluated need not be
        evaluated between two real decisions.
        """
        recent = self.rollout.active.scheduler.recent_pods(_SAMPLE_CLASSES)
        pending = _spread([*self.pods.pending_pods()], _SAMPLE_PENDING)
        placed: list[Pod] = []
        for info in _spread([i for i in self.cache.snapshot().infos if i], _SAMPLE_PLACED):
            placed += [pod.unplaced() for pod in list(info.pods.values())[:1]]
        return list({pod.uid: pod for pod in (*recent, *pending, *placed)}.values())

    async def prepare(self, bundle: Bundle) -> None:
        """Have the sources of facts that the policies of *bundle* add speak first."""
        await self.facts.prepare(bundle.runtime.facts)

    async def until_idle(self) -> None:
        """Return when no pod waits to be decided, or after some seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_IDLE_SECONDS):
                while not self.leading.is_set() or self._is_busy():  # noqa: ASYNC110
                    await asyncio.sleep(_IDLE_TICK)

    # --- telling ---------------------------------------------------------------------------

    def _tell_gate(self, pod: Pod, policy: str, reason: str, revision: str) -> None:
        if self.leading.is_set():  # a standby leaves it to the leader
            self.outcomes.gated(pod, policy, reason, profile=pod.scheduler_name, revision=revision)

    def _tell_throttled(self, pod: Pod, why: str, revision: str) -> None:
        if self.leading.is_set():
            self.outcomes.throttled(pod, why, profile=pod.scheduler_name, revision=revision)

    def _tell_leadership(self, about: Reference, note: str) -> None:
        self.recorder.record(
            about,
            kind=NORMAL,
            reason="LeaderElection",
            action="LeaderElection",
            note=note,
            controller=CONTROLLER,
            repeats=False,
        )

    def _count_incoming(self, queue: str, event: str) -> None:
        counter = self._incoming.get((queue, event))
        if counter is None:
            counter = self.metrics.queue_incoming.labels(queue, event)
            self._incoming[queue, event] = counter
        counter.inc()

    # --- hearing ---------------------------------------------------------------------------

    def _handler_of(self, resource: Resource) -> Handler[Any]:
        handler = ObjectHandler(self.cache, self.queue, resource.plural, resource.kind)
        return self._timed(handler, resource)

    def _timed(self, handler: Handler[Any], resource: Resource) -> Handler[Any]:
        seconds = self.metrics.event_handling_seconds
        return SampledHandler(handler, resource.kind, seconds, self._clock)

    # --- showing ---------------------------------------------------------------------------

    async def _serve_health(self) -> HealthServer | None:
        address = self.settings.metrics_address
        if address is None:
            return None
        elected = self.elector.check if self.elector is not None else ping
        server = HealthServer(
            self.registry,
            healthz={"ping": ping, "leaderElection": elected},
            livez={"ping": ping},
            readyz={
                "ping": ping,
                "leaderElection": elected,
                "shutdown": self._check_shutdown,
                "sched-handler-sync": self._check_synced,
            },
            json_pages={
                "/policies": self.rollout.describe,
                "/facts": self.facts.describe,
                "/configz": lambda: {"componentconfig": self.settings.configuration},
            },
        )
        self.port = await server.start(*address)
        return server

    def _check_synced(self) -> str | None:
        return None if self._is_synced else "handlers are not fully synchronized"

    def _check_shutdown(self) -> str | None:
        return "process is shutting down" if self._stop.is_set() else None

    def _show_metrics(self) -> None:
        metrics = self.metrics
        show_queue(metrics, self.queue)
        show_cache(metrics, self.cache)
        show_in_flight(metrics, self.bindings, self.preemptor, self.writer)
        show_policies(
            metrics, restarts=self._restarts, memo=self._memo, evaluations=self._evaluations.counts
        )
        show_facts(metrics, self.facts)
        show_watches(metrics, self._informers)
        if self.journal is not None:
            show_recording(metrics, self.journal)

    def _restarts(self) -> int:
        restarts = self._sandbox_restarts
        with contextlib.suppress(LookupError):
            restarts += getattr(self.rollout.active.evaluator, "restarts", 0)
        return restarts

    def _memo(self) -> VerdictMemo | None:
        try:
            return self.rollout.active.scheduler.memo
        except LookupError:
            return None


def _reads_ages(deployment: Deployment) -> bool:
    """True if a policy of some profile looks at how old a fact is."""
    bundle = deployment.bundle
    used = {
        enabled.policy
        for profile in bundle.profiles
        for point in profile.points.values()
        for enabled in point
    }
    return reads_ages(bundle.policies[name] for name in sorted(used & bundle.policies.keys()))


def _spread(items: list[Any], most: int) -> list[Any]:
    """At most *most* of *items*, evenly spread over them."""
    step = max(1, len(items) // most)
    return items[::step][:most]


__all__ = ["App", "LeadershipLost", "Settings"]
