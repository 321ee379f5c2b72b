"""Permit: which pods wait, for how long, which go together, and what is undone."""

from typing import Any

import pytest

from engine.core.kernel.events import Stopped, TurnBegan, WaitingPodPreempted
from engine.core.kernel.instructions import ReportFailure, ReportGroupReleased, ReportWaiting
from engine.core.model.pod import Pod
from engine.core.scheduling.placement import Placement
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import MOST_TURNS, World, member
from tests.engine.lib.hostile import HOSTILE, raw_in, starlark
from tests.profiles import only

# In the group of its label; leave is given when the policy's argument says so.
PATIENT = """
args = plugin_args(seconds = 60.0)

def group_of(pod):
    return gang(pod.labels["group"]) if "group" in pod.labels else None

def permit(pod, group):
    return wait(args.seconds) if group != None else None
"""

_SORT = "{name: PrioritySort}, "


def patient(seconds: str = "60.0") -> dict[str, str]:
    return {"patient.star": PATIENT.replace("60.0", seconds)}


def permitting(body: str, **more: str) -> dict[str, str]:
    return {"mine.star": f"def permit(pod, group):\n    return {body}\n", **more}


def grown(world: World, cpu: int = 8) -> World:
    world.add_node(make_node("n", cpu=cpu))
    return world


def decided(world: World, *pods: Pod) -> World:
    for pod in pods:
        world.add(pod)
    assert not world.turns(MOST_TURNS)
    world.check()
    return world


def waits(world: World, result: str) -> tuple[float, float]:
    """How many pods waited with this end, and their seconds."""
    name = "scheduler_permit_wait_duration_seconds"
    values = [
        world.registry.get_sample_value(f"{name}_{part}", {"result": result}) or 0.0
        for part in ("count", "sum")
    ]
    return values[0], values[1]


def state(world: World, pod: Pod) -> dict[str, Any]:
    return world.queue.describe(pod.key)


def reported(world: World, since: int = 0) -> list[tuple[str, str, str]]:
    """The events that users see, with reason and text; those of the first *since* are left out."""
    found: list[tuple[str, str, str]] = []
    for one in world.done:
        if isinstance(one, ReportWaiting):
            found.append((one.pod.name, "WaitingOnPermit", one.text))
        elif isinstance(one, ReportFailure) and one.is_queued and one.rejection.is_reported:
            found.append((one.pod.name, "FailedScheduling", one.rejection.message))
    return found[since:]


def labelled(name: str, group: str, **words: Any) -> Pod:
    return make_pod(name, cpu=1, labels={"group": group}, **words)


# --- one pod -------------------------------------------------------------------------------


def test_without_a_permit_every_placement_goes_on_at_once() -> None:
    world = decided(grown(World({})), make_pod("web", cpu=1))
    assert [p.pod.name for p in world.bindings] == ["web"]
    assert waits(world, "Success") == (0, 0)


def test_leave_at_once_is_no_wait() -> None:
    world = decided(grown(World(permitting("None"))), make_pod("web", cpu=1))
    assert [p.pod.name for p in world.bindings] == ["web"]
    assert waits(world, "Success") == (0, 0)


@pytest.mark.parametrize(
    ("body", "bound", "status"),
    [
        pytest.param("None", 3, "Success", id="approved"),
        pytest.param('"no"', 0, "Unschedulable", id="refused"),
        pytest.param("wait(30)", 0, "Wait", id="waiting"),
        pytest.param("None if group else wait(30)", 0, "Wait", id="waiting in no group"),
    ],
)
def test_every_pod_outside_of_groups_gets_the_same_answer(
    body: str, bound: int, status: str
) -> None:
    """Once it is known that a policy approves such pods it is not asked again."""
    world = grown(World(permitting(body)))
    decided(world, *[make_pod(f"p{number}", cpu=1) for number in range(3)])
    assert len(world.bindings) == bound
    labels = {"extension_point": "Permit", "status": status, "profile": "default-scheduler"}
    name = "scheduler_framework_extension_point_duration_seconds_count"
    assert world.registry.get_sample_value(name, labels) == 3


