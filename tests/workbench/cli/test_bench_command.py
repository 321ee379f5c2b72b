"""`starsched bench`: what hooks cost, and whether an edit made them cost more."""

import functools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from engine.policy.evaluator import Call, InProcessEvaluator, Instance, PolicyFailure, Program
from engine.policy.shipped import shipped_files
from workbench.bench.generated import generated_workload
from workbench.bench.hook_costs import Change, Estimate, estimate
from workbench.bench.operations import OperationCounter, marked
from workbench.cli.main import main

SHORT = '''"""Prefers ssd."""

def score(pod, node):
    return 100 if node.labels.get("disk") == "ssd" else 0
'''
LONG = '''"""Prefers ssd, the long way."""

def score(pod, node):
    total = 0
    for key in sorted(node.labels):
        for other in sorted(node.labels):
            total += 1 if key == other else 0
    return 100 if node.labels.get("disk") == "ssd" and total else 0
'''
NAMED = SHORT.replace("    return", "    if node.name == pod.name:\n        return 0\n    return")
EVERY = '''"""Every kind of hook."""

def group_of(pod):
    return None

def queue_key(pod, group):
    return [-pod.priority]

def pre_enqueue(pod, group):
    return None

def permit(pod, group):
    return None

def victim_key(pod):
    return [pod.priority]

def candidate_key(node, victims):
    return [len(victims)]

def tie_key(pod, node):
    return [node.labels.get("disk", "")]

def annotate(pod, node):
    return {"example.com/disk": node.labels.get("disk", "")}
'''


def policies(directory: Path, text: str, name: str = "disk") -> Path:
    directory.mkdir(exist_ok=True)
    (directory / f"{name}.star").write_text(text)
    return directory


def bench(*arguments: object) -> Result:
    few = ("--nodes", 20, "--pods", 12, "--rounds", 6)
    return CliRunner().invoke(main, ["bench", *map(str, (*few, *arguments))])


def measured(*arguments: object) -> dict[str, Any]:
    result = bench(*arguments, "--output", "json")
    assert result.exit_code in (0, 1), result.output
    assert result.stdout, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


@pytest.mark.slow("starts programs")
def test_operations_and_times_are_reported_with_the_hottest_lines(tmp_path: Path) -> None:
    directory = policies(tmp_path / "p", LONG)
    result = bench(directory)
    assert result.exit_code == 0, result.output
    assert "disk.star:7" in result.stdout
    assert "total += 1 if key == other else 0" in result.stdout
    assert "\x1b" not in result.stdout
    answer = measured(directory)
    [cost] = answer["hooks"]
    assert (cost["policy"], cost["hook"]) == ("disk", "score")
    assert cost["lines"][0]["line"] == 7
    assert cost["lines"][0]["runs"] == 9  # three labels, each with each
    assert sum(line["share"] for line in cost["lines"]) == pytest.approx(1)
    time = cost["microseconds"]
    assert 0 < time["low"] <= time["median"] <= time["high"]
    want = time["median"] * cost["nodes_per_call"]
    assert cost["microseconds_per_call"] == pytest.approx(want)


@pytest.mark.slow("starts programs")
def test_the_same_input_gives_the_same_operations(tmp_path: Path) -> None:
    directory = policies(tmp_path / "p", LONG)
    first, second = (measured(directory)["hooks"][0] for _ in range(2))
    for name in ("operations", "operations_per_pod", "calls", "evaluations", "lines"):
        assert first[name] == second[name]


@pytest.mark.slow("starts programs")
def test_every_hook_of_a_policy_is_reached_by_the_generated_cluster(tmp_path: Path) -> None:
    answer = measured(policies(tmp_path / "p", EVERY, "every"), "--nodes", 30, "--pods", 60)
    assert {cost["hook"] for cost in answer["hooks"]} == {
        "group_of",
        "queue_key",
        "pre_enqueue",
        "permit",
        "victim_key",
        "candidate_key",
        "tie_key",
        "annotate",
    }
    assert answer["not_asked"] == []
    assert all(cost["failures"] == 0 for cost in answer["hooks"])


@pytest.mark.slow("starts programs")
def test_a_hook_that_ends_the_sandbox_each_time_is_named_and_not_measured(tmp_path: Path) -> None:
    """It was asked about every pod again and again, seconds each: for hours."""
    call = "max(range(len(node.name) + 2000000000))"
    directory = policies(tmp_path / "p", f"def score(pod, node):\n    return {call}\n")
    limits = "apiVersion: starsched.dev/v1\nkind: PolicyRuntime\nlimits: {deadline: 1s}\n"
    (directory / "runtime.yaml").write_text(limits)
    result = bench(directory, "--output", "json")
    assert (result.exit_code, result.stdout) == (2, "")
    want = "Error: policy `disk`: disk.star:1: score() did not answer within 1 s\n"
    assert result.stderr == want


