"""The running scheduler: builds every part around the kernel and carries out its instructions.

Owns the order of starting and stopping, and the path of a pod: an informer reports a change,
`report` passes it to the kernel, `_schedule` has the kernel decide, and `_carry_out` passes each
instruction to the component that carries it out, which reports the result.
"""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
import structlog
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from engine.core.caching.cache import Cache
from engine.core.kernel import instructions as to_do
from engine.core.kernel.events import (
    Event,
    FactsReported,
    LeadershipAcquired,
    PodGroupsServed,
    ReadabilityChanged,
    RevisionSwitched,
    Stopped,
    TimePassed,
    TurnBegan,
    WaitingPodPreempted,
)
from engine.core.kernel.instructions import Instruction
from engine.core.kernel.kernel import Kernel, decided
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.scheduling.plugins.registry import make_plugins
from engine.io.binding.binder import Binder
from engine.io.binding.binding_cycle import MOST_IN_FLIGHT, BindingCycle
from engine.io.binding.claim_writer import DeviceClaimWriter
from engine.io.binding.deferred_writer import DeferredWriter
from engine.io.binding.event_recorder import CONTROLLER, NORMAL, EventRecorder, Reference
from engine.io.binding.other_binders import OtherBinders
from engine.io.binding.outcomes import AttemptOutcomes
from engine.io.binding.pod_group_status import PodGroupStatusUpdater
from engine.io.binding.pod_status import PodStatusUpdater
from engine.io.binding.preemptor import Preemptor
from engine.io.binding.volume_binder import VolumeBinder
from engine.io.endpoints.component_pages import Component, component_routes
from engine.io.endpoints.health import health_routes, metrics_route, ping
from engine.io.endpoints.routes import Route, json_route
from engine.io.endpoints.server import EndpointServer, ReviewClients, SecureSettings
from engine.io.event_handlers import ObjectReporter, SampledHandler
from engine.io.extender_calls import ExtenderBinder, ExtenderCalls, decided_asking
from engine.io.facts.assembly import FactSources
from engine.io.facts.board import FactBoard
from engine.io.facts.learned import LearnedStore, NoLearnedStore
from engine.io.facts.live_facts import LiveFacts
from engine.io.informers import PolicyInformers, make_informers
from engine.io.kube import resources
from engine.io.kube.client import ApiClient
from engine.io.kube.resources import Resource
from engine.io.leader_election import LeaderElector, LeadershipLost, LeaseSettings, make_identity
from engine.io.tracing.pod_traces import Tracing
from engine.io.watching.informer import Handler, Handlers
from engine.io.watching.readable import MOST_AGE_SECONDS, Readability
from engine.lib import free_memory
from engine.lib.background import Background, cancelled
from engine.lib.clock import Clock
from engine.lib.saved_state import SavedStates, WhenUnread
from engine.policy.analysis import TimeReads, time_reads
from engine.policy.bundle import Bundle
from engine.policy.config import DEFAULT_SCHEDULER_NAME
from engine.policy.written import with_decisions
from engine.recording.recorder import Recorder
from engine.rollout.comparing import LiveComparing
from engine.rollout.control import NoControl, RolloutControl
from engine.rollout.last_good import NoStore, Store
from engine.rollout.last_resort import WAIT, LastResort, WhenNone
from engine.rollout.rollout import Rollout
from engine.rollout.shadow.shadow import Shadow
from engine.rollout.sources import PolicySource
from engine.rollout.trial import CandidateStages, LoadedRevision
from engine.surfaces.live.activity import Activity
from engine.surfaces.live.answers import Leader
from engine.surfaces.live.decision_record import DecisionRecord
from engine.surfaces.live.explainer import Explainer
from engine.surfaces.live.service import LiveAnswers
from engine.surfaces.page.handlers import PageHandlers
from engine.surfaces.page.routes import page_routes, root_route
from engine.surfaces.page.streams import Streams
from engine.surfaces.pulled_metrics import (
    show_cache,
    show_facts,
    show_former_profiles,
    show_in_flight,
    show_oldest,
    show_pod_groups,
    show_policies,
    show_queue,
    show_recording,
    show_rejections,
    show_rollout,
    show_saved_states,
    show_tracing,
    show_waiting,
    show_watches,
)
from engine.surfaces.state_dump import dump
from engine.telemetry.component_metrics import (
    EMULATES,
    RequestMetrics,
    language,
    show_build,
    show_concurrency,
)
from engine.telemetry.exemplars import ExemplarHistogram
from engine.telemetry.metrics import Metrics
from engine.telemetry.pauses import DecisionPauses

log = structlog.get_logger(component="app")