def test_a_pod_of_a_group_is_asked_about_after_others_were_approved() -> None:
    world = decided(grown(World(patient())), make_pod("web", cpu=1), make_pod("db", cpu=1))
    decided(world, labelled("slow", "g"))
    assert ([p.pod.name for p in world.bindings], len(world.permits)) == (["web", "db"], 1)


def test_a_refused_pod_gives_its_capacity_back_and_is_rejected_by_the_policy() -> None:
    world = decided(grown(World(permitting('"no"'))), pod := make_pod("web", cpu=1))
    assert world.bindings == []
    assert world.cache.pod_count == 0
    assert state(world, pod)["rejectors"] == ["mine"]


def test_a_permit_that_fails_costs_the_attempt() -> None:
    world = decided(grown(World(permitting("group.name"))), pod := make_pod("web", cpu=1))
    assert world.cache.pod_count == 0
    assert (state(world, pod)["queue"], state(world, pod)["error_count"]) == ("backoff", 1)


def test_all_permits_have_to_approve() -> None:
    files = permitting("None", **{"other.star": 'def permit(pod, group): return "no"\n'})
    world = decided(grown(World(files)), pod := make_pod("web", cpu=1))
    assert state(world, pod)["rejectors"] == ["other"]


def test_a_pod_outside_of_groups_waits_out_its_time() -> None:
    world = decided(grown(World(permitting("wait(30)"))), pod := make_pod("web", cpu=1))
    assert len(world.permits) == 1
    world.wait(29.0)
    assert len(world.permits) == 1
    world.wait(1.0)
    assert (len(world.permits), world.cache.pod_count) == (0, 0)
    assert waits(world, "Unschedulable") == (1, 30.0)
    assert state(world, pod)["queue"] == "backoff"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        pytest.param("60.0", "1m0s", id="as asked"),
        pytest.param("1.5", "1.5s", id="part of a second"),
        pytest.param("86400.0", "15m0s", id="never more than 15 minutes"),
    ],
)
def test_the_end_of_a_wait_says_how_long_it_was(seconds: str, text: str) -> None:
    world = decided(grown(World(patient(seconds))), labelled("slow", "g"))
    world.wait(min(float(seconds), 900.0))
    reason = f"rejected due to timeout after waiting {text} at plugin patient"
    more = "permit: on node `n`, waiting for the rest of its group."
    notes = [note for _, _, note in reported(world)]
    assert notes == [f"0/1 nodes are available: 1 {reason}. {more}"]


def test_a_pod_that_waits_says_on_which_node_for_whom_how_long_and_what_for() -> None:
    """It looked as if nobody had seen it: no event, no condition, for up to fifteen minutes."""
    world = decided(
        grown(World(permitting('wait(90, "the licence server is asked")'))),
        make_pod("web", cpu=1),
    )
    world.wait(0.5)
    assert reported(world) == []
    world.wait(0.5)
    answer = "waiting on node `n` for policy `mine`, 1m30s at most: the licence server is asked"
    assert reported(world) == [("web", "WaitingOnPermit", answer)]
    world.wait(62.0)
    assert len(reported(world)) == 1


def test_what_a_pod_waits_for_is_reported_again_when_it_changes_but_not_all_the_time() -> None:
    files = {"patient.star": PATIENT.replace("args.seconds", "600, str(group.pod_count)")}
    world = decided(grown(World(files)), labelled("g-0", "g"))
    world.wait(1.0)
    for number in range(1, 4):
        decided(world, labelled(f"g-{number}", "g"))
        world.wait(5.0)
    world.wait(60.0)
    answer = "waiting on node `n` for policy `patient`, 10m0s at most: {}"
    told = [note for name, _, note in reported(world) if name == "g-0"]
    assert told == [answer.format(1), answer.format(4)]


def test_a_group_that_lets_go_says_why() -> None:
    world = grown(World(), cpu=2)
    decided(world, *(member(f"a-{i}", "a", 3, 1, 0) for i in range(3)))
    why = "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
    lost = f"pod group is unschedulable, {why}"
    assert reported(world) == [
        ("a-0", "FailedScheduling", lost),
        ("a-1", "FailedScheduling", lost),
        ("a-2", "FailedScheduling", "0/1 nodes are available: 1 Insufficient cpu."),
    ]


