"""Metrics that are read from the running parts at a scrape: their names, and where each is read.

Owns names, texts and labels; the numbers are the parts'. What is counted as it happens is
`telemetry.metrics`'.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Final

from engine.comparing.difference import KINDS
from engine.core.caching.cache import Cache
from engine.core.kernel.entities import Entities
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


def show_queue(metrics: Metrics, queue: SchedulingQueue, entities: Entities) -> None:
    """Export what waits by the queue that it waits in, and by the plugin that rejected it."""
    metrics.pull_gauges(
        "scheduler_pending_pods",
        "Number of pending pods, by the queue they wait in.",
        "queue",
        lambda: entities.waiting(queue)[0],
    )
    metrics.pull_labelled_gauges(
        "scheduler_queued_entities",
        "Number of entities that are tried as one, by the queue they wait in and their type.",
        ("queue", "type"),
        lambda: list(entities.waiting(queue)[1].items()),
    )
    metrics.pull_counter(
        "scheduler_queue_incoming_pods_total",
        "Number of pods added to a scheduling queue, by event and queue.",
        ("queue", "event"),
        lambda: list(entities.incoming_pods.items()),
    )
    metrics.pull_counter(
        "scheduler_queue_incoming_entities_total",
        "Number of entities added to a scheduling queue, by event, queue and type of entity.",
        ("queue", "event", "type"),
        lambda: list(entities.incoming.items()),
    )
    metrics.pull_gauges(
        "scheduler_inflight_events",
        "Events kept for the pods that are being decided, by kind of event.",
        "event",
        queue.in_flight_events,
    )
    metrics.pull_labelled_gauges(
        "scheduler_unschedulable_pods",
        "Pods that wait, by the plugin that rejected them; one with several counts for each.",
        ("plugin", "profile"),
        lambda: [(key, number) for key, number in queue.rejections().items()],
    )


# Tokens are words of policies, and there is no limit to those.
_MOST_REASONS: Final = 500


def show_waiting(
    metrics: Metrics, reasons: Callable[[], Mapping[tuple[str, str, str], int]]
) -> None:
    """Export why pods wait; *reasons* counts them by (reason token, policy, profile)."""

    def bounded() -> list[tuple[tuple[str, ...], float]]:
        found = sorted(reasons().items(), key=lambda item: (-item[1], item[0]))
        rows: dict[tuple[str, ...], float] = dict(found[:_MOST_REASONS])
        for (_, _, profile), number in found[_MOST_REASONS:]:
            key = ("Other", "", profile)
            rows[key] = rows.get(key, 0) + number
        return list(rows.items())

    metrics.pull_labelled_gauges(
        "starsched_waiting_pods",
        "Pods that wait, by their dominant reason and the policy that it comes from.",
        ("reason", "policy", "profile"),
        bounded,
    )


def show_oldest(metrics: Metrics, ages: Callable[[], Mapping[tuple[str, str, str], float]]) -> None:
    """Export how old the oldest pod is that waits for each reason; *ages* has the seconds."""
    metrics.pull_labelled_gauges(
        "starsched_oldest_waiting_pod_age_seconds",
        "Seconds since the creation of the oldest pod that waits, by its dominant reason and the "
        "policy that it comes from; of the leader alone.",
        ("reason", "policy", "profile"),
        lambda: sorted(ages().items(), key=lambda item: (-item[1], item[0]))[:_MOST_REASONS],
    )


def show_rejections(metrics: Metrics, monotonic: Callable[[], float]) -> None:
    """Export why attempts did not end in a binding."""
    metrics.pull_counter(
        "starsched_rejections_total",
        "Attempts that did not end in a binding, by the token of the dominant reason; `Other` are "
        "those of policies beyond the first 200.",
        ("reason",),
        lambda: [((word,), n) for word, n in metrics.rejections.counts(monotonic()).items()],
    )


def show_cache(metrics: Metrics, cache: Cache) -> None:
    """Export the sizes of the cache."""
    metrics.pull_gauges(
        "scheduler_cache_size",
        "Number of nodes, pods and assumed pods in the cache.",
        "type",
        lambda: {
            "nodes": cache.node_count,
            "pods": cache.pod_count,
            "assumed_pods": cache.assumed_count,
        },
    )


def show_in_flight(
    metrics: Metrics, bindings: BindingCycle, preemptor: Preemptor, writer: DeferredWriter
) -> None:
    """Export the requests in flight to the API server, and those that wait to be sent."""
    metrics.pull_gauges(
        "starsched_in_flight",
        "In flight: bindings, preemptions, and writes of events and conditions.",
        "operation",
        lambda: {
            "binding": bindings.at_work,
            "preemption": preemptor.in_flight,
            "deferred": writer.in_flight,
        },
    )
    metrics.pull_gauge(
        "starsched_deferred_writes",
        "Events and conditions that wait until few bindings are in flight.",
        lambda: len(writer),
    )


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

    def verdicts() -> list[tuple[tuple[str, ...], float]]:
        found = counts()
        reused = max(0, found["answered"] - found["asked"])
        return [(("evaluated",), found["asked"]), (("reused",), reused)]

    metrics.pull_counter(
        "starsched_sandbox_restarts_total",
        "Sandboxes that were killed or exited and were restarted.",
        (),
        lambda: [((), counts()["restarts"])],
    )
    metrics.pull_counter(
        "starsched_verdicts_total",
        "Verdicts of the policies in force, by whether they were evaluated or reused.",
        ("source",),
        verdicts,
    )
    metrics.pull_counter(
        "scheduler_plugin_evaluation_total",
        "Evaluations of a policy's hook, one per node where it is asked per node; what was "
        "answered from memory is not among them.",
        ("plugin", "extension_point", "profile"),
        # Trials count in a thread of their own, and a copy is made at once.
        lambda: list(dict(evaluations).items()),
    )


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

    metrics.pull_gauges(
        "starsched_pods_without_profile",
        "Pending pods whose schedulerName was that of a profile while this process ran, by that "
        "name: no policies decide them any more.",
        "scheduler_name",
        left,
    )


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

    metrics.pull_gauges(
        "starsched_rollout_stage",
        "1 for the stage that an edit of the policies is in, `shadow` or `canary`, else 0.",
        "stage",
        stage,
    )
    metrics.pull_gauge(
        "starsched_rollout_paused",
        "1 while the edit that is rolled out stands still, else 0.",
        lambda: float(status().result == RUNNING and bool(status().paused)),
    )
    metrics.pull_counter(
        "starsched_rollout_compared_total",
        "Decisions that the shadow of the last edit has compared.",
        (),
        lambda: [((), shadow().compared)],
    )
    metrics.pull_counter(
        "starsched_rollout_differences_total",
        "Compared decisions that the last edit would make differently, by kind of difference.",
        ("kind",),
        lambda: [((kind,), shadow().counts.get(kind, 0)) for kind in KINDS],
    )
    metrics.pull_counter(
        "starsched_rollout_skipped_total",
        "Decisions that the shadow of the last edit has not compared, by reason.",
        ("reason",),
        # A thread that has no time is the reason to be looked for, also before it is one.
        lambda: [((reason,), n) for reason, n in ({BUSY: 0} | shadow().skipped).items()],
    )


def show_saved_states(metrics: Metrics, states: SavedStates, origin: Callable[[], str]) -> None:
    """Export which saved states are not known, and where the policies in force come from."""
    metrics.pull_gauges(
        "starsched_saved_state_unread",
        "1 while what was saved before is not known because it cannot be read, else 0.",
        "state",
        states.unread,
    )
    metrics.pull_gauges(
        "starsched_policy_origin",
        "1 for where what is in force comes from; `waiting`: nothing, and every pod waits.",
        "origin",
        lambda: {one: float(one == origin()) for one in ORIGINS},
    )


def show_facts(metrics: Metrics, facts: LiveFacts) -> None:
    """Export the reports and failures of the fact sources."""
    metrics.pull_counter(
        "starsched_fact_readings_total",
        "How often a source of facts has reported readings, by source.",
        ("source",),
        lambda: [((source,), number) for source, number in facts.report_counts.items()],
    )
    metrics.pull_counter(
        "starsched_fact_failures_total",
        "How often a source of facts could not be queried or failed, by source.",
        ("source",),
        lambda: [((source,), number) for source, number in facts.failures().items()],
    )
    metrics.pull_gauges(
        "starsched_fact_age_seconds",
        "Seconds since the newest reading of a source was measured; if it has none and fails, "
        "since it does.",
        "source",
        facts.ages,
    )


def show_recording(metrics: Metrics, recorder: Recorder) -> None:
    """Export the entries written to the decision log and those that were dropped."""
    recorded = recorder.writer.counts
    metrics.pull_counter(
        "starsched_recorded_entries_total",
        "Entries of the decision log, by outcome: written, dropped.",
        ("outcome",),
        lambda: [(("written",), recorded.written), (("dropped",), recorded.dropped)],
    )
    metrics.pull_counter(
        "starsched_record_checkpoints_total",
        "Checkpoints that were written to the decision log; each begins a file.",
        (),
        lambda: [((), recorded.checkpoints)],
    )
    metrics.pull_counter(
        "starsched_record_failures_total",
        "How often the decision log could not be written.",
        (),
        lambda: [((), recorded.failures)],
    )


def show_pod_groups(metrics: Metrics, served: Callable[[], Resource | None]) -> None:
    """Export which version of PodGroup the API server has, of those that are understood."""
    versions = (POD_GROUPS, *OLDER_VERSIONS[POD_GROUPS])
    metrics.pull_gauges(
        "starsched_pod_groups_served",
        "1 for the version of PodGroup that the API server has and that is watched, else 0.",
        "version",
        lambda: {one.version: float(one == served()) for one in versions},
    )


def show_watches(metrics: Metrics, informers: Sequence[Informer[Any]], clock: Clock) -> None:
    """Export the lists, watches and failures of the informers, and how current they are."""
    metrics.pull_counter(
        "starsched_watch_total",
        "What the watches of a resource have done, by resource and kind of occurrence.",
        ("resource", "kind"),
        lambda: [
            ((str(informer.resource), kind), getattr(informer.counts, kind))
            for informer in informers
            for kind in _WATCH_KINDS
        ],
    )
    metrics.pull_gauges(
        "starsched_watch_forbidden",
        "1 for a resource that the API server refuses to list or watch (401, 403), else 0.",
        "resource",
        lambda: {str(one.resource): float(one.currency.is_forbidden) for one in informers},
    )
    metrics.pull_gauges(
        "starsched_unread_objects",
        "Objects of which a part cannot be read, as a field has a value that is not understood.",
        "resource",
        lambda: {str(one.resource): float(one.unread_count) for one in informers},
    )
    metrics.pull_gauges(
        "starsched_watch_age_seconds",
        "Seconds since a resource was last known to be current: since the end of a list, an event "
        "or bookmark, or the orderly end of a watch. A watch that works is up to two minutes old.",
        "resource",
        lambda: {str(one.resource): clock.monotonic() - one.currency.known_at for one in informers},
    )


def show_tracing(metrics: Metrics, tracing: Tracing) -> None:
    """Export which pods are traced, and what becomes of their spans."""
    metrics.pull_counter(
        "starsched_traces_total",
        "Pods that were traced, for the sampling `rate` or for a sampled `parent`; parents that "
        "were not followed, because too many ask (`limited`) or `invalid`; pods that were not "
        "traced because too many are (`full`).",
        ("cause",),
        lambda: [((cause,), count) for cause, count in tracing.causes.items()],
    )
    metrics.pull_counter(
        "starsched_trace_spans_total",
        "Spans by outcome: `exported`, or dropped because the collector took none (`failed`), too "
        "many waited for it (`full`) or the process ended (`shutdown`).",
        ("outcome",),
        lambda: [((outcome,), count) for outcome, count in tracing.sink.outcomes.items()],
    )
    metrics.pull_gauge(
        "starsched_traces_in_flight",
        "Pods whose traces are under way.",
        lambda: tracing.live,
    )
