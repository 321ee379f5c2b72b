"""A run that leaves files in the checkout fails, and names them."""

import subprocess
import sys
from pathlib import Path

from tests.no_leftovers import state_of

_CONFTEST = """
from pathlib import Path
from tests.no_leftovers import Leftovers

def pytest_configure(config):
    config.pluginmanager.register(Leftovers(Path(__file__).parent))
"""


def _checkout(folder: Path, test: str) -> Path:
    for command in (["init", "-q"], ["config", "status.showUntrackedFiles", "no"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    (folder / ".gitignore").write_text("__pycache__/\n.pytest_cache/\n")
    (folder / "conftest.py").write_text(_CONFTEST)
    (folder / "test_one.py").write_text(
        f"from pathlib import Path\n\ndef test_one():\n    {test}\n"
    )
    return folder


def _run(folder: Path) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(folder), "-c", "/dev/null"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_file_that_a_test_leaves_fails_the_run(tmp_path: Path) -> None:
    folder = _checkout(tmp_path, 'Path(__file__).with_name(".coverage").write_text("left")')
    done = _run(folder)
    assert done.returncode == 1
    assert "left in the checkout by the tests" in done.stdout
    assert "?? .coverage" in done.stdout


def test_caches_and_what_was_there_before_are_no_leftovers(tmp_path: Path) -> None:
    folder = _checkout(tmp_path, "assert True")
    assert "?? test_one.py" in state_of(folder)
    assert _run(folder).returncode == 0
