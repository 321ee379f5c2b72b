"""The pages of the commands say what `--help` says, and the test of that can fail."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from devkit.tools import command_pages
from workbench.cli.main import COMMANDS, main

ROOT = Path(__file__).resolve().parents[2]


def test_no_page_is_stale() -> None:
    assert command_pages.stale() == [], "run `make docs`"


def test_a_page_is_stale_once_help_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "fmt", (*COMMANDS["new"][:2], COMMANDS["fmt"][2]))
    assert command_pages.stale() == [Path("docs/commands/fmt.md")]


def test_a_command_without_a_page_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "brandnew", COMMANDS["new"])
    assert command_pages.stale() == [
        Path("docs/commands/brandnew.md"),
        Path("docs/commands.md"),
    ]


def test_a_page_of_no_command_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(COMMANDS, "fmt")
    assert Path("docs/commands/fmt.md") in command_pages.stale()


def test_what_is_written_by_hand_is_kept() -> None:
    page = command_pages.pages()[Path("docs/commands/explain.md")]
    assert "## In more words" in page.partition(command_pages.END)[2]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_help_has_examples_and_exit_codes(name: str) -> None:
    shown = CliRunner().invoke(main, [name, "--help"], catch_exceptions=False).output
    assert "Examples:\n" in shown
    assert "Exit codes: 0 " in shown
    assert f"starsched {name}" in shown.partition("Examples:")[2]
