"""InterPodAffinity: which pods, nodes and namespaces are news to a pod that it rejected."""

import time
from typing import Any

import pytest

from engine.core.queueing.events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    ClusterEvent,
)
from engine.core.queueing.hints import Hints
from tests.builders import ZONE, make_node, make_pod
from tests.engine.core.queueing.hinting import hints_with, namespace, worth

LABELLED = ClusterEvent("AssignedPod", "UpdatePodLabel")
NODE_LABEL = ClusterEvent("Node", "UpdateNodeLabel")


def after(event: ClusterEvent, pod: Any, old: Any, new: Any, hints: Hints | None = None) -> bool:
    return worth("InterPodAffinity", event, pod, old, new, hints)


def term(app: str | None = "a", key: str = ZONE, **more: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": app}} if app else {}
    return {"topologyKey": key, "labelSelector": selector, **more}


def near(*terms: Any, **words: Any) -> Any:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}
    return make_pod("near", affinity={"podAffinity": required}, **words)


def apart(*terms: Any, **words: Any) -> Any:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}
    return make_pod("apart", affinity={"podAntiAffinity": required}, **words)


def placed(app: str | None = None, ns: str = "default", **words: Any) -> Any:
    labels = {"app": app} if app else {}
    return make_pod("other", ns, uid="other", node="n", labels=labels, **words)


TIER: dict[str, Any] = {"namespaceSelector": {"matchLabels": {"tier": "gold"}}}


# --- affinity ----------------------------------------------------------------------------------


def test_a_placed_pod_that_every_term_matches_may_help() -> None:
    both = near(term("a"), term(None, key="rack"))
    assert after(ASSIGNED_POD_ADD, near(term("a")), None, placed("a"))
    assert after(ASSIGNED_POD_ADD, both, None, placed("a"))
    assert not after(ASSIGNED_POD_ADD, both, None, placed("b"))
    assert not after(ASSIGNED_POD_ADD, near(term("a"), term("b")), None, placed("a"))
    assert not after(ASSIGNED_POD_ADD, near(term("a")), None, placed("a", ns="elsewhere"))


def test_a_pod_without_a_node_does_not_help_but_a_nominated_one_may() -> None:
    waiting = make_pod("other", labels={"app": "a"})
    nominated = make_pod("other", labels={"app": "a"}, nominated="n")
    assert not after(ASSIGNED_POD_ADD, near(term("a")), None, waiting)
    assert after(ASSIGNED_POD_ADD, near(term("a")), None, nominated)


def test_a_placed_pod_that_starts_to_match_may_help() -> None:
    assert after(LABELLED, near(term("a")), placed("b"), placed("a"))
    assert not after(LABELLED, near(term("a")), placed("a"), placed("a", annotations={"x": ""}))
    assert not after(LABELLED, near(term("a")), placed("a"), placed("b"))


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        pytest.param({"app": "a"}, True, id="it would be the first of its like"),
        pytest.param({"app": "b"}, False, id="it is not what it wants"),
    ],
)
def test_the_last_matching_pod_that_goes_may_help(labels: dict[str, str], want: bool) -> None:
    """kube-scheduler leaves such a pod waiting (kubernetes/kubernetes#141354)."""
    pod = near(term("a"), labels=labels)
    assert after(ASSIGNED_POD_DELETE, pod, placed("a"), None) is want
    assert after(LABELLED, pod, placed("a"), placed("b")) is want


# --- anti-affinity -----------------------------------------------------------------------------


def test_one_term_that_matches_a_deleted_pod_is_enough() -> None:
    pod = apart(term("a"), term("b"))
    assert after(ASSIGNED_POD_DELETE, pod, placed("a"), None)
    assert after(ASSIGNED_POD_DELETE, pod, placed("b"), None)
    assert not after(ASSIGNED_POD_DELETE, pod, placed("c"), None)
    assert after(LABELLED, pod, placed("a"), placed("c"))
    assert not after(LABELLED, pod, placed("c"), placed("a"))
    assert not after(ASSIGNED_POD_ADD, pod, None, placed("a"))


