"""A profile whose decisions run into their deadline costs the others little, and recovers."""

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from devkit.cluster import DevCluster, make_node, make_pod
from engine.rollout import revisions
from engine.rollout.revisions import out_of_bounds
from tests.engine.app.harness import (
    condition,
    edit,
    events,
    metric,
    namespace,
    node_of,
    placements,
    scheduler,
)
from tests.waiting import eventually

pytestmark = [
    pytest.mark.slow("runs a whole scheduler"),
    pytest.mark.alone("measures what slow policies cost others"),
]

PROFILES = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: calm
- schedulerName: slow
  plugins:
    multiPoint: {enabled: [{name: slow}]}
"""
DEADLINE = 0.5
RUNTIME = """apiVersion: starsched.dev/v1
kind: PolicyRuntime
limits: {deadline: 500ms}
fallback: {errorRate: 1.0, lostTime: %s}
"""
# One operation of the interpreter that never ends: no limit on steps stops it.
_FOR_EVER = "x = 3\n        for i in range(60):\n            x = x * x\n    return None\n"
PODS = 30


def files(hook: str, lost_time: str = "1h", **more: str) -> dict[str, str]:
    return {
        "profiles.yaml": PROFILES,
        "runtime.yaml": RUNTIME % lost_time,
        "slow.star": f'"""Slow at times."""\n\n{hook}',
        **{f"{name}.star": text for name, text in more.items()},
    }


AT_SLOW_NODES = f"""def filter(pod, node):
    if node.labels.get("slow") == "yes":
        {_FOR_EVER}"""
NEVER = 'def filter(pod, node):\n    return "no" if node.labels.get("slow") == "yes" else None\n'


def about_some_pods(hook: str) -> str:
    return f'def {hook}:\n    if pod.labels.get("slow") == "yes":\n        {_FOR_EVER}'


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as cluster:
        cluster.create(namespace(), make_node("node-1", cpu="64"), make_node("node-2", cpu="64"))
        yield cluster


def many_pods(cluster: DevCluster, count: int = PODS, **words: str) -> None:
    """Pods of the slow profile, each one unlike the others."""
    cluster.create(
        *(
            make_pod(f"s{i}", scheduler_name="slow", cpu=f"{100 + i}m", memory="1Mi", labels=words)
            for i in range(count)
        )
    )


def label_nodes(cluster: DevCluster, value: str) -> None:
    for name in ("node-1", "node-2"):
        cluster.update("nodes", make_node(name, cpu="64", labels={"slow": value}))


async def test_pods_that_run_into_deadlines_hold_up_their_own_profile_alone(
    cluster: DevCluster,
) -> None:
    """Pods of other profiles waited for a deadline of each pod that had come before them."""
    edit(cluster, files(AT_SLOW_NODES))
    async with scheduler(cluster, from_config_map=True) as app:
        await eventually(
            lambda: app.policies.rollout.describe()["last_good"], what="the trial to end"
        )
        label_nodes(cluster, "yes")
        many_pods(cluster)
        lost = {"policy": "slow", "profile": "slow"}
        waits = []
        for i in range(6):
            started = time.monotonic()
            cluster.create(make_pod(f"calm{i}", scheduler_name="calm"))
            await eventually(lambda i=i: node_of(cluster, f"calm{i}"))  # type: ignore[misc]
            waits.append(time.monotonic() - started)
            await eventually(
                lambda i=i: (  # type: ignore[misc]
                    metric(app, "starsched_policy_lost_seconds_total", **lost) > i * DEADLINE
                    or len(events(cluster, "Throttled")) >= PODS / 2
                ),
                what="slow pods to take their time",
            )
        assert max(waits) < PODS * DEADLINE / 4, waits
        # The reason is reported, and they are counted.
        throttled = "throttled: filter() of policy `slow` took too long for other pods"
        await eventually(lambda: len(events(cluster, "Throttled")) >= PODS / 2)
        assert {event["note"] for event in events(cluster, "Throttled")} == {throttled}
        reported = [condition(cluster, f"s{i}") for i in range(PODS)]
        assert ("Throttled", throttled) in {
            (one.get("reason"), one.get("message")) for one in reported
        }
        assert metric(app, "starsched_policy_lost_seconds_total", **lost) >= DEADLINE
        waiting = {"plugin": "Throttle", "profile": "slow"}
        assert metric(app, "scheduler_unschedulable_pods", **waiting) >= PODS / 2
        # The policy behaves again: no help is needed.
        label_nodes(cluster, "no")
        await eventually(lambda: len(placements(cluster)) == PODS + 6, seconds=60)


@pytest.mark.parametrize(
    "hook",
    [
        pytest.param("filter(pod, node)", id="filter"),
        pytest.param("permit(pod, group)", id="permit"),
        pytest.param("pre_enqueue(pod)", id="gate"),
        pytest.param("group_of(pod)", id="group"),
    ],
)
async def test_an_edit_that_loses_time_is_rolled_back_though_few_pods_failed(
    cluster: DevCluster, hook: str
) -> None:
    edit(cluster, files(NEVER, "1s"))
    async with scheduler(cluster, from_config_map=True) as app:
        good = app.policies.rollout.active.bundle.revision
        text = about_some_pods(hook)
        if hook == "group_of(pod)":  # asked only if something uses groups
            text += "\ndef permit(pod, group):\n    return None\n"
        edit(cluster, files(text, "1s"))
        await eventually(lambda: app.policies.rollout.active.bundle.revision != good)
        many_pods(cluster, 10, slow="yes")
        await eventually(lambda: events(cluster, "PolicyRolledBack"), seconds=40)
        (event,) = events(cluster, "PolicyRolledBack")
        assert "decisions ran into limits and took " in event["note"]
        assert app.policies.rollout.active.bundle.revision == good
        await eventually(lambda: len(placements(cluster)) == 10)


async def test_an_edit_is_not_rolled_back_for_the_time_that_another_policy_loses(
    cluster: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was as slow before: going back would help nobody, and no edit could come into force."""
    looks: list[object] = []

    def looked(*about: Any) -> str | None:
        looks.append(about)
        return out_of_bounds(*about)

    monkeypatch.setattr(revisions, "out_of_bounds", looked)
    slow = about_some_pods("filter(pod, node)")
    edit(cluster, files(slow, "1s", other=NEVER))
    async with scheduler(cluster, from_config_map=True) as app:
        before = app.policies.rollout.active.bundle.revision
        edit(cluster, files(slow, "1s", other=NEVER + "# edited\n"))
        await eventually(lambda: app.policies.rollout.active.bundle.revision != before)
        after = app.policies.rollout.active.bundle.revision
        many_pods(cluster, 5, slow="yes")
        lost = {"policy": "slow", "profile": "slow"}
        await eventually(
            lambda: metric(app, "starsched_policy_lost_seconds_total", **lost) > 1.5, seconds=40
        )
        looks.clear()
        await eventually(lambda: len(looks) >= 2, what="two looks at the edit on probation")
        assert app.policies.rollout.active.bundle.revision == after
        assert app.policies.rollout.describe()["active"]["lost_seconds"] == 0.0
