"""PodTopologySpread: which pods, nodes and owners are news to a pod that it rejected."""

import time
from typing import Any

import pytest

from engine.core.model.objects import ObjectMeta, Service, ServiceSpec
from engine.core.queueing.events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    ClusterEvent,
)
from engine.core.queueing.hints import Hints
from tests.builders import ZONE, make_node, make_pod, taint, toleration
from tests.engine.core.queueing.hinting import hints_with, worth

NODE_LABEL = ClusterEvent("Node", "UpdateNodeLabel")
NODE_TAINT = ClusterEvent("Node", "UpdateNodeTaint")


def after(event: ClusterEvent, pod: Any, old: Any, new: Any, hints: Hints | None = None) -> bool:
    return worth("PodTopologySpread", event, pod, old, new, hints)


def rule(**more: Any) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
        **more,
    }


def spread(*rules: Any, **words: Any) -> Any:
    words = {"labels": {"app": "a"}, **words}
    return make_pod("spread", uid="u", topology_spread=list(rules or [rule()]), **words)


def placed(app: str = "a", ns: str = "default", **words: Any) -> Any:
    return make_pod("other", ns, uid="other", node="n", labels={"app": app}, **words)


# --- pods --------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [ASSIGNED_POD_ADD, ASSIGNED_POD_DELETE])
def test_placed_pods_that_are_counted_may_help(event: ClusterEvent) -> None:
    def may_help(other: Any) -> bool:
        old, new = (None, other) if event == ASSIGNED_POD_ADD else (other, None)
        return after(event, spread(), old, new)

    assert may_help(placed())
    assert not may_help(placed("b"))
    assert not may_help(placed(ns="elsewhere"))


def test_pods_are_counted_by_the_keys_that_have_to_be_equal() -> None:
    pod = spread(rule(matchLabelKeys=["app", "v"]), labels={"app": "a", "v": "2"})
    same = make_pod("other", node="n", labels={"app": "a", "v": "2"})
    assert after(ASSIGNED_POD_ADD, pod, None, same)
    assert not after(ASSIGNED_POD_ADD, pod, None, placed())


def test_a_placed_pod_that_comes_to_be_counted_or_not_may_help() -> None:
    event = ClusterEvent("AssignedPod", "UpdatePodLabel")
    assert after(event, spread(), placed("a"), placed("b"))
    assert after(event, spread(), placed("b"), placed("a"))
    assert not after(event, spread(), placed("b"), placed("c"))


def test_a_pod_on_its_way_out_is_not_counted_any_more() -> None:
    """kube-scheduler waits until it is gone."""
    event = ClusterEvent("AssignedPod", "UpdatePodTerminating")
    assert after(event, spread(), placed(), placed(terminating=True))
    assert not after(event, spread(), placed("b"), placed("b", terminating=True))


def test_own_labels_and_tolerations() -> None:
    honours, old = spread(rule(nodeTaintsPolicy="Honor")), spread()
    more = spread(tolerations=[toleration("a")])
    toleration_came = ClusterEvent("TargetPod", "UpdatePodToleration")
    assert after(toleration_came, honours, old, more)
    assert not after(toleration_came, spread(), old, more)
    assert after(ClusterEvent("TargetPod", "UpdatePodLabel"), spread(), old, spread(labels={}))


# --- nodes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "old", "new", "want"),
    [
        pytest.param(spread(), None, {"zone": "z"}, True, id="a domain comes"),
        pytest.param(spread(), None, {}, False, id="a node without the key comes"),
        pytest.param(spread(), {"zone": "z"}, None, True, id="a domain goes"),
        pytest.param(spread(), {}, None, False, id="a node without the key goes"),
        pytest.param(spread(), {}, {"zone": "z"}, True, id="the key comes"),
        pytest.param(spread(), {"zone": "y"}, {"zone": "z"}, True, id="another domain"),
        pytest.param(
            spread(), {"zone": "z"}, {"zone": "z", "labels": {"x": "y"}}, False, id="other label"
        ),
        pytest.param(
            spread(rule(), rule(topologyKey="rack")),
            {"zone": "y"},
            {"zone": "z"},
            False,
            id="not every key",
        ),
    ],
)
def test_domains_that_come_go_and_change_may_help(
    pod: Any, old: dict[str, Any] | None, new: dict[str, Any] | None, want: bool
) -> None:
    event = NODE_ADD if old is None else NODE_DELETE if new is None else NODE_LABEL
    before, now = (None if words is None else make_node("n", **words) for words in (old, new))
    assert after(event, pod, before, now) is want


def test_a_node_that_stops_counting_because_of_another_label_may_help() -> None:
    """Its empty domain held the others down; kube-scheduler looks at the domain's key alone."""
    fast, slow = make_node("n", zone="z", labels={"disk": "ssd"}), make_node("n", zone="z")
    choosy = {"node_selector": {"disk": "ssd"}}
    assert after(NODE_LABEL, spread(**choosy), fast, slow)
    assert not after(NODE_LABEL, spread(rule(nodeAffinityPolicy="Ignore"), **choosy), fast, slow)


def test_taints_count_where_they_are_honoured() -> None:
    clean, tainted = make_node("n", zone="z"), make_node("n", zone="z", taints=[taint("a")])
    honours = spread(rule(nodeTaintsPolicy="Honor"))
    assert after(NODE_TAINT, honours, tainted, clean)
    assert not after(NODE_TAINT, spread(), tainted, clean)
    bears = spread(rule(nodeTaintsPolicy="Honor"), tolerations=[toleration("a")])
    assert not after(NODE_TAINT, bears, tainted, clean)


# --- default constraints -----------------------------------------------------------------------


def by_default(*services: Service) -> Hints:
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    arguments = {"defaultingType": "List", "defaultConstraints": [constraint]}
    return hints_with({"PodTopologySpread": arguments}, services=list(services))


def service(app: str, ns: str = "default") -> Service:
    return Service(ObjectMeta(name=app, namespace=ns), ServiceSpec({"app": app}))


def test_default_constraints_count_what_the_services_select() -> None:
    pod, hints = make_pod(labels={"app": "a"}), by_default(service("a"))
    assert after(ASSIGNED_POD_ADD, pod, None, placed(), hints)
    assert not after(ASSIGNED_POD_ADD, pod, None, placed("b"), hints)


def test_services_may_help_where_default_constraints_can_reject() -> None:
    event, pod = ClusterEvent("Service", "Delete"), make_pod(labels={"app": "a"})
    assert after(event, pod, service("a"), None, by_default())
    assert not after(event, pod, service("a", "elsewhere"), None, by_default())
    assert not after(event, spread(), service("a"), None, by_default())
    assert not after(event, pod, service("a"), None)


def test_a_thousand_constraints_are_looked_at_once_for_pods_that_are_alike() -> None:
    """Each event took a millisecond for each such pod: a hundred of them stopped everybody."""
    selectors = ({"matchLabels": {"app": f"x{i}"}} for i in range(1_000))
    rules = [rule(topologyKey=f"k{i}", labelSelector=one) for i, one in enumerate(selectors)]
    pod = spread(*rules)
    gone = make_pod("other", node="n", labels={"app": "b"})
    began = time.process_time()
    assert not any(after(ASSIGNED_POD_DELETE, pod, gone, None) for _ in range(5_000))
    assert time.process_time() - began < 4
    counted = make_pod("other", node="n", labels={"app": "x999"})
    assert after(ASSIGNED_POD_DELETE, pod, counted, None)