def test_one_term_that_does_not_match_a_changed_pod_any_more_is_enough() -> None:
    """kube-scheduler waits until the placed pod matches none of them."""
    pod = apart(term("a"), term(None))
    assert after(LABELLED, pod, placed("a"), placed("c"))


def test_a_deleted_pod_whose_anti_affinity_rejected_this_one_may_help() -> None:
    gone = apart(term("mine"), term("other"), node="n", uid="other")
    assert after(ASSIGNED_POD_DELETE, make_pod(labels={"app": "mine"}), gone, None)
    assert not after(ASSIGNED_POD_DELETE, make_pod(labels={"app": "else"}), gone, None)


def test_own_labels_decide_for_themselves() -> None:
    event = ClusterEvent("TargetPod", "UpdatePodLabel")
    old, new = make_pod(uid="u"), make_pod(uid="u", labels={"a": "b"})
    assert after(event, new, old, new)
    assert not after(event, make_pod(uid="v"), old, new)


def test_a_thousand_terms_are_looked_at_once_for_pods_that_are_alike() -> None:
    """Each event took a millisecond for each such pod: a hundred of them stopped everybody."""
    expressions = ({"key": f"k{i}", "operator": "Exists"} for i in range(1_000))
    terms = [{"topologyKey": ZONE, "labelSelector": {"matchExpressions": [e]}} for e in expressions]
    pod = apart(*terms)
    gone = [placed("a", annotations={"number": str(i)}) for i in range(5_000)]
    began = time.process_time()
    assert not any(after(ASSIGNED_POD_DELETE, pod, one, None) for one in gone)
    assert time.process_time() - began < 3
    last = make_pod("other", uid="other", node="n", labels={"k999": ""})
    assert after(ASSIGNED_POD_DELETE, pod, last, None)


# --- namespaces --------------------------------------------------------------------------------


def test_terms_select_namespaces_by_their_labels() -> None:
    """kube-scheduler looks at the terms without the labels of namespaces."""
    hints = hints_with(namespaces=[namespace("gold", tier="gold"), namespace("tin", tier="tin")])
    pod = near(term("a", **TIER))
    assert after(ASSIGNED_POD_ADD, pod, None, placed("a", ns="gold"), hints)
    assert not after(ASSIGNED_POD_ADD, pod, None, placed("a", ns="tin"), hints)
    assert not after(ASSIGNED_POD_ADD, pod, None, placed("a"), hints)
    anywhere = apart(term("a", namespaceSelector={}))
    assert after(ASSIGNED_POD_DELETE, anywhere, placed("a", ns="tin"), None, hints)
    named = apart(term("a", namespaces=["tin"]))
    assert after(ASSIGNED_POD_DELETE, named, placed("a", ns="tin"), None, hints)
    assert not after(ASSIGNED_POD_DELETE, named, placed("a"), None, hints)


def test_terms_that_take_namespaces_without_labels_take_no_others() -> None:
    hints = hints_with(namespaces=[namespace("gold", tier="gold")])
    missing = {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}
    untiered = term("a", namespaceSelector=missing)
    gone = placed("a", ns="gold")
    assert not after(ASSIGNED_POD_DELETE, apart(untiered), gone, None, hints)
    assert not after(ASSIGNED_POD_ADD, near(untiered), None, gone, hints)
    assert after(ASSIGNED_POD_DELETE, apart(untiered), placed("a", ns="tin"), None, hints)
    assert after(ASSIGNED_POD_ADD, near(untiered), None, placed("a", ns="tin"), hints)


@pytest.mark.parametrize(
    ("pod", "name", "want"),
    [
        pytest.param(near(term("a", **TIER)), "other", True, id="a term selects by the label"),
        pytest.param(near(term("a")), "other", False, id="no term selects"),
        pytest.param(make_pod(), "default", True, id="its own: placed pods may mean it now"),
    ],
)
def test_a_namespace_with_other_labels_may_help(pod: Any, name: str, want: bool) -> None:
    old, new = namespace(name), namespace(name, tier="gold")
    assert after(ClusterEvent("Namespace", "Update"), pod, old, new) is want
    assert after(ClusterEvent("Namespace", "Add"), pod, None, new) is want
    assert not after(ClusterEvent("Namespace", "Update"), pod, new, new)


