"""Which of the pods that wait cluster-autoscaler and Karpenter would add a node for.

The rules are those of the two programs, by what they read of a pod. A node is worth its price only
where it lets the pod run; a pod that a quota, a gate or its group holds back must not cost one.
"""

from typing import Any

import pytest

from devkit.cluster import DevCluster, make_node, make_pod
from engine.app import App
from tests.engine.app.harness import condition, edit, namespace, node_of, scheduler
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("no_sandboxes")

_POLICY = '''"""Rejects pods as their label `do` says, each in another hook."""

def pre_enqueue(pod):
    if pod.labels.get("do") == "gate":
        return reject("the team has no budget", token = "QuotaReached")
    return None

def counters(pod):
    return [count_pods(None, labels = {}, namespaces = [pod.namespace])]

def pre_filter(pod):
    return unresolvable("the team is not known") if pod.labels.get("do") == "pre_filter" else None

def filter(pod, node, counts):
    if pod.labels.get("do") == "filter" and counts[0].total >= 0:
        return "the quota of the team was used up"
    return None

def permit(pod, group):
    if pod.labels.get("do") == "permit":
        return reject("the licences were used up", token = "NoLicence")
    return wait(600, "the approval of a person") if pod.labels.get("do") == "wait" else None
'''
# It names a token of its own, and looks at nodes.
_WARM = '''"""Keeps pods off nodes that are too warm."""

def filter(pod, node):
    is_warm = pod.labels.get("do") == "warm" and node.labels.get("cool") != "yes"
    return reject("node(s) were too warm", token = "TooWarm") if is_warm else None
'''
_FILES = {"team.star": _POLICY, "warm.star": _WARM}


def is_unschedulable(pod: dict[str, Any]) -> bool:
    """The rule of cluster-autoscaler: of the pods that it lists, those that it simulates."""
    if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
        return False
    found = [one for one in pod["status"].get("conditions", []) if one["type"] == "PodScheduled"]
    return any(one["status"] == "False" and one["reason"] == "Unschedulable" for one in found)


def is_provisionable(pod: dict[str, Any]) -> bool:
    """The rule of Karpenter."""
    owners = pod["metadata"].get("ownerReferences", [])
    conditions = pod["status"].get("conditions", [])
    failed = any(
        one["type"] == "PodScheduled" and one["reason"] == "Unschedulable" for one in conditions
    )
    return (
        failed
        and not pod["spec"].get("nodeName")
        and not pod["status"].get("nominatedNodeName")
        and not any(one["kind"] in ("DaemonSet", "Node") for one in owners)
    )


def _pod(cluster: DevCluster, name: str) -> dict[str, Any]:
    found = cluster.get("pods", name)
    assert found is not None
    return found


async def _waiting(cluster: DevCluster, name: str, **words: Any) -> dict[str, Any]:
    """The pod *name* once it has been reported why it waits."""
    cluster.create(make_pod(name, **words))
    await eventually(lambda: condition(cluster, name).get("message"))
    assert node_of(cluster, name) == ""
    return _pod(cluster, name)


@pytest.mark.parametrize(
    ("words", "reason", "token"),
    [
        pytest.param({"cpu": "900"}, "Unschedulable", "InsufficientResources", id="too large"),
        pytest.param(
            {"nodeSelector": {"zone": "z"}}, "Unschedulable", "AffinityMismatch", id="a selector"
        ),
        pytest.param({"labels": {"do": "warm"}}, "Unschedulable", "TooWarm", id="of a node"),
    ],
)
async def test_they_add_a_node_where_one_helps(
    words: dict[str, Any], reason: str, token: str
) -> None:
    async with DevCluster() as cluster:
        cluster.create(namespace(), make_node("node-1"))
        edit(cluster, _FILES)
        async with scheduler(cluster, from_config_map=True) as app:
            pod = await _waiting(cluster, "p", **words)
            assert (is_unschedulable(pod), is_provisionable(pod)) == (True, True)
            assert condition(cluster, "p")["reason"] == reason
            assert _counted(app) == {token}


@pytest.mark.parametrize(
    ("do", "reason", "token"),
    [
        ("gate", "SchedulingGated", "QuotaReached"),
        ("pre_filter", "Team", "Team"),
        ("filter", "Team", "Team"),
        ("permit", "NoLicence", "NoLicence"),
        ("wait", "WaitingOnPermit", "WaitingOnPermit"),
    ],
)
async def test_they_add_none_where_a_policy_holds_a_pod_back(
    do: str, reason: str, token: str
) -> None:
    async with DevCluster() as cluster:
        cluster.create(namespace(), make_node("node-1"))
        edit(cluster, _FILES)
        async with scheduler(cluster, from_config_map=True) as app:
            pod = await _waiting(cluster, "p", labels={"do": do})
            assert (is_unschedulable(pod), is_provisionable(pod)) == (False, False)
            assert condition(cluster, "p")["reason"] == reason
            assert _counted(app) == {token}


async def test_of_a_group_that_does_not_fit_they_see_every_pod() -> None:
    """Those that found a node released it: without them, the others would seem to fit there."""
    async with DevCluster() as cluster:
        cluster.create(namespace(), make_node("node-1", cpu="2"))
        edit(cluster, {"group.star": _GROUPS})
        async with scheduler(cluster, from_config_map=True) as app:
            first = await _waiting(cluster, "a-0", cpu="1500m", labels={"group": "a"})
            assert not is_unschedulable(first)  # the group is not complete
            await eventually(lambda: _counted(app) == {"Incomplete"})
            cluster.create(make_pod("a-1", cpu="1500m", labels={"group": "a"}))
            await eventually(lambda: is_unschedulable(_pod(cluster, "a-0")))
            await eventually(lambda: is_unschedulable(_pod(cluster, "a-1")))
            await eventually(lambda: _counted(app) == {"GroupDoesNotFit", "InsufficientResources"})


_GROUPS = '''"""Two pods with the same label belong together."""

def group_of(pod):
    return gang(pod.labels["group"], min_count = 2) if "group" in pod.labels else None

def pre_enqueue(pod, group):
    if group != None and group.pod_count < group.min_count:
        return reject("the rest of the group is missing", token = "Incomplete")
    return None

def permit(pod, group):
    return wait(60) if group != None and group.waiting + group.placed < group.min_count else None
'''


def _counted(app: App) -> set[str]:
    """The tokens of the pods that wait, as the metric has them."""
    found = {
        sample.labels["reason"]: sample.value
        for family in app.env.registry.collect()
        for sample in family.samples
        if sample.name == "starsched_waiting_pods"
    }
    for token, pods in found.items():
        assert pods >= 1, token
    return set(found)