def test_a_group_whose_pod_waited_in_vain_says_which_and_what_for() -> None:
    world = decided(grown(World(patient())), labelled("g-0", "g"))
    world.wait(30.0)
    decided(world, labelled("g-1", "g"))
    world.wait(30.0)
    waited = "pod `default/g-0` waited 1m0s at plugin patient, waiting for the rest of its group"
    lost = "0/1 nodes are available: 1 pod group is unschedulable."
    why = f"permit: of its group `g` {waited}."
    assert ("g-1", "FailedScheduling", f"{lost} {why}") in reported(world)


def test_a_pod_that_is_bound_elsewhere_while_it_waits_is_not_bound_here() -> None:
    world = decided(grown(World(patient())), pod := labelled("slow", "g"))
    world.change(pod.with_node("elsewhere"))
    world.check()
    assert (len(world.permits), world.bindings) == (0, [])
    counted = world.cache.get_pod(pod.uid)
    assert counted is not None
    assert counted.node_name == "elsewhere"


def test_what_plugins_hold_is_let_go_in_reverse_when_permit_rejects() -> None:
    world = grown(World(patient()))
    undone: list[tuple[str, Any]] = []

    class Holder:
        def __init__(self, name: str) -> None:
            self.name = name

        def unreserve(self, state: Any, pod: Pod, node_name: str) -> None:
            undone.append((self.name, state))

    world.add(pod := labelled("slow", "g"))
    queued = world.queue.pop()
    assert queued is not None
    placement = Placement(
        queued=queued,
        pod=world.cache.assume(pod, "n"),
        node="n",
        profile=pod.scheduler_name,
        revision="",
        started_at=0.0,
        reserves=((Holder("a"), 1), (Holder("b"), 2)),  # type: ignore[arg-type]  # all that is asked
    )
    world.kernel.permits.ask([placement])
    assert undone == []
    world.delete(pod.name)
    assert undone == [("b", 2), ("a", 1)]


# --- groups --------------------------------------------------------------------------------


def test_the_last_one_that_was_missing_lets_all_go() -> None:
    world = grown(World())
    pods = [member(f"a-{i}", "a", 3, 1, 0) for i in range(3)]
    decided(world, *pods[:2])
    assert [state(world, pod)["gated_by"] for pod in pods[:2]] == ["GangScheduling"] * 2
    decided(world, pods[2])
    assert {p.pod.name for p in world.bindings} == {"a-0", "a-1", "a-2"}
    assert waits(world, "Success")[0] == 0  # all are asked about at once


def test_a_rejected_pod_releases_all_that_wait_and_spares_the_others_their_turn() -> None:
    world = grown(World(), cpu=3)
    pods = [member(f"a-{i}", "a", 4, 2, 0) for i in range(4)]
    decided(world, *pods)
    assert (len(world.permits), world.cache.pod_count) == (0, 0)
    rejectors = {pod.name: state(world, pod)["rejectors"] for pod in pods}
    assert rejectors == {
        "a-0": ["PodGroup"],
        "a-1": ["NodeResourcesFit"],
        "a-2": ["PodGroup"],
        "a-3": ["PodGroup"],
    }
    assert [state(world, pod)["queue"] for pod in pods] == ["unschedulable"] * 4


def test_a_rejected_pod_that_is_not_needed_releases_no_pod() -> None:
    world = grown(World(), cpu=3)
    pods = [member("a-0", "a", 2, 1, 0), member("a-1", "a", 2, 9, 0), member("a-2", "a", 2, 1, 0)]
    decided(world, *pods)
    assert {p.pod.name for p in world.bindings} == {"a-0", "a-2"}


def test_one_whose_time_is_up_takes_its_group_along() -> None:
    world = decided(grown(World(patient())), *(labelled(f"g-{i}", "g") for i in range(3)))
    assert len(world.permits) == 3
    world.wait(60.0)
    assert (len(world.permits), world.cache.pod_count) == (0, 0)
    assert waits(world, "Unschedulable") == (3, 180.0)
    released = [one for one in world.done if isinstance(one, ReportGroupReleased)]
    assert released == [ReportGroupReleased("default/g", "default-scheduler", 2)]
    # They are tried again by themselves, together.
    world.wait(2.0)
    assert not world.turns(MOST_TURNS)
    assert len(world.permits) == 3


