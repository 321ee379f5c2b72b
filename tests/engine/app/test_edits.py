"""What an edit of the policies finds: pods that wait, groups, and what was held against others."""

from collections.abc import AsyncIterator

import pytest

from devkit.cluster import DevCluster, make_node, make_pod
from engine.rollout.assembly import make_stages
from tests.engine.app.harness import (
    condition,
    edit,
    metric,
    namespace,
    node_of,
    placements,
    scheduler,
)
from tests.waiting import eventually

pytestmark = [pytest.mark.slow("runs a whole scheduler"), pytest.mark.usefixtures("no_sandboxes")]

_PROFILES = (
    "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    "profiles:\n- schedulerName: default-scheduler\n  plugins:\n"
    "    multiPoint: {disabled: [{name: grouped}]}\n"
    "- schedulerName: batch\n  plugins:\n"
    "    multiPoint: {enabled: [{name: grouped}]}\n"
)
# Every pod is in a group here, so no hook looks if there is one.
_GROUPED = '''"""Groups by label."""

def group_of(pod):
    return gang(pod.labels.get("group", pod.namespace), min_count = 1)

def pre_enqueue(pod, group):
    return None if group.min_count == 1 else "nobody is there"
'''
_LEAVE = """
def permit(pod, group):
    return wait(600) if group.min_count == 1 else None
"""
_RUNTIME = (
    "apiVersion: starsched.dev/v1\nkind: PolicyRuntime\n"
    "limits: {deadline: 1s}\nfallback: {minDecisions: 5, lostTime: 1h, errorRate: 0.1}\n"
)


def batch(name: str) -> dict[str, object]:
    return make_pod(name, scheduler_name="batch", cpu="10m", memory="1Mi")


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as cluster:
        cluster.create(namespace(), make_node("node-1"), make_node("node-2"))
        yield cluster


async def test_pods_that_an_edit_makes_ours_are_asked_about_with_their_groups(
    cluster: DevCluster,
) -> None:
    """Their gates failed for want of a group, and the edit that brought the profile was blamed."""
    edit(cluster, {})
    async with scheduler(cluster, from_config_map=True) as app:
        cluster.create(*(batch(f"b{i}") for i in range(10)))
        await eventually(lambda: len(list(app.kernel.cluster.pending_pods())) == 10)
        before = app.policies.rollout.active.bundle.revision
        edit(
            cluster,
            {"grouped.star": _GROUPED, "profiles.yaml": _PROFILES, "runtime.yaml": _RUNTIME},
        )
        await eventually(lambda: len(placements(cluster)) == 10)
        assert app.policies.rollout.counts.failed == 0
        assert app.policies.rollout.active.bundle.revision != before


async def test_pods_that_wait_in_permit_are_asked_about_with_their_groups_after_an_edit(
    cluster: DevCluster,
) -> None:
    """Their gates failed for want of a group, and the edit was blamed."""
    policies = {"profiles.yaml": _PROFILES, "runtime.yaml": _RUNTIME}
    edit(cluster, policies | {"grouped.star": _GROUPED + _LEAVE})
    async with scheduler(cluster, from_config_map=True) as app:
        cluster.create(*(batch(f"b{i}") for i in range(10)))
        await eventually(lambda: len(app.kernel.permits) == 10)
        before = app.policies.rollout.active.bundle.revision
        edit(cluster, policies | {"grouped.star": _GROUPED})
        await eventually(lambda: app.policies.rollout.active.bundle.revision != before)
        after = app.policies.rollout.active.bundle.revision
        assert app.policies.rollout.counts.failed == 0
        await eventually(lambda: len(placements(cluster)) == 10)
        assert app.policies.rollout.active.bundle.revision == after


_SLOW = '''"""Slow at times."""

def pre_enqueue(pod):
    if pod.labels.get("slow") == "yes":
        x = 3
        for i in range(60):
            x = x * x
    return None
'''


async def test_an_edit_lets_in_who_was_not_asked_about_because_of_a_slow_gate(
    cluster: DevCluster,
) -> None:
    """They went on being gated in the name of a policy that was gone, under the new revision."""
    # The gate is throttled for twice what was lost.
    runtime = _RUNTIME.replace("deadline: 1s", "deadline: 3s")
    edit(cluster, {"slow.star": _SLOW, "runtime.yaml": runtime})
    async with scheduler(cluster, from_config_map=True, stages=make_stages()) as app:
        await eventually(
            lambda: app.policies.rollout.describe()["last_good"], what="the trial to end"
        )
        cluster.create(make_pod("slow", labels={"slow": "yes"}))
        lost = {"policy": "slow", "profile": "default-scheduler"}
        await eventually(
            lambda: metric(app, "starsched_policy_lost_seconds_total", **lost) > 2.5, seconds=30
        )
        cluster.create(make_pod("innocent"))
        await eventually(lambda: condition(cluster, "innocent").get("reason"))
        before = app.policies.rollout.active.bundle.revision
        edit(cluster, {"runtime.yaml": runtime})
        await eventually(lambda: app.policies.rollout.active.bundle.revision != before)
        await eventually(
            lambda: node_of(cluster, "slow") and node_of(cluster, "innocent"), seconds=4
        )