@pytest.mark.slow("starts programs")
def test_names_choose_what_is_measured(tmp_path: Path) -> None:
    directory = policies(tmp_path / "p", SHORT)
    answer = measured(directory, "--policy", "NodeResourcesFit", "--hook", "filter")
    assert [(c["policy"], c["hook"]) for c in answer["hooks"]] == [("NodeResourcesFit", "filter")]
    result = bench(directory, "--policy", "disc")
    assert result.exit_code == 2
    assert "did you mean `disk`?" in result.output
    assert bench(directory, "--hook", "scores").exit_code == 2
    result = bench(directory, "--hook", "permit")
    assert result.exit_code == 2
    assert "nothing to measure has `permit`, want one of score" in result.output


@pytest.mark.slow("starts programs")
def test_a_snapshot_without_pending_pods_is_decided_again(tmp_path: Path) -> None:
    def node(name: str) -> dict[str, Any]:
        room = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        labels = {"disk": name}
        metadata = {"name": name, "labels": labels}
        return {"kind": "Node", "metadata": metadata, "status": {"allocatable": room}}

    def pod(name: str) -> dict[str, Any]:
        spec = {"nodeName": "ssd", "containers": [{"name": "main"}]}
        metadata = {"name": name, "namespace": "default", "uid": name}
        return {"kind": "Pod", "metadata": metadata, "spec": spec}

    items = [node("ssd"), node("hdd"), pod("a"), pod("b")]
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump({"kind": "List", "items": items}))
    [cost] = measured(policies(tmp_path / "p", SHORT), "--on", path)["hooks"]
    assert cost["evaluations"] == 2  # the nodes differ in what is read, the pods do not
    assert cost["per_pod"] == 1
    path.write_text("kind: Pod\nmetadata: {name: a}\n")
    assert bench(tmp_path / "p", "--on", path).exit_code == 2


def git(directory: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(directory), *who, *arguments]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.slow("starts programs")
def test_a_slower_edit_since_a_git_revision_fails(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    directory = policies(tmp_path / "p", SHORT)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "Prefer ssd")
    same = measured(directory, "--compare", "HEAD", "--fail-over", "20%")
    assert same["exceeded"] == []
    assert same["revision"] == same["compared_with"]
    assert same["changes"][0]["operations"] == 0
    policies(directory, LONG)
    result = bench(directory, "--compare", "HEAD", "--fail-over", "20%")
    assert result.exit_code == 1, result.output
    assert "exceeded: disk.score: operations per evaluation +" in result.stdout
    assert "Compared with HEAD" in result.stdout
    # The other way round it is a gain, and without a limit nothing fails.
    git(tmp_path, "commit", "-qam", "The long way")
    policies(directory, SHORT)
    # Of few rounds, one that other programs slow down leaves the verdict to the operations.
    gain = measured(directory, "--compare", "HEAD", "--fail-over", "0%", "--rounds", 24)
    assert gain["exceeded"] == []
    assert gain["changes"][0]["operations"] < -0.5
    # It reads less, so it is asked less too: that counts, not what one question takes.
    assert gain["changes"][0]["verdict"] == "faster"
    wrong = bench(directory, "--compare", "no-such-branch")
    assert wrong.exit_code == 2
    assert "no git revision" in wrong.output


@pytest.mark.slow("starts programs")
def test_a_revision_is_read_as_the_directory_would_be(tmp_path: Path) -> None:
    """Of a link, git holds the path as its text: that was taken for a policy, and none parsed."""
    git(tmp_path, "init", "-q")
    directory = policies(tmp_path / "p", SHORT)
    (directory / "disk.star").rename(tmp_path / "shared.star")
    (directory / "disk.star").symlink_to("../shared.star")
    (tmp_path / "shared.star").write_bytes(b"\xef\xbb\xbf" + SHORT.encode())
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "Share it")
    same = measured(directory, "--compare", "HEAD", "--rounds", 1)
    assert same["revision"] == same["compared_with"]
    # What leads nowhere is told, and so is what git says.
    (directory / "disk.star").unlink()
    (directory / "disk.star").symlink_to("/nowhere/disk.star")
    git(tmp_path, "commit", "-qam", "Lose it")
    (directory / "disk.star").unlink()
    policies(directory, SHORT)
    lost = bench(directory, "--compare", "HEAD")
    assert lost.exit_code == 2
    wanted = "want a file, got a link to none in the repository"
    assert f"Error: HEAD:{directory}/disk.star: {wanted}\n" in lost.output
    apart = bench(policies(tmp_path.parent / f"{tmp_path.name}-apart", SHORT), "--compare", "HEAD")
    assert "no git revision of" in apart.output
    assert ": not a git repository" in apart.output


