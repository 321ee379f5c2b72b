"""What the API server refuses in what makes pods; `test_rules` asks both servers."""

from typing import Any

from engine.core.manifests import kinds
from engine.core.manifests.kinds import Kind
from tests.contract.rule_cases import Case

Json = dict[str, Any]

_LABELS = {"app": "a"}
_POD = {"containers": [{"name": "c", "image": "i"}]}


def _answer(want: str) -> str:
    return want if want == "201" else f"422 Invalid: {want}"


def _template(spec: Json | None = None, labels: Json | None = None) -> Json:
    found: Json = {"app": "a"} if labels is None else labels
    return {"metadata": {"labels": found}, "spec": {**_POD, **(spec or {})}}


def _app(kind: Kind, id_: str, want: str, **spec: Any) -> Case:
    """A workload of apps/v1, which is right but for *spec*."""
    right: Json = {"selector": {"matchLabels": _LABELS}, "template": _template()}
    if kind is kinds.STATEFUL_SETS:
        right["serviceName"] = "s"
    found = {key: value for key, value in {**right, **spec}.items() if value is not None}
    name = f"{kind.kind.lower()}: {id_}"
    return Case(name, kind, {"metadata": {"name": "a"}, "spec": found}, _answer(want))


def _job(id_: str, want: str, pod: Json | None = None, **spec: Any) -> Case:
    template = _template(pod if pod is not None else {"restartPolicy": "Never"})
    found = {"template": template, **spec}
    return Case(
        f"job: {id_}", kinds.JOBS, {"metadata": {"name": "a"}, "spec": found}, _answer(want)
    )


