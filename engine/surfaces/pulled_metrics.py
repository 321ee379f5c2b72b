"""Where the metrics that running parts have are read at a scrape.

The numbers are the parts'; names, texts and labels are in the table of `telemetry.metrics`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Final

from engine.comparing.difference import KINDS
from engine.core.caching.cache import Cache
from engine.core.caching.objects import ObjectStore
from engine.core.kernel.entities import COMPOSITE_GROUP, QueuedEntityCounts
from engine.core.model.pod import Pod
from engine.core.queueing.scheduling_queue import SchedulingQueue
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
from engine.telemetry.metrics import Metrics

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
            key = ("Other", "", profile)
            rows[key] = rows.get(key, 0) + number
        return rows

    metrics.waiting_pods.read = bounded


def show_oldest(metrics: Metrics, ages: Callable[[], Mapping[tuple[str, str, str], float]]) -> None:
    """Export how old the oldest pod is that waits for each reason; *ages* has the seconds."""
    metrics.oldest_waiting_pod_age_seconds.read = lambda: dict(
        sorted(ages().items(), key=lambda item: (-item[1], item[0]))[:_MOST_REASONS]
    )


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