@pytest.mark.slow("starts programs")
def test_a_read_that_defeats_reuse_counts_although_a_call_costs_no_more(tmp_path: Path) -> None:
    before, after = policies(tmp_path / "a", SHORT), policies(tmp_path / "b", NAMED)
    answer = measured(after, "--compare", before, "--fail-over", "200%")
    [change] = answer["changes"]
    assert change["operations"] < 2
    assert change["operations_per_pod"] > 5
    assert "operations per pod" in answer["exceeded"][0]


@pytest.mark.slow("starts programs")
def test_a_config_map_can_be_compared_with(tmp_path: Path) -> None:
    directory = policies(tmp_path / "p", SHORT)
    dump = tmp_path / "live.yaml"
    data = {"disk.star": LONG}
    dump.write_text(yaml.safe_dump({"kind": "ConfigMap", "metadata": {"name": "p"}, "data": data}))
    assert measured(directory, "--compare", dump)["changes"][0]["operations"] < -0.5
    assert measured(dump, "--compare", directory)["changes"][0]["operations"] > 1
    assert bench(directory, "--fail-over", "20%").exit_code == 2


def test_a_time_fails_only_if_no_doubt_is_left() -> None:
    def change(low: float, median: float, high: float) -> Change:
        return Change("p", "score", 0.0, 0.0, Estimate(median, low, high), "slower")

    assert change(0.1, 0.5, 0.9).exceeds(0.2) == []
    unsure = Change("p", "score", 0.0, 0.0, Estimate(0.5, 0.3, 0.9, is_sure=False), "same")
    assert unsure.exceeds(0.2) == []
    assert change(0.3, 0.5, 0.9).exceeds(0.2) == ["time per pod +50.0% (+30.0% at least)"]


def test_the_interval_is_that_of_the_binomial_distribution() -> None:
    got = estimate([float(n) for n in range(1, 41)])
    assert got == Estimate(20.5, 14.0, 27.0)  # of tables for the median of 40
    assert estimate([float(n) for n in range(1, 7)]) == Estimate(3.5, 1.0, 6.0)
    assert estimate([3.0, 1.0, 2.0]) == Estimate(2.0, 1.0, 3.0, is_sure=False)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60))
def test_the_median_is_within_its_interval(values: list[float]) -> None:
    got = estimate(values)
    assert min(values) <= got.low <= got.median <= got.high <= max(values)


@pytest.mark.parametrize("file", sorted(f for f in shipped_files() if not f.endswith("_test.star")))
def test_a_marked_file_keeps_its_lines(file: str) -> None:
    text = shipped_files()[file]
    copy, marks = marked(text)
    assert copy.count("\n") == text.count("\n")
    lines = len(text.split("\n"))
    assert all(0 < mark.line <= lines for mark in marks)


MIXED = """
def filter(pod, node):
    found = {k: v for k, v in node.labels.items() if v and k != "ä"}; many = len(found)
    pairs = [[x + y for x in found] for y in found if y > "a"]
    if many < LEAST: return "few"
    elif pairs and pairs[0]: pass
    for a, b in zip(pairs, pairs):
        if a == b and len(a) > 1:
            return ["ä" + str(len(a))]
    return None
"""


@functools.cache
def mixed(least: int) -> tuple[InProcessEvaluator, OperationCounter]:
    text = MIXED.replace("LEAST", str(least))
    program = Program({"p.star": text}, (Instance("p", "p.star"),))
    return InProcessEvaluator(program), OperationCounter(program)


@given(st.lists(st.sampled_from(["a", "b", "c", "ä"]), max_size=4), st.integers(0, 3))
def test_counting_changes_no_verdict(keys: list[str], least: int) -> None:
    labels = json.dumps({"labels": {key: key for key in keys}}).encode()
    call = Call(0, "filter", b"{}", [labels])
    plain, counter = mixed(least)
    assert counter.evaluator.evaluate([call]) == (verdicts := plain.evaluate([call]))
    assert not isinstance(verdicts[0][0], PolicyFailure)
    assert counter.count([call]) == counter.count([call])


def test_the_same_seed_gives_the_same_cluster() -> None:
    first, second, other = (generated_workload(10, 10, seed) for seed in (1, 1, 2))
    assert first.cluster.nodes == second.cluster.nodes
    assert first.cluster.pods == second.cluster.pods
    assert first.cluster.pods != other.cluster.pods
