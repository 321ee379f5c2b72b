"""Rules for what makes pods from a template: Deployment, Job and the other workloads.

Owns how selector, template and restarts have to go together. The pod in a template follows the
rules of pods.

Source:
    pkg/apis/apps/validation, pkg/apis/batch/validation and ValidateReplicationController of
    Kubernetes 1.37.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from engine.core.manifests import kinds, pod_defaults, pod_rules
from engine.core.manifests.errors import Cause
from engine.core.manifests.field_rules import (
    Json,
    Rules,
    at_least,
    denied,
    is_set,
    label_selector,
    of,
    required,
    selects,
    unsupported,
    wrong,
)
from engine.core.manifests.kinds import Kind

_UNMATCHED = "`selector` does not match template `labels`"
_CRON_JOB_NAME_LIMIT = 52  # a Job's name has eleven characters more, which say when, of 63


@dataclass(frozen=True)
class _Rules:
    """The rules for the fields of a spec, and if its pods end."""

    fields: Rules
    runs_once: bool = False


def _numbers(*names: str) -> list[tuple[str, Any]]:
    return [(name, at_least(0)) for name in names]


_REPLICATED = _numbers("replicas", "minReadySeconds")
_REPLICAS = _Rules(Rules(_REPLICATED))
_DEPLOYMENT = _Rules(
    Rules([*_REPLICATED, *_numbers("revisionHistoryLimit", "progressDeadlineSeconds")])
)
_STATEFUL_SET = _Rules(Rules([*_REPLICATED, *_numbers("revisionHistoryLimit")]))
_DAEMON_SET = _Rules(Rules(_numbers("minReadySeconds", "revisionHistoryLimit")))
_JOB = _Rules(
    Rules(
        [
            *_numbers("parallelism", "completions", "backoffLimit"),
            *_numbers("activeDeadlineSeconds", "ttlSecondsAfterFinished"),
            ("completionMode", of("NonIndexed", "Indexed")),
        ]
    ),
    runs_once=True,
)
_CRON_JOB = Rules(
    [
        ("schedule", is_set),
        ("concurrencyPolicy", of("Allow", "Forbid", "Replace")),
        *_numbers(
            "startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"
        ),
    ]
)


def _labels(template: Json) -> Json:
    return (template.get("metadata") or {}).get("labels") or {}


def _template(template: Json, rules: _Rules) -> Iterator[Cause]:
    """The rules for `spec.template`, in which defaults are not set."""
    spec = msgspec.json.decode(msgspec.json.encode(template.get("spec") or {}))
    pod_defaults.set_defaults(spec)
    for cause in pod_rules.pod({"metadata": template.get("metadata") or {}, "spec": spec}):
        yield replace(cause, field=f"spec.template.{cause.field}")
    policy = spec["restartPolicy"]
    if rules.runs_once and policy == "Always":
        yield required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')
    elif not rules.runs_once and policy in ("OnFailure", "Never"):
        yield unsupported("spec.template.spec.restartPolicy", policy, ("Always",))
    if not rules.runs_once and spec.get("activeDeadlineSeconds") is not None:
        yield denied("spec.template.spec.activeDeadlineSeconds", "it is for pods that end")


def _selected(spec: Json, *, is_optional: bool = False) -> Iterator[Cause]:
    """The rules for a label selector and the labels of its template."""
    selector, labels = spec.get("selector"), _labels(spec.get("template") or {})
    found = list(label_selector("spec.selector", selector))
    yield from found
    if selector is None and not is_optional:
        yield required("spec.selector")
    elif selector is not None and not any(selector.values()):
        yield wrong("spec.selector", selector, "empty selector is invalid")
        return
    elif found and not is_optional:
        yield wrong("spec.selector", selector, "invalid label selector")
    if not found and not selects(selector, labels):
        yield wrong("spec.template.metadata.labels", labels, _UNMATCHED)


def _workload(manifest: Json, rules: _Rules) -> Iterator[Cause]:
    spec = manifest.get("spec") or {}
    yield from rules.fields.problems("spec", spec)
    yield from _template(spec.get("template") or {}, rules)


def _deployment(manifest: Json) -> Iterator[Cause]:
    yield from _workload(manifest, _DEPLOYMENT)
    spec = manifest.get("spec") or {}
    yield from _selected(spec)
    ready, deadline = spec.get("minReadySeconds") or 0, spec.get("progressDeadlineSeconds")
    if deadline is not None and 0 <= deadline <= ready:
        yield wrong(
            "spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"
        )
    strategy = spec.get("strategy") or {}
    kind = strategy.get("type") or "RollingUpdate"
    if kind not in ("Recreate", "RollingUpdate"):
        yield unsupported("spec.strategy", kind, ("Recreate", "RollingUpdate"))
    elif kind == "Recreate" and strategy.get("rollingUpdate") is not None:
        detail = "may not be specified when strategy `type` is 'Recreate'"
        yield denied("spec.strategy.rollingUpdate", detail)


def _stateful_set(manifest: Json) -> Iterator[Cause]:
    yield from _workload(manifest, _STATEFUL_SET)
    spec = manifest.get("spec") or {}
    yield from _selected(spec)
    order = spec.get("podManagementPolicy")
    if order and order not in ("OrderedReady", "Parallel"):
        yield wrong("spec.podManagementPolicy", order, "must be 'OrderedReady' or 'Parallel'")


def _replica_set(manifest: Json) -> Iterator[Cause]:
    yield from _workload(manifest, _REPLICAS)
    yield from _selected(manifest.get("spec") or {})


def _daemon_set(manifest: Json) -> Iterator[Cause]:
    yield from _workload(manifest, _DAEMON_SET)
    yield from _selected(manifest.get("spec") or {}, is_optional=True)


def _replication_controller(manifest: Json) -> Iterator[Cause]:
    spec = manifest.get("spec") or {}
    yield from _REPLICAS.fields.problems("spec", spec)
    template = spec.get("template")
    if template is None:
        yield required("spec.template")
        return
    yield from _template(template, _REPLICAS)
    selector = spec.get("selector") or _labels(template)
    if not selector:
        yield required("spec.selector")
    elif not selects({"matchLabels": selector}, _labels(template)):
        yield wrong("spec.template.metadata.labels", _labels(template), _UNMATCHED)


def _job(manifest: Json) -> Iterator[Cause]:
    yield from _workload(manifest, _JOB)
    spec = manifest.get("spec") or {}
    if spec.get("manualSelector"):
        yield from _selected(spec)
    # One pod is wanted of a Job that says nothing.
    counts = spec.get("completions"), spec.get("parallelism")
    if spec.get("completionMode") == "Indexed" and counts[0] is None and counts[1] is not None:
        yield required("spec.completions", "when completion mode is Indexed")


def created_job(manifest: Json) -> Iterator[Cause]:
    """What holds for a new Job only: the API server writes its selector, unless asked not to."""
    spec = manifest.get("spec") or {}
    if spec.get("selector") is not None and not spec.get("manualSelector"):
        yield wrong("spec.selector", spec["selector"], "`selector` not auto-generated")


def _cron_job(manifest: Json) -> Iterator[Cause]:
    name = manifest["metadata"].get("name") or ""
    if len(name) > _CRON_JOB_NAME_LIMIT:
        yield wrong("metadata.name", name, "must be no more than 52 characters")
    spec = manifest.get("spec") or {}
    yield from _CRON_JOB.problems("spec", spec)
    job: Json = {"metadata": {}, "spec": (spec.get("jobTemplate") or {}).get("spec")}
    for cause in _job(job):
        yield replace(cause, field=f"spec.jobTemplate.{cause.field}")


RULES: dict[Kind, Callable[[Json], Iterator[Cause]]] = {
    kinds.DEPLOYMENTS: _deployment,
    kinds.REPLICA_SETS: _replica_set,
    kinds.REPLICATION_CONTROLLERS: _replication_controller,
    kinds.STATEFUL_SETS: _stateful_set,
    kinds.DAEMON_SETS: _daemon_set,
    kinds.JOBS: _job,
    kinds.CRON_JOBS: _cron_job,
}