@pytest.mark.parametrize(
    ("selector", "app", "name", "want"),
    [
        pytest.param({"matchLabels": {"tier": "gold"}}, "a", "new", True, id="unknown"),
        pytest.param({"matchLabels": {"tier": "gold"}}, "a", "tin", False, id="known"),
        pytest.param({"matchLabels": {"tier": "gold"}}, "b", "new", False, id="other pods"),
        pytest.param(None, "a", "new", False, id="no labels are looked at"),
    ],
)
def test_from_1_38_on_a_pod_in_a_namespace_that_is_not_known_yet_may_help(
    selector: Any, app: str, name: str, want: bool
) -> None:
    """Until 1.37, kube-scheduler looks at no labels of namespaces, known or not.

    Source: `termsNeedNamespaceLabels` of InterPodAffinity in kube-scheduler 1.38.
    """
    terms = term("a", namespaceSelector=selector, namespaces=["x"])
    for minor in (37, 38):
        hints = hints_with(namespaces=[namespace("tin", tier="tin")], minor=minor)
        is_news = want and minor == 38
        other = placed(app, ns=name)
        assert after(ASSIGNED_POD_ADD, near(terms), None, other, hints) is is_news
        assert after(ASSIGNED_POD_DELETE, apart(terms), other, None, hints) is is_news
        assert (
            after(LABELLED, apart(terms), other, placed(app, ns=name, annotations={"x": ""}), hints)
            is is_news
        )
        # Held against the pod that waits: the term is that of the one that goes.
        gone = apart(terms, uid="other", node="n")
        waiting = make_pod("waiting", name, labels={"app": app})
        assert after(ASSIGNED_POD_DELETE, waiting, gone, None, hints) is is_news


# --- nodes -------------------------------------------------------------------------------------


def test_a_new_node_may_help_if_it_has_the_keys_of_affinity() -> None:
    zoned, bare = make_node("n", zone="z"), make_node("n")
    assert after(NODE_ADD, near(term()), None, zoned)
    assert not after(NODE_ADD, near(term()), None, bare)
    assert after(NODE_ADD, apart(term()), None, bare)
    assert after(NODE_ADD, make_pod(), None, bare)


@pytest.mark.parametrize(
    ("pod", "old", "new", "want"),
    [
        pytest.param(near(term()), {}, {"zone": "z"}, True, id="affinity: the key came"),
        pytest.param(near(term()), {"zone": "y"}, {"zone": "z"}, True, id="affinity: it changed"),
        pytest.param(near(term()), {}, {"labels": {"x": "y"}}, False, id="affinity: another came"),
        pytest.param(apart(term()), {"zone": "y"}, {}, True, id="anti-affinity: the key went"),
        pytest.param(apart(term()), {"zone": "y"}, {"zone": "z"}, True, id="it changed"),
        pytest.param(apart(term()), {}, {"zone": "z"}, False, id="anti-affinity: the key came"),
        pytest.param(make_pod(), {"zone": "y"}, {"zone": "z"}, True, id="a term of placed pods"),
    ],
)
def test_a_node_that_changes_domains_may_help(
    pod: Any, old: dict[str, Any], new: dict[str, Any], want: bool
) -> None:
    assert after(NODE_LABEL, pod, make_node("n", **old), make_node("n", **new)) is want


def test_a_node_that_goes_takes_its_pods_out_of_their_domain() -> None:
    assert after(NODE_DELETE, apart(term()), make_node("n", zone="z"), None)


def test_a_change_next_to_an_invalid_selector_may_help() -> None:
    bad = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    pod = near({"topologyKey": ZONE, "labelSelector": bad})
    assert after(ASSIGNED_POD_ADD, pod, None, placed("x"))
