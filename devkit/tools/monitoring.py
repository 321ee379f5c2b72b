"""Writes what is made of one source in `deploy/monitoring`.

The dashboards are made from the tables of panels below, and `prometheus-rule.yaml` wraps
`alerts.yaml` for prometheus-operator. Run it with `make monitoring`.

In the tables, `{@}` stands for the labels that the variables of a dashboard select, and `[#]` for a
window that fits the interval of scrapes.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = Path("deploy/monitoring")
ALERTS: Final = FOLDER / "alerts.yaml"

#: What tells this scheduler's targets from others, whatever their job is called.
KNOWN_BY: Final = "starsched_policy_last_reload_successful"
SELECTED: Final = 'cluster=~"$cluster", job=~"$job", instance=~"$instance"'

_COLUMNS: Final = 24
_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

Json = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """A panel of a dashboard.

    Attributes:
        title: What it shows.
        targets: Expressions, each with the legend of its series.
        unit: As Grafana names units.
        text: What the reader is to know about it.
        kind: `stat` for the newest value alone; `name` for the newest legend in place of its value.
        words: Words for values.
        green_from: From which value on a `stat` is green, else it is red; None: neither.
    """

    title: str
    targets: tuple[tuple[str, str], ...]
    unit: str = "short"
    text: str = ""
    kind: Literal["timeseries", "stat", "name"] = "timeseries"
    words: tuple[tuple[int, str], ...] = ()
    green_from: int | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Width and height on the dashboard's grid."""
        return (8, 8) if self.kind == "timeseries" else (4, 4)


@dataclass(frozen=True)
class Dashboard:
    """A dashboard: its rows of panels by title, in order."""

    uid: str
    title: str
    text: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]


def quantiles(metric: str, by: str = "", labels: str = "") -> tuple[tuple[str, str], ...]:
    """Targets for the median and the 99th percentile of the histogram *metric*."""
    selected = f"@, {labels}" if labels else "@"
    groups = f"le, {by}" if by else "le"
    legend = f" {{{{{by}}}}}" if by else ""
    return tuple(
        (
            f"histogram_quantile({quantile}, sum by ({groups}) "
            f"(rate({metric}_bucket{{{selected}}}[#])))",
            f"p{quantile[2:]:0<2}{legend}",
        )
        for quantile in ("0.5", "0.99")
    )


