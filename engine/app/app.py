"""The process: starts every part, decides pod after pod, and stops.

Owns the order of starting and stopping, and the path of a pod: an informer reports a change,
`report` passes it to the kernel, `_schedule` has the kernel decide, and `_carry_out` passes each
instruction to the component that carries it out, which reports the result.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog

from engine.app.carrying import Carrying, make_kernel
from engine.app.counting import DecisionCounting
from engine.app.environment import make_environment
from engine.app.kept_activity import KeptActivity
from engine.app.kept_usage import KeptUsage
from engine.app.leadership import Leadership
from engine.app.policies import Policies, PolicyParts
from engine.app.reporting import Reporting
from engine.app.settings import Settings
from engine.app.surfaces import Surfaces
from engine.app.watching import Watching
from engine.core.caching.cache import Cache
from engine.core.kernel.events import (
    Event,
    LeadershipAcquired,
    Stopped,
    TimePassed,
    TurnBegan,
)
from engine.core.kernel.instructions import Instruction
from engine.core.kernel.kernel import decided
from engine.io.emulation import Emulation
from engine.io.endpoints.server import ReviewClients
from engine.io.extender_calls import decided_asking
from engine.io.facts.learned import LearnedStore, NoLearnedStore
from engine.io.kube.client import ApiClient
from engine.io.tracing.pod_traces import Tracing
from engine.lib import free_memory
from engine.lib.background import Background, cancelled
from engine.lib.clock import Clock
from engine.recording.recorder import Recorder
from engine.surfaces import pulled_metrics as pulled
from engine.surfaces.state_dump import dump
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
_TICKS_BETWEEN_GIVING_BACK: Final = 30  # of a second


class App:
    """A scheduler process: everything between the API server and the policies.

    `new --run--> starting --synced--> standby --lease--> scheduling --stop--> stopped`.

    Args:
        client: The API server; closed by the caller.
        policies: Where policies come from, and what takes them into force.
        learned_store: Where learned facts are saved.
        settings: See there.
        clock: Time.
        decision_log: Records decisions and what they read; started by the caller.
        review_clients: Who knows the callers of the endpoints; None: *client*.
        tracing: Traces pods; closed here.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        policies: PolicyParts,
        learned_store: LearnedStore | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
        decision_log: Recorder | None = None,
        review_clients: ReviewClients | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        settings = settings if settings is not None else Settings()
        clock = clock if clock is not None else client.clock
        self._clock = clock
        self._client = client
        self._stop = asyncio.Event()
        self._ready = asyncio.Event()
        self._background = Background()
        self._keeping: asyncio.Task[None] | None = None
        self._dumping: asyncio.Task[None] | None = None
        self.cache = Cache()
        # The parts, each of those before it. What only a later one knows is asked of it by name.
        self.env = env = make_environment(
            client,
            settings=settings,
            clock=clock,
            reviewers=review_clients or ReviewClients(client, client),
            tracing=tracing,
            decision_log=decision_log,
        )
        self._pauses = DecisionPauses(env.metrics.decision_pauses)
        self.reporting = Reporting(
            env,
            self.cache.objects,
            is_busy=lambda: self.carrying.is_busy(),
            may_report=lambda: self.leadership.may_report(),
            pod_groups=lambda: self.watching.pod_groups,
        )
        self.leadership = Leadership(
            env, self.reporting.events, page=lambda: self.surfaces.holder_page()
        )
        self.kernel = make_kernel(env, self.cache, self.reporting, self.leadership)
        self.carrying = Carrying(env, self.kernel, self.reporting, self.leadership, self.report)
        self.watching = Watching(
            env,
            self.kernel,
            self.leadership,
            learned_store=learned_store or NoLearnedStore(),
            report=self.report,
            bundles=lambda: self.policies.bundles(),
        )
        self.kept_usage = KeptUsage(
            self.kernel.shares,
            learned_store or NoLearnedStore(),
            states=env.saved,
            may_save=self.leadership.may_save,
            report=self.report,
            clock=clock,
        )
        self.emulation = self._make_emulation(settings)
        self.policies = self._make_policies(policies)
        counting = DecisionCounting(env, self.kernel, self.policies, self.leadership)
        self._carriers = self._make_carriers(counting)
        self.surfaces = self._make_surfaces(counting)
        self.kept_activity = KeptActivity(
            self.surfaces.activity,
            learned_store or NoLearnedStore(),
            may_save=self.leadership.may_save,
        )
        self._show_metrics()

    def _make_emulation(self, settings: Settings) -> Emulation:
        """What has answers follow the API server's version."""
        return Emulation(
            self._client,
            self.cache.objects,
            self.report,
            given=settings.emulated_minor,
            gates=settings.gates,
            show=self.env.build.show,
        )

    def _make_policies(self, parts: PolicyParts) -> Policies:
        """The policies in force, of the parts that exist by now."""
        return Policies(
            self.env,
            self.kernel,
            self.reporting,
            self.carrying,
            self.watching,
            self.leadership,
            parts=parts,
            report=self.report,
        )

    def _make_surfaces(self, counting: DecisionCounting) -> Surfaces:
        """What people and other programs see of all the others."""
        return Surfaces(
            self.env,
            self.kernel,
            self.leadership,
            self.watching,
            self.policies,
            counting,
            self.emulation,
            is_stopping=self._stop.is_set,
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
            nodes, *_, pods = self.watching.informers
            kernel = self.kernel
            writing = dump(
                self.cache,
                kernel.queue,
                kernel.shares,
                kernel.turns,
                list(nodes.values()),
                list(pods.values()),
            )
            self._dumping = asyncio.ensure_future(writing)

    async def run(self) -> None:
        """Schedule until `request_stop`.

        Raises `LeadershipLost` when the lease is lost: the process must exit, so that no part of it
        acts any more. Raises any error that makes a start impossible.
        """
        await self.surfaces.endpoints.start()
        stopping = asyncio.ensure_future(self._stop.wait())
        writing = self._background.start(self.reporting.writer.run())
        self._background.start(self.surfaces.activity.run())
        if self.surfaces.registration is not None:
            self._background.start(self.surfaces.registration.run())
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
            await self.surfaces.page.close()
            await self.surfaces.endpoints.stop()

    async def _start_and_schedule(self) -> None:
        watching, rollout = self.watching, self.policies.rollout
        elector = self.leadership.elector
        # 1. The cluster: nothing is decided on an incomplete view of it.
        for informer in self.watching.informers:
            self._background.start(informer.run())
        self._background.start(self.policies.control.run(self.policies.report_control))
        # 2. What is answered like: before the policies are tried on the cluster.
        await self._background.unless_broken(self.emulation.ask())
        # 3. In parallel the policies. Pods that were seen before them are queued when they come.
        rollout.is_active = elector is None
        synced = (informer.wait_synced() for informer in self.watching.informers)
        await self._background.unless_broken(asyncio.gather(rollout.start(), *synced))
        await self._background.unless_broken(watching.policy_informers.known(rollout.active.bundle))
        watching.synced.set()
        watching.follow_readability()
        log.info("In sync", nodes=self.cache.node_count, pods=self.cache.pod_count)
        # 4. Following the policies' source; also as a standby, so that it takes over warm.
        self._background.start(rollout.run())
        self._background.start(self._tick())
        self._background.start(watching.facts.run())
        self.kept_usage.begin()
        self._background.start(self.kept_usage.run())
        await self._background.unless_broken(watching.facts.wait_until_reported())
        await self._background.unless_broken(self.env.saved.settled())
        # 5. Leading.
        if elector is not None:
            await self._background.unless_broken(elector.acquire())
            self._keeping = self._background.start(elector.keep())
            self.env.metrics.leader.labels(elector.settings.name).set(1)
            # What the leader before this one bound last may not have been seen yet.
            if elector.follows_another:
                known = elector.version, CATCH_UP_SECONDS
                catching_up = (informer.catch_up(*known) for informer in self.watching.informers)
                await self._background.unless_broken(asyncio.gather(*catching_up))
            # The lease may be lost while what the leader before saved cannot be read.
            await self._background.unless_broken(rollout.lead())
            self.policies.report_control()  # a standby has reported nothing
        self.leadership.leading.set()
        self.report(LeadershipAcquired())
        self._background.start(self.kept_activity.run())
        # 6. Scheduling.
        await self._background.unless_broken(self._schedule())

    async def _shut_down(self, main: asyncio.Task[None]) -> None:
        """Stop deciding, finish bindings, release the lease, write what is left, in this order."""
        elector, leading = self.leadership.elector, self.leadership.leading
        lost_lease = elector is not None and leading.is_set() and not elector.is_leading
        # 1. No new decisions.
        await cancelled([main])
        if waiting := len(self.kernel.permits):
            log.info("Pods that waited in permit stay pending", count=waiting)
        self.report(Stopped())
        # 2. Bindings and evictions in flight. Without the lease they are not ours to finish.
        patience = 0.0 if lost_lease else DRAIN_SECONDS
        given_up, unfinished = await asyncio.gather(
            self.carrying.bindings.drain(patience), self.carrying.preemptor.drain(patience)
        )
        if given_up:
            log.warning("Bindings given up at shutdown", count=given_up)
        if unfinished:
            log.warning("Preemptions given up at shutdown", count=unfinished)
        # 3. The lease: a standby may go on now.
        if elector is not None:
            if self._keeping is not None:
                await cancelled([self._keeping])
            if not lost_lease:
                self.leadership.gives_back()
            await elector.release()
            self.env.metrics.leader.labels(elector.settings.name).set(0)
        # 4. Events and conditions, and what the log still lacks.
        self.reporting.outcomes.log_rest()
        writer = self.reporting.writer
        if lost_lease:
            left = len(writer) + writer.in_flight
        else:
            left = await writer.flush(FLUSH_SECONDS)
        if left:
            self.env.metrics.events_dropped.labels("shutdown").inc(left)
            log.warning("Events dropped at shutdown", count=left)
        # 5. Everything else.
        if self._dumping is not None:
            await cancelled([self._dumping])
        await self._background.cancel()
        await self.watching.policy_informers.close()
        await self.emulation.close()
        await self.surfaces.live.close()
        await asyncio.to_thread(self.policies.shadow.close)
        await self.policies.rollout.stop()
        await self.carrying.extenders.close()
        # 6. Spans, those of the last writes included.
        if self.env.tracing is not None:
            await asyncio.to_thread(self.env.tracing.close, FLUSH_SPANS_SECONDS)

    # --- scheduling ------------------------------------------------------------------------

    async def _schedule(self) -> None:
        """Decide pods forever, in time slices between which other tasks run."""
        monotonic = self._clock.monotonic
        kernel, bindings, recorder = self.kernel, self.carrying.bindings, self.env.decision_log
        policies, extenders = self.policies, self.carrying.extenders
        while True:
            # 1. Wait until decisions can be carried out.
            if not bindings.has_capacity:
                self._pauses.rest()
                await bindings.wait_for_capacity()
            if not self.leadership.may_act():
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
                if recorder is not None:
                    recorder.deciding(kernel)
                policies.shadow.deciding(kernel)
                decision = kernel.decide(now)
                if kernel.asks_extenders:
                    with policies.world.deciding():
                        instructions = await decided_asking(decision, extenders.answer, monotonic)
                else:
                    instructions = decided(decision)
                if recorder is not None:
                    recorder.decided(instructions)
                policies.shadow.decided(instructions)
                policies.comparing.handled(instructions)
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
            self.watching.follow()
            self.emulation.follow(self.watching.informers[0])
            self.report(TimePassed())
            self.reporting.follow()
            ticks += 1
            if ticks % _TICKS_BETWEEN_GIVING_BACK == 0:
                free_memory.give_back()

    # --- the kernel ------------------------------------------------------------------------

    def report(self, event: Event) -> None:
        """Pass *event* to the kernel, and carry out its instructions."""
        instructions = self.kernel.handle(event, self._clock.monotonic())
        if self.env.decision_log is not None:
            self.env.decision_log.handled(event, instructions)
        self.policies.comparing.handled(instructions)
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

    def _make_carriers(
        self, counting: DecisionCounting
    ) -> Mapping[type[Any], Callable[[Any], None]]:
        carriers = {**self.carrying.carriers(), **counting.carriers()}
        tracing = self.env.tracing
        return carriers if tracing is None else tracing.traced(carriers, self.kernel.queue)

    def _show_metrics(self) -> None:
        """Export what is read off the parts at a scrape."""
        env, kernel, carrying, watching = self.env, self.kernel, self.carrying, self.watching
        metrics, clock, rollout = env.metrics, env.clock, self.policies.rollout
        pulled.show_queue(metrics, kernel.queue, kernel.entities, self.cache.objects)
        pulled.show_waiting(metrics, kernel.waiting_reasons)
        pulled.show_oldest(metrics, self._waiting_ages)
        is_leading = self.leadership.leading.is_set
        pulled.show_waiting_namespaces(metrics, kernel.waiting, clock, is_leading)
        pulled.show_shares(metrics, kernel, clock, is_leading)
        pulled.show_rejections(metrics, clock.monotonic)
        pulled.show_cache(metrics, self.cache)
        pulled.show_in_flight(metrics, carrying.bindings, carrying.preemptor, self.reporting.writer)
        pulled.show_policies(
            metrics, counts=self.policies.counts, evaluations=self.policies.evaluations
        )
        pulled.show_rollout(metrics, lambda: rollout.status)
        pulled.show_former_profiles(
            metrics, lambda: rollout.former_profiles, kernel.cluster.pending_pods
        )
        pulled.show_saved_states(metrics, self.env.saved, lambda: rollout.origin)
        pulled.show_facts(metrics, watching.facts)
        pulled.show_watches(metrics, watching.informers, clock)
        pulled.show_pod_groups(metrics, lambda: watching.pod_groups)
        if env.decision_log is not None:
            pulled.show_recording(metrics, env.decision_log)
        if env.tracing is not None:
            pulled.show_tracing(metrics, env.tracing)

    def _waiting_ages(self) -> dict[tuple[str, str, str], float]:
        if not self.leadership.leading.is_set():
            return {}  # a standby has tried none of the pods that it sees wait
        now = self._clock.now()
        return {key: now - at for key, at in self.kernel.oldest_waiting().items()}
