"""NodeInfo: sums that follow the pods, and versions that never change."""

import random

from engine.core.model.node_info import NodeInfo
from tests.builders import container, make_node, make_pod

MIB = 2**20


def test_sums_follow_the_pods() -> None:
    one = make_pod("a", requests={"cpu": "1", "memory": "1Mi", "example.com/foo": 1}, ports=[80])
    other = make_pod("b", requests={"cpu": "500m"})
    info = NodeInfo("n", make_node("n")).with_pod(one).with_pod(other)
    assert info.requested == {"cpu": 1500, "memory": MIB, "example.com/foo": 1}
    assert info.nonzero_requested == {"cpu": 1500, "memory": 201 * MIB}
    assert info.used_ports == {("0.0.0.0", "TCP", 80): 1}
    assert info.pod_count == 2
    without = info.without_pod(one.uid)
    assert without.requested == {"cpu": 500}
    assert without.nonzero_requested == {"cpu": 500, "memory": 200 * MIB}
    assert without.used_ports == {}


def test_a_version_never_changes() -> None:
    empty = NodeInfo("n", make_node("n"))
    pod = make_pod(cpu="1", ports=[80])
    full = empty.with_pod(pod)
    full.without_pod(pod.uid)
    full.with_pod(make_pod("b", cpu="2", ports=[80]))
    assert (dict(empty.pods), empty.requested, empty.used_ports) == ({}, {}, {})
    assert (list(full.pods), full.requested) == ([pod.uid], {"cpu": 1000})
    assert full.used_ports == {("0.0.0.0", "TCP", 80): 1}


def test_a_pod_of_the_same_uid_is_replaced() -> None:
    old = make_pod(cpu="1", uid="u", node="n", ports=[80])
    new = make_pod(cpu="2", uid="u", node="n", labels={"a": "b"})
    info = NodeInfo("n").with_pod(old).with_pod(new)
    assert (info.requested, info.used_ports) == ({"cpu": 2000}, {})
    assert dict(info.pods) == {"u": new}
    again = make_pod(cpu="2", uid="u", node="n")
    assert dict(info.with_pod(again).pods) == {"u": again}
    assert info.with_pod(again).requested is info.requested


def test_two_pods_on_one_port_hold_it_until_both_are_gone() -> None:
    one, other = make_pod("a", ports=[80]), make_pod("b", ports=[80])
    info = NodeInfo("n", None, [one, other])
    assert info.used_ports == {("0.0.0.0", "TCP", 80): 2}
    assert info.without_pod(one.uid).used_ports == {("0.0.0.0", "TCP", 80): 1}


def test_generations_grow_over_all_nodes() -> None:
    one = NodeInfo("a")
    other = NodeInfo("b")
    assert one.generation < other.generation < one.with_node(make_node("a")).generation


def test_zero_requests_leave_no_trace_so_equal_contents_are_equal() -> None:
    pod = make_pod(containers=[container("a", requests={"cpu": "0", "example.com/foo": 0})])
    assert NodeInfo("n").with_pod(pod).requested == {}


def test_the_lowest_priority_follows_the_pods() -> None:
    low, high = make_pod("low", priority=-5), make_pod("high", priority=7)
    info = NodeInfo("n", None, [high])
    assert info.lowest_priority == 7
    both = info.with_pod(low)
    assert (both.lowest_priority, info.lowest_priority) == (-5, 7)
    assert both.without_pod(high.uid).lowest_priority == -5
    assert both.without_pod(low.uid).lowest_priority == 7
    assert both.with_pod(make_pod("low", priority=3, uid=low.uid)).lowest_priority == 3
    assert info.without_pod(high.uid).lowest_priority > 10**9


def test_the_last_changes_of_its_pods_are_known() -> None:
    rng = random.Random(7)
    info = NodeInfo("n", make_node("n"), [make_pod(f"p{n}", uid=f"u{n}") for n in range(5)])
    lineage = [info]
    known = 0
    for step in range(200):
        uid = f"u{rng.randrange(8)}"
        if step % 5 == 0:
            info = info.with_node(make_node("n", labels={"step": str(step)}))
        elif uid in info.pods and step % 2:
            info = info.without_pod(uid)
        else:
            info = info.with_pod(make_pod(uid, uid=uid, cpu=rng.choice(["1", "2"])))
        lineage.append(info)
        for before in lineage[-12:]:
            found = info.pods_since(before.pods_version)
            if found is None:
                continue
            known += before.pods_version != info.pods_version
            others = (before.pods.keys() | info.pods.keys()) - set(found)
            assert all(before.pods[uid] is info.pods[uid] for uid in others)
        for before in lineage[-5:]:
            assert info.pods_since(before.pods_version) is not None
    assert known > 200
    assert info.pods_since(lineage[0].pods_version) is None, "too long ago"


def test_of_many_pods_more_changes_are_known() -> None:
    """With eight changes, a node of 40,000 pods was counted anew for most decisions."""
    info = NodeInfo("n", make_node("n"), [make_pod(f"p{n}", uid=f"u{n}") for n in range(800)])
    start = info.pods_version
    for n in range(50):
        info = info.without_pod(f"u{n}")
    assert info.pods_since(start) == [f"u{n}" for n in range(50)]


def test_changes_of_another_line_of_versions_are_not_mistaken_for_its_own() -> None:
    start = NodeInfo("n", make_node("n"))
    one, other = start.with_pod(make_pod("a")), start.with_pod(make_pod("b"))
    assert one.pods_since(other.pods_version) is None
    assert one.with_pod(make_pod("c")).pods_since(other.pods_version) is None
    assert NodeInfo("m").pods_since(start.pods_version) is None
