"""The real kube-scheduler at work on the embedded cluster: a client that takes nothing for granted.

It lists by watching (`sendInitialEvents`), elects itself, binds, writes events and conditions,
nominates and preempts.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from devkit.cluster import DevCluster, make_node, make_pod
from tests.contract.harness import condition
from tests.controlplane import binaries
from tests.waiting import eventually

Json = dict[str, Any]

pytestmark = pytest.mark.slow("starts the real kube-scheduler")

CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: true, resourceNamespace: kube-system, resourceName: scheduler}}
clientConnection:
  kubeconfig: {kubeconfig}
  contentType: application/json
  acceptContentTypes: application/json
"""


@pytest.fixture
async def scheduled(tmp_path: Path) -> AsyncIterator[DevCluster]:
    """A cluster with kubelets that kube-scheduler looks after."""
    async with DevCluster() as cluster:
        cluster.start_kubelets()
        kubeconfig = cluster.write_kubeconfig(tmp_path / "kubeconfig")
        configuration = tmp_path / "configuration.yaml"
        configuration.write_text(CONFIGURATION.format(kubeconfig=kubeconfig))
        process = await asyncio.create_subprocess_exec(
            binaries()["kube-scheduler"],
            f"--config={configuration}",
            "--secure-port=0",
            "--authentication-skip-lookup=true",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            yield cluster
        finally:
            process.send_signal(signal.SIGKILL)
            await process.wait()


def got(cluster: DevCluster, name: str) -> Json:
    pod = cluster.get("pods", name)
    assert pod is not None
    return pod


async def test_kube_scheduler_places_pods_and_says_why_not(scheduled: DevCluster) -> None:
    scheduled.create(make_node("n1", cpu="2"), make_node("n2", cpu="2"))
    scheduled.create(*(make_pod(f"p{index}", cpu="500m") for index in range(8)))
    scheduled.create(make_pod("big", cpu="3"), make_pod("gated", schedulingGates=[{"name": "x"}]))
    names = [f"p{index}" for index in range(8)]
    await eventually(lambda: all(got(scheduled, name)["spec"].get("nodeName") for name in names))
    on_first = sum(got(scheduled, name)["spec"]["nodeName"] == "n1" for name in names)
    assert on_first == 4
    await eventually(lambda: bool(got(scheduled, "big")["status"].get("conditions")))
    why = condition(got(scheduled, "big"), "PodScheduled")
    assert (why["status"], why["reason"]) == ("False", "Unschedulable")
    assert why["message"].startswith("0/2 nodes are available: 2 Insufficient cpu")
    assert condition(got(scheduled, "gated"), "PodScheduled")["reason"] == "SchedulingGated"
    await eventually(lambda: len(scheduled.list("events")) >= 9)
    reasons = {event["reason"] for event in scheduled.list("events")}
    assert {"Scheduled", "FailedScheduling"} <= reasons
    lease = scheduled.get("leases", "scheduler", "kube-system")
    assert lease is not None
    assert lease["spec"]["holderIdentity"]


async def test_kube_scheduler_preempts(scheduled: DevCluster) -> None:
    scheduled.create(make_node("n1", cpu="2"), make_pod("low", cpu="2"))
    await eventually(lambda: got(scheduled, "low")["status"]["phase"] == "Running")
    scheduled.create(make_pod("high", cpu="2", priorityClassName="system-node-critical"))
    await eventually(lambda: got(scheduled, "high")["spec"].get("nodeName") == "n1")
    assert scheduled.get("pods", "low") is None
