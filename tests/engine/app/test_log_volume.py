"""How much is written to the log of pods that wait and are tried again and again."""

from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from devkit.cluster import DevCluster, make_node, make_pod
from tests.engine.app.harness import metric, placements, scheduler, stages_in_process
from tests.waiting import eventually

PODS = 400
KINDS = 8


async def lines_of_one_node_added(*, logs_attempts: bool) -> list[dict[str, Any]]:
    """What is logged, from the start to the exit, when one pod of many that wait finds a node."""
    with capture_logs() as lines:
        async with DevCluster() as cluster:
            cluster.create(make_node("node-0", cpu="1"))
            cluster.create(
                *(
                    make_pod(f"web-{i}", cpu="3", labels={"app": f"web-{i % KINDS}"})
                    for i in range(PODS)
                )
            )
            stages = stages_in_process()
            async with scheduler(cluster, stages=stages, logs_attempts=logs_attempts) as app:

                def rejected() -> float:
                    labels = {"result": "unschedulable", "profile": "default-scheduler"}
                    return metric(app, "scheduler_schedule_attempts_total", **labels)

                await eventually(lambda: rejected() >= PODS, seconds=60)
                app.reporting.outcomes.log_rest()
                del lines[:]
                cluster.create(make_node("node-1", cpu="4"))
                await eventually(lambda: rejected() >= 2 * PODS - 1, seconds=60)
                assert len(placements(cluster)) == 1
    return [dict(line) for line in lines if line["log_level"] != "debug"]


def bytes_of(lines: list[dict[str, Any]]) -> int:
    return sum(len(msgspec.json.encode(line)) for line in lines)


@pytest.mark.slow("runs a whole scheduler")
async def test_a_node_for_one_of_many_pods_is_no_news_of_the_others() -> None:
    """One node added with 4,022 pods waiting wrote 2 MB: a line for each attempt."""
    every = await lines_of_one_node_added(logs_attempts=True)
    tried = [line for line in every if line["event"] == "Unschedulable pod"]
    assert len({line["pod"] for line in tried}) == PODS - 1, "each attempt has its line"
    assert [line["event"] for line in every].count("Bound pod") == 1
    changes = await lines_of_one_node_added(logs_attempts=False)
    assert 20 * bytes_of(changes) <= bytes_of(every)
    assert [line["event"] for line in changes if line["component"] == "outcomes"] == []


@pytest.mark.slow("runs a whole scheduler")
async def test_pods_that_fit_nowhere_are_a_line_for_each_kind_by_the_end_of_the_process() -> None:
    async with DevCluster() as cluster:
        cluster.create(make_node("node-0", cpu="1"))
        cluster.create(*(make_pod(f"web-{i}", cpu="3") for i in range(3)), make_pod("gpu", cpu="9"))
        with capture_logs() as lines:
            async with scheduler(cluster, stages=stages_in_process()) as app:
                await eventually(lambda: app.kernel.queue.counts()["unschedulable"] == 4)
    logged = [line for line in lines if line.get("component") == "outcomes"]
    assert {line["event"] for line in logged} == {"Unschedulable pods"}
    assert sorted(line["pods"] for line in logged) == [1, 3]
    assert [line["example"] for line in logged if line["pods"] == 1] == ["default/gpu"]
    assert "0/1 nodes are available: 1 Insufficient cpu" in logged[0]["reason"]
