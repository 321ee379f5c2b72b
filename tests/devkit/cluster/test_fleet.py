"""The kubelets of an embedded cluster."""

from typing import Any

from devkit.cluster import DevCluster, make_node, make_pod
from tests.contract.harness import condition
from tests.waiting import eventually, idle

Json = dict[str, Any]


def phase(cluster: DevCluster, name: str) -> str:
    pod = cluster.get("pods", name)
    return str(pod["status"]["phase"]) if pod else "gone"


async def test_bound_pods_run(cluster: DevCluster) -> None:
    cluster.start_kubelets()
    cluster.create(make_node("n1"), make_pod("a"))
    cluster.bind("a", "n1")
    await eventually(lambda: phase(cluster, "a") == "Running")
    pod = cluster.get("pods", "a")
    assert pod is not None
    assert condition(pod, "Ready")["status"] == "True"
    assert condition(pod, "PodScheduled")["status"] == "True"
    assert pod["status"]["podIP"].startswith("10.")
    assert [item["ready"] for item in pod["status"]["containerStatuses"]] == [True]


async def test_pods_bound_before_the_kubelets_came_run_too(cluster: DevCluster) -> None:
    cluster.create(make_node("n1"), make_pod("a"))
    cluster.bind("a", "n1")
    cluster.start_kubelets()
    await eventually(lambda: phase(cluster, "a") == "Running")


async def test_pods_that_wait_or_whose_node_is_missing_do_not_run(cluster: DevCluster) -> None:
    cluster.start_kubelets()
    cluster.create(make_node("n1"), make_pod("waiting"), make_pod("lost"), make_pod("a"))
    cluster.bind("lost", "nowhere")
    cluster.bind("a", "n1")
    await eventually(lambda: phase(cluster, "a") == "Running")
    assert phase(cluster, "waiting") == phase(cluster, "lost") == "Pending"


async def test_deleted_pods_end(cluster: DevCluster) -> None:
    cluster.start_kubelets()
    cluster.create(make_node("n1"), make_pod("a"))
    cluster.bind("a", "n1")
    await eventually(lambda: phase(cluster, "a") == "Running")
    cluster.delete("pods", "a")
    await eventually(lambda: phase(cluster, "a") == "gone")


async def test_ending_takes_its_time_but_no_longer_than_the_grace(cluster: DevCluster) -> None:
    cluster.start_kubelets(stop_delay=3600.0)
    cluster.create(make_node("n1"), make_pod("slow"), make_pod("quick"))
    for name in ("slow", "quick"):
        cluster.bind(name, "n1")
    await eventually(lambda: phase(cluster, "quick") == "Running")
    cluster.delete("pods", "slow", grace=3600)
    cluster.delete("pods", "quick", grace=1)
    await idle()
    assert phase(cluster, "slow") == phase(cluster, "quick") == "Running"
    await eventually(lambda: phase(cluster, "quick") == "gone")
    assert phase(cluster, "slow") == "Running"


async def test_finalizers_hold_a_pod_that_has_ended(cluster: DevCluster) -> None:
    cluster.start_kubelets()
    pod = make_pod("a")
    pod["metadata"]["finalizers"] = ["example.com/hold"]
    cluster.create(make_node("n1"), pod)
    cluster.bind("a", "n1")
    cluster.delete("pods", "a")

    def grace() -> int | None:
        held = cluster.get("pods", "a")
        assert held is not None
        seconds: int | None = held["metadata"]["deletionGracePeriodSeconds"]
        return seconds

    await eventually(lambda: grace() == 0)
    held = cluster.get("pods", "a")
    assert held is not None
    metadata = {**held["metadata"], "finalizers": []}
    cluster.update("pods", {**held, "metadata": metadata})
    assert cluster.get("pods", "a") is None


async def test_a_pod_recreated_meanwhile_is_left_alone(cluster: DevCluster) -> None:
    cluster.start_kubelets(start_delay=0.02)
    cluster.create(make_node("n1"), make_pod("a"))
    cluster.bind("a", "n1")
    cluster.delete("pods", "a", grace=0)
    cluster.create(make_pod("a"), make_pod("b"))
    cluster.bind("b", "n1")
    await eventually(lambda: phase(cluster, "b") == "Running")
    assert phase(cluster, "a") == "Pending"


async def test_pods_may_finish_by_themselves(cluster: DevCluster) -> None:
    cluster.start_kubelets(run_seconds=lambda pod: 0.0 if pod["metadata"]["labels"] else None)
    cluster.create(make_node("n1"), make_pod("job", labels={"job": "yes"}), make_pod("web"))
    for name in ("job", "web"):
        cluster.bind(name, "n1")
    await eventually(lambda: phase(cluster, "job") == "Succeeded")
    assert phase(cluster, "web") == "Running"


async def test_stopped_kubelets_do_nothing_more(cluster: DevCluster) -> None:
    kubelets = cluster.start_kubelets()
    await kubelets.stop()
    cluster.create(make_node("n1"), make_pod("a"))
    cluster.bind("a", "n1")
    await idle()
    assert phase(cluster, "a") == "Pending"
