"""`starsched compare`: equivalent, implies, or the smallest counterexample as YAML."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.engine.core.kernel.queue_world import tree_files
from tests.engine.core.kernel.test_turn_queue import DRF
from tests.workbench.cli.test_diff_command import STRATEGY, node, pod
from workbench.cli.main import main

pytestmark = pytest.mark.usefixtures("policies_load_in_process")


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.json"
    web = pod("web")
    web["metadata"]["labels"] = {"team": "web", "app": "shop"}
    items = [node("n1"), node("n2"), web, *(pod(f"p{i}") for i in range(3))]
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return path


def policies(directory: Path, text: str) -> Path:
    directory.mkdir()
    (directory / "only.star").write_text(text)
    (directory / "config.yaml").write_text(STRATEGY)
    return directory


def compare(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["compare", *map(str, arguments)])


LAX = "def filter(pod, node):\n    return None\n"
STRICT = "def filter(pod, node):\n    return 'no' if pod.labels.get('team') == 'web' else None\n"


def test_equivalent_policies_exit_with_0_and_say_of_what(snapshot: Path, tmp_path: Path) -> None:
    refactored = "def filter(pod, node):\n    if pod.name == '':\n        return 'no'\n"
    lax, other = policies(tmp_path / "a", LAX), policies(tmp_path / "b", refactored)
    result = compare(lax, other, "--on", snapshot)
    assert result.exit_code == 0, result.output
    want = "equivalent on this input: 4 class(es) of 4 pod(s), 1 shape(s) of 2 node(s)\n"
    assert result.stdout == want


def test_an_input_of_which_no_pod_is_decided_is_an_error(tmp_path: Path) -> None:
    """A check of CI would take "equivalent" of nothing for an answer."""
    other = pod("web")
    other["spec"]["schedulerName"] = "other"
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": [node("n1"), other]}))
    lax, strict = policies(tmp_path / "a", LAX), policies(tmp_path / "b", STRICT)
    result = compare(lax, strict, "--on", path)
    assert result.exit_code == 2, result.output
    assert "no pod of the input is decided, so nothing was compared" in result.output


def test_the_counterexample_is_yaml_with_what_each_set_says(snapshot: Path, tmp_path: Path) -> None:
    lax, strict = policies(tmp_path / "a", LAX), policies(tmp_path / "b", STRICT)
    result = compare(lax, strict, "--on", snapshot)
    assert result.exit_code == 1, result.output
    assert result.stdout.startswith("not equivalent on this input: 2 class(es) of 4 pod(s)")
    assert "A implies B: everything that A rejects, B rejects\n" in result.output
    assert "B implies A" not in result.output
    assert "# A accepts `n1`\n" in result.output
    assert f"# B rejects `n1`: no [only, {strict}/only.star:2]\n" in result.output
    of_pod, of_node = yaml.safe_load_all(result.output.partition("---\n")[2])
    assert of_pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "labels": {"team": "web"}},
    }
    assert of_node == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"pods": "110"}},
    }
    # The example is one: on it alone, the two still differ.
    small = tmp_path / "small.yaml"
    small.write_text(result.output[result.output.index("# counterexample") :])
    again = compare(lax, strict, "--on", small)
    assert again.exit_code == 1
    assert again.output.partition("# counter")[2] == result.output.partition("# counter")[2]


def test_json_has_the_same_each_time(snapshot: Path, tmp_path: Path) -> None:
    lax, strict = policies(tmp_path / "a", LAX), policies(tmp_path / "b", STRICT)
    results = [compare(lax, strict, "--on", snapshot, "--output", "json") for _ in range(2)]
    assert results[0].stdout == results[1].stdout
    answer: dict[str, Any] = json.loads(results[0].stdout)
    assert (answer["relation"], answer["differing"]) == ("implies", {"verdict": 1})
    assert answer["first_implies_second"]
    assert not answer["second_implies_first"]
    assert answer["before"] != answer["after"]
    assert answer["counterexample"]["second_policy"] == "only"
    # With a profile that neither has, nothing is asked.
    result = compare(lax, strict, "--on", snapshot, "--profile", "another")
    assert result.exit_code == 2
    assert "`another`" in result.output


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("{", "cluster.json", id="no JSON"),
        pytest.param('{"kind": "List", "items": []}', "want nodes and pods", id="nothing"),
        pytest.param(
            '{"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": 1}}',
            "containers",
            id="no pod",
        ),
    ],
)
def test_an_input_that_cannot_be_used_is_named(tmp_path: Path, text: str, want: str) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(text)
    result = compare("builtin", "builtin", "--on", path)
    assert result.exit_code == 2
    assert want in result.output
    assert str(path) in result.output


# --- under two versions of Kubernetes ---------------------------------------------------------


@pytest.fixture
def upgraded(tmp_path: Path) -> Path:
    """A pod that spreads over everything, and one that would evict what a budget may cover."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
    }
    nodes = [node("n1"), node("n2")]
    for one in nodes:
        one["metadata"]["labels"] = {"kubernetes.io/hostname": one["metadata"]["name"]}
    spread, urgent, low, elsewhere = (pod(name) for name in ("spread", "urgent", "low", "low2"))
    spread["spec"]["topologySpreadConstraints"] = [constraint]
    spread["spec"]["containers"][0].pop("resources", None)
    urgent["spec"]["priority"] = 10
    for one, where in ((low, "n1"), (elsewhere, "n2")):
        one["spec"]["nodeName"] = where
    elsewhere["metadata"]["namespace"] = "other"
    for one in (urgent, low, elsewhere):
        cpu = nodes[0]["status"]["allocatable"]["cpu"]
        one["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all", "namespace": low["metadata"].get("namespace", "default")},
        "spec": {"minAvailable": 1, "selector": {}},
    }
    path = tmp_path / "cluster.json"
    items = [*nodes, spread, urgent, low, elsewhere, budget]
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return path


