"""Metrics: kube-scheduler's names where the meaning is the same, `starsched_` for what is ours.

Owns every metric of the process, in a registry that is passed in. The hot path touches children
whose labels were bound once; sizes of queues and caches are read when they are scraped, so
they cost nothing in between.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.core.framework.reason_kinds import REASONS
from engine.telemetry.bounded_counts import BoundedCounts

SCHEDULED: Final = "scheduled"
UNSCHEDULABLE: Final = "unschedulable"
ERROR: Final = "error"
RESULTS: Final = (SCHEDULED, UNSCHEDULABLE, ERROR)
#: What becomes of a candidate.
RELOADS: Final = ("accepted", "rejected", "unchanged", "rolled_back")

_MOST_ATTEMPTS_LABEL: Final = 15


def exponential(start: float, factor: float, count: int) -> list[float]:
    """*count* bucket bounds from *start*, each *factor* times the last."""
    return [start * factor**i for i in range(count)]


class ProfileMetrics:
    """The children of one profile that every attempt touches."""

    __slots__ = ("attempt_seconds", "attempts", "sli_seconds")

    def __init__(self, metrics: "Metrics", profile: str) -> None:
        self.attempts = {r: metrics.schedule_attempts.labels(r, profile) for r in RESULTS}
        self.attempt_seconds = {r: metrics.attempt_seconds.labels(r, profile) for r in RESULTS}
        self.sli_seconds = metrics.sli_by_attempts

    def observe(self, result: str, seconds: float) -> None:
        """Count one attempt that ended in *result* after *seconds*."""
        self.attempts[result].inc()
        self.attempt_seconds[result].observe(seconds)


Readings = Iterable[tuple[tuple[str, ...], float]]


class _Pulled(Collector):
    """Families whose samples are read from the running parts at scrape time."""

    def __init__(self) -> None:
        self._families: list[tuple[str, str, str, tuple[str, ...], Callable[[], Readings]]] = []

    def add(
        self, kind: str, name: str, text: str, labels: tuple[str, ...], read: Callable[[], Readings]
    ) -> None:
        self._families.append((kind, name, text, labels, read))

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        for kind, name, text, labels, read in self._families:
            family: CounterMetricFamily | GaugeMetricFamily
            if kind == "counter":
                family = CounterMetricFamily(name, text, labels=labels)
            else:
                family = GaugeMetricFamily(name, text, labels=labels)
            for values, number in read():
                family.add_metric(list(values), number)
            yield family


class _Renamed(Collector):
    """A histogram under a second name: it costs nothing but a longer scrape."""

    def __init__(
        self, name: str, text: str, histogram: Histogram, registry: CollectorRegistry
    ) -> None:
        self._name = name
        self._text = text
        self._histogram = histogram
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        for metric in self._histogram.collect():
            renamed = Metric(self._name, self._text, metric.type)
            renamed.samples = [
                one._replace(name=self._name + one.name.removeprefix(metric.name))
                for one in metric.samples
            ]
            yield renamed


class Metrics:
    """All metrics of a scheduler process, registered in *registry*; *histogram* makes its own."""

    def __init__(self, registry: CollectorRegistry, histogram: type[Histogram] = Histogram) -> None:
        self.registry = registry
        self._profiles: dict[str, ProfileMetrics] = {}
        self._points: dict[tuple[str, str, str], Histogram] = {}
        self._pulled = _Pulled()
        self._define_scheduler_metrics(registry, histogram)
        self._define_own_metrics(registry, histogram)
        self._define_former_metrics(registry)
        registry.register(self._pulled)

    def _define_scheduler_metrics(
        self, registry: CollectorRegistry, histogram: type[Histogram]
    ) -> None:
        self.schedule_attempts = Counter(
            "scheduler_schedule_attempts_total",
            "Number of attempts to schedule pods, by the result: `scheduled`, `unschedulable` "
            "(the pod fits nowhere now) or `error` (something went wrong).",
            ["result", "profile"],
            registry=registry,
        )
        self.attempt_seconds = histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (decision and binding).",
            ["result", "profile"],
            buckets=exponential(0.001, 2, 15),
            registry=registry,
        )
        self.algorithm_seconds = histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Latency of the decision alone in seconds.",
            buckets=exponential(0.001, 2, 15),
            registry=registry,
        )
        self.sli_seconds = histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Seconds from a pod's first attempt to its binding, by the number of attempts.",
            ["attempts"],
            buckets=exponential(0.01, 2, 20),
            registry=registry,
        )
        self.sli_by_attempts = [
            self.sli_seconds.labels(str(n) if n < _MOST_ATTEMPTS_LABEL else f"{n}+")
            for n in range(1, _MOST_ATTEMPTS_LABEL + 1)
        ]
        self.pod_attempts = histogram(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts it took to schedule a pod.",
            buckets=exponential(1, 2, 5),
            registry=registry,
        )
        self.scheduled_after_flush = Counter(
            "scheduler_pod_scheduled_after_flush_total",
            "Number of pods bound in an attempt that was made because no event had helped them "
            "for too long.",
            registry=registry,
        )
        self.extension_point_seconds = histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Latency of an extension point that runs by itself: PreEnqueue, PodGroupPostFilter, "
            "Permit, Bind. Those of a decision are answered together: see "
            "starsched_evaluation_duration_seconds.",
            ["extension_point", "status", "profile"],
            buckets=exponential(0.0001, 2, 12),
            registry=registry,
        )
        self.event_handling_seconds = histogram(
            "scheduler_event_handling_duration_seconds",
            "Latency of handling one change of an object (a sample of the changes).",
            ["event"],
            buckets=exponential(0.0001, 2, 12),
            registry=registry,
        )
        self.permit_wait_seconds = histogram(
            "scheduler_permit_wait_duration_seconds",
            "Seconds that pods waited in permit.",
            ["result"],
            buckets=exponential(0.001, 2, 15),
            registry=registry,
        )
        self.preemption_attempts = Counter(
            "scheduler_preemption_attempts_total",
            "Number of searches for preemption victims for pods that fit nowhere.",
            registry=registry,
        )
        self.podgroup_attempts = Counter(
            "scheduler_podgroup_schedule_attempts_total",
            "Number of attempts to schedule pod groups, by the result: `scheduled`, "
            "`unschedulable`, `waiting_on_preemption` or `error`.",
            ["result", "profile"],
            registry=registry,
        )
        self.podgroup_attempt_seconds = histogram(
            "scheduler_podgroup_scheduling_attempt_duration_seconds",
            "Latency of an attempt to schedule a pod group in seconds.",
            ["result", "profile"],
            buckets=exponential(0.001, 2, 15),
            registry=registry,
        )
        self.podgroup_algorithm_seconds = histogram(
            "scheduler_podgroup_scheduling_algorithm_duration_seconds",
            "Latency of choosing nodes for a pod group in seconds, without preemption.",
            buckets=exponential(0.001, 2, 15),
            registry=registry,
        )
        self.workload_preemption_attempts = Counter(
            "scheduler_workload_preemption_attempts_total",
            "Number of searches for preemption victims for pod groups that fit nowhere.",
            ["result"],
            registry=registry,
        )
        self.workload_preemption_victims = histogram(
            "scheduler_workload_preemption_victims",
            "Number of victims of one preemption for a pod group.",
            buckets=exponential(1, 2, 11),
            registry=registry,
        )
        self.preemption_workload_disruptions = histogram(
            "scheduler_preemption_workload_disruptions",
            "Number of groups that one preemption evicts as a whole, if there are some.",
            ["preemptor"],
            buckets=exponential(1, 2, 11),
            registry=registry,
        )
        self.preemption_evaluation_seconds = histogram(
            "scheduler_preemption_evaluation_duration_seconds",
            "Seconds that it took to find the victims of a preemption for a pod group, by result.",
            ["preemptor", "result"],
            buckets=exponential(0.001, 2, 16),
            registry=registry,
        )
        self.preemption_execution_seconds = histogram(
            "scheduler_preemption_execution_duration_seconds",
            "Seconds that it took to evict the victims of one preemption for a `pod` or a "
            "`podgroup`: `success` or `error`.",
            ["preemptor", "result"],
            buckets=exponential(0.001, 2, 16),
            registry=registry,
        )
        self.preemption_violations = Counter(
            "scheduler_preemption_pdb_violations_total",
            "Number of victims whose disruption budget was violated, for a `pod` or a `podgroup`.",
            ["preemptor"],
            registry=registry,
        )
        self.preemption_victims = histogram(
            "scheduler_preemption_victims",
            "Number of victims of one preemption.",
            buckets=exponential(1, 2, 7),
            registry=registry,
        )
        self.preemption_seconds = histogram(
            "scheduler_preemption_goroutines_duration_seconds",
            "Seconds that it took to evict the victims of one preemption: `success` or `error`.",
            ["result"],
            buckets=exponential(0.01, 2, 20),
            registry=registry,
        )
        self.preemption_executions = Counter(
            "scheduler_preemption_goroutines_execution_total",
            "Number of preemptions carried out, by result: `success` or `error`.",
            ["result"],
            registry=registry,
        )
        self._claims_created = Counter(
            "dynamic_resource_allocation_resourceclaim_creates_total",
            "Number of requests to create a claim for the extended resources of a pod, by status: "
            "`success` or `failure`.",
            ["status", "admin_access", "owner_api_group", "owner_api_kind"],
            registry=registry,
        )
        self.leader = Gauge(
            "leader_election_master_status",
            "1 if this process holds the lease, 0 if it is a standby.",
            ["name"],
            registry=registry,
        )

    def _define_own_metrics(self, registry: CollectorRegistry, histogram: type[Histogram]) -> None:
        # Where alerts and dashboards look for the first time that something happens, its label is
        # named here: an increase is seen only in a series that was there before.
        self.binding_seconds = histogram(
            "starsched_binding_duration_seconds",
            "Seconds from sending a binding to knowing its outcome, retries included.",
            ["result"],
            buckets=exponential(0.001, 2, 15),
            registry=registry,
        )
        self.binding_retries = Counter(
            "starsched_binding_retries_total",
            "Binding requests sent again, by the reason.",
            ["cause"],
            registry=registry,
        )
        self.pods_bound_by_others = Counter(
            "starsched_pods_bound_by_others_total",
            "Pods of this scheduler's profiles that another process bound while it led.",
            registry=registry,
        )
        self.events_dropped = Counter(
            "starsched_events_dropped_total",
            "Events that were not written, by reason: `full`, `rejected`, `failed`, `shutdown`.",
            ["cause"],
            registry=registry,
        )
        for cause in ("full", "rejected", "failed", "shutdown"):
            self.events_dropped.labels(cause)
        self.status_patches = Counter(
            "starsched_pod_status_patches_total",
            "Patches of conditions of pods and PodGroups by result: `written`, `superseded`, "
            "`gone`, `failed`.",
            ["result"],
            registry=registry,
        )
        #: By the token of the dominant reason, see `pulled_metrics.show_rejections`.
        self.rejections = BoundedCounts(REASONS)
        self.failures = Counter(
            "starsched_failures_total",
            "Attempts that a failure ended, by whose fault it was and by reason token.",
            ["owner", "reason"],
            registry=registry,
        )
        for kind in REASONS.values():
            if kind.owner is not None:
                self.failures.labels(kind.owner.value, kind.token)
        self.loop_errors = Counter(
            "starsched_loop_errors_total",
            "Unexpected exceptions that did not end the scheduling loop, by place.",
            ["step"],
            registry=registry,
        )
        self.revision_info = Gauge(
            "starsched_policy_revision_info",
            "1 for the policy revision in force.",
            ["revision"],
            registry=registry,
        )
        self.policy_reloads = Counter(
            "starsched_policy_reloads_total",
            "Policy candidates by outcome: `accepted`, `rejected`, `unchanged`, `rolled_back`.",
            ["result"],
            registry=registry,
        )
        for result in RELOADS:
            self.policy_reloads.labels(result)
        self.last_reload_success = Gauge(
            "starsched_policy_last_reload_success_timestamp_seconds",
            "When the policies in force were accepted (Unix time).",
            registry=registry,
        )
        self.last_reload_ok = Gauge(
            "starsched_policy_last_reload_successful",
            "1 if the newest policies are in force, 0 if the last candidate was rejected.",
            registry=registry,
        )
        # Policies that are chosen at the start are no candidates: nothing was rejected so far.
        self.last_reload_ok.set(1)
        self.reload_seconds = histogram(
            "starsched_policy_reload_duration_seconds",
            "Seconds to check, test and try one candidate.",
            buckets=exponential(0.01, 2, 12),
            registry=registry,
        )
        self.policy_losses = Gauge(
            "starsched_policy_losses",
            "What the policies in force took away when they came: pods `without_profile`, pods "
            "that `fit_nowhere`, `nodes` that take no pods, pairs of pods in another `order`.",
            ["kind"],
            registry=registry,
        )
        self.rollout_verdicts = Counter(
            "starsched_rollout_verdicts_total",
            "Stages of roll-outs that ended or stand still, by stage (`shadow`, `canary`) and "
            "outcome: `pass`, `fail`, `inconclusive`.",
            ["stage", "outcome"],
            registry=registry,
        )
        for stage, outcome in product(("shadow", "canary"), ("pass", "fail", "inconclusive")):
            self.rollout_verdicts.labels(stage, outcome)
        self.decision_pauses = histogram(
            "starsched_decision_pause_seconds",
            "From one decision to the next, or from a pod's arrival if nothing was to be decided.",
            buckets=(0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5),
            registry=registry,
        )
        self.evaluation_seconds = histogram(
            "starsched_evaluation_duration_seconds",
            "Round trips to the sandbox, each for all evaluations without a kept verdict.",
            buckets=exponential(0.00005, 2, 16),
            registry=registry,
        )
        self.extender_seconds = histogram(
            "starsched_extender_request_duration_seconds",
            "Seconds that an extender took to answer, by its urlPrefix, verb (`filter`, "
            "`prioritize`, `preempt`, `bind`) and result: `success` or `error`.",
            ["extender", "verb", "result"],
            buckets=exponential(0.001, 2, 15),
            registry=registry,
        )
        self.extender_served_seconds = histogram(
            "starsched_extender_served_duration_seconds",
            "Seconds to answer kube-scheduler as an extender, by verb and result: `success`, "
            "`error`, or `refused` for an invalid request.",
            ["verb", "result"],
            buckets=exponential(0.001, 2, 15),
            registry=registry,
        )
        self.policy_failures = Counter(
            "starsched_policy_failures_total",
            "Failed evaluations by policy, hook and kind.",
            ["policy", "hook", "kind"],
            registry=registry,
        )

        self.lost_seconds = Counter(
            "starsched_policy_lost_seconds_total",
            "Seconds in which nothing was decided because a hook ran into a limit.",
            ["policy", "profile"],
            registry=registry,
        )

    def _define_former_metrics(self, registry: CollectorRegistry) -> None:
        """What kube-scheduler had once, and dashboards and rules of clusters ask for still."""
        self.volume_seconds = Histogram(
            "scheduler_volume_scheduling_duration_seconds",
            "Seconds to bind the volumes of a pod that has a node, provisioning included.",
            ["operation"],
            buckets=exponential(0.001, 2, 15),
            registry=registry,
        )
        self.volume_seconds.labels("bind")
        _Renamed(
            "scheduler_e2e_scheduling_duration_seconds",
            "The former name of scheduler_scheduling_attempt_duration_seconds.",
            self.attempt_seconds,
            registry,
        )
        _Renamed(
            "scheduler_binding_duration_seconds",
            "The name in kube-scheduler of starsched_binding_duration_seconds.",
            self.binding_seconds,
            registry,
        )

    def profile(self, name: str) -> ProfileMetrics:
        """The bound children of profile *name*; made on first use."""
        found = self._profiles.get(name)
        if found is None:
            found = self._profiles[name] = ProfileMetrics(self, name)
        return found

    def claims_created(self, status: str) -> Counter:
        """The counter of the claims created for pods; *status* is `success` or `failure`."""
        return self._claims_created.labels(status, "false", "", "Pod")

    def extension_point(self, point: str, status: str, profile: str) -> Histogram:
        """The bound child of an extension point's duration; made on first use."""
        found = self._points.get((point, status, profile))
        if found is None:
            found = self.extension_point_seconds.labels(point, status, profile)
            self._points[point, status, profile] = found
        return found

    def pod_bound(self, attempts: int, sli_seconds: float) -> None:
        """Count a bound pod that took *attempts*, *sli_seconds* after its first one."""
        index = min(max(attempts, 1), _MOST_ATTEMPTS_LABEL) - 1
        self.sli_by_attempts[index].observe(sli_seconds)
        self.pod_attempts.observe(attempts)

    def set_revision(self, revision: str, accepted_at: float) -> None:
        """Name *revision* as the one in force since *accepted_at* (Unix time)."""
        self.revision_info.clear()
        self.revision_info.labels(revision).set(1)
        self.last_reload_success.set(accepted_at)

    # --- read at scrape time ---------------------------------------------------------------

    def pull_gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge without labels whose value is read at scrape time."""
        self._pulled.add("gauge", name, text, (), lambda: [((), read())])

    def pull_gauges(
        self, name: str, text: str, label: str, read: Callable[[], Mapping[str, float]]
    ) -> None:
        """A gauge with one label, read at scrape time as a mapping from label value to number."""
        self._pulled.add(
            "gauge", name, text, (label,), lambda: [((k,), v) for k, v in read().items()]
        )

    def pull_labelled_gauges(
        self, name: str, text: str, labels: tuple[str, ...], read: Callable[[], Readings]
    ) -> None:
        """A gauge with several labels, read at scrape time."""
        self._pulled.add("gauge", name, text, labels, read)

    def pull_counter(
        self, name: str, text: str, labels: tuple[str, ...], read: Callable[[], Readings]
    ) -> None:
        """A counter that another part keeps, read at scrape time."""
        self._pulled.add("counter", name.removesuffix("_total"), text, labels, read)
