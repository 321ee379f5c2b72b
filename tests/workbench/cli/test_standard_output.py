"""What cannot be printed ends a command as it ends Unix tools, and never in a traceback."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

COMMANDS = [
    pytest.param(["--help"], id="click's"),
    pytest.param(["eject", "NodeName"], id="less than a buffer"),
    pytest.param(["stubs", "--stdout"], id="more than a buffer"),
    pytest.param(["check", "--reads", "policies/examples"], id="a table"),
]


def run(stdout: int | None, *arguments: str) -> tuple[int, str]:
    """The exit code of a command and what it says on its standard error."""
    close = "" if stdout is not None else "exec 1>&-; "
    done = subprocess.run(
        [
            "sh",
            "-c",
            f'{close}exec "$@"',
            "sh",
            sys.executable,
            "-m",
            "workbench.cli.main",
            *arguments,
        ],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stderr


@contextmanager
def pipe_that_nobody_reads() -> Iterator[int]:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


@pytest.mark.slow("starts programs")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_pipe_that_is_not_read_ends_it_in_silence(command: list[str]) -> None:
    with pipe_that_nobody_reads() as writer:
        assert run(writer, *command) == (1, "")


@pytest.mark.slow("starts programs")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_one_line(command: list[str]) -> None:
    """It was a traceback, whichever command it was."""
    with open("/dev/full", "wb") as full:
        got = run(full.fileno(), *command)
    assert got == (1, "Error: standard output: no space left on device\n")


@pytest.mark.slow("starts programs")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_standard_output_is_none(command: list[str]) -> None:
    """Asking whether it is a terminal failed."""
    assert run(None, *command) == (0, "")


@pytest.mark.slow("starts programs")
@pytest.mark.parametrize("closed", ["2>&-", "<&-", "<&- >&- 2>&-"])
def test_the_scheduler_starts_with_what_is_open(closed: str, tmp_path: Path) -> None:
    """Without a standard error it ended before it began, without all three it was aborted."""
    program = f'exec "$@" {closed}'
    config = tmp_path / "config"
    config.write_text("")
    command = [sys.executable, "-m", "workbench.cli.main", "run", "--kubeconfig", str(config)]
    done = subprocess.run(["sh", "-c", program, "sh", *command], check=False, timeout=60)
    assert done.returncode == 2  # no kubeconfig


def test_what_is_wrong_with_the_input_is_reported_all_the_same() -> None:
    with open("/dev/full", "wb") as full:
        got = run(full.fileno(), "check", "missing.star")
    assert got == (2, "Error: missing.star: no such file or directory\n")
