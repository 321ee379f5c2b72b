"""Two schedulers for the same pods: both go on, and say so."""

import pytest
from structlog.testing import capture_logs

from devkit.cluster import DevCluster, make_node, make_pod
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from tests.engine.app.harness import metric, node_of, scheduler
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("no_sandboxes")

_COUNTED = "starsched_pods_bound_by_others_total"


async def test_what_another_scheduler_binds_is_counted_and_warned_of() -> None:
    async with DevCluster() as cluster:
        cluster.create(make_node("n"))
        with capture_logs() as lines:
            async with (
                scheduler(cluster) as app,
                ApiClient(Endpoint(server=cluster.url)) as other,
            ):
                cluster.create(make_pod("ours"))
                cluster.create(make_pod("theirs", scheduler_name="other"))
                waiting = [f"waits-{number}" for number in range(3)]
                for name in waiting:
                    cluster.create(make_pod(name, cpu="1000"))
                await eventually(lambda: node_of(cluster, "ours"))
                await eventually(lambda: app.kernel.queue.counts()["unschedulable"] == len(waiting))
                for name in ("theirs", *waiting):
                    found = cluster.get("pods", name, "default")
                    assert found is not None
                    await other.bind("default", name, found["metadata"]["uid"], "n")
                await eventually(lambda: metric(app, _COUNTED) == len(waiting))
        warnings = [line for line in lines if line["event"].startswith("Another scheduler binds")]
        assert [line["pods"] for line in warnings] == [len(waiting)]
