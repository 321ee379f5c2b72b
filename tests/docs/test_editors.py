"""The configurations of docs/editors.md can be read, and their command is a language server."""

import json
import os
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.scripts import script
from tests.workbench.cli.language_client import LanguageClient
from workbench.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "editors.md").read_text()
COMMAND = ["starsched", "stubs", "--serve", "basedpyright-langserver --stdio"]


def blocks(language: str) -> list[str]:
    """The pieces of the page in *language*."""
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def block(language: str) -> str:
    """The one piece of the page in *language*."""
    [found] = blocks(language)
    return found


def test_helix_starts_the_bridge_for_starlark() -> None:
    answer = tomllib.loads(block("toml"))
    server = answer["language-server"]["starsched"]
    assert [server["command"], *server["args"]] == COMMAND
    [language] = answer["language"]
    assert (language["name"], language["language-servers"]) == ("starlark", ["starsched"])
    assert language["roots"] == ["typings"]


def test_neovim_starts_the_bridge_for_starlark() -> None:
    text = block("lua")
    [command] = re.findall(r"cmd = \{(.*)\},", text)
    assert json.loads(f"[{command}]") == COMMAND
    assert [text.count(pair) for pair in "{("] == [text.count(pair) for pair in "})"]
    assert 'filetypes = { "starlark" }' in text
    assert 'extension = { star = "starlark" }' in text


def test_emacs_starts_the_bridge_in_the_mode_of_star_files() -> None:
    text = block("lisp")
    [command] = re.findall(r"'\(starlark-mode (\".*\")\)", text)
    assert shlex.split(command) == COMMAND
    assert text.count("(") == text.count(")")


def test_vs_code_starts_the_bridge_for_starlark() -> None:
    package, grammar, settings = (json.loads(one) for one in blocks("json"))
    [language] = package["contributes"]["languages"]
    assert language == {"id": "starlark", "extensions": [".star"]}
    assert package["activationEvents"] == ["onLanguage:starlark"]
    [colours] = package["contributes"]["grammars"]
    assert colours["language"] == language["id"]
    assert colours["scopeName"] == grammar["scopeName"]
    assert f"`{colours['path']}`" in TEXT
    assert f"`{package['main']}`" in TEXT
    text = block("js")
    [(command, arguments)] = re.findall(r'command: "(.*)", args: (\[.*\]) }', text)
    assert [command, *json.loads(arguments)] == COMMAND
    assert '{ language: "starlark" }' in text
    assert set(re.findall(r'require\("([\w-]+)', text)) == {"vscode", *package["dependencies"]}
    assert settings["files.associations"] == {"*.star": "python"}


@pytest.mark.slow("starts basedpyright")
def test_the_command_of_the_page_is_a_server_that_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As `pip install basedpyright` puts it: under its name, on the path.
    program = tmp_path / "bin" / "basedpyright-langserver"
    program.parent.mkdir()
    command = script("devkit/tools/basedpyright/build.py").command()[:-1]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    program.chmod(0o755)
    folders = [str(program.parent), str(Path(sys.executable).parent)]
    monkeypatch.setenv("PATH", os.pathsep.join([*folders, os.environ["PATH"]]))
    assert CliRunner().invoke(main, ["stubs", str(tmp_path)]).exit_code == 0
    with LanguageClient(COMMAND, tmp_path) as client:
        uri = client.open("fresh.star", "def filter(pod, node):\n    return pod.\n")
        assert {"labels", "requests"} <= client.completions(uri, 1, 15).keys()
