"""What a project is expected to have beside its code: licence, notices, templates, hooks."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from workbench.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PRE_COMMIT = ROOT / ".pre-commit-config.yaml"
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
#: The folders with files of others, whose `libraries.toml` lists them.
VENDORED = ("engine/surfaces/page/static", "docs/assets")


def libraries(folder: str) -> list[dict[str, str]]:
    table = tomllib.loads((ROOT / folder / "libraries.toml").read_text(encoding="utf-8"))
    return [dict(library) for library in table["library"]]


def test_the_notice_lists_every_file_of_others_with_its_licence() -> None:
    lines = [line.split() for line in (ROOT / "NOTICE").read_text().splitlines()]
    listed = [line for line in lines if line and line[0].startswith(VENDORED)]
    want = [
        [
            f"{folder}/{one['file']}",
            one["package"],
            one["version"],
            one["licence"],
            f"{folder}/{one['licence_file']}",
        ]
        for folder in VENDORED
        for one in libraries(folder)
    ]
    assert listed == want
    assert [line[-1] for line in listed if not (ROOT / line[-1]).is_file()] == []


def test_the_library_that_draws_figures_is_what_the_manifest_says() -> None:
    (library,) = libraries("docs/assets")
    body = (ROOT / "docs" / "assets" / library["file"]).read_bytes()
    assert hashlib.sha256(body).hexdigest() == library["sha256"]


def test_the_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert [int(n) for n in re.findall(r"^   (\d)\. ", text, re.MULTILINE)] == [*range(1, 10)]
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def hooks() -> list[str]:
    (repository,) = yaml.safe_load(PRE_COMMIT.read_text())["repos"]
    assert repository["repo"] == "local"
    return [hook["entry"] for hook in repository["hooks"]]


def test_the_hooks_before_a_commit_are_the_linters_of_make_fast() -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipe = re.search(r"^fast:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe is not None
    commands = re.findall(r"^\t\$\(BIN\)/(.+)$", recipe[1], re.MULTILINE)
    assert len(commands) >= 2
    assert hooks() == [f".venv/bin/{command}" for command in commands]


@pytest.mark.slow("starts programs")
@pytest.mark.parametrize(
    ("text", "is_taken"),
    [("import os\n\nprint(os.sep)\n", True), ("import os\n", False), ("x = {  }\n", False)],
    ids=["clean", "lint", "format"],
)
def test_a_commit_that_a_linter_refuses_is_not_made(
    tmp_path: Path, text: str, is_taken: bool
) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    for path in (PRE_COMMIT, ROOT / "pyproject.toml"):
        shutil.copy(path, tmp_path)
    (tmp_path / "module.py").write_text(f'"""A module."""\n\n{text}')
    environment = {
        "HOME": str(tmp_path / "home"),
        "PATH": os.environ["PATH"],
        **{f"GIT_{who}_{what}": "test@example.com"
           for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }  # fmt: skip

    def run(*command: str) -> int:
        return subprocess.run(
            command, cwd=tmp_path, env=environment, check=False, stdout=subprocess.DEVNULL
        ).returncode

    assert run("git", "init", "--quiet") == 0
    assert run("git", "add", "pyproject.toml", PRE_COMMIT.name, "module.py") == 0
    assert run(".venv/bin/pre-commit", "install") == 0
    assert (run("git", "commit", "--quiet", "--message", "Change it") == 0) == is_taken


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_a_form_for_issues_is_one_that_the_code_host_takes(form: Path) -> None:
    content = yaml.safe_load(form.read_text())
    assert {"name", "description", "body"} <= content.keys()
    assert content.keys() <= {"name", "description", "body", "labels", "title", "assignees"}
    ids = [part["id"] for part in content["body"]]
    assert len(set(ids)) == len(ids)
    for part in content["body"]:
        assert part.keys() <= {"type", "id", "attributes", "validations"}
        assert part["type"] in {"textarea", "input", "dropdown", "checkboxes"}
        assert part["attributes"]["label"]
        allowed = {"label", "description", "placeholder", "value", "render", "options"}
        assert part["attributes"].keys() <= allowed


def test_the_commands_that_a_form_names_exist() -> None:
    text = "".join(form.read_text() for form in FORMS)
    named = set(re.findall(r"`(?:kubectl )?starsched ([a-z]+)", text))
    assert named
    assert named <= COMMANDS.keys()