#: Seconds of deciding before other tasks may run: short enough that answers of bindings and
#: watch events are not kept waiting, long enough that yielding costs nothing.
SLICE_SECONDS: Final = 0.004
#: After a decision that took this long, other tasks get as long: an answer takes several iterations
#: of the event loop, and one between two policies that run into their deadlines is not enough.
LONG_SECONDS: Final = 0.25
REST_SECONDS: Final = 0.05
DRAIN_SECONDS: Final = 10.0
FLUSH_SECONDS: Final = 5.0
FLUSH_SPANS_SECONDS: Final = 2.0
#: A new leader waits so long for events that show what happened before it took over, before it
#: lists; in a large cluster that is busy they come sooner than a list is read.
CATCH_UP_SECONDS: Final = 1.0
#: A gate that holds for so long, in seconds, is reported: the pods of a group mostly wait for each
#: other only for a moment, which is not worth two requests for each of them.
GATE_REPORT_DELAY: Final = 5.0
# The longest that the trial of the first policies waits for an idle moment, and how often it looks.
_IDLE_SECONDS: Final = 5.0
_TICKS_BETWEEN_GIVING_BACK: Final = 30  # of a second
_IDLE_TICK: Final = 0.05
_SAMPLE_CLASSES: Final = 64
_SAMPLE_PENDING: Final = 24
_SAMPLE_PLACED: Final = 8


@dataclass(frozen=True)
class Settings:
    """How a scheduler process runs.

    Attributes:
        lease: The lease to compete for; None to schedule without one.
        secure: The endpoints for the network; None for none.
        local_port: The port of those for this host (0: a free one); None for none.
        initial_backoff, max_backoff: Seconds that a rejected pod waits at least and at most.
        pops_early: Not while the queue is idle.
        max_unschedulable: Seconds after which a rejected pod is tried again in any case.
        most_watch_age: Seconds for which what is known of a resource stays in use once it cannot be
            read: 0 not at all, infinity for ever.
        bindings: Most bindings in flight.
        last_resort: The `schedulerName` of the pods that a start without usable policies is about,
            if those that are offered do not say; None where the stages have a configuration of
            their own.
        profile_names: The `schedulerName`s of that configuration.
        when_no_policies: Whether those pods wait then, or the built-in policies decide.
        when_unread: What happens when something that was saved before cannot be read.
        configuration: What `/configz` shows of the process; what decides is added.
        flags: What `/flagz` shows.
        version: Of the program.
        hostname: Names this process in events.
        identity: Names it in the lease.
    """

    lease: LeaseSettings | None = None
    secure: SecureSettings | None = None
    local_port: int | None = None
    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    pops_early: bool = True
    max_unschedulable: float = 300.0
    most_watch_age: float = MOST_AGE_SECONDS
    bindings: int = MOST_IN_FLIGHT
    last_resort: str | None = DEFAULT_SCHEDULER_NAME
    profile_names: tuple[str, ...] = (DEFAULT_SCHEDULER_NAME,)
    when_no_policies: WhenNone = WAIT
    when_unread: WhenUnread = "wait"
    configuration: dict[str, Any] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    hostname: str = field(default_factory=socket.gethostname)
    identity: str = field(default_factory=make_identity)


