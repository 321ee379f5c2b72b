from typing import Any

from devkit.benchmarks import objects
from devkit.benchmarks.placement_check import check_placement

GPU = "alibabacloud.com/gpu-milli"


def node(name: str, **more: Any) -> dict[str, Any]:
    return objects.node(0, name=name, **more)


def pod(name: str, node_name: str = "", message: str = "", **more: Any) -> dict[str, Any]:
    manifest = objects.pod(name, **more)
    if node_name:
        manifest["spec"]["nodeName"] = node_name
    if message:
        manifest["status"] = {
            "conditions": [{"type": "PodScheduled", "status": "False", "message": message}]
        }
    return manifest


def keys(*pods: dict[str, Any]) -> list[str]:
    return [f"bench/{p['metadata']['name']}" for p in pods]


def test_a_full_node_is_fine() -> None:
    pods = [pod("a", "n", requests={"cpu": "1500m"}), pod("b", "n", requests={"cpu": "2.5"})]
    got = check_placement([node("n", cpu="4")], pods, keys(*pods))
    assert got.violations == []
    assert got.bound == 2
    assert got.used["cpu"] == 1.0


def test_one_millicore_too_much_is_reported() -> None:
    pods = [pod("a", "n", requests={"cpu": "1500m"}), pod("b", "n", requests={"cpu": "2501m"})]
    got = check_placement([node("n", cpu="4")], pods, keys(*pods))
    assert got.violations == ["node `n` holds 4.001 of cpu, want at most 4"]


def test_too_much_memory_is_reported() -> None:
    pods = [pod("a", "n", requests={"memory": "1Gi"}), pod("b", "n", requests={"memory": "1"})]
    got = check_placement([node("n", memory="1Gi")], pods, keys(*pods))
    assert got.violations == ["node `n` holds 1073741825 of memory, want at most 1073741824"]


def test_an_extended_resource_that_the_node_lacks_is_reported() -> None:
    pods = [pod("a", "n", requests={GPU: "500"})]
    got = check_placement([node("n")], pods, keys(*pods))
    assert got.violations == [f"node `n` holds 500 of {GPU}, want at most 0"]


def test_too_many_pods_on_a_node_are_reported() -> None:
    pods = [pod(name, "n", requests={"cpu": "1m"}) for name in ("a", "b", "c")]
    got = check_placement([node("n", pods="2")], pods, keys(*pods))
    assert got.violations == ["node `n` holds 3 of pods, want at most 2"]


def test_a_pod_on_a_node_that_does_not_exist_is_reported() -> None:
    pods = [pod("a", "ghost")]
    got = check_placement([node("n")], pods, keys(*pods))
    assert got.violations == ["pod `bench/a` is bound to node `ghost`, which does not exist"]


def test_pending_with_a_reason_is_fine_and_without_one_is_reported() -> None:
    pods = [pod("a", message="0/1 nodes are available: 1 Insufficient cpu."), pod("b")]
    got = check_placement([node("n")], pods, keys(*pods))
    assert got.pending == {"bench/a": "0/1 nodes are available: 1 Insufficient cpu."}
    assert got.violations == ["pod `bench/b` is neither bound nor pending with a reason"]


def test_lost_unknown_and_repeated_pods_are_reported() -> None:
    twice = pod("twice", "n")
    got = check_placement(
        [node("n")], [twice, twice, pod("stray", "n")], ["bench/twice", "bench/lost"]
    )
    assert got.violations == [
        "pod `bench/lost` is gone",
        "pod `bench/stray` was never created",
        "pod `bench/twice` is listed 2 times",
    ]
