"""Fields of a pod that are made of more than one part of it."""

from typing import Any

import pytest

from engine.core.caching.objects import ObjectStore
from engine.core.caching.snapshot import Snapshot
from engine.core.model.objects import Workload, from_plain
from engine.policy.pod_views import POD_FIELDS
from tests.builders import HOSTNAME, make_pod

_ALL = {"app": "web", "tier": "front", "version": "2", "index": "7"}


def _shown(field: str, **words: Any) -> Any:
    return POD_FIELDS[field].extract(make_pod(labels=_ALL, **words), Snapshot(ObjectStore()))


def _term(**rule: Any) -> dict[str, Any]:
    return {"topologyKey": HOSTNAME, **rule}


_BY_APP = {"labelSelector": {"matchLabels": {"app": "other"}}}
_BY_TIER = {"labelSelector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}}


@pytest.mark.parametrize(
    ("kind", "rules"),
    [
        ("podAffinity", {"requiredDuringSchedulingIgnoredDuringExecution": [_term(**_BY_APP)]}),
        (
            "podAntiAffinity",
            {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": _term(**_BY_APP)}
                ]
            },
        ),
    ],
)
def test_labels_that_terms_select_by_are_shown(kind: str, rules: dict[str, Any]) -> None:
    assert _shown("selector_labels", affinity={kind: rules}) == {"app": "web"}


def test_labels_that_must_be_equal_or_differ_are_shown() -> None:
    keys = {"matchLabelKeys": ["version"], "mismatchLabelKeys": ["tier", "none"]}
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": [_term(**_BY_APP, **keys)]}
    shown = _shown("selector_labels", affinity={"podAffinity": rules})
    assert shown == {"app": "web", "tier": "front", "version": "2"}


def test_labels_that_constraints_select_by_are_shown() -> None:
    constraint = _term(
        **_BY_TIER, maxSkew=1, whenUnsatisfiable="DoNotSchedule", matchLabelKeys=["version"]
    )
    shown = _shown("selector_labels", spec={"topologySpreadConstraints": [constraint]})
    assert shown == {"tier": "front", "version": "2"}


def test_selectors_of_namespaces_name_no_label_of_the_pod() -> None:
    term = _term(namespaceSelector={"matchLabels": {"app": "web"}})
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    assert _shown("selector_labels", affinity={"podAffinity": rules}) == {}


def test_without_rules_no_label_is_shown() -> None:
    assert _shown("selector_labels") == {}


@pytest.mark.parametrize(("selected", "selects_pod"), [("web", True), ("before", False)])
def test_the_selector_of_an_owner_may_not_select_the_pod(selected: str, selects_pod: bool) -> None:
    """As after an edit of its labels, until the owner has let it go."""
    objects = ObjectStore()
    selector = {"matchLabels": {"app": selected}}
    meta = {"name": "web-1", "namespace": "default"}
    objects.put(
        "replicasets", from_plain(Workload, {"metadata": meta, "spec": {"selector": selector}})
    )
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u"}
    pod = make_pod(labels=_ALL, owner=owner)
    shown = POD_FIELDS["spread_selector"].extract(pod, Snapshot(objects))
    assert shown["selects_pod"] is selects_pod