def _cron(id_: str, want: str, name: str = "a", pod: Json | None = None, **spec: Any) -> Case:
    template = _template(pod if pod is not None else {"restartPolicy": "Never"})
    right = {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": template}}}
    found = {key: value for key, value in {**right, **spec}.items() if value is not None}
    manifest = {"metadata": {"name": name}, "spec": found}
    return Case(f"cronjob: {id_}", kinds.CRON_JOBS, manifest, _answer(want))


_APPS = (kinds.DEPLOYMENTS, kinds.REPLICA_SETS, kinds.STATEFUL_SETS, kinds.DAEMON_SETS)
_LABELS_DIFFER = "spec.template.metadata.labels Invalid"
_NO_POLICY = "spec.template.spec.restartPolicy Required"


def _apps(id_: str, want: str, *, daemons: str = "", **spec: Any) -> list[Case]:
    """The case of each kind of apps/v1; of a DaemonSet the answer is *daemons*, if it differs."""
    return [
        _app(kind, id_, daemons if daemons and kind is kinds.DAEMON_SETS else want, **spec)
        for kind in _APPS
    ]


def _expressions(*found: Json) -> Json:
    return {"matchExpressions": list(found)}


WORKLOAD_CASES: list[Case] = [
    *_apps("right", "201"),
    *_apps(
        "no selector",
        f"spec.selector Required, {_LABELS_DIFFER}",
        daemons=_LABELS_DIFFER,
        selector=None,
    ),
    *_apps("an empty selector", "spec.selector Invalid", selector={}),
    *_apps("a selector of other labels", _LABELS_DIFFER, selector={"matchLabels": {"app": "b"}}),
    *_apps(
        "an expression that does not match",
        _LABELS_DIFFER,
        selector=_expressions({"key": "app", "operator": "DoesNotExist"}),
    ),
    *_apps(
        "expressions that match",
        "201",
        selector=_expressions(
            {"key": "app", "operator": "In", "values": ["a", "b"]},
            {"key": "app", "operator": "Exists"},
            {"key": "tier", "operator": "NotIn", "values": ["x"]},
        ),
    ),
    *_apps(
        "an unknown operator",
        "spec.selector Invalid, spec.selector.matchExpressions[0].operator Invalid",
        daemons="spec.selector.matchExpressions[0].operator Invalid",
        selector=_expressions({"key": "app", "operator": "Near"}),
    ),
    *_apps(
        "no template", f"{_LABELS_DIFFER}, spec.template.spec.containers Required", template=None
    ),
    *_apps("no labels", _LABELS_DIFFER, template=_template(labels={})),
    *_apps(
        "pods that run once",
        "spec.template.spec.restartPolicy NotSupported",
        template=_template({"restartPolicy": "Never"}),
    ),
    *_apps(
        "a deadline",
        "spec.template.spec.activeDeadlineSeconds Forbidden",
        template=_template({"activeDeadlineSeconds": 5}),
    ),
    *_apps(
        "a bad pod",
        "spec.template.spec.nodeSelector Invalid",
        template=_template({"nodeSelector": {"a b": "c"}}),
    ),
    *_apps("fewer than no replicas", "spec.replicas Invalid", replicas=-1)[:3],
    *_apps("a negative time", "spec.minReadySeconds Invalid", minReadySeconds=-1),
    _app(
        kinds.DEPLOYMENTS,
        "a deadline within the time of readiness",
        "spec.progressDeadlineSeconds Invalid",
        minReadySeconds=10,
        progressDeadlineSeconds=10,
    ),
    _app(
        kinds.DEPLOYMENTS,
        "an unknown strategy",
        "spec.strategy NotSupported",
        strategy={"type": "Swap"},
    ),
    _app(
        kinds.DEPLOYMENTS,
        "rolling parameters of a recreation",
        "spec.strategy.rollingUpdate Forbidden",
        strategy={"type": "Recreate", "rollingUpdate": {"maxSurge": 1}},
    ),
    _app(
        kinds.STATEFUL_SETS,
        "an unknown order",
        "spec.podManagementPolicy Invalid",
        podManagementPolicy="Any",
    ),
    _app(kinds.STATEFUL_SETS, "no service", "201", serviceName=None),
    _job("right", "201"),
    _job("pods that restart always", _NO_POLICY, {"restartPolicy": "Always"}),
    _job("no restart policy", _NO_POLICY, {}),
    _job("a deadline", "201", {"restartPolicy": "OnFailure", "activeDeadlineSeconds": 5}),
    _job("a selector of its own", "spec.selector Invalid", selector={"matchLabels": _LABELS}),
    _job("a manual selector", "201", selector={"matchLabels": _LABELS}, manualSelector=True),
    _job(
        "a manual selector of other labels",
        _LABELS_DIFFER,
        selector={"matchLabels": {"app": "b"}},
        manualSelector=True,
    ),
    _job(
        "a manual selector that is not there",
        f"spec.selector Required, {_LABELS_DIFFER}",
        manualSelector=True,
    ),
    _job(
        "fewer than no pods",
        "spec.backoffLimit Invalid, spec.completions Invalid, spec.parallelism Invalid",
        parallelism=-1,
        completions=-1,
        backoffLimit=-1,
    ),
    _job("indexes without a number", "201", completionMode="Indexed"),
    _job(
        "indexes of as many as succeed",
        "spec.completions Required",
        completionMode="Indexed",
        parallelism=2,
    ),
    _job("an unknown mode", "spec.completionMode NotSupported", completionMode="Each"),
    _job(
        "a bad pod",
        "spec.template.spec.nodeSelector Invalid",
        {"restartPolicy": "Never", "nodeSelector": {"a b": "c"}},
    ),
    _cron("right", "201"),
    _cron("no schedule", "spec.schedule Required", schedule=None),
    _cron("a short name of a schedule", "201", schedule="@daily"),
    _cron("a long name", "metadata.name Invalid", "a" * 53),
    _cron(
        "no restart policy", "spec.jobTemplate.spec.template.spec.restartPolicy Required", pod={}
    ),
    _cron("an unknown policy", "spec.concurrencyPolicy NotSupported", concurrencyPolicy="Maybe"),
    *(
        Case(
            f"replicationcontroller: {id_}",
            kinds.REPLICATION_CONTROLLERS,
            {"metadata": {"name": "a"}, "spec": spec},
            _answer(want),
        )
        for id_, want, spec in (
            ("right", "201", {"selector": _LABELS, "template": _template()}),
            ("no selector", "201", {"template": _template()}),
            (
                "no selector and no labels",
                "spec.selector Required",
                {"template": _template(labels={})},
            ),
            (
                "other labels",
                _LABELS_DIFFER,
                {"selector": {"app": "b"}, "template": _template()},
            ),
            ("no template", "spec.template Required", {"selector": _LABELS}),
            (
                "pods that run once",
                "spec.template.spec.restartPolicy NotSupported",
                {"selector": _LABELS, "template": _template({"restartPolicy": "Never"})},
            ),
        )
    ),
]
