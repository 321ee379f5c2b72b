"""The workflow files of GitHub: read by their linter, since nothing here can run them."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.rendering import ROOT
from tests.scripts import go_program

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
_TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def steps(path: Path) -> list[dict[str, Any]]:
    """The steps of every job of a workflow."""
    jobs = yaml.safe_load(path.read_text())["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.slow("builds the linter")
def test_the_linter_has_nothing_to_say(tmp_path: Path) -> None:
    linter = go_program("actionlint")
    # Whether shellcheck is at hand must not decide.
    command: list[str | Path] = [linter, "-shellcheck=", "-pyflakes=", "-no-color"]
    said = subprocess.run([*command, *WORKFLOWS], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout + said.stderr) == (0, "")
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text().replace("matrix.python", "matrix.pyton"))
    said = subprocess.run([*command, wrong], capture_output=True, text=True, check=False)
    assert (said.returncode, '"pyton" is not defined' in said.stdout) == (1, True)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_by_a_commit_and_says_which_version_that_is(path: Path) -> None:
    used = re.findall(r"uses: *(.*)", path.read_text())
    assert used
    form = r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+"
    assert [one for one in used if not re.fullmatch(form, one)] == []


def test_an_action_has_one_version_everywhere() -> None:
    used = {one for path in WORKFLOWS for one in re.findall(r"uses: *(.*)", path.read_text())}
    assert len(used) == len({one.partition("@")[0] for one in used})


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_what_is_called_of_make_is_there(path: Path) -> None:
    called = {
        target
        for step in steps(path)
        for target in re.findall(r"\bmake (?:--silent )?([a-z-]+)", step.get("run", ""))
    }
    assert called
    assert called <= _TARGETS


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_job_has_the_rights_that_it_names_and_no_step_keeps_credentials(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] in ({}, {"contents": "read"})
    checkouts = [step for step in steps(path) if "actions/checkout@" in step.get("uses", "")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)
