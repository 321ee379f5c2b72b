"""Where the metrics that running parts have are read at a scrape.

The numbers are the parts'; names, texts and labels are in the table of `telemetry.metrics`.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final

from engine.comparing.difference import KINDS
from engine.core.caching.cache import Cache
from engine.core.caching.objects import ObjectStore
from engine.core.kernel.entities import COMPOSITE_GROUP, QueuedEntityCounts
from engine.core.kernel.kernel import Kernel
from engine.core.kernel.queue_shares import QueueShares, QueueState
from engine.core.kernel.turn_queue import HELD, TurnQueue
from engine.core.model.pod import Pod
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.queueing.scheduling_queue import SchedulingQueue
from engine.core.sharing.amounts import LARGEST, add
from engine.core.sharing.sums import VECTORS
from engine.core.sharing.tree import ROOT
from engine.io.binding.binding_cycle import BindingCycle
from engine.io.binding.deferred_writer import DeferredWriter
from engine.io.binding.preemptor import Preemptor
from engine.io.facts.live_facts import LiveFacts
from engine.io.kube.resources import OLDER_VERSIONS, POD_GROUPS, Resource
from engine.io.tracing.pod_traces import Tracing
from engine.io.watching.informer import Informer
from engine.lib.clock import Clock
from engine.lib.saved_state import SavedStates
from engine.recording.recorder import Recorder
from engine.rollout.last_resort import ORIGINS
from engine.rollout.measures import ShadowMeasures
from engine.rollout.shadow.shadow import BUSY
from engine.rollout.status import CANARY, RUNNING, SHADOW, RolloutStatus
from engine.surfaces.live.held_rows import upwards
from engine.telemetry.bounded_counts import OTHER
from engine.telemetry.metrics import MOST_CLASSES, Metrics

_WATCH_KINDS = ("lists", "watches", "failures", "expirations", "events", "malformed")


def show_queue(
    metrics: Metrics, queue: SchedulingQueue, entities: QueuedEntityCounts, objects: ObjectStore
) -> None:
    """Export what waits by the queue that it waits in, and by the plugin that rejected it.

    *objects* has the minor version by whose labels entities are counted.
    """

    def labelled(counts: Mapping[Any, int]) -> dict[tuple[str, ...], int]:
        # To Prometheus, an empty label is none.
        is_entity = objects.behaves.entity_label
        return {(*key, key[-1] if is_entity else ""): number for key, number in counts.items()}

    def waiting() -> dict[tuple[str, ...], int]:
        found = entities.waiting(queue)[1]
        if objects.behaves.entity_label:
            found |= {(place, COMPOSITE_GROUP): 0 for place, _ in found}
        return labelled(found)

    metrics.pending_pods.read = lambda: entities.waiting(queue)[0]
    metrics.queued_entities.read = waiting
    metrics.queue_incoming_pods.read = lambda: entities.incoming_pods
    metrics.queue_incoming_entities.read = lambda: labelled(entities.incoming)
    metrics.inflight_events.read = queue.in_flight_events
    metrics.unschedulable_pods.read = queue.rejections


# Tokens are words of policies, and there is no limit to those.
_MOST_REASONS: Final = 500


def show_waiting(
    metrics: Metrics, reasons: Callable[[], Mapping[tuple[str, str, str], int]]
) -> None:
    """Export why pods wait; *reasons* counts them by (reason token, policy, profile)."""

    def bounded() -> dict[tuple[str, ...], float]:
        found = sorted(reasons().items(), key=lambda item: (-item[1], item[0]))
        rows: dict[tuple[str, ...], float] = dict(found[:_MOST_REASONS])
        for (_, _, profile), number in found[_MOST_REASONS:]:
            key = (OTHER, "", profile)
            rows[key] = rows.get(key, 0) + number
        return rows

    metrics.waiting_pods.read = bounded


def show_oldest(metrics: Metrics, ages: Callable[[], Mapping[tuple[str, str, str], float]]) -> None:
    """Export how old the oldest pod is that waits for each reason; *ages* has the seconds."""
    metrics.oldest_waiting_pod_age_seconds.read = lambda: dict(
        sorted(ages().items(), key=lambda item: (-item[1], item[0]))[:_MOST_REASONS]
    )


# Names of namespaces are words of users.
_MOST_NAMESPACES: Final = 100


def show_waiting_namespaces(
    metrics: Metrics,
    waiting: Callable[[], Iterable[QueuedPod]],
    clock: Clock,
    is_leading: Callable[[], bool],
) -> None:
    """Export in which namespaces pods wait, and since when; *waiting* gives these pods."""
    reading = _NamespaceReading(waiting, clock)

    def ages() -> dict[tuple[str, str], float]:
        if not is_leading():
            return {}  # a standby has tried none of the pods that it sees wait
        now = clock.now()
        return {row: now - at for row, at in reading.read().oldest.items()}

    metrics.namespace_waiting_pods.read = lambda: dict(reading.read().counts)
    metrics.namespace_oldest_waiting_pod_age_seconds.read = ages


class _NamespaceReading:
    """Reads once for both metrics of a scrape who waits: it costs a look at every pod.

    Attributes:
        counts: How many pods wait, by namespace and priority class.
        oldest: When the oldest of them without a scheduling gate was created (epoch seconds): those
            with one wait for another controller.
    """

    def __init__(self, waiting: Callable[[], Iterable[QueuedPod]], clock: Clock) -> None:
        self._waiting, self._clock = waiting, clock
        self._until = -math.inf
        self.counts: Counter[tuple[str, str]] = Counter()
        self.oldest: dict[tuple[str, str], float] = {}

    def read(self) -> "_NamespaceReading":
        """This, as it is now."""
        now = self._clock.monotonic()
        if now < self._until:
            return self
        self._until = now + _READING_SECONDS
        # 1. Count.
        counts: Counter[tuple[str, str]] = Counter()
        oldest: dict[tuple[str, str], float] = {}
        for queued in self._waiting():
            pod = queued.pod
            spec = pod.manifest.spec
            owner = pod.namespace, spec.priority_class_name
            counts[owner] += 1
            if not spec.scheduling_gates and pod.created_at < oldest.get(owner, math.inf):
                oldest[owner] = pod.created_at
        # 2. Keep the rows of those of which most wait.
        namespaces = _largest(((owner[0], n) for owner, n in counts.items()), _MOST_NAMESPACES)
        classes = _largest(((owner[1], n) for owner, n in counts.items()), MOST_CLASSES)
        self.counts, self.oldest = Counter(), {}
        for owner, number in counts.items():
            row = (
                owner[0] if owner[0] in namespaces else OTHER,
                owner[1] if owner[1] in classes else OTHER,
            )
            self.counts[row] += number
            if owner in oldest:
                self.oldest[row] = min(oldest[owner], self.oldest.get(row, math.inf))
        return self


def _largest(numbers: Iterable[tuple[str, int]], most: int) -> Set[str]:
    """The words with the largest sums of *numbers*, at most *most*."""
    sums: Counter[str] = Counter()
    for word, number in numbers:
        sums[word] += number
    return set(sorted(sums, key=lambda word: (-sums[word], word))[:most])


# Of a tree, which may have 20,000 queues: those of the first levels, and so many.
_DEEPEST_QUEUE: Final = 2
_MOST_QUEUES: Final = 1_000
_ROOT_LABEL: Final = "/"  # no name of a queue has a slash
_OTHER_QUEUES: Final = "other"
# Tokens of what is held, and pairs of queues of which one took from the other.
_MOST_TOKENS: Final = 20
_MOST_PAIRS: Final = 500
# All metrics of a scrape are made of one reading.
_READING_SECONDS: Final = 1.0


@dataclass(slots=True)
class _QueueReading:
    """What is exported of a queue, or of several together."""

    sums: dict[str, dict[str, int]] = field(default_factory=lambda: {name: {} for name in VECTORS})
    share: dict[str, int] = field(default_factory=dict)
    usage: dict[str, int] = field(default_factory=dict)
    starved: float = 0.0
    borrowed: float = 0.0

    def add(self, state: QueueState) -> None:
        for name, total in self.sums.items():
            if amounts := state.sums.vectors[name]:  # most queues of a large tree are idle
                add(total, amounts, 1)
        for resource, amount in (state.standing.share or {}).items():
            self.share[resource] = self.share.get(resource, 0) + amount
        add(self.usage, state.usage or {}, 1)
        self.starved += state.starved
        self.borrowed += state.borrowed


class _QueueReadings:
    """Reads the queues of a tree once for all metrics of a scrape.

    Only resources that nodes offer are exported: pods may ask for anything.
    """

    def __init__(self, shares: QueueShares, clock: Clock, is_leading: Callable[[], bool]) -> None:
        self._shares, self._clock, self._is_leading = shares, clock, is_leading
        self._readings: dict[str, _QueueReading] = {}
        self._until = 0.0
        self._offered: Mapping[str, int] = {}
        # Of the queues that are read.
        self._labels: Mapping[str, str] = {}

    @property
    def are_there(self) -> bool:
        """True if this process decides, by a tree of queues."""
        return self._is_leading() and self._shares.is_on

    def sums(self, name: str) -> dict[tuple[str, str], float]:
        """The sum *name* by queue and resource; 0 is exported, too, to be compared with shares."""
        return {
            (queue, resource): min(one.sums[name].get(resource, 0), LARGEST)
            for queue, one in self._read().items()
            for resource in self._offered
        }

    def shares(self) -> dict[tuple[str, str], float]:
        """Shares by queue and resource."""
        return {
            (queue, resource): amount
            for queue, one in self._read().items()
            for resource, amount in one.share.items()
            if resource in self._offered
        }

    def usage(self) -> dict[tuple[str, str], float]:
        """What was used in the past by queue and resource, in thousandths, if it is kept."""
        read = self._read() if self._shares.keeps_usage else {}
        return {
            (queue, resource): one.usage.get(resource, 0)
            for queue, one in read.items()
            for resource in self._offered
        }

    def dominant(self) -> dict[str, float]:
        """The largest part of what nodes offer, by queue."""
        return {
            queue: max(
                (
                    1_000 * one.sums["allocated"].get(resource, 0) // offered
                    for resource, offered in self._offered.items()
                ),
                default=0,
            )
            for queue, one in self._read().items()
        }

    def seconds(self, name: str) -> dict[str, float]:
        """For how long each was *name*; the root has no others to borrow from."""
        return {
            queue: getattr(one, name) for queue, one in self._read().items() if queue != _ROOT_LABEL
        }

    def waiting(self, turns: TurnQueue) -> dict[tuple[str, str], float]:
        """What is held, by queue and token."""
        self._read()
        if not self._readings:
            return {}
        found: Counter[tuple[str, str]] = Counter()
        for lane in turns.held():
            token = (lane.hold.token if lane.hold is not None else "") or HELD
            # Names of queues that are not there are words of users.
            for path in upwards(lane.queue) if lane.is_there else (ROOT,):
                label = self._labels.get(path)
                if label is not None:
                    found[label, token] += lane.requests
        return _with_others(found)

    def _read(self) -> Mapping[str, _QueueReading]:
        if not self.are_there:
            self._readings, self._until = {}, 0.0
            return {}
        now = self._clock.monotonic()
        if now >= self._until:
            self._until = now + _READING_SECONDS
            self._offered = self._shares.state(ROOT).standing.share or {}
            self._readings = {}
            self._labels = {path: label for label, path in self._labelled()}
            for path, label in self._labels.items():
                one = self._readings.setdefault(label, _QueueReading())
                one.add(self._shares.state(path, now))
        return self._readings

    def _labelled(self) -> Iterator[tuple[str, str]]:
        """The queues that are read, with their labels."""
        levels: list[list[str]] = [[] for _ in range(_DEEPEST_QUEUE)]
        for path in self._shares.tree.queues:
            level = path.count("/")
            if path != ROOT and level < _DEEPEST_QUEUE:
                levels[level].append(path)
        yield _ROOT_LABEL, ROOT
        known = [path for of_level in levels for path in of_level]
        others = set(known[_MOST_QUEUES:])
        for path in known:
            if path not in others:
                yield path, path
            elif path.rpartition("/")[0] not in others:
                # Of those below it, it has the sums already.
                yield _OTHER_QUEUES, path


def _with_others(found: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], float]:
    """*found* with the most frequent tokens; the rest as `Other`."""
    known = _largest(((token, number) for (_, token), number in found.items()), _MOST_TOKENS)
    rows: dict[tuple[str, str], float] = {}
    for (queue, token), number in found.items():
        key = queue, token if token in known else OTHER
        rows[key] = rows.get(key, 0) + number
    return rows


def _by_pair(taken: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], float]:
    """Pods that were taken, by queues of the first levels.

    The first pairs have a row, not the largest: a counter never falls.
    """
    rows: dict[tuple[str, str], float] = {}
    for paths, number in taken.items():
        taker, victim = ("/".join(path.split("/")[:_DEEPEST_QUEUE]) for path in paths)
        key = taker, victim
        if key not in rows and len(rows) >= _MOST_PAIRS:
            key = _OTHER_QUEUES, _OTHER_QUEUES
        rows[key] = rows.get(key, 0) + number
    return rows


def show_shares(
    metrics: Metrics, kernel: Kernel, clock: Clock, is_leading: Callable[[], bool]
) -> None:
    """Export what the queues of the tree in force have and may have, and who waits and takes."""
    shares, turns, reclaims = kernel.shares, kernel.turns, kernel.reclaims

    def woken() -> dict[str, float]:
        if not readings.are_there:
            return {}
        return {"true": turns.started, "false": turns.woken_in_vain}

    readings = _QueueReadings(shares, clock, is_leading)
    metrics.queue_allocated.read = lambda: readings.sums("allocated")
    metrics.queue_requested.read = lambda: readings.sums("requested")
    metrics.queue_claimed.read = lambda: readings.sums("claimed")
    metrics.queue_leaving.read = lambda: readings.sums("leaving")
    metrics.queue_share.read = readings.shares
    metrics.queue_usage.read = readings.usage
    metrics.queue_dominant_share.read = readings.dominant
    metrics.queue_starved_seconds.read = lambda: readings.seconds("starved")
    metrics.queue_borrowed_seconds.read = lambda: readings.seconds("borrowed")
    metrics.queue_waiting_requests.read = lambda: readings.waiting(turns)
    metrics.queue_woken.read = woken
    metrics.reclaimed_pods.read = lambda: _by_pair(reclaims.taken)
    metrics.reclaim_reversals.read = lambda: reclaims.reversals
    metrics.shares_seconds.read = lambda: shares.seconds
    metrics.queue_tree_problems.read = lambda: len(shares.problems())


def show_rejections(metrics: Metrics, monotonic: Callable[[], float]) -> None:
    """Export why attempts did not end in a binding."""
    metrics.rejected.read = lambda: metrics.rejections.counts(monotonic())


def show_cache(metrics: Metrics, cache: Cache) -> None:
    """Export the sizes of the cache."""
    metrics.cache_size.read = lambda: {
        "nodes": cache.node_count,
        "pods": cache.pod_count,
        "assumed_pods": cache.assumed_count,
    }


def show_in_flight(
    metrics: Metrics, bindings: BindingCycle, preemptor: Preemptor, writer: DeferredWriter
) -> None:
    """Export the requests in flight to the API server, and those that wait to be sent."""
    metrics.in_flight.read = lambda: {
        "binding": bindings.at_work,
        "preemption": preemptor.in_flight,
        "deferred": writer.in_flight,
    }
    metrics.deferred_writes.read = lambda: len(writer)
    # Those that wait for another program, too: kube-scheduler counts all.
    metrics.goroutines.read = lambda: {
        "binding": bindings.in_flight,
        "preemption": preemptor.in_flight,
    }


def show_policies(
    metrics: Metrics,
    *,
    counts: Callable[[], Mapping[str, int]],
    evaluations: Mapping[tuple[str, str, str], int],
) -> None:
    """Export the evaluations of policies.

    *counts* has `restarts` of sandboxes, and the verdicts that were `asked` for and `answered` over
    all policies that were in force.
    """

    def verdicts() -> dict[str, float]:
        found = counts()
        reused = max(0, found["answered"] - found["asked"])
        return {"evaluated": found["asked"], "reused": reused}

    metrics.sandbox_restarts.read = lambda: counts()["restarts"]
    metrics.verdicts.read = verdicts
    # Trials count in a thread of their own, and a copy is made at once.
    metrics.plugin_evaluation.read = lambda: dict(evaluations)


def show_former_profiles(
    metrics: Metrics, former: Callable[[], Set[str]], pending: Callable[[], Iterable[Pod]]
) -> None:
    """Export the pods that name a profile that there was: nothing decides them."""

    def left() -> dict[str, float]:
        counts = dict.fromkeys(sorted(former()), 0.0)
        for pod in pending() if counts else ():
            if pod.scheduler_name in counts:
                counts[pod.scheduler_name] += 1
        return counts

    metrics.pods_without_profile.read = left


def show_rollout(metrics: Metrics, status: Callable[[], RolloutStatus]) -> None:
    """Export the stage that a candidate is in, and what its shadow has compared.

    The counters begin again with each shadow, which Prometheus takes as a restart.
    """

    def stage() -> dict[str, float]:
        now = status()
        present = "" if now.stage is None or now.result != RUNNING else now.stages[now.stage].name
        return {name: float(name == present) for name in (SHADOW, CANARY)}

    def shadow() -> ShadowMeasures:
        return status().shadow or ShadowMeasures()

    metrics.rollout_stage.read = stage
    metrics.rollout_paused.read = lambda: float(
        status().result == RUNNING and bool(status().paused)
    )
    metrics.rollout_compared.read = lambda: shadow().compared
    metrics.rollout_differences.read = lambda: {
        kind: shadow().counts.get(kind, 0) for kind in KINDS
    }
    # A thread that has no time is the reason to be looked for, also before it is one.
    metrics.rollout_skipped.read = lambda: {BUSY: 0} | shadow().skipped


def show_saved_states(metrics: Metrics, states: SavedStates, origin: Callable[[], str]) -> None:
    """Export which saved states are not known, and where the policies in force come from."""
    metrics.saved_state_unread.read = states.unread
    metrics.policy_origin.read = lambda: {one: float(one == origin()) for one in ORIGINS}


def show_facts(metrics: Metrics, facts: LiveFacts) -> None:
    """Export the reports and failures of the fact sources."""
    metrics.fact_readings.read = lambda: facts.report_counts
    metrics.fact_failures.read = facts.failures
    metrics.fact_age_seconds.read = facts.ages


def show_recording(metrics: Metrics, recorder: Recorder) -> None:
    """Export the entries written to the decision log and those that were dropped."""
    recorded = recorder.writer.counts
    metrics.recorded_entries.read = lambda: {
        "written": recorded.written,
        "dropped": recorded.dropped,
    }
    metrics.record_checkpoints.read = lambda: recorded.checkpoints
    metrics.record_failures.read = lambda: recorded.failures


def show_pod_groups(metrics: Metrics, served: Callable[[], Resource | None]) -> None:
    """Export which version of PodGroup the API server has, of those that are understood."""
    versions = (POD_GROUPS, *OLDER_VERSIONS[POD_GROUPS])
    metrics.pod_groups_served.read = lambda: {
        one.version: float(one == served()) for one in versions
    }


def show_watches(metrics: Metrics, informers: Sequence[Informer[Any]], clock: Clock) -> None:
    """Export the lists, watches and failures of the informers, and how current they are."""
    metrics.watch.read = lambda: {
        (str(one.resource), kind): getattr(one.counts, kind)
        for one in informers
        for kind in _WATCH_KINDS
    }
    metrics.watch_forbidden.read = lambda: {
        str(one.resource): float(one.currency.is_forbidden) for one in informers
    }
    metrics.unread_objects.read = lambda: {
        str(one.resource): float(one.unread_count) for one in informers
    }
    metrics.watch_age_seconds.read = lambda: {
        str(one.resource): clock.monotonic() - one.currency.known_at for one in informers
    }


def show_tracing(metrics: Metrics, tracing: Tracing) -> None:
    """Export which pods are traced, and what becomes of their spans."""
    metrics.traces.read = lambda: tracing.causes
    metrics.trace_spans.read = lambda: tracing.sink.outcomes
    metrics.traces_in_flight.read = lambda: tracing.live
