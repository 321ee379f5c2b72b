"""`starsched diff`: what other policies do otherwise, as a number and as an exit code."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.lib.clock import VirtualClock
from tests.recorded import RecordedKernel
from workbench.cli.main import main
from workbench.replay.comparison import delta

pytestmark = pytest.mark.usefixtures("policies_load_in_process")

STRATEGY = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled: [{name: only, weight: 100}]
"""
ONLY = "def filter(pod, node):\n    return None if node.name in %s else 'not this one'\n"


def policies(directory: Path, *nodes: str) -> Path:
    directory.mkdir()
    (directory / "only.star").write_text(ONLY % json.dumps(nodes))
    (directory / "config.yaml").write_text(STRATEGY)
    return directory


def node(name: str, cpu: str = "4") -> dict[str, Any]:
    room = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    return {"kind": "Node", "metadata": {"name": name}, "status": {"allocatable": room}}


def pod(name: str, cpu: str = "1") -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    metadata = {"name": name, "namespace": "default", "uid": name}
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.json"
    items = [node("n1"), node("n2"), *(pod(f"p{i}") for i in range(6))]
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return path


def diff(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["diff", *map(str, arguments)])


@pytest.mark.slow("computes for long")
def test_the_same_policies_do_the_same(snapshot: Path) -> None:
    result = diff("builtin", "builtin", "--on", snapshot, "--max-moved", 0, "--seeds", 3)
    assert result.exit_code == 0, result.output
    assert "6 pods that arrive: no change" in result.output


