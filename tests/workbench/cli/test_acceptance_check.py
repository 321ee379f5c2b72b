"""`starsched check --never-rejects-everything`: the class, the policy with its line, and YAML."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.workbench.cli.test_compare_command import LAX, STRICT, policies
from tests.workbench.cli.test_diff_command import node, pod
from workbench.cli.main import main

pytestmark = pytest.mark.usefixtures("policies_load_in_process")


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.json"
    web = pod("web")
    web["metadata"]["labels"] = {"team": "web", "app": "shop"}
    path.write_text(json.dumps({"kind": "List", "items": [node("n1"), web, pod("huge", "9")]}))
    return path


def check(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["check", *map(str, arguments)])


def test_pods_that_no_node_accepts_are_problems_with_the_pod_as_yaml(
    snapshot: Path, tmp_path: Path
) -> None:
    strict = policies(tmp_path / "policies", STRICT)
    result = check(strict, "--never-rejects-everything", "--on", snapshot)
    assert result.exit_code == 1, result.output
    place = f"{strict}/only.star:2: "
    assert f"{place}`only` rejects every node for 1 pod(s) such as `default/web`: no\n" in (
        result.output
    )
    # Nothing that an edit of these policies would change.
    assert "warning: `NodeResourcesFit` rejects every node for 1 pod(s) such as `default/huge`" in (
        result.output
    )
    assert "1 problem(s), 1 warning(s)" in result.output
    documents = result.output[result.output.index("# rejected") : result.output.rindex("1 policy")]
    one, other = yaml.safe_load_all(documents)
    assert {each["metadata"]["name"] for each in (one, other)} == {"huge", "web"}
    answer = json.loads(
        check(strict, "--never-rejects-everything", "--on", snapshot, "--output", "json").stdout
    )
    by_pod = {each["of"]: each for each in answer["rejected"]}
    assert by_pod["default/web"]["pod"]["metadata"]["labels"] == {"team": "web"}
    assert by_pod["default/huge"]["is_hopeless"]


def test_policies_that_leave_every_pod_a_node_pass(snapshot: Path, tmp_path: Path) -> None:
    lax = policies(tmp_path / "policies", LAX)
    assert check(lax, "--never-rejects-everything", "--on", snapshot).exit_code == 0
    # The pod that is too large for every node is a warning.
    arguments = (lax, "--never-rejects-everything", "--on", snapshot, "--strict")
    assert check(*arguments).exit_code == 1


def test_policies_that_cannot_run_are_not_asked(snapshot: Path, tmp_path: Path) -> None:
    broken = policies(tmp_path / "policies", "def filter(pod, node):\n    return pod.nome\n")
    result = check(broken, "--never-rejects-everything", "--on", snapshot)
    assert result.exit_code == 1
    assert "nome" in result.output
    assert "rejects every node" not in result.output


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param(["--on", "cluster.json"], "together", id="no check for the input"),
        pytest.param(["--never-rejects-everything"], "together", id="no input for the check"),
        pytest.param(
            ["--never-rejects-everything", "--on", "nodes.json"], "got 1 and 0", id="no pods"
        ),
    ],
)
def test_what_cannot_be_asked_is_said(
    tmp_path: Path,
    snapshot: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    want: str,
) -> None:
    policies(tmp_path / "policies", LAX)
    (tmp_path / "nodes.json").write_text(json.dumps(node("n1")))
    monkeypatch.chdir(tmp_path)
    result = check("policies", *arguments)
    assert result.exit_code == 2
    assert want in result.output
