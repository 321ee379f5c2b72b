"""The facts of the running scheduler: what its configuration names, shown to the policies.

Owns the life of the sources and of the store: a source that stays in a changed configuration keeps
its readings, one that breaks is started again. Changes are shown to the cache between two
decisions.

    configured --reading, changed object--> shown --age step passes--> shown with its new age
    read by a policy --the hour, the date turns--> shown

Where a source gives a fact of the clock, too, that of the source is shown.

Sources of a configuration that is about to come into force run before it does, and nothing that
they report is shown until then.
"""

import asyncio
import contextlib
import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from engine.core.caching.snapshot import Snapshot
from engine.core.model.clock_facts import beside_sources, clock_facts, next_step
from engine.core.model.fact import NO_FACTS, Facts
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.io.facts.annotations import read_annotations
from engine.io.facts.board import FactBoard
from engine.io.facts.readings import CLUSTER, Readings, Subject
from engine.io.facts.source import Source
from engine.io.facts.store import FactStore, nodes_of
from engine.io.watching.informer import Handlers
from engine.lib.background import cancelled
from engine.lib.clock import Clock
from engine.lib.time_zones import zone_of
from engine.policy.analysis import TimeReads
from engine.policy.fact_config import (
    AnnotationFacts,
    FactsConfig,
    FactSource,
    PodDemand,
    PodOutcomes,
)

log = structlog.get_logger(component="facts")

#: Makes the source of an entry of a configuration; not for annotations.
MakeSource = Callable[[FactSource, FactsConfig], Source]

_RESTART_SECONDS: Final = 5.0
# A Prometheus server takes a second at worst; an absent one must keep no pod waiting.
_FIRST_REPORT_SECONDS: Final = 2.0
_READING_TICK: Final = 0.02
# While a server hangs, every other report comes before the time-out of its queries.
_CLEAN_REPORTS: Final = 2
# Nodes are annotated one after the other; the queue need not look at each by itself.
_REPORT_SECONDS: Final = 0.1


@dataclass(slots=True)
class _Running:
    """A source of the configuration: its entry, its place, and the task that follows it.

    `place` is None as long as it is only prepared. `silent_since` (seconds since the epoch) is when
    it was started, or began to fail again; None once `_CLEAN_REPORTS` in a row, so many as
    `clean_reports`, came without a failure.
    """

    config: FactSource
    place: int | None
    source: Source | None = None
    task: asyncio.Task[None] | None = None
    silent_since: float | None = None
    failures: int = 0
    clean_reports: int = 0
    readings: dict[Subject, Readings] = field(default_factory=dict)
    reported: asyncio.Event = field(default_factory=asyncio.Event)