def rate(metric: str, by: str, legend: str = "") -> tuple[tuple[str, str], ...]:
    """One target: how fast the counter *metric* grows, by the labels *by*."""
    shown = legend or " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return ((f"sum by ({by}) (rate({metric}{{@}}[#]))", shown),)


OVERVIEW: Final = Dashboard(
    uid="starsched-overview",
    title="starsched / Overview",
    text="Whether starsched runs, how fast it decides, what waits, and how the API server answers.",
    rows=(
        (
            "Now",
            (
                Panel(
                    "Replicas",
                    ((f"count({KNOWN_BY}{{@}})", ""),),
                    kind="stat",
                    green_from=1,
                ),
                Panel(
                    "Leaders",
                    (("sum(leader_election_master_status{@})", ""),),
                    text="1, unless the scheduler runs without a lease.",
                    kind="stat",
                    green_from=1,
                ),
                Panel(
                    "Newest policies",
                    ((f"min({KNOWN_BY}{{@}})", ""),),
                    text="Rejected: the policies before decide; see the event PolicyRejected.",
                    kind="stat",
                    words=((0, "rejected"), (1, "in force")),
                    green_from=1,
                ),
                Panel(
                    "Pods that wait",
                    (("max(sum by (instance) (scheduler_pending_pods{@}))", ""),),
                    text="A standby sees the same pods: the largest number is shown, not the sum.",
                    kind="stat",
                ),
                Panel(
                    "Nodes",
                    (('max(scheduler_cache_size{@, type="nodes"})', ""),),
                    kind="stat",
                ),
                Panel(
                    "Pods",
                    (('max(scheduler_cache_size{@, type="pods"})', ""),),
                    text="Pods that have a node.",
                    kind="stat",
                ),
            ),
        ),
        (
            "Decisions",
            (
                Panel("Attempts", rate("scheduler_schedule_attempts_total", "result"), "ops"),
                Panel(
                    "Attempts that end in an error",
                    (
                        (
                            'sum(rate(scheduler_schedule_attempts_total{@, result="error"}[#]))'
                            " / sum(rate(scheduler_schedule_attempts_total{@}[#]))",
                            "errors",
                        ),
                    ),
                    "percentunit",
                ),
                Panel(
                    "Until pods that fit are bound",
                    quantiles("starsched_first_attempt_duration_seconds", "priority_class"),
                    "s",
                    "Pods that were bound at their first attempt and had no volume or device to "
                    "wait for: what the scheduler itself takes, by priority class.",
                ),
                Panel(
                    "Time to decide",
                    quantiles("scheduler_scheduling_algorithm_duration_seconds"),
                    "s",
                ),
                Panel(
                    "From the first attempt to the binding",
                    quantiles("scheduler_pod_scheduling_sli_duration_seconds"),
                    "s",
                ),
                Panel(
                    "Attempts until a pod is bound",
                    quantiles("scheduler_pod_scheduling_attempts"),
                ),
                Panel(
                    "Pauses between decisions",
                    quantiles("starsched_decision_pause_seconds"),
                    "s",
                    "Only pauses of more than 2 ms, while a pod was ready to be decided.",
                ),
                Panel(
                    "Preemption",
                    (
                        (
                            "sum(rate(scheduler_preemption_attempts_total{@}[#]))",
                            "searches",
                        ),
                        (
                            "sum(rate(scheduler_preemption_victims_sum{@}[#]))",
                            "victims",
                        ),
                    ),
                    "ops",
                ),
            ),
        ),
        (
            "What waits",
            (
                Panel(
                    "Pods by queue",
                    (("max by (queue) (scheduler_pending_pods{@})", "{{queue}}"),),
                ),
                Panel(
                    "Pods by reason",
                    (
                        (
                            "topk(15, max by (reason, policy) (starsched_waiting_pods{@}))",
                            "{{reason}} {{policy}}",
                        ),
                    ),
                    text="The reasons are explained in docs/reasons.md.",
                ),
                Panel(
                    "Oldest pod by reason",
                    (
                        (
                            "topk(15, max by (reason, policy) "
                            "(starsched_oldest_waiting_pod_age_seconds{@}))",
                            "{{reason}} {{policy}}",
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "Pods by namespace",
                    (
                        (
                            "topk(15, max by (pod_namespace) (sum by (instance, pod_namespace) "
                            "(starsched_namespace_waiting_pods{@})))",
                            "{{pod_namespace}}",
                        ),
                    ),
                    text="Other: those beyond the 100 namespaces with most.",
                ),
                Panel(
                    "Oldest pod by namespace and priority class",
                    (
                        (
                            "topk(15, max by (pod_namespace, priority_class) "
                            "(starsched_namespace_oldest_waiting_pod_age_seconds{@}))",
                            "{{pod_namespace}} {{priority_class}}",
                        ),
                    ),
                    "s",
                    "Pods with scheduling gates are left out.",
                ),
                Panel(
                    "Rejected attempts by reason",
                    (
                        (
                            "topk(15, sum by (reason) (rate(starsched_rejections_total{@}[#])))",
                            "{{reason}}",
                        ),
                    ),
                    "ops",
                ),
                Panel(
                    "Moves into queues by event",
                    (
                        (
                            "topk(15, sum by (queue, event) "
                            "(rate(scheduler_queue_incoming_pods_total{@}[#])))",
                            "{{queue}}: {{event}}",
                        ),
                    ),
                    "ops",
                ),
                Panel(
                    "Pods by the plugin that rejected them",
                    (
                        (
                            "topk(15, max by (plugin) (scheduler_unschedulable_pods{@}))",
                            "{{plugin}}",
                        ),
                    ),
                    text="A pod that several rejected counts for each.",
                ),
            ),
        ),
        (
            "API server",
            (
                Panel("Requests by answer", rate("rest_client_requests_total", "code"), "reqps"),
                Panel(
                    "Time to answer",
                    quantiles("rest_client_request_duration_seconds", "verb"),
                    "s",
                ),
                Panel("Time to bind", quantiles("starsched_binding_duration_seconds"), "s"),
                Panel(
                    "Under way",
                    (
                        ("sum by (operation) (starsched_in_flight{@})", "{{operation}}"),
                        ("sum(starsched_deferred_writes{@})", "events and conditions that wait"),
                    ),
                ),
                Panel(
                    "Troubles",
                    (
                        (
                            "sum by (cause) (rate(starsched_binding_retries_total{@}[#]))",
                            "binding again: {{cause}}",
                        ),
                        (
                            "sum by (cause) (rate(starsched_binding_failures_total{@}[#])) > 0",
                            "binding failed: {{cause}}",
                        ),
                        (
                            "sum by (resource) (rate(starsched_watch_total"
                            '{@, kind="failures"}[#])) > 0',
                            "watch of {{resource}}",
                        ),
                        (
                            "sum by (cause) (rate(starsched_events_dropped_total{@}[#]))",
                            "event dropped: {{cause}}",
                        ),
                    ),
                    "ops",
                ),
                Panel(
                    "Changes seen",
                    (
                        (
                            "topk(10, sum by (resource) (rate(starsched_watch_total"
                            '{@, kind="events"}[#])))',
                            "{{resource}}",
                        ),
                    ),
                    "ops",
                ),
            ),
        ),
        (
            "Process",
            (
                Panel("Memory", (("process_resident_memory_bytes{@}", "{{instance}}"),), "bytes"),
                Panel(
                    "CPU",
                    (("rate(process_cpu_seconds_total{@}[#])", "{{instance}}"),),
                    "short",
                    "Cores; those of the sandboxes are not in it.",
                ),
                Panel(
                    "Tasks and threads",
                    (("go_goroutines{@}", "{{instance}}"),),
                ),
                Panel(
                    "Restarts and changes of the leader",
                    (
                        (
                            "sum(changes(process_start_time_seconds{@}[1h]))",
                            "restarts",
                        ),
                        (
                            "sum(changes(leader_election_master_status{@}[1h]))",
                            "changes of the leader",
                        ),
                    ),
                    text="Within the hour before. A hand-over is two changes.",
                ),
            ),
        ),
        (
            "Queues and shares",
            (
                Panel(
                    "Part of the cluster",
                    (
                        (
                            "topk(15, max by (queue) (starsched_queue_dominant_share"
                            '{@, queue!~".*/.*"})) / 1000',
                            "{{queue}}",
                        ),
                    ),
                    "percentunit",
                    "Queues of the first level: the largest part that each has of a resource. This "
                    "row is empty without a QueueTree.",
                ),
                Panel(
                    "Used of the share",
                    (
                        (
                            "topk(15, max by (queue, resource) (starsched_queue_allocated"
                            '{@, queue!="/"}'
                            " / (starsched_queue_share{@} > 0)))",
                            "{{queue}} {{resource}}",
                        ),
                    ),
                    "percentunit",
                    "Beyond 100%, it is borrowed.",
                ),
                Panel(
                    "Waits, of the share",
                    (
                        (
                            "topk(15, max by (queue, resource) ((starsched_queue_requested"
                            '{@, queue!="/"} - starsched_queue_allocated{@})'
                            " / (starsched_queue_share{@} > 0)))",
                            "{{queue}} {{resource}}",
                        ),
                    ),
                    "percentunit",
                ),
                Panel(
                    "Starved",
                    (
                        (
                            "topk(15, sum by (queue) "
                            "(rate(starsched_queue_starved_seconds_total{@}[#])))",
                            "{{queue}}",
                        ),
                    ),
                    "percentunit",
                    "The part of the time in which a queue had less than its share of something "
                    "that its pods wait for.",
                ),
                Panel(
                    "Borrowing",
                    (
                        (
                            "topk(15, sum by (queue) "
                            "(rate(starsched_queue_borrowed_seconds_total{@}[#])))",
                            "{{queue}}",
                        ),
                    ),
                    "percentunit",
                    "The part of the time in which a queue had more than its share of something.",
                ),
                Panel(
                    "Leaving, and problems of the tree",
                    (
                        (
                            'max by (resource) (starsched_queue_leaving{@, queue="/"}'
                            ' / starsched_queue_share{@, queue="/"})',
                            "{{resource}} leaving, of all",
                        ),
                        ("max(starsched_queue_tree_problems{@})", "problems"),
                    ),
                ),
                Panel(
                    "Held back",
                    (
                        (
                            "topk(15, max by (queue, reason) (starsched_queue_waiting_requests"
                            '{@, queue!~".*/.+"}))',
                            "{{queue}} {{reason}}",
                        ),
                    ),
                    "short",
                    "Requests that stand still, of queues of the first level, by the reason.",
                ),
                Panel(
                    "Given back",
                    (
                        (
                            "topk(15, sum by (taker, victim) "
                            "(increase(starsched_reclaimed_pods_total{@}[#])))",
                            "{{victim}} for {{taker}}",
                        ),
                        ("sum(increase(starsched_reclaim_reversals_total{@}[#]))", "reversals"),
                    ),
                    "short",
                    "Pods that had to go for a request of another queue, and how often a queue "
                    "took back what had just been taken from it.",
                ),
                Panel(
                    "Asked again",
                    (
                        (
                            "sum by (useful) (rate(starsched_queue_woken_total{@}[#]))",
                            "useful: {{useful}}",
                        ),
                    ),
                    "ops",
                    "Requests that were asked about again because something became free; of no use "
                    "are those that could not start then.",
                ),
            ),
        ),
    ),
)

POLICIES: Final = Dashboard(
    uid="starsched-policies",
    title="starsched / Policies and decisions",
    text="What decides: revisions, roll-outs, the policies one by one, their sandbox, and facts.",
    rows=(
        (
            "Now",
            (
                Panel(
                    "Revision",
                    (
                        (
                            "max by (revision) (starsched_policy_revision_info{@})",
                            "{{revision}}",
                        ),
                    ),
                    text="More than one while replicas are not at the same point.",
                    kind="name",
                ),
                Panel(
                    "In force since",
                    (
                        (
                            "max(starsched_policy_last_reload_success_timestamp_seconds{@}) * 1000",
                            "",
                        ),
                    ),
                    "dateTimeFromNow",
                    kind="stat",
                ),
                Panel(
                    "Newest policies",
                    ((f"min({KNOWN_BY}{{@}})", ""),),
                    kind="stat",
                    words=((0, "rejected"), (1, "in force")),
                    green_from=1,
                ),
                Panel(
                    "Roll-out",
                    (("max(starsched_rollout_paused{@})", ""),),
                    kind="stat",
                    words=((0, "not paused"), (1, "paused")),
                ),
                Panel(
                    "Rolled back",
                    (
                        (
                            "sum(increase(starsched_policy_reloads_total"
                            '{@, result="rolled_back"}[$__range]))',
                            "",
                        ),
                    ),
                    text="In the time that is shown.",
                    kind="stat",
                ),
                Panel(
                    "Throttled pods",
                    (
                        (
                            'sum(scheduler_unschedulable_pods{@, plugin="Throttle"}) or vector(0)',
                            "",
                        ),
                    ),
                    kind="stat",
                ),
            ),
        ),
        (
            "Edits",
            (
                Panel(
                    "Candidates by what became of them",
                    (
                        (
                            "sum by (result) (increase(starsched_policy_reloads_total{@}[#]))",
                            "{{result}}",
                        ),
                    ),
                ),
                Panel(
                    "Time to check, test and try a candidate",
                    quantiles("starsched_policy_reload_duration_seconds"),
                    "s",
                ),
                Panel(
                    "Stage of the roll-out",
                    (
                        ("max by (stage) (starsched_rollout_stage{@})", "{{stage}}"),
                        ("max(starsched_rollout_paused{@})", "paused"),
                    ),
                ),
                Panel(
                    "Decisions compared",
                    (
                        (
                            "sum(rate(starsched_rollout_compared_total{@}[#]))",
                            "compared",
                        ),
                        *rate("starsched_rollout_skipped_total", "reason", "skipped: {{reason}}"),
                    ),
                    "ops",
                ),
                Panel(
                    "Decisions that an edit would make differently",
                    rate("starsched_rollout_differences_total", "kind"),
                    "ops",
                ),
                Panel(
                    "Pods whose profile was taken away",
                    (
                        (
                            "sum(max by (scheduler_name) (starsched_pods_without_profile{@})) "
                            "or vector(0)",
                            "pods",
                        ),
                    ),
                    text="Nothing decides them.",
                ),
                Panel(
                    "Verdicts of stages",
                    (
                        (
                            "sum by (stage, outcome) "
                            "(increase(starsched_rollout_verdicts_total{@}[#]))",
                            "{{stage}}: {{outcome}}",
                        ),
                    ),
                ),
            ),
        ),
        (
            "Policies",
            (
                Panel(
                    "Failures",
                    rate("starsched_policy_failures_total", "policy, hook, kind"),
                    "ops",
                ),
                Panel(
                    "Failed attempts by whose fault it was",
                    rate("starsched_failures_total", "owner, reason"),
                    "ops",
                ),
                Panel(
                    "Time lost to limits",
                    rate("starsched_policy_lost_seconds_total", "policy, profile"),
                    "percentunit",
                    "The share of time in which nothing was decided, as a hook ran into a limit.",
                ),
                Panel(
                    "Sandbox restarts",
                    (
                        (
                            "sum by (instance) (increase(starsched_sandbox_restarts_total{@}[#]))",
                            "{{instance}}",
                        ),
                    ),
                ),
                Panel(
                    "Evaluations by policy",
                    (
                        (
                            "topk(15, sum by (plugin) "
                            "(rate(scheduler_plugin_evaluation_total{@}[#])))",
                            "{{plugin}}",
                        ),
                    ),
                    "ops",
                    "What was answered from memory is not in it.",
                ),
                Panel(
                    "Verdicts by source",
                    rate("starsched_verdicts_total", "source"),
                    "ops",
                ),
                Panel(
                    "Time of policies",
                    (
                        (
                            "topk(15, sum by (plugin, extension_point) "
                            "(rate(scheduler_plugin_execution_duration_seconds_sum{@}[#]))) * 10",
                            "{{plugin}} {{extension_point}}",
                        ),
                    ),
                    "percentunit",
                    "The part of the time in which the sandbox works on each; estimated, as one "
                    "round trip in ten is timed.",
                ),
                Panel(
                    "Round trips to the sandbox",
                    quantiles("starsched_evaluation_duration_seconds"),
                    "s",
                ),
                Panel(
                    "Waiting in permit",
                    quantiles("scheduler_permit_wait_duration_seconds", "result"),
                    "s",
                ),
                Panel(
                    "Extension points that run by themselves",
                    quantiles(
                        "scheduler_framework_extension_point_duration_seconds", "extension_point"
                    ),
                    "s",
                ),
                Panel(
                    "Attempts by profile",
                    rate("scheduler_schedule_attempts_total", "profile, result"),
                    "ops",
                ),
            ),
        ),
        (
            "Facts",
            (
                Panel("Reports", rate("starsched_fact_readings_total", "source"), "ops"),
                Panel(
                    "Failures of sources", rate("starsched_fact_failures_total", "source"), "ops"
                ),
                Panel(
                    "Age of the newest reading",
                    (("max by (source) (starsched_fact_age_seconds{@})", "{{source}}"),),
                    "s",
                ),
            ),
        ),
    ),
)

DASHBOARDS: Final = {"overview.json": OVERVIEW, "policies.json": POLICIES}


# --- what is made --------------------------------------------------------------------------------


def expressions(dashboard: Dashboard) -> Iterator[tuple[str, str]]:
    """Every expression of *dashboard*, as it is written into it, behind the title of its panel."""
    for _, panels in dashboard.rows:
        for panel in panels:
            for expression, _ in panel.targets:
                yield panel.title, _written(expression)


def _written(expression: str) -> str:
    return expression.replace("@", SELECTED).replace("[#]", "[$__rate_interval]")


def render(dashboard: Dashboard) -> Json:
    """The dashboard as Grafana takes it."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.text,
        "tags": ["starsched", "kubernetes"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "links": [_link_to_the_others()],
        "annotations": {"list": [_edits()]},
        "templating": {"list": list(_variables())},
        "panels": list(_panels(dashboard)),
    }


def _link_to_the_others() -> Json:
    return {
        "type": "dashboards",
        "title": "starsched",
        "tags": ["starsched"],
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
    }


def _edits() -> Json:
    """A mark wherever other policies came into force."""
    since = "starsched_policy_last_reload_success_timestamp_seconds"
    return {
        "name": "Policies in force",
        "datasource": _DATASOURCE,
        "enable": True,
        "iconColor": "blue",
        "expr": f"changes({since}{{{SELECTED}}}[1m]) > 0",
        "titleFormat": "Policies in force",
        "textFormat": "{{instance}}",
        "step": "1m",
    }


def _variables() -> Iterator[Json]:
    # No data source is named: each reader's own default is chosen, and where there is none, the
    # dashboard still opens and says so.
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "regex": "",
        "refresh": 1,
        "hide": 0,
        "multi": False,
        "includeAll": False,
        "options": [],
        "current": {},
    }
    for name, label, query, every in (
        # Where targets have no such label, `.*` matches that, too.
        ("cluster", "Cluster", f"label_values({KNOWN_BY}, cluster)", ".*"),
        ("job", "Job", f'label_values({KNOWN_BY}{{cluster=~"$cluster"}}, job)', None),
        (
            "instance",
            "Instance",
            f'label_values({KNOWN_BY}{{cluster=~"$cluster", job=~"$job"}}, instance)',
            None,
        ),
    ):
        yield {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": _DATASOURCE,
            "definition": query,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "sort": 1,
            "hide": 0,
            "multi": True,
            "includeAll": True,
            "allValue": every,
            "options": [],
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        }


def _panels(dashboard: Dashboard) -> Iterator[Json]:
    number, y = 0, 0
    for title, panels in dashboard.rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": y, "w": _COLUMNS, "h": 1},
            "panels": [],
        }
        y += 1
        x = height = 0
        for panel in panels:
            number += 1
            width, height = panel.size
            if x + width > _COLUMNS:
                x, y = 0, y + height
            yield _panel(panel, number, {"x": x, "y": y, "w": width, "h": height})
            x += width
        y += height


def _panel(panel: Panel, number: int, position: Json) -> Json:
    defaults: Json = {"unit": panel.unit, "noValue": "none", "min": 0}
    if panel.words:
        words = {
            str(value): {"text": word, "index": n} for n, (value, word) in enumerate(panel.words)
        }
        defaults["mappings"] = [{"type": "value", "options": words}]
    if panel.kind == "timeseries":
        defaults["custom"] = {"lineWidth": 1, "fillOpacity": 10, "showPoints": "auto"}
        options: Json = {
            "legend": {"displayMode": "list", "placement": "bottom", "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    else:
        del defaults["min"]
        if panel.green_from is not None:
            steps = [{"color": "red", "value": None}, {"color": "green", "value": panel.green_from}]
            defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        options = {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "none" if panel.green_from is None else "value",
            "graphMode": "none",
            "textMode": "name" if panel.kind == "name" else "value",
        }
    return {
        "id": number,
        "type": "timeseries" if panel.kind == "timeseries" else "stat",
        "title": panel.title,
        "description": panel.text,
        "datasource": _DATASOURCE,
        "gridPos": position,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _DATASOURCE,
                "expr": _written(expression),
                "legendFormat": legend or "__auto",
            }
            for index, (expression, legend) in enumerate(panel.targets)
        ],
    }


_WRAPPER: Final = """\
# Made from alerts.yaml by `make monitoring`: the same alerts for prometheus-operator.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: starsched
  namespace: starsched
  labels:
    app.kubernetes.io/name: starsched
spec:
"""


def rule_object(alerts: str) -> str:
    """*alerts*, the text of a rule file, as the text of a PrometheusRule."""
    body = alerts[alerts.index("groups:") :]
    return _WRAPPER + "".join(
        f"  {line}" if line.strip() else line for line in body.splitlines(True)
    )


def files() -> dict[Path, str]:
    """Every file as it should be, by its path in the repository."""
    made = {
        FOLDER / "dashboards" / name: json.dumps(render(dashboard), indent=2) + "\n"
        for name, dashboard in DASHBOARDS.items()
    }
    made[FOLDER / "prometheus-rule.yaml"] = rule_object((ROOT / ALERTS).read_text("utf-8"))
    return made


def stale() -> list[Path]:
    """The files that are missing, out of date, or made by no table."""
    wanted = files()
    there = {path.relative_to(ROOT) for path in (ROOT / FOLDER / "dashboards").glob("*")}
    wrong = [path for path, text in wanted.items() if _read(path) != text]
    return sorted({*wrong, *(there - wanted.keys())})


def _read(path: Path) -> str | None:
    try:
        return (ROOT / path).read_text("utf-8")
    except FileNotFoundError:
        return None


def main() -> int:
    """Write what is out of date."""
    for path, text in files().items():
        if _read(path) != text:
            print(path)
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