def test_one_that_is_deleted_releases_a_group_that_needs_it() -> None:
    world = decided(grown(World(patient())), *(labelled(f"g-{i}", "g") for i in range(3)))
    world.delete("g-1")
    assert (len(world.permits), world.cache.pod_count) == (0, 0)


def test_one_that_is_preempted_while_it_waits_is_tried_again_after_its_backoff() -> None:
    world = decided(grown(World(permitting("wait(30)"))), pod := make_pod("web", cpu=1))
    world.report(WaitingPodPreempted(pod.uid))
    world.check()
    assert (len(world.permits), world.cache.pod_count, world.bindings) == (0, 0, [])
    assert state(world, pod)["queue"] == "backoff"
    assert state(world, pod)["rejectors"] == []
    assert world.report(WaitingPodPreempted(pod.uid)) == []


def test_one_whose_node_is_deleted_while_it_waits_looks_for_another() -> None:
    """It was bound to the node that was no more, up to fifteen minutes later."""
    world = decided(grown(World(permitting("wait(30)"))), pod := make_pod("web", cpu=1))
    world.add_node(other := make_node("other", cpu=8))
    world.delete_node(other)
    assert len(world.permits) == 1
    world.delete_node(make_node("n", cpu=8))
    world.check()
    assert (len(world.permits), world.cache.pod_count, world.bindings) == (0, 0, [])
    assert state(world, pod)["queue"] == "backoff"
    world.add_node(make_node("n", cpu=8))
    world.wait(2.0)
    decided(world)
    assert len(world.permits) == 1


def test_a_group_does_not_go_to_a_node_that_is_deleted_while_it_waits() -> None:
    pods = [labelled(f"g-{i}", "g") for i in range(3)]
    world = decided(grown(World(patient())), *pods)
    world.delete_node(make_node("n", cpu=8))
    world.check()
    assert (len(world.permits), world.cache.pod_count, world.bindings) == (0, 0, [])


def test_one_that_is_preempted_releases_a_group_that_needs_it() -> None:
    pods = [labelled(f"g-{i}", "g") for i in range(3)]
    world = decided(grown(World(patient())), *pods)
    world.report(WaitingPodPreempted(pods[1].uid))
    assert (len(world.permits), world.cache.pod_count) == (0, 0)


def test_a_pod_that_missed_the_capacity_is_tried_when_it_is_free() -> None:
    world = decided(grown(World(patient()), cpu=3), *(labelled(f"g-{i}", "g") for i in range(3)))
    single = make_pod("single", cpu=3, priority=5)
    decided(world, single)
    assert state(world, single)["rejectors"] == ["NodeResourcesFit"]
    world.wait(60.0)
    assert not world.turns(MOST_TURNS)
    assert [p.pod.name for p in world.bindings] == ["single"]


def test_groups_of_one_name_in_two_namespaces_are_two() -> None:
    world = grown(World())
    for namespace in ("x", "y"):
        labels = {"group": "a", "min": "2"}
        decided(world, make_pod(f"{namespace}-0", namespace, cpu=1, labels=labels))
    assert world.bindings == []
    decided(world, make_pod("y-1", "y", cpu=1, labels={"group": "a", "min": "2"}))
    assert {p.pod.name for p in world.bindings} == {"y-0", "y-1"}


def test_pods_that_wait_in_the_queue_move_as_their_group_grows() -> None:
    by_size = """
def group_of(pod):
    return gang(pod.labels["group"])

def queue_key(pod, group):
    return -group.pod_count
"""
    world = grown(World({"by_size.star": by_size, "p.yaml": only("by_size").replace(_SORT, "")}))
    pods = [labelled("a1", "a"), labelled("b1", "b"), labelled("b2", "b"), labelled("c1", "c")]
    decided(world, *pods)
    assert [p.pod.name for p in world.bindings] == ["b1", "b2", "a1", "c1"]