class LiveFacts:
    """The facts of one process.

    Args:
        board: Where they are shown.
        clock: Time.
        make_source: See there.
        on_change: Called soon after something new was shown, for it may help a rejected pod.
        on_age: Called when facts are shown with a new age, while a policy reads ages. Facts of the
            clock need no call: the kernel knows which pods they concern.
        objects: Every node and every pod that is known, to read annotations again.
        patience: Seconds that policies wait for the first reports of sources that they bring.
    """

    def __init__(
        self,
        board: FactBoard,
        *,
        clock: Clock,
        make_source: MakeSource,
        on_change: Callable[[], None],
        on_age: Callable[[], None],
        objects: Callable[[], tuple[Iterable[Node], Iterable[Pod]]],
        patience: float = _FIRST_REPORT_SECONDS,
    ) -> None:
        self._board = board
        self._clock = clock
        self._make_source = make_source
        self._on_change = on_change
        self._on_age = on_age
        self._objects = objects
        self._patience = patience
        self._config = FactsConfig()
        self._store = FactStore()
        self._running: list[_Running] = []
        self._prepared: tuple[FactsConfig, list[_Running]] = (FactsConfig(), [])
        self._reads = TimeReads()
        self._clock_shown: Facts = {}
        self._aged_at = -1.0  # the age step in which ages were brought up to date
        self._reconfigured = asyncio.Event()
        self._too_old = 0  # how many readings are not shown any more
        self._is_started = False
        self._is_report_due = False
        self.report_counts: dict[str, int] = {}  # by source: how often it reported something
        self._broken: dict[str, int] = {}  # by source: how often it had to be started again

    # --- configuration -----------------------------------------------------------------------

    async def prepare(self, config: FactsConfig) -> None:
        """Return when the sources that *config* adds have reported, like `wait_until_reported`.

        Only the configuration that was prepared last can start with the reports of its sources.
        """
        self._drop_prepared()
        if not self._is_started:
            return
        new = [
            _Running(one, None)
            for one in config.sources
            if self._is_relabelled(config) or all(r.config != one for r in self._running)
        ]
        self._prepared = config, new
        self._start(new, config)
        await _have_reported(new, self._patience)

    def _drop_prepared(self) -> None:
        _, dropped = self._prepared
        self._prepared = FactsConfig(), []
        for running in dropped:
            if running.task is not None:
                running.task.cancel()

    def _is_relabelled(self, config: FactsConfig) -> bool:
        """True if sources learn about other types of pods under *config*."""
        return config.pod_type_labels != self._config.pod_type_labels

    def configure(self, config: FactsConfig, reads: TimeReads) -> None:
        """Follow *config* from now on, and keep up to date what *reads* says."""
        self._reads = reads
        self._reconfigured.set()
        if config != self._config:
            # Sources that stay keep their task and their readings; so do those that are prepared.
            known = [] if self._is_relabelled(config) else list(self._running)
            prepared_for, prepared = self._prepared
            if prepared_for.pod_type_labels == config.pod_type_labels:
                known += prepared
                self._prepared = FactsConfig(), []
            self._drop_prepared()
            self._config = config
            self._board.set_pod_type_labels(config.pod_type_labels)
            self._replace_sources(known)
        elif reads.ages:
            self.refresh()
        self._step()

    def _replace_sources(self, known: Sequence[_Running]) -> None:
        # 1. The sources of the configuration; those that are *known* go on.
        earlier, left = self._running, list(known)
        self._running = []
        for place, config in enumerate(self._config.sources):
            kept = next((r for r in left if r.config == config), None)
            if kept is None:
                kept = _Running(config, place)
            left = [running for running in left if running is not kept]
            kept.place = place
            self._running.append(kept)
        going_on = {id(running) for running in self._running}
        for gone in (*earlier, *left):
            if id(gone) not in going_on and gone.task is not None:
                gone.place = None
                gone.task.cancel()
        # 2. A new store, with what is known already.
        before = set(self._store.subjects())
        max_age = self._config.max_age
        self._store = FactStore(
            self._config.age_step.total_seconds(),
            None if max_age is None else max_age.total_seconds(),
        )
        for running in self._running:
            self._put(running)
        nodes, pods = self._objects()
        for node in nodes:
            self._read_node(node)
        for pod in pods:
            self._read_pod(pod)
        # 3. Show it, and what is not known any more.
        self._show(before | set(self._store.subjects()))
        if self._is_started:
            self._start(self._running, self._config)
        if before or self._running:
            self._report_soon()

    # --- the informers' calls, before those of the cache --------------------------------------

    @property
    def of_nodes(self) -> Handlers[Node]:
        """Handlers for an informer of nodes. Facts about a deleted node are kept."""
        return Handlers(self._on_node, lambda _, new: self._on_node(new), self._on_node_gone)

    @property
    def of_pods(self) -> Handlers[Pod]:
        """Handlers for an informer of pods. Facts from a deleted pod's annotations are dropped."""
        return Handlers(self._on_pod, lambda _, new: self._on_pod(new), self._on_pod_gone)

    def _on_node(self, node: Node) -> None:
        if self._read_node(node):
            self._show([("node", node.name)])
            self._report_soon()

    def _on_node_gone(self, node: Node) -> None:
        if self._read("nodes", ("node", node.name), {}):
            self._show([("node", node.name)])

    def _on_pod(self, pod: Pod) -> None:
        if self._read_pod(pod):
            self._show([("pod", pod.key)])
            self._report_soon()

    def _on_pod_gone(self, pod: Pod) -> None:
        if self._read("pods", ("pod", pod.key), {}):
            self._show([("pod", pod.key)])

    def _annotations(self, of: str) -> Iterable[_Running]:
        for running in self._running:
            if isinstance(running.config, AnnotationFacts) and running.config.of == of:
                yield running

    def _read_node(self, node: Node) -> bool:
        return self._read("nodes", ("node", node.name), node.annotations)

    def _read_pod(self, pod: Pod) -> bool:
        return self._read("pods", ("pod", pod.key), pod.annotations)

    def _read(self, of: str, subject: Subject, annotations: Mapping[str, str]) -> bool:
        if not self._running:
            return False
        changed = False
        for running in self._annotations(of):
            assert isinstance(running.config, AnnotationFacts)
            assert running.place is not None, "only what is configured is read"
            readings = read_annotations(running.config, annotations)
            changed |= self._store.put(running.place, subject, readings)
        return changed

    # --- sources -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the sources, and let facts grow old, until cancelled."""
        self._is_started = True
        self._start(self._running, self._config)
        try:
            while True:
                try:
                    async with asyncio.timeout(self._next_look_in()):
                        await self._reconfigured.wait()
                    self._reconfigured.clear()  # its step may be another one
                except TimeoutError:
                    self._pass_time()
        finally:
            self._is_started = False
            followed = [*self._running, *self._prepared[1]]
            await cancelled(r.task for r in followed if r.task is not None)

    def _next_look_in(self) -> float:
        """Seconds until something has another age, or a fact of the clock another value."""
        now, step = self._clock.now(), self._config.age_step.total_seconds()
        until = now + step - now % step
        if names := self._reads.clock:
            until = next_step(now, zone_of(self._config.time_zone), names, until=until)
        return until - now

    def _pass_time(self) -> None:
        self._step()
        # A step of the clock may lie within an age step.
        age_step = self._clock.now() // self._config.age_step.total_seconds()
        if age_step != self._aged_at:
            self._aged_at = age_step
            self._grow_old()

    def _grow_old(self) -> None:
        if self._reads.ages or self._config.max_age is not None:
            self.refresh()
        if self._reads.ages:
            self._on_age()

    def _step(self) -> None:
        """Show the facts of the clock that policies read, if one has another value.

        How the time came there does not matter: a clock may be set, and a process may sleep.
        """
        if self._clock_facts() != self._clock_shown:
            self._show([CLUSTER])

    def _clock_facts(self) -> Facts:
        zone = zone_of(self._config.time_zone)
        return clock_facts(self._clock.now(), zone, self._reads.clock)

    def with_clock(self, snapshot: Snapshot) -> Snapshot:
        """*snapshot* with all facts of the clock: its reader may be the first one of them."""
        shown = copy.copy(snapshot)
        now, zone = self._clock.now(), zone_of(self._config.time_zone)
        shown.cluster_facts = beside_sources(snapshot.cluster_facts, clock_facts(now, zone))
        return shown

    async def wait_until_reported(self) -> None:
        """Return when every source has reported or failed, after two seconds at the latest.

        Earlier decisions are made without facts, which a policy cannot distinguish from facts that
        are unknown.
        """
        await _have_reported(self._running, self._patience)

    def _start(self, sources: Iterable[_Running], config: FactsConfig) -> None:
        assert self._is_started, "without a loop nothing follows the sources"
        for running in sources:
            if running.task is None and not isinstance(running.config, AnnotationFacts):
                running.silent_since = self._clock.now()
                running.source = self._make_source(running.config, config)
                running.task = asyncio.ensure_future(self._follow(running, running.source))

    async def _follow(self, running: _Running, source: Source) -> None:
        while True:
            try:
                await source.run(lambda readings: self._take(running, source, readings))
            except Exception as error:
                # Facts are useful, but no error of a source may stop the scheduler.
                self._broken[source.name] = self._broken.get(source.name, 0) + 1
                log.exception("Source of facts failed", source=source.name, reason=str(error))
                running.reported.set()
            await asyncio.sleep(_RESTART_SECONDS)

    def _take(
        self, running: _Running, source: Source, readings: Mapping[Subject, Readings]
    ) -> None:
        self.report_counts[source.name] = self.report_counts.get(source.name, 0) + 1
        running.readings = dict(readings)
        is_clean = source.failures == running.failures
        running.failures = source.failures
        running.clean_reports = running.clean_reports + 1 if is_clean else 0
        if running.clean_reports >= _CLEAN_REPORTS:
            running.silent_since = None
        elif not is_clean and running.silent_since is None:
            running.silent_since = self._clock.now()
        running.reported.set()
        changed = self._put(running)
        if changed:
            self._show(changed)
            self._report_soon()

    def _put(self, running: _Running) -> Collection[Subject]:
        """Have the store hold what a source reported; returns the subjects whose facts changed."""
        if running.place is None:
            return ()
        return self._store.replace(running.place, running.readings)

    def _report_soon(self) -> None:
        """Report soon that something is new; what comes until then is reported together."""
        if not self._is_report_due:
            self._is_report_due = True
            asyncio.get_running_loop().call_later(_REPORT_SECONDS, self._report)

    def _report(self) -> None:
        self._is_report_due = False
        self._on_change()

    # --- showing -----------------------------------------------------------------------------

    def refresh(self) -> None:
        """Show every fact with the age that it has now. One that is too old for that is news."""
        too_old = self._store.too_old(self._clock.now())
        self._show(self._store.subjects())
        if too_old != self._too_old:
            self._too_old = too_old
            self._report_soon()

    def _show(self, subjects: Iterable[Subject]) -> None:
        now = self._clock.now()
        subjects = set(subjects)
        for name in sorted(nodes_of(subjects)):
            self._board.set_node_facts(name, self._store.node(name, now))
        others = {s for s in subjects if s[0] not in ("node", "pair")}
        if len(others) == 1 and (one := next(iter(others)))[0] == "pod":
            self._board.set_pod_facts(one[1], self._store.facts(one, now))
        elif others:
            shown = self._store.others(now)
            self._clock_shown = self._clock_facts()
            cluster = beside_sources(shown.cluster, self._clock_shown)
            self._board.set_other_facts(cluster=cluster, types=shown.types, pods=shown.pods)

    def failures(self) -> dict[str, int]:
        """By source, how often it could not be read or has failed."""
        total = dict(self._broken)
        for running in self._running:
            if running.source is not None:
                name = running.source.name
                total[name] = total.get(name, 0) + running.source.failures
        return total

    def ages(self) -> dict[str, float]:
        """By source, seconds since its newest reading was measured.

        Of a source that has no readings because it fails, seconds since it does. One that has none
        and works is left out, as are sources whose readings have no time, and what is learned: it
        is never out of date.
        """
        now, ages = self._clock.now(), dict[str, float]()
        for running in self._running:
            config = running.config
            if isinstance(config, PodOutcomes | PodDemand):
                continue
            if isinstance(config, AnnotationFacts):
                name, since = f"annotations:{config.of}", None
            elif running.source is not None:
                name = running.source.name
                since = None if running.readings else running.silent_since
            else:
                continue
            if running.place is not None and since is None:
                since = self._store.newest(running.place)
            if since is not None:
                ages[name] = max(0.0, now - since, ages.get(name, 0.0))
        return ages

    def describe(self) -> dict[str, object]:
        """By source, how often it reported and about how many subjects, for the status page.

        Only existing nodes are counted: a source may name them by their addresses.
        """
        subjects, failures = list(self._store.subjects()), self.failures()
        return {
            "sources": {
                r.source.name: {
                    "reports": self.report_counts.get(r.source.name, 0),
                    "failures": failures.get(r.source.name, 0),
                    "subjects": len(r.readings),
                }
                for r in self._running
                if r.source is not None
            },
            "subjects": len(subjects),
            "nodes": sum(1 for name in nodes_of(subjects) if self._helps(name)),
        }

    def _helps(self, name: str) -> bool:
        """True if there is a node *name*, and something is shown of it."""
        info = self._board.node_info(name)
        is_there = info is not None and info.node is not None
        return is_there and self._board.facts_of_node(name) != NO_FACTS


async def _have_reported(sources: Iterable[_Running], patience: float) -> None:
    """Return when all of *sources* have reported or failed, or after *patience* seconds."""
    sources = list(sources)
    reported = [r.reported for r in sources if not isinstance(r.config, AnnotationFacts)]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience):
            await asyncio.gather(*(one.wait() for one in reported))
    # A large document is being read: the time that it takes is no sign of a dead server.
    while any(_is_reading_first(one) for one in sources):  # noqa: ASYNC110
        await asyncio.sleep(_READING_TICK)


def _is_reading_first(running: _Running) -> bool:
    source = running.source
    return source is not None and source.is_reading and not running.reported.is_set()