def test_what_an_upgrade_of_the_cluster_would_change_is_listed_with_its_reason(
    upgraded: Path,
) -> None:
    result = compare("--minors", "1.37,1.38", "--on", upgraded, "--output", "json")
    assert result.exit_code == 1, result.output
    found = json.loads(result.stdout)
    assert (found["minors"], found["pods"], found["changed"]) == (["1.37", "1.38"], 4, 2)
    by_pod = {one["pod"].partition("/")[2]: one for one in found["changes"]}
    assert by_pod["spread"]["kind"] == "verdict"
    assert by_pod["spread"]["because"] == ["empty_selectors_spread"]
    # Neither alone: the pod that the budget covers has no labels.
    assert by_pod["urgent"]["kind"] == "other_victims"
    want = ["budgets_of_everything", "budgets_cover_pods_without_labels"]
    assert by_pod["urgent"]["because"] == want
    text = compare("--minors", "1.37,1.38", "--on", upgraded).stdout
    assert text.startswith("2 of 4 pods would be answered otherwise by 1.38 than by 1.37\n")
    assert "since 1.38, a spread constraint with `labelSelector: {}` counts every pod" in text


def test_versions_that_answer_alike_exit_with_0(upgraded: Path) -> None:
    result = compare("--minors", "1.36,1.37", "--on", upgraded)
    assert result.exit_code == 0, result.output
    assert "0 of 4 pods" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["--minors", "1.37"], "want two versions, such as 1.37,1.38, got `1.37`"),
        (["--minors", "1.37,1.99"], "want one from 1.35 to 1.38, got `1.99`"),
        (["builtin", "builtin", "--minors", "1.37,1.38"], "want one set of policies"),
        (["builtin"], "want two sets of policies, A and B, or --minors"),
    ],
)
def test_versions_that_cannot_be_compared_are_named(
    upgraded: Path, arguments: list[str], want: str
) -> None:
    result = compare(*arguments, "--on", upgraded)
    assert result.exit_code == 2, result.output
    assert want in result.output


def test_sets_that_differ_in_their_queues_alone_are_not_said_to_be_equivalent(
    snapshot: Path, tmp_path: Path
) -> None:
    """What a quota holds back is no verdict of a filter; it was not noticed."""
    sets = {
        "none": {"config.yaml": tree_files(DRF)["config.yaml"]},
        "a": tree_files(DRF, queues={"a": {}}),
        "again": tree_files(DRF + "\n", queues={"a": {}}),
        "moved": {"other.yaml" if n == "tree.yaml" else n: t
                  for n, t in tree_files(DRF, queues={"a": {}}).items()},
        "limited": tree_files(DRF, queues={"a": {"limit": {"cpu": 1}}}),
        "otherwise": tree_files(DRF.replace("queue.weight)", "1)"), queues={"a": {}}),
    }  # fmt: skip
    for name, files in sets.items():
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
    for one, other, is_same in (
        ("a", "a", True),
        ("a", "moved", True),
        ("none", "none", True),
        ("none", "a", False),
        ("a", "again", False),  # the text is another one: no more is known
        ("a", "limited", False),
        ("a", "otherwise", False),
    ):
        result = compare(tmp_path / one, tmp_path / other, "--on", snapshot)
        assert result.exit_code == (0 if is_same else 1), (one, other, result.output)
        assert ("equivalent but for their queues" in result.output) is not is_same
        assert ("`starsched diff --placed`" in result.output) is not is_same
    plain = json.loads(
        compare(tmp_path / "a", tmp_path / "limited", "--on", snapshot, "--output=json").stdout
    )
    assert (plain["relation"], plain["has_other_queues"]) == ("equivalent", True)
