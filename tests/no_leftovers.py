"""A pytest plug-in: a run that leaves files in the checkout fails (`-p tests.no_leftovers`).

`make test` loads it. What `.gitignore` names are caches, which may stay; anything else that a test
writes beside the sources would be committed one day.
"""

import subprocess
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).resolve().parents[1]


def state_of(checkout: Path) -> frozenset[str]:
    """What `git status` says of *checkout*: a line for each changed or new file."""
    done = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=all"],
        cwd=checkout,
        check=True,
        capture_output=True,
        text=True,
    )
    return frozenset(done.stdout.splitlines())


class Leftovers:
    """Compares the checkout after the run with what it was before."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout
        self._before = state_of(checkout)
        self._found: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._found = sorted(state_of(self._checkout) - self._before)
        if self._found and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._found:
            terminalreporter.section("left in the checkout by the tests", red=True)
            for line in self._found:
                terminalreporter.line(line)


def pytest_configure(config: pytest.Config) -> None:
    # The workers of xdist are part of one run; sources from an archive have no state to compare.
    if not hasattr(config, "workerinput") and (_ROOT / ".git").exists():
        config.pluginmanager.register(Leftovers(_ROOT), "no-leftovers")