def test_a_pod_whose_label_changes_changes_its_group() -> None:
    world = grown(World())
    stray = member("stray", "b", 2, 1, 0)
    decided(world, member("a-0", "a", 2, 1, 0), stray)
    assert world.bindings == []
    moved = make_pod(
        "stray", uid=stray.uid, cpu=1, labels={"group": "a", "min": "2"}, resource_version="2"
    )
    world.change(moved)
    assert not world.turns(MOST_TURNS)
    assert {p.pod.name for p in world.bindings} == {"a-0", "stray"}


@pytest.mark.parametrize(
    ("labels", "bound"),
    [
        pytest.param({"group": "b"}, False, id="to one that waits, too"),
        pytest.param({}, True, id="to none"),
    ],
)
def test_one_that_changes_its_group_while_it_waits_is_decided_again(
    labels: dict[str, str], bound: bool
) -> None:
    """It kept its node for as long as its old group would have: none of the new one was asked."""
    pods = [labelled(f"a-{i}", "a") for i in range(3)]
    world = decided(grown(World(patient())), *pods)
    assert len(world.permits) == 3
    moved = pods[0]
    world.change(make_pod(moved.name, uid=moved.uid, cpu=1, labels=labels))
    world.report(TurnBegan())
    world.check()
    assert (len(world.permits), world.bindings, world.cache.pod_count) == (0, [], 0)
    world.wait(11.0)
    assert not world.turns(MOST_TURNS)
    assert [p.pod.name for p in world.bindings] == ([moved.name] if bound else [])


def test_a_binding_that_fails_is_made_up_for_alone() -> None:
    world = decided(grown(World()), *(member(f"a-{i}", "a", 3, 1, 0) for i in range(3)))
    world.end_binding(0, succeeds=False)
    world.end_binding(0, succeeds=True)
    world.end_binding(0, succeeds=True)
    world.come_to_rest()
    assert all(pod.node_name for pod in world.known.values())


def test_a_switch_of_policies_puts_those_that_wait_back_and_tries_them_at_once() -> None:
    world = decided(grown(World(patient())), *(labelled(f"g-{i}", "g") for i in range(2)))
    world.switch()
    world.check()
    assert (len(world.permits), world.cache.pod_count) == (0, 0)
    assert world.queue.counts()["active"] == 2


def test_after_the_end_no_pod_is_approved() -> None:
    world = decided(grown(World(patient())), *(labelled(f"g-{i}", "g") for i in range(2)))
    assert len(world.permits) == 2
    world.report(Stopped())
    world.delete("g-0")
    world.wait(60.0)
    assert (len(world.permits), world.bindings) == (0, [])


def test_one_that_is_preempted_while_it_waits_goes_with_its_group() -> None:
    world = decided(grown(World(patient())), *(pods := [labelled(f"g-{i}", "g") for i in range(2)]))
    assert world.report(WaitingPodPreempted("unknown")) == []
    world.report(WaitingPodPreempted(pods[0].uid))
    world.check()
    assert (len(world.permits), world.cache.pod_count) == (0, 0)
    assert state(world, pods[0])["queue"] == "backoff"


@pytest.mark.parametrize(
    ("hook", "body"),
    [
        ("permit(pod, group)", "wait(30, {})"),
        ("permit(pod, group)", "{}"),
        ("permit(pod, group)", "unresolvable([{}])"),
        ("pre_enqueue(pod)", "{}"),
        ("filter(pod, node)", "{}"),
        ("filter(pod, node)", "unresolvable({})"),
        ("pre_filter(pod)", "unresolvable({})"),
    ],
)
def test_a_reason_is_printable_and_has_an_end_wherever_it_is_given(hook: str, body: str) -> None:
    """`wait(900, reason = "w" * 100000)` was a condition of 100,070 characters."""
    text = body.format(f"{starlark(HOSTILE)} + 'w' * 100000")
    world = grown(World({"mine.star": f"def {hook}:\n    return {text}\n"}))
    world.add(make_pod("web", cpu=1))
    world.turns(MOST_TURNS)
    world.wait(1.5)
    said = [
        value
        for one in world.done
        for value in (
            getattr(one, "text", ""),
            getattr(one, "reason", ""),
            getattr(getattr(one, "rejection", None), "message", ""),
        )
        if isinstance(value, str) and "owned" in value
    ]
    assert said
    assert all(raw_in(one) == [] and "\n" not in one and len(one) < 2_500 for one in said)
