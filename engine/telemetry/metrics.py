"""Metrics: kube-scheduler's names where the meaning is the same, `starsched_` for what is ours.

Owns the table of the metrics of the process, which are in a registry that is passed in, and how
those of the hot path are counted: it touches children whose labels were bound once. What another
part has, such as sizes of queues and caches, is read at a scrape (`pulled`), so it costs nothing
in between; `surfaces.pulled_metrics` says where.
"""

from itertools import product
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from engine.core.framework.reason_kinds import REASONS
from engine.telemetry.bounded_counts import OTHER, BoundedCounts
from engine.telemetry.families import (
    counter,
    former,
    gauge,
    histogram,
    make_all,
    pulled,
    pulled_counter,
)

SCHEDULED: Final = "scheduled"
UNSCHEDULABLE: Final = "unschedulable"
ERROR: Final = "error"
RESULTS: Final = (SCHEDULED, UNSCHEDULABLE, ERROR)
#: What becomes of a candidate.
RELOADS: Final = ("accepted", "rejected", "unchanged", "rolled_back")

# kube-scheduler counts the attempts of a pod up to `15+`.
_MOST_ATTEMPTS_LABEL: Final = 15
#: Names of priority classes are words of users; those beyond have a series together.
MOST_CLASSES: Final = 20


def exponential(start: float, factor: float, count: int) -> list[float]:
    """*count* bucket bounds from *start*, each *factor* times the last."""
    return [start * factor**i for i in range(count)]


_MILLISECONDS: Final = exponential(0.001, 2, 15)
_LONG: Final = exponential(0.01, 2, 20)
_SHORT: Final = exponential(0.0001, 2, 12)
_PREEMPTIONS: Final = exponential(0.001, 2, 16)
# With the bounds that objectives are about: 1, 5 and 30 seconds, a minute.
_OBJECTIVES: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_PAUSES: Final = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5)


def _each(*values: str) -> tuple[tuple[str, ...], ...]:
    """The series of one label with these *values*."""
    return tuple((value,) for value in values)


class ProfileMetrics:
    """The children of one profile that every attempt touches."""

    __slots__ = ("attempt_seconds", "attempts")

    def __init__(self, metrics: "Metrics", profile: str) -> None:
        self.attempts = {r: metrics.schedule_attempts.labels(r, profile) for r in RESULTS}
        self.attempt_seconds = {r: metrics.attempt_seconds.labels(r, profile) for r in RESULTS}

    def observe(self, result: str, seconds: float) -> None:
        """Count one attempt that ended in *result* after *seconds*."""
        self.attempts[result].inc()
        self.attempt_seconds[result].observe(seconds)


