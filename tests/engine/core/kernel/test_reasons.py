"""Why pods wait, as reason tokens: from what policies say to the queue and to the condition."""

from typing import Any

import pytest

from engine.core.framework.reasons import UNSCHEDULABLE, Reason
from engine.core.kernel.instructions import Instruction, ReportFailure, ReportGate
from engine.core.queueing.queued_pod import QueuedPod
from tests.builders import make_node, make_pod, taint
from tests.engine.core.kernel.small_world import MOST_TURNS, World
from tests.profiles import only

_TOKEN = "TeamQuota"


def _world(text: str, *plugins: str, name: str = "team_quota") -> World:
    """Two nodes and a policy."""
    world = World({f"{name}.star": text, "profile.yaml": only(*plugins, name)})
    world.add_node(make_node("a", labels={"zone": "x"}))
    world.add_node(make_node("b"))
    return world


def _tried(world: World, **words: Any) -> QueuedPod:
    """A pod that was tried; it is in no place but the queue's."""
    world.add(make_pod("p", **words))
    world.turns(MOST_TURNS)
    world.check()
    queued = world.queue._places.named("default/p")
    assert queued is not None
    return queued


def _last(world: World, kind: type[Instruction]) -> Any:
    return [one for one in world.done if isinstance(one, kind)][-1]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(
            'def filter(pod, node):\n    return "no" if node.name != "z" else None\n',
            Reason("TeamQuota", "team_quota", True, UNSCHEDULABLE),
            id="a filter that looks at nodes",
        ),
        pytest.param(
            'def filter(pod, node):\n    return "no" if pod.namespace else None\n',
            Reason("TeamQuota", "team_quota", False, "TeamQuota"),
            id="a filter that looks at none",
        ),
        pytest.param(
            'def filter(pod, node):\n    return reject(["no", "never"], token = "SoldOut")\n',
            Reason("SoldOut", "team_quota", False, "SoldOut"),
            id="a token of its own",
        ),
        pytest.param(
            "def filter(pod, node):\n"
            '    return unresolvable("no", "QuotaReached") if node.name else None\n',
            Reason("QuotaReached", "team_quota", False, "QuotaReached"),
            id="a word of the table",
        ),
        pytest.param(
            'def pre_filter(pod):\n    return reject("no", token = "SoldOut")\n',
            Reason("SoldOut", "team_quota", False, "SoldOut"),
            id="a pre-filter",
        ),
        pytest.param(
            'def pre_filter(pod):\n    return unresolvable("no")\n',
            Reason("TeamQuota", "team_quota", False, "TeamQuota"),
            id="a pre-filter without a token",
        ),
        pytest.param(
            "def pre_filter(pod, cluster):\n"
            '    return reject("no") if cluster.node_count < 5 else None\n',
            Reason("TeamQuota", "team_quota", True, UNSCHEDULABLE),
            id="a pre-filter that looks at the cluster",
        ),
        pytest.param(
            "def counters(pod):\n"
            "    return [count_pods(None, labels = {}, namespaces = [pod.namespace])]\n\n"
            "def filter(pod, node, counts):\n"
            '    return reject("no", token = "SoldOut") if counts[0].total < 9 else None\n',
            Reason("SoldOut", "team_quota", False, "SoldOut"),
            id="a count over all nodes",
        ),
        pytest.param(
            "def counters(pod):\n"
            '    return [count_nodes(None, free = {"example.com/gpu": 8})]\n\n'
            "def filter(pod, node, counts):\n"
            '    return reject("no", token = "SoldOut") if counts[0].total < 2 else None\n',
            Reason("SoldOut", "team_quota", True, UNSCHEDULABLE),
            id="a count of nodes, of which there may be more",
        ),
        pytest.param(
            "def pre_filter(pod):\n    return only_nodes([])\n",
            Reason("LeftOutByPolicy", "team_quota", True, UNSCHEDULABLE),
            id="a policy that chooses no node",
        ),
        pytest.param(
            'def permit(pod, group):\n    return reject("no", token = "SoldOut")\n',
            Reason("SoldOut", "team_quota", False, "SoldOut"),
            id="a permit",
        ),
        pytest.param(
            'def permit(pod, group):\n    return "no"\n',
            Reason("TeamQuota", "team_quota", False, "TeamQuota"),
            id="a permit without a token",
        ),
        pytest.param(
            'def filter(pod, node):\n    fail("broken")\n',
            Reason("PolicyFailed", "team_quota", False, "SchedulerError"),
            id="a policy that fails",
        ),
        pytest.param(
            'def permit(pod, group):\n    fail("broken")\n',
            Reason("PolicyFailed", "team_quota", False, "SchedulerError"),
            id="a permit that fails",
        ),
    ],
)
def test_a_rejected_pod_waits_for_the_reason_of_its_policy(text: str, want: Reason) -> None:
    world = _world(text)
    queued = _tried(world)
    assert queued.reason == want
    report = _last(world, ReportFailure)
    assert report.rejection.reason == want
    assert queued.reason_text == report.rejection.message
    key = (want.token, want.policy, "default-scheduler")
    assert world.kernel.waiting_reasons() == {key: 1}


