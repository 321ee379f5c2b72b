"""What the reload run checks, and `make bench-reload` at a small size."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from devkit.benchmarks import bench_reload
from devkit.benchmarks.bench_reload import (
    Edit,
    Sightings,
    binding_answers,
    is_bad,
    judge,
    policy_text,
)

pytestmark = pytest.mark.slow("runs a bench")

POOL_OF = {"n0": 0, "n1": 1}.__getitem__
EDITS = [Edit(1, 1, 10.0, 11.0), Edit(2, None, 20.0, 21.0), Edit(4, 0, 30.0, 31.0)]


def sightings(**nodes: tuple[float, str]) -> Sightings:
    return Sightings(
        nodes={name: {node} for name, (_, node) in nodes.items()},
        bound_at={name: at for name, (at, _) in nodes.items()},
    )


def run(
    seen: Sightings, created: dict[str, float], answers: dict[str, int] | None = None, **more: Any
) -> tuple[list[str], int]:
    listed = {name: next(iter(nodes)) for name, nodes in seen.nodes.items()} | more
    count = sum(bool(node) for node in listed.values())
    return judge(created, seen, listed, answers or {"201": count}, EDITS, POOL_OF)


def test_pods_where_the_policy_in_force_says_are_fine() -> None:
    seen = sightings(a=(13.0, "n1"), b=(22.0, "n1"), c=(33.0, "n0"))
    problems, judged = run(seen, {"a": 12.0, "b": 21.5, "c": 32.0})
    assert (problems, judged) == ([], 3)


def test_a_pod_placed_by_an_older_policy_is_reported() -> None:
    problems, _ = run(sightings(a=(33.0, "n1")), {"a": 32.0})
    assert problems == ["pod `a` is in pool 1, want 0 of edit 4"]


def test_a_pod_decided_while_an_edit_came_into_force_is_not_judged() -> None:
    seen = sightings(a=(30.5, "n0"), b=(31.5, "n1"))
    problems, judged = run(seen, {"a": 29.0, "b": 30.5})
    assert (problems, judged) == ([], 0)


def test_a_lost_pod_and_an_unbound_one_are_reported() -> None:
    problems, _ = run(sightings(), {"a": 1.0, "b": 1.0}, b="")
    assert problems == ["pod `a` is gone", "pod `b` is not bound"]


def test_a_pod_seen_on_two_nodes_is_reported() -> None:
    seen = sightings(a=(33.0, "n0"))
    seen.nodes["a"].add("n1")
    problems, _ = judge({"a": 32.0}, seen, {"a": "n0"}, {"201": 1}, EDITS, POOL_OF)
    assert problems == ["pod `a` was seen on `n0` and `n1`"]


def test_a_second_binding_is_reported_whether_accepted_or_refused() -> None:
    problems, _ = run(sightings(a=(33.0, "n0")), {"a": 32.0}, {"201": 2, "409": 1})
    assert problems == [
        "the API server accepted 2 bindings, want 1, one per pod",
        "1 bindings were for pods that were bound already",
    ]


def test_bindings_are_counted_from_the_api_servers_metrics() -> None:
    labels = 'component="apiserver",dry_run="",group="",resource="pods",scope="resource"'
    text = "\n".join(
        [
            f'apiserver_request_total{{code="201",{labels},subresource="binding",verb="POST"}} 7',
            f'apiserver_request_total{{code="409",{labels},subresource="binding",verb="POST"}} 2',
            f'apiserver_request_total{{code="201",{labels},subresource="status",verb="PATCH"}} 9',
            f'apiserver_request_total{{code="201",{labels},subresource="",verb="POST"}} 5',
        ]
    )
    assert binding_answers(text) == {"201": 7, "409": 2}


def test_every_tenth_edit_is_broken_and_the_others_differ() -> None:
    assert [n for n in range(31) if is_bad(n, 10)] == [10, 20, 30]
    assert policy_text(10, 10)[1] is None
    texts = {policy_text(n, 10)[0] for n in range(31)}
    assert len(texts) == 31


@pytest.mark.long("runs a bench")
@pytest.mark.timeout(180)
def test_reloads_under_load_lose_nothing(tmp_path: Path) -> None:
    output = tmp_path / "reload.json"
    result = CliRunner().invoke(
        bench_reload.main,
        ["--reloads", "8", "--bad-every", "4", "--nodes", "40", "--rate", "30",
         "--output", "json", str(output)],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    document = json.loads(output.read_text())
    assert (document["reloads"], document["rejected"]) == (6, 2)
    assert document["bound"] == document["pods"] > 0
    assert document["binding_answers"] == {"201": document["pods"]}
    assert document["reload_p50_ms"] > 0
