"""The command finds its subcommands, and pays only for the one that is used."""

import importlib
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from workbench.cli.main import COMMANDS, main


def test_help_lists_every_command() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    assert "Examples:" in result.output
    assert "Exit codes: 0 " in result.output
    text = result.output
    module, attribute, _ = COMMANDS[name]
    command = getattr(importlib.import_module(module), attribute)
    if isinstance(command, click.Group):
        text += CliRunner().invoke(main, [name, next(iter(command.commands)), "--help"]).output
    # Those that run until they are stopped log instead, which has a form of its own.
    assert ("--output [text|json" in text) != ("--logging-format" in text)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_a_terminal(name: str) -> None:
    """Exit codes and lists were broken in the middle of words at 80 columns.

    Commands to copy are whole, and so are the names of options.
    """
    shown = CliRunner().invoke(main, [name, "--help"], env={"COLUMNS": "80"}).output
    text, _, rest = shown.partition("\n  Examples:\n")
    lines = [*text.splitlines(), *rest.partition("\nOptions:\n")[2].splitlines()]
    assert [line for line in lines if len(line) > 80 and not line.startswith("  --")] == []


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["sched"])
    assert result.exit_code == 2
    assert "No such command 'sched'" in result.output


def test_a_misspelled_command_is_reported_with_the_one_that_is_meant() -> None:
    result = CliRunner().invoke(main, ["simluate", "cluster.yaml"])
    assert result.exit_code == 2
    assert "No such command 'simluate'. Did you mean 'simulate'?" in result.output


def test_help_does_not_import_the_scheduler() -> None:
    program = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from workbench.cli.main import main\n"
        "CliRunner().invoke(main, ['--help'])\n"
        "print([m for m in ('aiohttp', 'numpy', 'engine.app') if m in sys.modules])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.slow("starts programs")
@pytest.mark.parametrize(
    "command", ["check", "test", "bench", "new", "simulate", "replay", "diff", "sweep"]
)
def test_what_needs_no_cluster_imports_no_network(command: str) -> None:
    program = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from workbench.cli.main import main\n"
        f"assert CliRunner().invoke(main, ['{command}', '--help']).exit_code == 0\n"
        "print([m for m in ('aiohttp', 'engine.io.kube.client') if m in sys.modules])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(("no_color", "want"), [(None, True), ("", True), ("1", False)])
def test_colours_can_be_declined(tmp_path: Path, no_color: str | None, want: bool) -> None:
    """`NO_COLOR` went for the tables and not for the lines of `test`."""
    (tmp_path / "x_test.star").write_text("def test_a():\n    pass\n")
    asked = ["test", str(tmp_path)]
    result = CliRunner().invoke(main, asked, color=True, env={"NO_COLOR": no_color})
    assert result.exit_code == 0, result.output
    assert ("\x1b[" in result.output) == want