class Metrics:
    """All metrics of a scheduler process, registered in *registry*; *histogram* makes its own."""

    schedule_attempts = counter(
        "scheduler_schedule_attempts_total{result,profile}",
        "Number of attempts to schedule pods, by the result: `scheduled`, `unschedulable` (the pod "
        "fits nowhere now) or `error` (something went wrong).",
    )
    attempt_seconds = histogram(
        "scheduler_scheduling_attempt_duration_seconds{result,profile}",
        "Scheduling attempt latency in seconds (decision and binding).",
        buckets=_MILLISECONDS,
    )
    algorithm_seconds = histogram(
        "scheduler_scheduling_algorithm_duration_seconds",
        "Latency of the decision alone in seconds.",
        buckets=_MILLISECONDS,
    )
    sli_seconds = histogram(
        "scheduler_pod_scheduling_sli_duration_seconds{attempts}",
        "Seconds from a pod's first attempt to its binding, by the number of attempts.",
        buckets=_LONG,
    )
    first_attempt_seconds = histogram(
        "starsched_first_attempt_duration_seconds{priority_class}",
        "Seconds from when a pod could first be tried to its binding, by priority class, of pods "
        "that were bound at their first attempt and for which nothing had to be prepared, such as "
        "a volume; `Other` are classes beyond the first 20.",
        buckets=_OBJECTIVES,
    )
    pod_attempts = histogram(
        "scheduler_pod_scheduling_attempts",
        "Number of attempts it took to schedule a pod.",
        buckets=exponential(1, 2, 5),
    )
    scheduled_after_flush = counter(
        "scheduler_pod_scheduled_after_flush_total",
        "Number of pods bound in an attempt that was made because no event had helped them for too "
        "long.",
    )
    extension_point_seconds = histogram(
        "scheduler_framework_extension_point_duration_seconds{extension_point,status,profile}",
        "Latency of an extension point that runs by itself: PreEnqueue, PodGroupPostFilter, "
        "Permit, Bind. Those of a decision are answered together: see "
        "starsched_evaluation_duration_seconds.",
        buckets=_SHORT,
    )
    plugin_seconds = histogram(
        "scheduler_plugin_execution_duration_seconds{plugin,extension_point,status}",
        "Seconds that a policy's hook took in the sandbox, for all nodes that it was asked about "
        "together, by status: `Success`, or `Error` if it failed for one. Of one round trip in "
        "ten.",
        buckets=exponential(0.00001, 2, 18),
    )
    event_handling_seconds = histogram(
        "scheduler_event_handling_duration_seconds{event}",
        "Latency of handling one change of an object (a sample of the changes).",
        buckets=_SHORT,
    )
    permit_wait_seconds = histogram(
        "scheduler_permit_wait_duration_seconds{result}",
        "Seconds that pods waited in permit.",
        buckets=_MILLISECONDS,
    )
    preemption_attempts = counter(
        "scheduler_preemption_attempts_total",
        "Number of searches for preemption victims for pods that fit nowhere.",
    )
    podgroup_attempts = counter(
        "scheduler_podgroup_schedule_attempts_total{result,profile}",
        "Number of attempts to schedule pod groups, by the result: `scheduled`, `unschedulable`, "
        "`waiting_on_preemption` or `error`.",
    )
    podgroup_attempt_seconds = histogram(
        "scheduler_podgroup_scheduling_attempt_duration_seconds{result,profile}",
        "Latency of an attempt to schedule a pod group in seconds.",
        buckets=_MILLISECONDS,
    )
    podgroup_algorithm_seconds = histogram(
        "scheduler_podgroup_scheduling_algorithm_duration_seconds",
        "Latency of choosing nodes for a pod group in seconds, without preemption.",
        buckets=_MILLISECONDS,
    )
    workload_preemption_attempts = counter(
        "scheduler_workload_preemption_attempts_total{result}",
        "Number of searches for preemption victims for pod groups that fit nowhere.",
    )
    workload_preemption_victims = histogram(
        "scheduler_workload_preemption_victims",
        "Number of victims of one preemption for a pod group.",
        buckets=exponential(1, 2, 11),
    )
    preemption_workload_disruptions = histogram(
        "scheduler_preemption_workload_disruptions{preemptor}",
        "Number of groups that one preemption evicts as a whole, if there are some.",
        buckets=exponential(1, 2, 11),
    )
    preemption_evaluation_seconds = histogram(
        "scheduler_preemption_evaluation_duration_seconds{preemptor,result}",
        "Seconds that it took to find the victims of a preemption for a pod group, by result.",
        buckets=_PREEMPTIONS,
    )
    preemption_execution_seconds = histogram(
        "scheduler_preemption_execution_duration_seconds{preemptor,result}",
        "Seconds that it took to evict the victims of one preemption for a `pod` or a `podgroup`: "
        "`success` or `error`.",
        buckets=_PREEMPTIONS,
    )
    preemption_violations = counter(
        "scheduler_preemption_pdb_violations_total{preemptor}",
        "Number of victims whose disruption budget was violated, for a `pod` or a `podgroup`.",
    )
    preemption_victims = histogram(
        "scheduler_preemption_victims",
        "Number of victims of one preemption.",
        buckets=exponential(1, 2, 7),
    )
    preemption_seconds = histogram(
        "scheduler_preemption_goroutines_duration_seconds{result}",
        "Seconds that it took to evict the victims of one preemption: `success` or `error`.",
        buckets=_LONG,
    )
    preemption_executions = counter(
        "scheduler_preemption_goroutines_execution_total{result}",
        "Number of preemptions carried out, by result: `success` or `error`.",
    )
    claims = counter(
        "dynamic_resource_allocation_resourceclaim_creates_total{status,admin_access,owner_api_group,owner_api_kind}",
        "Number of requests to create a claim for the extended resources of a pod, by status: "
        "`success` or `failure`.",
    )
    leader = gauge(
        "leader_election_master_status{name}",
        "1 if this process holds the lease, 0 if it is a standby.",
    )
    binding_seconds = histogram(
        "starsched_binding_duration_seconds{result}",
        "Seconds from sending a binding to knowing its outcome, retries included.",
        buckets=_MILLISECONDS,
    )
    binding_retries = counter(
        "starsched_binding_retries_total{cause}",
        "Binding requests sent again, by the reason.",
    )
    binding_failures = counter(
        "starsched_binding_failures_total{cause}",
        "Bindings that failed for good, by the cause: `Forbidden`, `Unauthorized`, `Invalid` or "
        "another refusal; `Conflict` or `BoundElsewhere` if another program was faster; `PodIsGone`"
        "; `BindingRefused` if the lease may have run out.",
        *_each("Forbidden", "Unauthorized", "Conflict", "BoundElsewhere", "PodIsGone"),
    )
    pods_bound_by_others = counter(
        "starsched_pods_bound_by_others_total",
        "Pods of this scheduler's profiles that another process bound while it led.",
    )
    events_dropped = counter(
        "starsched_events_dropped_total{cause}",
        "Events that were not written, by reason: `full`, `rejected`, `failed`, `shutdown`.",
        *_each("full", "rejected", "failed", "shutdown"),
    )
    status_patches = counter(
        "starsched_pod_status_patches_total{result}",
        "Patches of conditions of pods and PodGroups by result: `written`, `superseded`, `gone`, "
        "`failed`.",
    )
    failures = counter(
        "starsched_failures_total{owner,reason}",
        "Attempts that a failure ended, by whose fault it was and by reason token.",
        *((k.owner.value, k.token) for k in REASONS.values() if k.owner is not None),
    )
    loop_errors = counter(
        "starsched_loop_errors_total{step}",
        "Unexpected exceptions that did not end the scheduling loop, by place.",
    )
    revision_info = gauge(
        "starsched_policy_revision_info{revision}",
        "1 for the policy revision in force.",
    )
    policy_reloads = counter(
        "starsched_policy_reloads_total{result}",
        "Policy candidates by outcome: `accepted`, `rejected`, `unchanged`, `rolled_back`.",
        *_each(*RELOADS),
    )
    last_reload_success = gauge(
        "starsched_policy_last_reload_success_timestamp_seconds",
        "When the policies in force were accepted (Unix time).",
    )
    last_reload_ok = gauge(
        "starsched_policy_last_reload_successful",
        "1 if the newest policies are in force, 0 if the last candidate was rejected.",
    )
    reload_seconds = histogram(
        "starsched_policy_reload_duration_seconds",
        "Seconds to check, test and try one candidate.",
        buckets=exponential(0.01, 2, 12),
    )
    policy_losses = gauge(
        "starsched_policy_losses{kind}",
        "What the policies in force took away when they came: pods `without_profile`, pods that "
        "`fit_nowhere`, `nodes` that take no pods, pairs of pods in another `order`.",
    )
    rollout_verdicts = counter(
        "starsched_rollout_verdicts_total{stage,outcome}",
        "Stages of roll-outs that ended or stand still, by stage (`shadow`, `canary`) and outcome: "
        "`pass`, `fail`, `inconclusive`.",
        *product(("shadow", "canary"), ("pass", "fail", "inconclusive")),
    )
    decision_pauses = histogram(
        "starsched_decision_pause_seconds",
        "From one decision to the next, or from a pod's arrival if nothing was to be decided.",
        buckets=_PAUSES,
    )
    evaluation_seconds = histogram(
        "starsched_evaluation_duration_seconds",
        "Round trips to the sandbox, each for all evaluations without a kept verdict.",
        buckets=exponential(0.00005, 2, 16),
    )
    extender_seconds = histogram(
        "starsched_extender_request_duration_seconds{extender,verb,result}",
        "Seconds that an extender took to answer, by its urlPrefix, verb (`filter`, `prioritize`, "
        "`preempt`, `bind`) and result: `success` or `error`.",
        buckets=_MILLISECONDS,
    )
    extender_served_seconds = histogram(
        "starsched_extender_served_duration_seconds{verb,result}",
        "Seconds to answer kube-scheduler as an extender, by verb and result: `success`, `error`, "
        "or `refused` for an invalid request.",
        buckets=_MILLISECONDS,
    )
    policy_failures = counter(
        "starsched_policy_failures_total{policy,hook,kind}",
        "Failed evaluations by policy, hook and kind.",
    )
    lost_seconds = counter(
        "starsched_policy_lost_seconds_total{policy,profile}",
        "Seconds in which nothing was decided because a hook ran into a limit.",
    )

    # What kube-scheduler had once, and dashboards and rules of clusters ask for still.
    volume_seconds = histogram(
        "scheduler_volume_scheduling_duration_seconds{operation}",
        "Seconds to bind the volumes of a pod that has a node, provisioning included.",
        ("bind",),
        buckets=_MILLISECONDS,
    )
    former_attempt_seconds = former(
        "scheduler_e2e_scheduling_duration_seconds{result,profile}",
        "The former name of scheduler_scheduling_attempt_duration_seconds.",
    )
    former_binding_seconds = former(
        "scheduler_binding_duration_seconds{result}",
        "The name in kube-scheduler of starsched_binding_duration_seconds.",
    )

    # What other parts have; see `surfaces.pulled_metrics`.
    pending_pods = pulled(
        "scheduler_pending_pods{queue}",
        "Number of pending pods, by the queue they wait in.",
    )
    queued_entities = pulled(
        "scheduler_queued_entities{queue,type,entity}",
        "Number of entities that are tried as one, by the queue they wait in and their type "
        "(`entity` says the same, if the cluster is of 1.38 or newer).",
    )
    queue_incoming_pods = pulled_counter(
        "scheduler_queue_incoming_pods_total{queue,event}",
        "Number of pods added to a scheduling queue, by event and queue.",
    )
    queue_incoming_entities = pulled_counter(
        "scheduler_queue_incoming_entities_total{queue,event,type,entity}",
        "Number of entities added to a scheduling queue, by event, queue and type of entity "
        "(`entity` says the same, if the cluster is of 1.38 or newer).",
    )
    inflight_events = pulled(
        "scheduler_inflight_events{event}",
        "Events kept for the pods that are being decided, by kind of event.",
    )
    unschedulable_pods = pulled(
        "scheduler_unschedulable_pods{plugin,profile}",
        "Pods that wait, by the plugin that rejected them; one with several counts for each.",
    )
    waiting_pods = pulled(
        "starsched_waiting_pods{reason,policy,profile}",
        "Pods that wait, by their dominant reason and the policy that it comes from.",
    )
    oldest_waiting_pod_age_seconds = pulled(
        "starsched_oldest_waiting_pod_age_seconds{reason,policy,profile}",
        "Seconds since the creation of the oldest pod that waits, by its dominant reason and the "
        "policy that it comes from; of the leader alone.",
    )
    namespace_waiting_pods = pulled(
        "starsched_namespace_waiting_pods{pod_namespace,priority_class}",
        "Pods that wait, by their namespace and priority class; `Other` are namespaces beyond the "
        "100, and classes beyond the 20, of which most pods wait.",
    )
    namespace_oldest_waiting_pod_age_seconds = pulled(
        "starsched_namespace_oldest_waiting_pod_age_seconds{pod_namespace,priority_class}",
        "Seconds since the creation of the oldest of them without a scheduling gate; of the leader "
        "alone.",
    )
    queue_allocated = pulled(
        "starsched_queue_allocated{queue,resource}",
        "What the pods on nodes of a queue of the QueueTree request, with those below it; `/` is "
        "the root, `other` what queues beyond the first 1,000 have together. Of the leader alone, "
        "as of all metrics of queues.",
    )
    queue_requested = pulled(
        "starsched_queue_requested{queue,resource}",
        "What all pods of a queue request, with those that wait.",
    )
    queue_claimed = pulled(
        "starsched_queue_claimed{queue,resource}",
        "What pods of a queue request for which others are evicted.",
    )
    queue_leaving = pulled(
        "starsched_queue_leaving{queue,resource}",
        "What pods of a queue request that are being deleted or evicted.",
    )
    queue_share = pulled(
        "starsched_queue_share{queue,resource}",
        "What a queue may have, of a resource that is shared; of `/`, what the nodes offer.",
    )
    queue_dominant_share = pulled(
        "starsched_queue_dominant_share{queue}",
        "The largest part that a queue has of what the nodes offer of a resource, in thousandths.",
    )
    queue_usage = pulled(
        "starsched_queue_usage{queue,resource}",
        "What a queue had of what the nodes offer, averaged over the past with a half-life, in "
        "thousandths; only if the QueueTree has `usage`.",
    )
    queue_starved_seconds = pulled_counter(
        "starsched_queue_starved_seconds_total{queue}",
        "Seconds for which a queue had less than its share of something that its pods wait for.",
    )
    queue_borrowed_seconds = pulled_counter(
        "starsched_queue_borrowed_seconds_total{queue}",
        "Seconds for which a queue had more than its share of something.",
    )
    queue_waiting_requests = pulled(
        "starsched_queue_waiting_requests{queue,reason}",
        "Pods, or groups of pods, that their queue holds back, by the token of the reason; of `/` "
        "also those whose queue is not there. `Other` are tokens beyond the 20 most frequent.",
    )
    queue_woken = pulled_counter(
        "starsched_queue_woken_total{useful}",
        "Requests of queues that were asked about again because something became free; useful if "
        "they could start then.",
    )
    reclaimed_pods = pulled_counter(
        "starsched_reclaimed_pods_total{taker,victim}",
        "Pods that had to go for a request of another queue, by both queues, cut to two levels; "
        "`other` are pairs beyond the first 500.",
    )
    reclaim_reversals = pulled_counter(
        "starsched_reclaim_reversals_total",
        "Reclaims in which a queue took back from the one that had just taken from it.",
    )
    shares_seconds = pulled_counter(
        "starsched_shares_seconds_total",
        "Seconds for which shares of queues were computed.",
    )
    queue_tree_problems = pulled(
        "starsched_queue_tree_problems",
        "What is wrong with the QueueTree, its sources and what its policy answers.",
    )
    rejected = pulled_counter(
        "starsched_rejections_total{reason}",
        "Attempts that did not end in a binding, by the token of the dominant reason; `Other` are "
        "those of policies beyond the first 200.",
    )
    cache_size = pulled(
        "scheduler_cache_size{type}",
        "Number of nodes, pods and assumed pods in the cache.",
    )
    in_flight = pulled(
        "starsched_in_flight{operation}",
        "In flight: bindings, preemptions, and writes of events and conditions.",
    )
    goroutines = pulled(
        "scheduler_goroutines{operation}",
        "Work under way beside decisions, by kind: `binding`, `preemption`.",
    )
    deferred_writes = pulled(
        "starsched_deferred_writes",
        "Events and conditions that wait until few bindings are in flight.",
    )
    sandbox_restarts = pulled_counter(
        "starsched_sandbox_restarts_total",
        "Sandboxes that were killed or exited and were restarted.",
    )
    verdicts = pulled_counter(
        "starsched_verdicts_total{source}",
        "Verdicts of the policies in force, by whether they were evaluated or reused.",
    )
    plugin_evaluation = pulled_counter(
        "scheduler_plugin_evaluation_total{plugin,extension_point,profile}",
        "Evaluations of a policy's hook, one per node where it is asked per node; what was "
        "answered from memory is not among them.",
    )
    pods_without_profile = pulled(
        "starsched_pods_without_profile{scheduler_name}",
        "Pending pods whose schedulerName was that of a profile while this process ran, by that "
        "name: no policies decide them any more.",
    )
    rollout_stage = pulled(
        "starsched_rollout_stage{stage}",
        "1 for the stage that an edit of the policies is in, `shadow` or `canary`, else 0.",
    )
    rollout_paused = pulled(
        "starsched_rollout_paused",
        "1 while the edit that is rolled out stands still, else 0.",
    )
    rollout_compared = pulled_counter(
        "starsched_rollout_compared_total",
        "Decisions that the shadow of the last edit has compared.",
    )
    rollout_differences = pulled_counter(
        "starsched_rollout_differences_total{kind}",
        "Compared decisions that the last edit would make differently, by kind of difference.",
    )
    rollout_skipped = pulled_counter(
        "starsched_rollout_skipped_total{reason}",
        "Decisions that the shadow of the last edit has not compared, by reason.",
    )
    saved_state_unread = pulled(
        "starsched_saved_state_unread{state}",
        "1 while what was saved before is not known because it cannot be read, else 0.",
    )
    policy_origin = pulled(
        "starsched_policy_origin{origin}",
        "1 for where what is in force comes from; `waiting`: nothing, and every pod waits.",
    )
    fact_readings = pulled_counter(
        "starsched_fact_readings_total{source}",
        "How often a source of facts has reported readings, by source.",
    )
    fact_failures = pulled_counter(
        "starsched_fact_failures_total{source}",
        "How often a source of facts could not be queried or failed, by source.",
    )
    fact_age_seconds = pulled(
        "starsched_fact_age_seconds{source}",
        "Seconds since the newest reading of a source was measured; if it has none and fails, "
        "since it does.",
    )
    recorded_entries = pulled_counter(
        "starsched_recorded_entries_total{outcome}",
        "Entries of the decision log, by outcome: written, dropped.",
    )
    record_checkpoints = pulled_counter(
        "starsched_record_checkpoints_total",
        "Checkpoints that were written to the decision log; each begins a file.",
    )
    record_failures = pulled_counter(
        "starsched_record_failures_total",
        "How often the decision log could not be written.",
    )
    pod_groups_served = pulled(
        "starsched_pod_groups_served{version}",
        "1 for the version of PodGroup that the API server has and that is watched, else 0.",
    )
    watch = pulled_counter(
        "starsched_watch_total{resource,kind}",
        "What the watches of a resource have done, by resource and kind of occurrence.",
    )
    watch_forbidden = pulled(
        "starsched_watch_forbidden{resource}",
        "1 for a resource that the API server refuses to list or watch (401, 403), else 0.",
    )
    unread_objects = pulled(
        "starsched_unread_objects{resource}",
        "Objects of which a part cannot be read, as a field has a value that is not understood.",
    )
    watch_age_seconds = pulled(
        "starsched_watch_age_seconds{resource}",
        "Seconds since a resource was last known to be current: since the end of a list, an event "
        "or bookmark, or the orderly end of a watch. A watch that works is up to two minutes old.",
    )
    traces = pulled_counter(
        "starsched_traces_total{cause}",
        "Pods that were traced, for the sampling `rate` or for a sampled `parent`; parents that "
        "were not followed, because too many ask (`limited`) or `invalid`; pods that were not "
        "traced because too many are (`full`).",
    )
    trace_spans = pulled_counter(
        "starsched_trace_spans_total{outcome}",
        "Spans by outcome: `exported`, or dropped because the collector took none (`failed`), too "
        "many waited for it (`full`) or the process ended (`shutdown`).",
    )
    traces_in_flight = pulled(
        "starsched_traces_in_flight",
        "Pods whose traces are under way.",
    )

    def __init__(self, registry: CollectorRegistry, histogram: type[Histogram] = Histogram) -> None:
        self.registry = registry
        make_all(self, registry, histogram)
        self.former_attempt_seconds.histogram = self.attempt_seconds
        self.former_binding_seconds.histogram = self.binding_seconds
        #: By the token of the dominant reason; shown as `rejected`.
        self.rejections = BoundedCounts(REASONS)
        # Policies that are chosen at the start are no candidates: nothing was rejected so far.
        self.last_reload_ok.set(1)
        self.sli_by_attempts = [
            self.sli_seconds.labels(str(n) if n < _MOST_ATTEMPTS_LABEL else f"{n}+")
            for n in range(1, _MOST_ATTEMPTS_LABEL + 1)
        ]
        self._profiles: dict[str, ProfileMetrics] = {}
        self._classes: dict[str, Histogram] = {}
        self._points: dict[tuple[str, str, str], Histogram] = {}

    def profile(self, name: str) -> ProfileMetrics:
        """The bound children of profile *name*; made on first use."""
        found = self._profiles.get(name)
        if found is None:
            found = self._profiles[name] = ProfileMetrics(self, name)
        return found

    def claims_created(self, status: str) -> Counter:
        """The counter of the claims created for pods; *status* is `success` or `failure`."""
        return self.claims.labels(status, "false", "", "Pod")

    def extension_point(self, point: str, status: str, profile: str) -> Histogram:
        """The bound child of an extension point's duration; made on first use."""
        found = self._points.get((point, status, profile))
        if found is None:
            found = self.extension_point_seconds.labels(point, status, profile)
            self._points[point, status, profile] = found
        return found

    def plugin(self, plugin: str, point: str, status: str) -> Histogram:
        """The bound child of a plugin's duration."""
        return self.plugin_seconds.labels(plugin, point, status)

    def pod_bound(self, attempts: int, sli_seconds: float) -> None:
        """Count a bound pod that took *attempts*, *sli_seconds* after its first one."""
        index = min(max(attempts, 1), _MOST_ATTEMPTS_LABEL) - 1
        self.sli_by_attempts[index].observe(sli_seconds)
        self.pod_attempts.observe(attempts)

    def bound_at_once(self, priority_class: str, seconds: float) -> None:
        """Count a pod of *priority_class* that was bound at its first attempt after *seconds*."""
        found = self._classes.get(priority_class)
        if found is None:
            name = priority_class if len(self._classes) < MOST_CLASSES else OTHER
            found = self.first_attempt_seconds.labels(name)
            if name is not OTHER:
                self._classes[priority_class] = found
        found.observe(seconds)

    def set_revision(self, revision: str, accepted_at: float) -> None:
        """Name *revision* as the one in force since *accepted_at* (Unix time)."""
        self.revision_info.clear()
        self.revision_info.labels(revision).set(1)
        self.last_reload_success.set(accepted_at)
