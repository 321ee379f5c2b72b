"""The examples of docs/authoring.md run, and print what it says."""

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from workbench.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "authoring.md").read_text(encoding="utf-8")
_FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)
_SHOWN = re.compile(r"```text\n(.*?)```", re.DOTALL)
POLICY = "prefer_cheaper_nodes.star"


@pytest.fixture
def policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the document in `policies/`, beside the policy that they are about."""
    monkeypatch.chdir(tmp_path)
    root = Path("policies")
    (root / "fixtures").mkdir(parents=True)
    shutil.copy(ROOT / "policies" / "examples" / POLICY, root / POLICY)
    for name, text in _FILE.findall(TEXT):
        (root / name).write_text(text)
    for test in root.glob("*_test.star"):
        if test.name != f"{POLICY.removesuffix('.star')}_test.star":
            # In the document each stands for the test of the policy; here all do at once.
            shutil.copy(root / POLICY, root / test.name.replace("_test.star", ".star"))
    return root


def test_the_examples_pass(policies: Path) -> None:
    result = CliRunner().invoke(main, ["test", "policies"])
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1].startswith("9 passed, 0 failed")
    result = CliRunner().invoke(main, ["test", "policies", "--run", "test_price_of_file[no label]"])
    assert result.output.splitlines()[-1].startswith("1 passed")


def test_what_is_shown_is_what_is_printed(policies: Path) -> None:
    # In the order of the document.
    problem, failure = (
        block for block in _SHOWN.findall(TEXT) if "policies" in block or ": want" in block
    )
    path = policies / "fixtures" / "cluster.yaml"
    path.write_text(path.read_text().replace('cpu: "64"', "cpu: lots"))
    result = CliRunner().invoke(main, ["test", "policies", "--run", "shop"])
    assert problem.strip() in result.output
    path = policies / "properties.star"
    path.write_text(path.read_text().replace("100 * (", "120 * ("))
    result = CliRunner().invoke(main, ["test", "policies", "--run", "scores_are_in_range"])
    assert result.output.replace("properties.star:14", f"{POLICY}:14").startswith(failure)
