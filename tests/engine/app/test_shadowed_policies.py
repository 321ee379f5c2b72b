"""A policy that is counted and not obeyed, in a whole scheduler."""

from collections.abc import AsyncIterator

import pytest

from devkit.cluster import DevCluster, make_node, make_pod
from engine.rollout.control import SUFFIX
from tests.engine.app.harness import NAME, NAMESPACE, edit, metric, namespace, node_of, scheduler
from tests.waiting import eventually

NOT_THERE = {
    "mine.star": (
        'def filter(pod, node):\n    return "not there" if node.name == "node-1" else None\n'
    )
}


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as cluster:
        cluster.create(namespace(), make_node("node-1"))
        yield cluster


def say(cluster: DevCluster, shadow: str) -> None:
    """Write which policies are only counted."""
    name = NAME + SUFFIX
    found = cluster.get("configmaps", name, NAMESPACE)
    if found is None:
        meta = {"name": name, "namespace": NAMESPACE}
        cluster.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": meta,
                "data": {"shadow": shadow},
            }
        )
    else:
        cluster.update("configmaps", {**found, "data": {"shadow": shadow}})


@pytest.mark.slow("runs a whole scheduler")
async def test_its_verdicts_are_counted_and_its_pods_placed(cluster: DevCluster) -> None:
    edit(cluster, NOT_THERE)
    say(cluster, "mine/filter")
    async with scheduler(cluster, from_config_map=True) as app:
        cluster.create(*(make_pod(f"a{number}", cpu="10m") for number in range(20)))
        await eventually(lambda: all(node_of(cluster, f"a{n}") for n in range(20)))
        await eventually(lambda: metric(app, "starsched_rollout_compared_total") >= 1)
        await eventually(
            lambda: metric(app, "starsched_rollout_differences_total", kind="newly_pending") >= 1
        )
        standing = app.policies.rollout.status.standing
        assert standing is not None
        assert {example.before for example in standing.examples} == {"node-1"}
        assert all("not there" in example.after for example in standing.examples)
        # Obeyed again, it keeps its pods from the node.
        say(cluster, "")
        await eventually(lambda: app.policies.rollout.status.standing is None)
        cluster.create(make_pod("late", cpu="10m"))
        await eventually(
            lambda: "late" in [one.pod.name for one in app.kernel.queue.waiting_pods()]
        )
        assert not node_of(cluster, "late")