@pytest.mark.slow("computes for long")
def test_pods_that_move_and_become_pending_are_counted(snapshot: Path, tmp_path: Path) -> None:
    one, both = policies(tmp_path / "one", "n1"), policies(tmp_path / "both", "n1", "n2")
    result = diff(both, one, "--on", snapshot, "--output", "json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    kinds = [change["kind"] for change in answer["changes"]]
    # Three are on each of the two nodes; of four cores, one is free on the first.
    assert kinds.count("newly_pending") == 2
    assert kinds.count("moved") == answer["moved"] == 2
    assert answer["pending_more"] == 2
    pending = answer["metrics"]["pending"]
    assert (pending["before"], pending["after"], pending["margin"]) == (0, 2, None)
    assert answer["metrics"]["cpu used at the end"]["difference"] == pytest.approx(-2 / 8)
    # The other way round.
    answer = json.loads(diff(one, both, "--on", snapshot, "--output", "json").stdout)
    assert answer["pending_more"] == -2
    assert [c["kind"] for c in answer["changes"]].count("newly_placed") == 2


@pytest.mark.slow("computes for long")
def test_pods_that_go_without_a_node_are_no_less_than_pending(tmp_path: Path) -> None:
    """Jobs that end are not pending in the end: none ever ran, and every budget was kept."""
    events = tmp_path / "jobs.jsonl"
    lines: list[dict[str, Any]] = [{"add": node("n1")}]
    lines += [{"at": at, "add": pod(f"j{at}"), "for": 5} for at in range(3)]
    events.write_text("\n".join(map(json.dumps, lines)))
    none = policies(tmp_path / "none", "n9")
    result = diff("builtin", none, "--on", events, "--max-pending-more", 2)
    assert result.exit_code == 1, result.output
    assert "3 pods that arrive: 3 now gone without a node\n" in result.output
    assert "exceeded: 3 more are pending or never got a node, want at most 2" in result.output
    answer = json.loads(diff("builtin", none, "--on", events, "--output", "json").stdout)
    assert answer["metrics"]["never got a node"]["difference"] == 3


@pytest.mark.slow("computes for long")
def test_pods_of_the_start_that_other_policies_evict_are_reported(tmp_path: Path) -> None:
    """One that is evicted and not replaced was no change; one that came again was "now placed"."""

    def placed(name: str, *, owned: bool) -> dict[str, Any]:
        made = pod(name, "3")
        owner = {"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
        made["metadata"]["ownerReferences"] = [owner] if owned else []
        return {**made, "spec": {**made["spec"], "nodeName": name}}

    urgent = pod("urgent", "3")
    urgent["spec"]["priority"] = 10
    cluster = tmp_path / "cluster.json"
    items = [*map(node, ("n1", "n2", "n3")), placed("n1", owned=True), placed("n2", owned=False)]
    cluster.write_text(json.dumps({"kind": "List", "items": [*items, urgent]}))
    for name, found in (
        ("n1", ("moved", "default/n1", "n1", "n3")),
        ("n2", ("newly_evicted", "default/n2", "n2", "evicted")),
    ):
        # The policy keeps the urgent pod alone to one node: the others may go anywhere.
        only = policies(tmp_path / name, name)
        text = (only / "only.star").read_text()
        (only / "only.star").write_text(text.replace("if node", "if pod.priority == 0 or node"))
        answer = json.loads(diff("builtin", only, "--on", cluster, "--output", "json").stdout)
        changes = [tuple(one.values())[:4] for one in answer["changes"]]
        assert found in changes
        assert answer["moved"] == sum(kind == "moved" for kind, *_ in changes) <= answer["pods"]


@pytest.mark.slow("computes for long")
@pytest.mark.parametrize(
    ("budget", "code"),
    [
        (("--max-pending-more", "2"), 0),
        (("--max-pending-more", "1"), 1),
        (("--max-moved", "2"), 0),
        (("--max-moved", "1"), 1),
        (("--max-moved", "34%"), 0),
        (("--max-moved", "33%"), 1),
        (("--max-moved", "much"), 2),
        (("--max-moved", "100%"), 0),
        (("--max-moved", "150%"), 2),  # nobody can move twice
        (("--max-moved", "inf"), 2),
    ],
)
def test_a_budget_decides_the_exit_code(
    snapshot: Path, tmp_path: Path, budget: tuple[str, ...], code: int
) -> None:
    one, both = policies(tmp_path / "one", "n1"), policies(tmp_path / "both", "n1", "n2")
    result = diff(both, one, "--on", snapshot, *budget)
    assert result.exit_code == code, result.output
    assert ("exceeded: " in result.output) == (code == 1)


def test_pods_with_the_same_failure_take_one_line(snapshot: Path, tmp_path: Path) -> None:
    """The hint came between, so that what was to be compared stood on two lines."""
    broken, both = policies(tmp_path / "broken"), policies(tmp_path / "both", "n1", "n2")
    (broken / "only.star").write_text('def filter(pod, node):\n    return node.labels["zone"]\n')
    lines = diff(broken, both, "--on", snapshot).stdout.splitlines()
    assert lines[2].startswith("6 x default/p*  now placed  ")
    assert lines[2].endswith(("n1, n2", "n2, n1"))


@pytest.mark.parametrize("side", [0, 1])
def test_a_single_policy_is_no_set_and_it_says_so(
    snapshot: Path, tmp_path: Path, side: int
) -> None:
    """It was read as YAML, and was none: `did not find expected <document start>`."""
    path = policies(tmp_path / "one", "n1") / "only.star"
    sets: list[object] = ["builtin", "builtin"]
    sets[side] = path
    result = diff(*sets, "--on", snapshot)
    assert result.exit_code == 2
    assert result.output == (
        f"Error: {path}: want a directory, a file with a ConfigMap, or `builtin`, got one policy\n"
        f"hint: `{path.parent}` is its directory\n"
    )


def test_a_dump_of_a_config_map_is_a_set_of_policies(snapshot: Path, tmp_path: Path) -> None:
    directory = policies(tmp_path / "one", "n1")
    dump = tmp_path / "live.yaml"
    data = {path.name: path.read_text() for path in directory.iterdir()}
    dump.write_text(yaml.safe_dump({"kind": "ConfigMap", "metadata": {"name": "p"}, "data": data}))
    result = diff(dump, directory, "--on", snapshot, "--output", "json")
    answer = json.loads(result.stdout)
    assert answer["before"] == answer["after"]
    assert answer["changes"] == []


@pytest.mark.parametrize(
    ("part", "want"),
    [
        pytest.param({"data": ["x"]}, "data: want texts by key, got list", id="a list"),
        pytest.param({"data": {"x.star": 3}}, "data: `x.star`: want a text, got 3", id="a number"),
        pytest.param(
            {"binaryData": {"x.star": "AAAA", "logo.png": "AAAA"}},
            "`x.star`: want UTF-8 text under `data`, got `binaryData`",
            id="what a scheduler refuses too",
        ),
        pytest.param(
            {"binaryData": {"x.star": "IyBjYWbpCg=="}},
            "`x.star`: want UTF-8 text under `data`, got `binaryData`: 0xe9 at offset 5",
            id="a file in Latin-1",
        ),
    ],
)
def test_a_config_map_that_holds_no_texts_is_refused(
    snapshot: Path, tmp_path: Path, part: dict[str, Any], want: str
) -> None:
    """A list was a traceback, a number was decided by as if it were a policy."""
    dump = tmp_path / "live.yaml"
    dump.write_text(yaml.safe_dump({"kind": "ConfigMap", "metadata": {"name": "p"}, **part}))
    result = diff("builtin", dump, "--on", snapshot)
    assert result.exit_code == 2, result.output
    assert result.stderr == f"Error: {dump}: {want}\n"


@pytest.mark.slow("computes for long")
def test_recorded_decisions_are_compared_one_by_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    record(log)
    one, both = policies(tmp_path / "one", "n1"), policies(tmp_path / "both", "n1", "n2")
    answer = json.loads(diff("builtin", both, "--on", log, "--output", "json").stdout)
    assert (answer["pods"], answer["changes"]) == (4, [])
    result = diff("builtin", one, "--on", log, "--max-moved", 0)
    assert f"{answer['pods']} decisions: " in result.output  # a pod may have several
    assert result.exit_code == 1, result.output
    assert re.search(r" moved +n2 +n1$", result.output, re.MULTILINE)
    assert diff("builtin", one, "--on", log, "--seeds", 2).exit_code == 2


def record(log: Path) -> None:
    """Four pods on two nodes, in a log."""
    run = RecordedKernel(log, VirtualClock())
    for name in ("n1", "n2"):
        run.node(Node.from_plain(node(name)))
    for number in range(4):
        assert run.decide(Pod.from_plain(pod(f"p{number}"))).node is not None
    run.close()


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=2, max_size=40))
def test_a_constant_difference_has_no_margin(pairs: list[tuple[float, float]]) -> None:
    before, noise = [a for a, _ in pairs], [b for _, b in pairs]
    same = delta(before, before)
    assert (same.difference, same.margin) == (0.0, 0.0)
    found = delta(before, noise)
    assert found.difference == pytest.approx(found.after - found.before, abs=1e-6)
    assert found.margin is not None
    assert found.margin >= 0