@pytest.mark.parametrize(
    ("body", "token", "text"),
    [
        ('"no"', "GatedByPolicy", "no"),
        ('reject("no", token = "SoldOut")', "SoldOut", "no"),
        ('unresolvable("no", "QuotaReached")', "QuotaReached", "no"),
        ('fail("broken")', "PolicyFailed", "broken"),
    ],
)
def test_a_gated_pod_waits_for_its_gate(body: str, token: str, text: str) -> None:
    world = _world(f"def pre_enqueue(pod):\n    return {body}\n")
    queued = _tried(world)
    assert queued.reason == Reason(token, "team_quota", False, "SchedulingGated")
    assert text in queued.reason_text
    assert _last(world, ReportGate).token == token
    assert world.queue.waiting_reasons() == {(token, "team_quota", "default-scheduler"): 1}


def test_the_gates_of_the_api_are_known_by_their_own_word() -> None:
    world = _world("def score(pod, node):\n    return 0\n", "SchedulingGates")
    queued = _tried(world, gates=["x"])
    assert queued.reason.token == "GatedBySchedulingGates"


@pytest.mark.parametrize(
    ("body", "token", "ended"),
    [
        ("wait(5)", "WaitingOnPermit", "TeamQuota"),
        ('wait(5, "licence", token = "NoLicence")', "NoLicence", "NoLicence"),
    ],
)
def test_a_pod_in_permit_says_what_it_waits_for_and_so_it_does_afterwards(
    body: str, token: str, ended: str
) -> None:
    world = _world(f"def permit(pod, group):\n    return {body}\n")
    queued = _tried(world)
    [(waiting, reason)] = world.permits.waiting()
    assert waiting is queued
    assert reason == Reason(token, "team_quota", False, "WaitingOnPermit")
    wait = world.permits.wait_of(queued.uid)
    assert wait is not None
    assert wait.text.startswith("waiting on node `")
    assert not world.queue.waiting_reasons()
    assert world.kernel.waiting_reasons() == {(token, "team_quota", "default-scheduler"): 1}
    world.wait(6.0)
    assert not len(world.permits)
    assert queued.reason == Reason(ended, "team_quota", False, ended)


def test_a_full_cluster_is_told_from_nodes_that_the_pod_does_not_want() -> None:
    world = _world("def score(pod, node):\n    return 0\n", "NodeAffinity", "NodeResourcesFit")
    queued = _tried(world, cpu=10_000, node_selector={"zone": "x"})
    assert queued.reason == Reason("InsufficientResources", "NodeResourcesFit", True)
    assert "node selector" not in queued.reason_text or "affinity" in queued.reason_text


def test_a_quota_counts_more_than_full_nodes() -> None:
    world = _world(
        "def filter(pod, node):\n"
        '    return reject("no", "QuotaReached") if pod.namespace else None\n',
        "TaintToleration",
    )
    world.add_node(make_node("c", taints=[taint("k")]))
    queued = _tried(world)
    assert queued.reason.token == "QuotaReached"


def test_a_pod_that_had_no_turn_has_not_been_tried() -> None:
    world = _world("def score(pod, node):\n    return 0\n")
    world.add(make_pod("p"))
    assert world.queue.waiting_reasons() == {("NotYetTried", "", "default-scheduler"): 1}


def test_without_nodes_a_node_helps() -> None:
    world = World({"profile.yaml": only()})
    queued = _tried(world)
    assert queued.reason == Reason("NoNodes", "", True, UNSCHEDULABLE)


def test_a_token_that_is_not_written_out_is_checked_when_it_is_given() -> None:
    world = _world('def filter(pod, node):\n    return reject("no", token = pod.name)\n')
    queued = _tried(world)
    assert queued.reason.token == "PolicyFailed"
    assert "reject() wants a reason token (CamelCase" in queued.reason_text
    assert "team_quota.star:2" in queued.reason_text