class App:
    """A scheduler process: everything between the API server and the policies.

    `new --run--> starting --synced--> standby --lease--> scheduling --stop--> stopped`.

    Args:
        client: The API server; closed by the caller.
        source: Where policies come from.
        stages: Builds, tests and loads them.
        store: Where the last good ones are kept.
        learned_store: Where learned facts are saved.
        settings: See there.
        clock: Time.
        decision_log: Records decisions and what they read; started by the caller.
        review_clients: Who knows the callers of the endpoints; None: *client*.
        control: How edits are rolled out.
        shadow: Compares candidates; None: one with a thread of its own.
        tracing: Traces pods; closed here.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        source: PolicySource,
        stages: CandidateStages,
        store: Store | None = None,
        learned_store: LearnedStore | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
        decision_log: Recorder | None = None,
        review_clients: ReviewClients | None = None,
        control: RolloutControl | None = None,
        shadow: Shadow | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self.settings = settings if settings is not None else Settings()
        self._client = client
        self._clock = clock if clock is not None else client.clock
        self._stop = asyncio.Event()
        self._ready = asyncio.Event()
        self._background = Background()
        self._keeping: asyncio.Task[None] | None = None
        self._has_given_lease_back = False
        self.synced = asyncio.Event()
        self.leading = asyncio.Event()
        self._has_decided = asyncio.Event()
        self._has_decided.set()
        self.saved = SavedStates(self._clock, self.settings.when_unread)
        self._compared: Bundle | None = None
        self._counted_before = Counter[str]()  # by policies that were in force
        self._pod_groups: Resource | None = None  # PodGroup in the version that is served

        # 1. Metrics.
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.tracing = tracing
        self.metrics = (
            Metrics(self.registry) if tracing is None else Metrics(self.registry, ExemplarHistogram)
        )
        show_build(self.registry, self.settings.version)
        show_concurrency(self.registry)
        reviewers = review_clients or ReviewClients(client, client)
        requests = RequestMetrics(self.registry, client.host)
        for one in {client, reviewers.authentication, reviewers.authorization}:
            if one is not None and one.host == client.host:
                one.observe(requests.observe)
        self._pauses = DecisionPauses(self.metrics.decision_pauses)
        # 2. Reporting to the API server.
        self.writer = DeferredWriter(clock=self._clock, is_busy=self._is_busy)
        self.events = EventRecorder(
            client,
            self.writer,
            clock=self._clock,
            metrics=self.metrics,
            instance=self.settings.hostname,
        )
        # Another leader may have bound since what this one would report as pending.
        reporting = client.fenced(self._may_report)
        self.status = PodStatusUpdater(
            reporting, self.writer, clock=self._clock, metrics=self.metrics
        )
        self.outcomes = AttemptOutcomes(
            events=self.events, status=self.status, metrics=self.metrics, clock=self._clock
        )
        # 3. The kernel, with plugins that reserve and write more than bindings: volumes, devices.
        self.decision_log = decision_log
        self.cache = Cache()
        self.group_status = PodGroupStatusUpdater(
            reporting,
            self.writer,
            objects=self.cache.objects,
            served=lambda: self._pod_groups,
            clock=self._clock,
            metrics=self.metrics,
        )
        # What decisions write must not leave after the lease, however long it waited in a queue.
        fenced = client.fenced(self._may_act)
        plugins = make_plugins(
            self.cache.objects,
            volumes=VolumeBinder(
                fenced,
                self.cache,
                clock=self._clock,
                stopwatch=self.metrics.volume_seconds.labels("bind"),
            ),
            claims=DeviceClaimWriter(
                fenced,
                self.cache,
                clock=self._clock,
                metrics=self.metrics,
                recorder=self.events,
                may_act=self._may_act,
            ),
            clock=self._clock,
        )
        self.kernel = Kernel(
            self.cache,
            plugins,
            metrics=self.metrics,
            stopwatch=self._clock.monotonic,
            initial_backoff=self.settings.initial_backoff,
            max_backoff=self.settings.max_backoff,
            pops_early=self.settings.pops_early,
            max_unschedulable=self.settings.max_unschedulable,
        )
        self.queue = self.kernel.queue
        # 4. What carries out its instructions.
        self.extenders = ExtenderCalls(metrics=self.metrics, clock=self._clock)
        binder = Binder(fenced, clock=self._clock, metrics=self.metrics, may_act=self._may_act)
        self.bindings = BindingCycle(
            binder=ExtenderBinder(self.extenders, binder),
            reports=self.outcomes,
            report=self.report,
            metrics=self.metrics,
            clock=self._clock,
            limit=self.settings.bindings,
        )
        self.preemptor = Preemptor(
            fenced,
            events=self.events,
            status=self.status,
            report=self.report,
            metrics=self.metrics,
            clock=self._clock,
            is_wanted=self.queue.__contains__,
            is_going=self._is_going,
            send_back=self._send_back,
            may_act=self._may_act,
        )
        self._carriers = self._make_carriers()
        if tracing is not None:
            self._carriers = tracing.traced(self._carriers, self.queue)
            self.extenders.on_answer = tracing.extender_answered
            stages.evaluations.on_round_trip = tracing.round_trip
        # 5. The policies.
        stages.evaluations.monotonic = self._clock.monotonic
        stages.evaluations.stopwatch = self.metrics.evaluation_seconds
        self._evaluations = stages.evaluations
        self.control = control if control is not None else NoControl()
        self.shadow = shadow or Shadow(stages.make_bundle, stages.make_evaluator)
        self.comparing = LiveComparing(
            self.kernel,
            self.report,
            self.shadow,
            self._compared_with,
            self._clock,
            lambda uid: uid in self.rollout.counts.failing,
        )
        self.rollout = Rollout(
            source=source,
            store=store if store is not None else NoStore(),
            stages=stages,
            world=self,
            on_switch=self._switch,
            write_event=self.events.policies,
            metrics=self.metrics,
            clock=self._clock,
            comparing=self.comparing,
            control=self.control,
            last_resort=self._last_resort(),
            states=self.saved,
            may_save=self._may_act,
        )
        # 6. The informers.
        self.facts = LiveFacts(
            FactBoard(self.cache, self.report),
            clock=self._clock,
            make_source=FactSources(
                client,
                self._clock,
                learned_store or NoLearnedStore(),
                self._may_save_facts,
                self.saved,
            ).make,
            on_change=self._facts_changed,
            on_age=self._facts_aged,
            objects=self._known_objects,
        )
        others = Handlers(
            on_update=OtherBinders(
                is_to_place=self._is_to_place,
                is_counted=lambda uid: self.cache.get_pod(uid) is not None,
                counter=self.metrics.pods_bound_by_others,
                clock=self._clock,
            ).see
        )
        self.informers = make_informers(
            client,
            nodes=[self.facts.of_nodes, self._handler_of(resources.NODES)],
            # The last one counts a pod where it is; those before see what was decided.
            pods=[self.facts.of_pods, others, self._handler_of(resources.PODS)],
            others=self._handler_of,
            on_served=self._pod_groups_served,
        )
        self.policy_informers = PolicyInformers(
            client,
            self.informers,
            others=self._handler_of,
            bundles=self._bundles,
            on_synced=self._follow_readability,
        )
        self.readability = Readability(self.informers, self._clock, self.settings.most_watch_age)
        self._dumping: asyncio.Task[None] | None = None
        # 7. The live answers.
        self._decisions = DecisionRecord()
        self.live = LiveAnswers(
            kernel=self.kernel,
            explainer=Explainer(
                self.kernel, stages, lambda: self.rollout.active, clock=self._clock
            ),
            record=self._decisions,
            rollout=self.rollout,
            control=self.control,
            leader=self._leader,
            is_leading=self.leading.is_set,
            pod_groups=self._served_groups,
            clock=self._clock,
            decision_log=decision_log.directory if decision_log is not None else None,
        )
        self.page = PageHandlers(Streams())
        self.activity = Activity(
            attempts=self.metrics.schedule_attempts,
            latency=self.metrics.algorithm_seconds,
            rejections=self.metrics.rejections,
            clock=self._clock,
        )
        # 8. Leader election.
        self.elector: LeaderElector | None = None
        if self.settings.lease is not None:
            self.elector = LeaderElector(
                client,
                self.settings.lease,
                identity=self.settings.identity,
                clock=self._clock,
                on_transition=self._report_leadership,
                page=self._page_address,
            )
            # A standby has to be seen: an alert fires when there are standbys and no leader.
            self.metrics.leader.labels(self.settings.lease.name).set(0)
        self._show_metrics()
        # 9. The endpoints.
        self.endpoints = EndpointServer(
            self._routes(),
            secure=self.settings.secure,
            local_port=self.settings.local_port,
            clients=reviewers,
            clock=self._clock,
        )

    # --- life cycle ------------------------------------------------------------------------

    def request_stop(self) -> None:
        """Make `run` finish what is under way and return; safe to call from a signal handler."""
        self._stop.set()

    def request_dump(self) -> None:
        """Write what is in the cache and in the queue to the log; safe to call from a handler.

        Nothing happens while the last dump is under way.
        """
        if self._dumping is None or self._dumping.done():
            nodes, *_, pods = self.informers
            writing = dump(self.cache, self.queue, list(nodes.values()), list(pods.values()))
            self._dumping = asyncio.ensure_future(writing)

    async def run(self) -> None:
        """Schedule until `request_stop`.

        Raises `LeadershipLost` when the lease is lost: the process must exit, so that no part of it
        acts any more. Raises any error that makes a start impossible.
        """
        await self.endpoints.start()
        stopping = asyncio.ensure_future(self._stop.wait())
        writing = self._background.start(self.writer.run())
        self._background.start(self.activity.run())
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
            await self.page.close()
            await self.endpoints.stop()

    async def _start_and_schedule(self) -> None:
        # 1. The cluster: nothing is decided on an incomplete view of it.
        for informer in self.informers:
            self._background.start(informer.run())
        self._background.start(self.control.run(self._report_control))
        # 2. In parallel the policies. Pods that were seen before them are queued when they come.
        self.rollout.is_active = self.elector is None
        synced = (informer.wait_synced() for informer in self.informers)
        await self._background.unless_broken(asyncio.gather(self.rollout.start(), *synced))
        await self._background.unless_broken(self.watch(self.rollout.active.bundle))
        self.synced.set()
        self._follow_readability()
        log.info("In sync", nodes=self.cache.node_count, pods=self.cache.pod_count)
        # 3. Following the policies' source; also as a standby, so that it takes over warm.
        self._background.start(self.rollout.run())
        self._background.start(self._tick())
        self._background.start(self.facts.run())
        await self._background.unless_broken(self.facts.wait_until_reported())
        await self._background.unless_broken(self.saved.settled())
        # 4. Leading.
        if self.elector is not None:
            await self._background.unless_broken(self.elector.acquire())
            self._keeping = self._background.start(self.elector.keep())
            self.metrics.leader.labels(self.elector.settings.name).set(1)
            # What the leader before this one bound last may not have been seen yet.
            if self.elector.follows_another:
                known = self.elector.version, CATCH_UP_SECONDS
                catching_up = (informer.catch_up(*known) for informer in self.informers)
                await self._background.unless_broken(asyncio.gather(*catching_up))
            # The lease may be lost while what the leader before saved cannot be read.
            await self._background.unless_broken(self.rollout.lead())
            self._report_control()  # a standby has reported nothing
        self.leading.set()
        self.report(LeadershipAcquired())
        # 5. Scheduling.
        await self._background.unless_broken(self._schedule())

    async def _shut_down(self, main: asyncio.Task[None]) -> None:
        """Stop deciding, finish bindings, release the lease, write what is left, in this order."""
        elector = self.elector
        lost_lease = elector is not None and self.leading.is_set() and not elector.is_leading
        # 1. No new decisions.
        await cancelled([main])
        if waiting := len(self.kernel.permits):
            log.info("Pods that waited in permit stay pending", count=waiting)
        self.report(Stopped())
        # 2. Bindings and evictions in flight. Without the lease they are not ours to finish.
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
            self._has_given_lease_back = not lost_lease
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
        await self.policy_informers.close()
        await self.live.close()
        await asyncio.to_thread(self.shadow.close)
        await self.rollout.stop()
        await self.extenders.close()
        # 6. Spans, those of the last writes included.
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.close, FLUSH_SPANS_SECONDS)

    # --- scheduling ------------------------------------------------------------------------

    async def _schedule(self) -> None:
        """Decide pods forever, in time slices between which other tasks run."""
        monotonic = self._clock.monotonic
        kernel, bindings = self.kernel, self.bindings
        while True:
            # 1. Wait until decisions can be carried out.
            if not bindings.has_capacity:
                self._pauses.rest()
                await bindings.wait_for_capacity()
            if not self._may_act():
                # Stopped or starved for too long: another process may lead by now.
                self._pauses.rest()
                await asyncio.sleep(0.1)
                continue
            # 2. Decide pod after pod for a while.
            self.report(TurnBegan())
            now = monotonic()
            self._pauses.begin(now)
            ends_at = now + SLICE_SECONDS
            while kernel.queue.has_poppable and bindings.has_capacity and now < ends_at:
                if self.decision_log is not None:
                    self.decision_log.deciding(kernel)
                self.shadow.deciding(kernel)
                decision = kernel.decide(now)
                if kernel.asks_extenders:
                    self._has_decided.clear()
                    try:
                        ask = self.extenders.answer
                        instructions = await decided_asking(decision, ask, monotonic)
                    finally:
                        self._has_decided.set()
                else:
                    instructions = decided(decision)
                if self.decision_log is not None:
                    self.decision_log.decided(instructions)
                self.shadow.decided(instructions)
                self.comparing.handled(instructions)
                self._carry_out(instructions)
                now = monotonic()
                self._pauses.decided(now)
            # 3. Yield to other tasks; with nothing to do, wait until there is something.
            if kernel.has_work:
                is_long = now - ends_at > LONG_SECONDS
                await asyncio.sleep(REST_SECONDS if is_long else 0)
            else:
                self._ready.clear()
                self._pauses.rest()
                await self._ready.wait()

    async def _tick(self) -> None:
        """Report the time to the kernel, once a second on the second."""
        ticks = 0
        while True:
            await asyncio.sleep(1.0 - self._clock.monotonic() % 1.0)
            self.policy_informers.follow()
            self._follow_readability()
            self.report(TimePassed())
            self.status.retry()
            self.group_status.retry()
            ticks += 1
            if ticks % _TICKS_BETWEEN_GIVING_BACK == 0:
                free_memory.give_back()

    def _follow_readability(self) -> None:
        """Report to the kernel what cannot be read any more, and what can be read again."""
        if not self.synced.is_set():
            return  # nothing is decided yet
        changed = self.readability.change(self.cache.objects.unknown)
        if changed is not None:
            self.report(ReadabilityChanged(changed))

    # --- the kernel ------------------------------------------------------------------------

    def report(self, event: Event) -> None:
        """Pass *event* to the kernel, and carry out its instructions."""
        instructions = self.kernel.handle(event, self._clock.monotonic())
        if self.decision_log is not None:
            self.decision_log.handled(event, instructions)
        self.comparing.handled(instructions)
        if instructions:
            self._carry_out(instructions)
        if not self._ready.is_set() and self.kernel.has_work:
            self._pauses.begin(self._clock.monotonic())
            self._ready.set()  # wakes the scheduling loop

    def _carry_out(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            carry_out = self._carriers.get(type(instruction))
            if carry_out is not None:
                carry_out(instruction)

    def _make_carriers(self) -> Mapping[type[Any], Callable[[Any], None]]:
        """What carries out each kind of instruction; a kind without an entry is only recorded."""
        return {
            to_do.Bind: self._bind,
            to_do.Evict: self.preemptor.start,
            to_do.RunAction: self._run_action,
            to_do.ReportBound: self.outcomes.bound,
            to_do.ReportFailure: self.outcomes.failed,
            to_do.ReportWaiting: self.outcomes.waiting,
            to_do.ReportGroupReleased: self.outcomes.group_released,
            to_do.ReportPodGroup: self.group_status.report,
            to_do.ReportGate: self._report_gate,
            to_do.ReportThrottled: self._report_throttled,
            to_do.ReportDeleting: self.outcomes.deleting,
            to_do.ReportNomination: self.outcomes.nominated,
            to_do.ForgetReports: self.outcomes.forget,
            to_do.RepeatReports: self.outcomes.repeat,
            to_do.ReportDecision: self._count_decision,
            to_do.ReportFault: self._report_fault,
            to_do.ReportHookFailure: self._count_hook_failure,
        }

    def _bind(self, instruction: to_do.Bind) -> None:
        self.bindings.start(instruction.placement)

    def _run_action(self, instruction: to_do.RunAction) -> None:
        self.bindings.run(instruction.action, instruction.pod)

    def _report_gate(self, instruction: to_do.ReportGate) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(GATE_REPORT_DELAY, self._report_lasting_gate, instruction)

    def _report_lasting_gate(self, instruction: to_do.ReportGate) -> None:
        """Report the gate if it still holds the pod back, for the reason that it has now."""
        pod = instruction.pod
        queued = self.kernel.queue.named(pod.key)
        if queued is None or (queued.uid, queued.gated_by) != (pod.uid, instruction.policy):
            return
        if self.leading.is_set():  # a standby leaves it to the leader
            reason = queued.gate_reason
            self.outcomes.gated(msgspec.structs.replace(instruction, reason=reason))

    def _report_throttled(self, instruction: to_do.ReportThrottled) -> None:
        if self.leading.is_set():
            self.outcomes.throttled(instruction)

    def _count_decision(self, made: to_do.ReportDecision) -> None:
        decision, metrics = made.decision, self.metrics
        self._decisions.note(made.pod.uid, decision, self.kernel.time.monotonic())
        metrics.algorithm_seconds.observe(made.seconds)
        # A failed score costs nothing if the pod was placed all the same; a failed preemption does.
        failed = bool(made.failures) and decision.node is None
        if not self.comparing.is_candidates(made):
            self.rollout.counts.count(made.own_seconds, failed, made.lost, made.pod.uid)
        for failure in decision.policy_failures:
            metrics.policy_failures.labels(failure.policy, failure.hook, failure.kind).inc()
        if made.lost:
            labels = made.lost[0].policy, made.pod.scheduler_name
            metrics.lost_seconds.labels(*labels).inc(made.own_seconds)
        if decision.sought_victims:
            metrics.preemption_attempts.inc()

    def _count_hook_failure(self, made: to_do.ReportHookFailure) -> None:
        metrics = self.metrics
        for failure in made.failures:
            log.warning(
                "Policy failed outside of a decision; asking again later",
                pod=made.pod.key,
                extension_point=failure.hook,
                reason=str(failure),
            )
            metrics.policy_failures.labels(failure.policy, failure.hook, failure.kind).inc()
        if made.lost:
            labels = made.lost[0].policy, made.pod.scheduler_name
            metrics.lost_seconds.labels(*labels).inc(made.seconds)
        # Counted like a failed decision: keeping pods from being tried is no better than failing
        # them.
        if self.leading.is_set() and not self.comparing.is_candidates(made):
            self.rollout.counts.count(made.seconds, True, made.lost, made.pod.uid)

    def _report_fault(self, made: to_do.ReportFault) -> None:
        pod, error = made.pod, made.error
        log.error("Unexpected exception in a scheduling cycle", pod=pod.key, exc_info=error)
        self.metrics.loop_errors.labels("decide").inc()

    def _send_back(self, uid: str) -> bool:
        """Send back the assumed pod with *uid*: its node is needed. False if it is too late."""
        if uid in self.kernel.permits:
            self.report(WaitingPodPreempted(uid))
            return True
        return self.bindings.cancel(uid)

    def _is_busy(self) -> bool:
        at_work = self.bindings.at_work + self.preemptor.in_flight
        return at_work > 0 or self.queue.counts()["active"] > 0

    # --- policies --------------------------------------------------------------------------

    def _switch(self, new: LoadedRevision, old: LoadedRevision | None) -> None:
        """Decide with *new* from the next pod on."""
        if self.decision_log is not None:
            self.decision_log.policies(new.bundle.revision, new.files)
        self.extenders.use(new.bundle.extenders)
        # What *new* has counted before is in the sum already: it goes on from the counts of *old*,
        # or comes back from a roll-back.
        self._counted_before.subtract(_counts_of(new))
        if old is not None:
            self._counted_before.update(_counts_of(old))
        self.facts.configure(new.bundle.runtime.facts, _time_reads(new))
        new.scheduler.keeps_choices = True  # `/explain` shows them
        # Before *new* decides: what it reads may not be listed yet.
        self.policy_informers.follow()
        self._follow_readability()
        self.report(RevisionSwitched(new.scheduler))

    def _compared_with(self, candidate: LoadedRevision | None) -> None:
        """Record *candidate*, have its extenders called, and show the facts that it reads, too.

        Where both configure a fact, it is that of the policies in force.
        """
        self._compared = None if candidate is None else candidate.bundle
        if self.decision_log is not None:
            self.decision_log.candidate(candidate)
        active = self.rollout.active
        extenders = () if candidate is None else candidate.bundle.extenders
        self.extenders.use(active.bundle.extenders, extenders, self.kernel.deciders.is_canary)
        own, reads = active.bundle.runtime.facts, _time_reads(active)
        if candidate is not None:
            # Compared, not hashed: some sources hold mappings.
            wanted = candidate.bundle.runtime.facts.sources
            new = [source for source in wanted if source not in own.sources]
            own = replace(own, sources=(*new, *own.sources))
            reads |= _time_reads(candidate)
        self.facts.configure(own, reads)

    def _report_control(self) -> None:
        control, about = self.control.current, self.control.reference
        if control.problems and about is not None:
            self.rollout.report_control(about, control)

    def _bundles(self) -> list[Bundle]:
        compared = [] if self._compared is None else [self._compared]
        return [*self.rollout.bundles, *compared]

    def _last_resort(self) -> LastResort:
        settings = self.settings
        when_none = settings.when_no_policies
        if settings.last_resort is None:
            return LastResort(settings.profile_names, is_fixed=True, when_none=when_none)
        return LastResort((settings.last_resort,), when_none=when_none)

    def _may_act(self) -> bool:
        return self.elector is None or self.elector.may_act

    def _is_to_place(self, pod: Pod) -> bool:
        """True if this process leads and has a profile for the pod."""
        scheduler = self.kernel.scheduler
        is_ours = scheduler is not None and scheduler.profile_of(pod) is not None
        return is_ours and self.leading.is_set()

    def _may_report(self) -> bool:
        # The lease is given back first, so that a standby goes on at once.
        return self._may_act() or self._has_given_lease_back

    def _may_save_facts(self) -> bool:
        return self.leading.is_set() and self._may_act()

    def _facts_changed(self) -> None:
        self.report(FactsReported())

    def _facts_aged(self) -> None:
        self.report(FactsReported(is_age=True))

    def _known_objects(self) -> tuple[Iterable[Node], Iterable[Pod]]:
        cluster, infos = self.kernel.cluster, self.cache.snapshot().infos
        nodes = [info.node for info in infos if info is not None and info.node is not None]
        return nodes, [*cluster.pending_pods(), *cluster.placed_pods()]

    def _is_going(self, uid: str) -> bool:
        known = self.cache.get_pod(uid)
        return known is None or known.is_terminating

    def snapshot(self) -> Any:
        """The live snapshot, for the trial of new policies."""
        return self.facts.with_clock(self.cache.snapshot())

    def sample_pods(self) -> list[Pod]:
        """Pods for the trial: pending ones, and some that run, as if they were pending.

        One of each class that was decided lately comes first: what the trial has evaluated need not
        be evaluated between two real decisions.
        """
        recent = self.rollout.active.scheduler.recent_pods(_SAMPLE_CLASSES)
        pending = _spread([*self.kernel.cluster.pending_pods()], _SAMPLE_PENDING)
        placed: list[Pod] = []
        for info in _spread([i for i in self.cache.snapshot().infos if i], _SAMPLE_PLACED):
            placed += [pod.unplaced() for pod in list(info.pods.values())[:1]]
        return list({pod.uid: pod for pod in (*recent, *pending, *placed)}.values())

    def rejected_pods(self) -> list[Pod]:
        """Pods that were tried, or kept at a gate, and wait; those that wait in no group."""
        group_of = self.kernel.deciders.group_of
        waiting = self.kernel.queue.waiting_pods()
        tried = (one.pod for one in waiting if one.attempts or one.gated_by is not None)
        return [pod for pod in tried if not group_of(pod)]

    def waiting_pods(self) -> list[Pod]:
        """All pods without a node, of whatever scheduler."""
        return [*self.kernel.cluster.pending_pods()]

    async def watch(self, bundle: Bundle) -> list[str]:
        """Watch what *bundle* reads; returns why that cannot be read which is not known soon."""
        return await self.policy_informers.known(bundle)

    async def prepare(self, bundle: Bundle) -> None:
        """Wait until the fact sources that *bundle* adds have reported for the first time."""
        await self.facts.prepare(bundle.runtime.facts)

    async def until_decided(self) -> None:
        """Return when no decision waits for an extender: other tasks see no others begun."""
        await self._has_decided.wait()

    async def until_idle(self) -> None:
        """Return when no pod is to be decided, bound or made room for, or after some seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_IDLE_SECONDS):
                while not self.leading.is_set() or self._is_busy():  # noqa: ASYNC110
                    await asyncio.sleep(_IDLE_TICK)

    # --- reporting -------------------------------------------------------------------------

    def _report_leadership(self, about: Reference, note: str) -> None:
        self.events.record(
            about,
            kind=NORMAL,
            reason="LeaderElection",
            action="LeaderElection",
            note=note,
            controller=CONTROLLER,
            repeats=False,
        )

    # --- watching --------------------------------------------------------------------------

    def _handler_of(self, resource: Resource) -> Handler[Any]:
        handler = ObjectReporter(resource.plural, self.report)
        seconds = self.metrics.event_handling_seconds
        return SampledHandler(handler, resource.kind, seconds, self._clock)

    def _pod_groups_served(self, newest: Resource, served: Resource | None) -> None:
        """Note in which version the API server has PodGroups: the only resource with several."""
        self._pod_groups = served
        if served is None:
            log.info("PodGroups are not served", resource=str(newest))
        else:
            log.info("PodGroups are served", resource=str(served), version=served.api_version)
        self.report(PodGroupsServed("" if served is None else served.api_version))

    # --- status pages ----------------------------------------------------------------------

    def _routes(self) -> list[Route]:
        elected = self.elector.check if self.elector is not None else ping
        routes = [
            *health_routes(
                healthz={"ping": ping, "leaderElection": elected},
                livez={"ping": ping},
                readyz={
                    "ping": ping,
                    "leaderElection": elected,
                    "shutdown": self._check_shutdown,
                    "sched-handler-sync": self._check_synced,
                    "policies": self._check_policies,
                    "watches": self.readability.problem,
                },
            ),
            metrics_route("/metrics", self.registry),
            *page_routes(self.page, self.live, self.activity, self._leader),
            json_route("/facts", self.facts.describe),
            json_route("/configz", lambda: {"componentconfig": self._configuration()}),
        ]
        routes += self._component_routes([route.path for route in routes])
        return [*routes, root_route(routes)]

    def _configuration(self) -> dict[str, Any]:
        """The configuration of this process with the profiles and extenders that decide now."""
        try:
            bundle = self.rollout.active.bundle
        except LookupError:
            return self.settings.configuration
        config = bundle.configuration
        return with_decisions(
            self.settings.configuration,
            [profile.written for profile in bundle.profiles],
            () if config is None else config.extenders,
            with_secrets=False,
        )

    def _component_routes(self, paths: Iterable[str]) -> list[Route]:
        component = Component(
            name="starsched",
            version=self.settings.version,
            emulates=EMULATES,
            language=language(),
            started_at=self._clock.now(),
            flags=self.settings.flags,
        )
        return component_routes(component, paths, self._clock.now)

    def _page_address(self) -> str:
        return self.endpoints.page_address(self._client.server)

    def _served_groups(self) -> dict[str, Any]:
        served = self._pod_groups
        return {"served": None if served is None else served.api_version}

    def _leader(self) -> Leader:
        elector = self.elector
        if elector is None:
            return Leader(is_us=True)
        is_us = self.leading.is_set() and elector.is_leading
        if is_us:
            return Leader(elector.identity)
        # A lease that has run out makes no leader, whatever held it last.
        leader = elector.leader
        return Leader(leader, is_us=False, address=elector.holder_page if leader else "")

    def _check_synced(self) -> str | None:
        waiting = self.readability.not_synced()
        return f"handlers are not fully synchronized: {waiting}" if waiting else None

    def _check_policies(self) -> str | None:
        return self.saved.waits_for() or self.rollout.waits_for()

    def _check_shutdown(self) -> str | None:
        return "process is shutting down" if self._stop.is_set() else None

    def _show_metrics(self) -> None:
        metrics = self.metrics
        show_queue(metrics, self.queue, self.kernel.entities)
        show_waiting(metrics, self.kernel.waiting_reasons)
        show_oldest(metrics, self._waiting_ages)
        show_rejections(metrics, self._clock.monotonic)
        show_cache(metrics, self.cache)
        show_in_flight(metrics, self.bindings, self.preemptor, self.writer)
        show_policies(metrics, counts=self._policy_counts, evaluations=self._evaluations.counts)
        show_rollout(metrics, lambda: self.rollout.status)
        show_former_profiles(
            metrics, lambda: self.rollout.former_profiles, self.kernel.cluster.pending_pods
        )
        show_saved_states(metrics, self.saved, lambda: self.rollout.origin)
        show_facts(metrics, self.facts)
        show_watches(metrics, self.informers, self._clock)
        show_pod_groups(metrics, lambda: self._pod_groups)
        if self.decision_log is not None:
            show_recording(metrics, self.decision_log)
        if self.tracing is not None:
            show_tracing(metrics, self.tracing)

    def _waiting_ages(self) -> dict[tuple[str, str, str], float]:
        if not self.leading.is_set():
            return {}  # a standby has tried none of the pods that it sees wait
        now = self._clock.now()
        return {key: now - at for key, at in self.kernel.oldest_waiting().items()}

    def _policy_counts(self) -> Counter[str]:
        counts = self._counted_before.copy()
        with contextlib.suppress(LookupError):
            counts.update(_counts_of(self.rollout.active))
        return counts


def _counts_of(loaded: LoadedRevision) -> dict[str, int]:
    """What a revision counts, for metrics: restarts of its sandbox (if it has one), verdicts."""
    memo = loaded.scheduler.memo
    return {
        "restarts": getattr(loaded.evaluator, "restarts", 0),
        "asked": memo.asked,
        "answered": memo.answered,
    }


def _time_reads(loaded: LoadedRevision) -> TimeReads:
    """What the policies of all profiles read that changes as time passes."""
    return time_reads(loaded.bundle.enabled)


def _spread(items: list[Any], most: int) -> list[Any]:
    """At most *most* of *items*, evenly spread over them."""
    step = max(1, len(items) // most)
    return items[::step][:most]


__all__ = ["App", "LeadershipLost", "Settings"]