@pytest.mark.parametrize(("seeds", "t"), [(31, 2.042), (32, 2.040), (40, 2.023), (120, 1.980)])
def test_the_margin_is_student_s_over_many_seeds_too(seeds: int, t: float) -> None:
    """From the 32nd on it was that of the normal distribution, four percent too small."""
    after = [float(number) for number in range(seeds)]
    variance = (seeds**2 + seeds) / 12  # of the numbers from 0, by one less than there are
    margin = delta([0.0] * seeds, after).margin
    assert margin == pytest.approx(t * math.sqrt(variance / seeds), rel=3e-4)


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    """Two nodes, each with two pods, and a pod that arrives."""
    path = tmp_path / "busy.json"
    placed = [pod(f"web-{i}") for i in range(4)]
    for number, one in enumerate(placed):
        one["spec"]["nodeName"] = f"n{number % 2 + 1}"
    items = [node("n1", "16"), node("n2", "16"), *placed, pod("new")]
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return path


def test_placed_pods_that_were_not_looked_at_are_counted(busy: Path, tmp_path: Path) -> None:
    """It said "no change", and a plan of the same cluster had a third of the pods moved."""
    one, both = policies(tmp_path / "one", "n1"), policies(tmp_path / "both", "n1", "n2")
    result = diff(both, one, "--on", busy, "--max-moved", 0)
    said = "4 placed pods were not looked at; --placed decides them, too\n"
    assert said in result.output
    answer = json.loads(diff(both, one, "--on", busy, "--output", "json").stdout)
    assert (answer["not_looked_at"], answer["placed"]) == (4, None)


def test_pods_of_other_schedulers_are_counted(tmp_path: Path) -> None:
    """It said `no change` of pods that neither side had looked at."""
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4"}}}
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"schedulerName": "other"}}
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": [node, pod]}))
    words = ["diff", "builtin", "builtin", "--on", str(path)]
    shown = CliRunner().invoke(main, words).output
    assert "1 of them were not decided: no profile has their scheduler\n" in shown
    answer = json.loads(CliRunner().invoke(main, [*words, "--output", "json"]).stdout)
    assert answer["not_decided"] == 1
    decided = CliRunner().invoke(main, [*words, "--profile", "default-scheduler"])
    assert "not decided" not in decided.output


def test_placed_pods_are_decided_as_if_they_waited(busy: Path, tmp_path: Path) -> None:
    one, other = policies(tmp_path / "one", "n1"), policies(tmp_path / "other", "n2")
    result = diff(one, other, "--on", busy, "--placed", "--max-moved", "50%")
    assert result.exit_code == 1, result.output
    assert "exceeded: 5 of 5 move (100.0%), want at most 50%" in result.output
    assert "compared   4 of 4 running as if they waited" in result.output
    assert "\n4 x default/web-*  n1, n2   moved       n1  n2 " in result.output
    assert f"{other}/only.star:" in result.output
    answer = json.loads(diff(one, other, "--on", busy, "--placed", "--output=json").stdout)
    assert answer["not_looked_at"] == 0
    assert [found["runs_on"] for found in answer["placed"]["differences"]] == ["n1", "n2"] * 2


def test_decisions_of_a_log_have_no_placed_pods(tmp_path: Path) -> None:
    log = tmp_path / "log"
    record(log)
    assert diff("builtin", "builtin", "--on", log, "--placed").exit_code == 2


def test_noise_of_floats_is_no_difference() -> None:
    """`diff` printed `fragmented 0.05882 0.05882 -1.388e-17` as the only row that differs."""
    found = delta([0.1 + 0.2], [0.3])
    assert found.before != found.after
    assert found.difference == 0.0
    assert delta([0.3], [0.3001]).difference == pytest.approx(0.0001)


def test_only_measures_that_differ_are_printed(snapshot: Path, tmp_path: Path) -> None:
    both = policies(tmp_path / "both", "n1", "n2")
    count = len(json.loads(diff(both, both, "--on", snapshot, "--output=json").stdout)["metrics"])
    result = diff(both, both, "--on", snapshot)
    assert result.stdout.splitlines()[1:] == [f"the same with both: {count} measures"]
    assert "\nplaced " in diff(both, both, "--on", snapshot, "--wide").output
