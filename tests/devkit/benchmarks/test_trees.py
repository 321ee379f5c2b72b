"""`make bench-trees` at a small size, on the real control plane, and what it is made of."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from devkit.benchmarks import bench_trees, kueue_workload, trees
from devkit.benchmarks.kueue_workload import CONFIGS
from devkit.benchmarks.load import key_of
from devkit.benchmarks.running_pods import Job, RunningPods
from devkit.benchmarks.scraped import OfTree, Scraped
from devkit.benchmarks.trees import RULES
from devkit.benchmarks.upstream.pods import BoundPods
from devkit.benchmarks.wire import Answer
from engine.core.model.pod import Pod
from engine.policy.bundle import build_bundle
from tests.waiting import eventually


@pytest.mark.parametrize("queues", [1, 9, 1000, 10_000])
def test_pods_go_round_over_all_queues_of_three_levels(queues: int) -> None:
    leaves = {trees.leaf(number, queues) for number in range(queues)}
    assert len(leaves) == queues
    assert {path.count("/") for path in leaves} == {2}
    labels = [trees.pod(n, queues)["metadata"]["labels"][trees.LABEL] for n in range(queues)]
    assert {label.replace(".", "/") for label in labels} == leaves


@pytest.mark.parametrize("name", [name for name, rules in RULES.items() if rules.policy])
def test_rules_govern_a_tree_that_has_the_queues_of_the_pods(name: str) -> None:
    tree = build_bundle(trees.files_of(RULES[name], 9)).queue_tree
    assert tree is not None
    assert tree.policy == RULES[name].policy
    assert ("head" in tree.hooks["turn_key"]) == (name == "drf")


def test_ratios_are_of_the_same_load_without_a_tree_round_by_round() -> None:
    def rounds(*values: float) -> list[dict[str, float]]:
        return [{"pods_per_second": value, "cpu_ms": 100 / value} for value in values]

    runs = {"none": rounds(100, 50), "drf": rounds(50, 50), "quota": rounds(9, 9)}
    assert bench_trees._ratios("drf", runs) == {"ratio": 0.75, "cpu_ratio": 1.5}
    assert bench_trees._ratios("none", runs) == {}
    assert bench_trees._ratios("quota", runs) == {}, "its pods end, and those of `none` do not"


def test_what_a_tree_took_is_read_from_the_metrics() -> None:
    text = """
scheduler_plugin_evaluation_total{plugin="drf",extension_point="QueueTree",profile="p"} 7
scheduler_plugin_evaluation_total{plugin="fit",extension_point="Filter",profile="p"} 100
starsched_shares_seconds_total 0.5
starsched_queue_woken_total{useful="true"} 3
starsched_queue_woken_total{useful="false"} 2
starsched_reclaimed_pods_total{taker="a",victim="b"} 4
starsched_reclaimed_pods_total{taker="b",victim="a"} 1
"""
    assert OfTree.of(Scraped.of(text)) == OfTree(7, 0.5, 5, 2, 5)


def test_kueues_test_has_the_workloads_that_it_is_known_for() -> None:
    baseline, large = CONFIGS["baseline"], CONFIGS["large-scale"]
    assert (baseline.workloads, len(kueue_workload.arrivals(baseline))) == (15_000, 15_000)
    assert baseline.least_seconds == 66
    assert large.workloads == 50_000
    small = baseline.scaled(0.01)
    assert small.workloads == 30 * (4 + 1 + 1)
    times = [at for at, _ in kueue_workload.arrivals(small)]
    assert times == sorted(times)
    assert (times[0], times[-1]) == (0.1, 1.2)


def test_workloads_of_kueue_ask_for_what_its_queues_have_a_quota_of() -> None:
    """A resource without a quota cannot be had at all by the rules of Kueue."""
    config = CONFIGS["baseline"].scaled(0.01)
    named = {
        one["metadata"]["namespace"] + "/" + one["metadata"]["name"]
        for one in kueue_workload.queue_objects(config)
        if one["kind"] == "LocalQueue"
    }
    assert len(named) == 30
    for _, job in kueue_workload.arrivals(config):
        pod = Pod.from_plain(job.pod)
        assert pod.requests.keys() == {"cpu"}
        assert f"{pod.namespace}/{pod.labels['kueue.x-k8s.io/queue-name']}" in named


class _Server:
    """In place of a connection: notes what is asked, and answers *status*."""

    def __init__(self, status: int = 200) -> None:
        self.asked: list[str] = []
        self._status = status

    def encode(self, method: str, path: str, body: Any, *, content_type: str = "") -> bytes:
        return f"{method} {path}".encode()

    async def send(self, request: bytes) -> Answer:
        await asyncio.sleep(0)
        self.asked.append(request.decode())
        return Answer(self._status, b"")


async def test_a_pod_ends_when_it_has_run_and_comes_again_if_it_is_evicted() -> None:
    wire: Any = _Server()
    bound = BoundPods(wire)
    jobs = [Job(trees.pod(0, 9), 0.0), Job(trees.pod(1, 9), 3600.0), Job(trees.pod(2, 9), None)]
    names = [job.pod["metadata"]["name"] for job in jobs]
    space = key_of(jobs[0].pod).partition("/")[0]

    def see(name: str) -> None:
        for call in bound.on_bound:
            call(space, name, {})

    def lose(name: str) -> None:
        for call in bound.on_gone:
            call(space, name)

    async with RunningPods(wire, bound, jobs) as running:
        for name in names:
            see(name)
        await eventually(lambda: running.ended == 1, what="the first to end")
        assert wire.asked == [f"PATCH /api/v1/namespaces/{space}/pods/{names[0]}/status"]
        lose(names[0])  # it was collected
        lose(names[1])
        await eventually(lambda: len(wire.asked) == 2, what="the second to come again")
        assert wire.asked[1] == f"POST /api/v1/namespaces/{space}/pods"
        jobs[1].runs = 0.0
        see(f"{names[1]}-again-1")
        await eventually(lambda: running.ended == 2, what="it to end")
        assert [job.evictions for job in jobs] == [0, 1, 0]
        assert (running.bound, jobs[2].ended_at) == (3, 0.0)
        assert running.is_over, "the third stays"
    assert not bound.on_bound
    assert not bound.on_gone


async def test_a_pod_that_is_gone_when_it_should_end_has_not_ended() -> None:
    wire: Any = _Server(404)
    bound = BoundPods(wire)
    job = Job(trees.pod(0, 9), 0.0)
    space, _, name = key_of(job.pod).partition("/")
    async with RunningPods(wire, bound, [job]) as running:
        for call in bound.on_bound:
            call(space, name, {})
        await eventually(lambda: wire.asked, what="its end to be asked for")
        await asyncio.sleep(0)
        assert (running.bound, running.ended, running.is_over) == (1, 0, False)
        assert job.ended_at == 0.0


@pytest.mark.slow("runs a bench")
@pytest.mark.timeout(300)
def test_the_same_load_is_measured_with_and_without_a_tree(tmp_path: Path) -> None:
    output = tmp_path / "trees.json"
    result = CliRunner().invoke(
        bench_trees.main,
        ["--groups", "load", "--rules", "none,quota", "--nodes", "10", "--queues", "8",
         "--pods", "30", "--output", "json", str(output)],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    alone, quota = json.loads(output.read_text())["results"]["load"]
    assert [row["median"]["bound"] for row in (alone, quota)] == [30, 30]
    assert alone["median"]["asked"] == 0
    assert quota["median"]["asked"] > 0
    assert quota["median"]["cpu_ms"] > 0


@pytest.mark.long("starts the scheduler twice")
@pytest.mark.timeout(300)
def test_a_start_is_measured_with_and_without_a_tree() -> None:
    result = CliRunner().invoke(
        bench_trees.main,
        ["--groups", "start", "--nodes", "10", "--start-queues", "30", "--placed", "40",
         "--output", "json"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["results"]["start"]
    assert [row["rules"] for row in rows] == ["none", "drf"]
    assert all(row["median"]["first_bound_seconds"] > 0 for row in rows)


@pytest.mark.slow("runs a bench")
@pytest.mark.timeout(300)
def test_kueues_own_test_runs_to_its_end(tmp_path: Path) -> None:
    output = tmp_path / "kueue.json"
    result = CliRunner().invoke(
        bench_trees.main,
        ["--groups", "kueue", "--scale", "0.006", "--output", "json", str(output)],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    row = json.loads(output.read_text())["results"]["kueue"]
    assert (row["workloads"], row["ended"]) == (120, 120)
    assert {name: one["admitted"] for name, one in row["classes"].items()} == {
        "small": 60, "medium": 30, "large": 30,
    }  # fmt: skip
    assert 0 < row["usage"] <= 1
    assert "Kueue, published" in result.output
