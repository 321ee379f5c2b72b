"""A process dies with its parent, and with nobody else."""

import subprocess
import sys

import pytest

_PROGRAM = """
import os
from engine.lib.parent_death import die_with
os.getppid = lambda: {has}
die_with({started_by})
"""


@pytest.mark.parametrize(
    ("started_by", "has", "status"),
    [
        pytest.param(70, 70, 0, id="its parent is there"),
        pytest.param(70, 1, 1, id="its parent died before it asked"),
        pytest.param(1, 1, 0, id="its parent is the first process of a container"),
    ],
)
def test_a_process_without_its_parent_ends_at_once(started_by: int, has: int, status: int) -> None:
    """In a container `starsched check` failed: every sandbox took its parent for dead."""
    program = _PROGRAM.format(started_by=started_by, has=has)
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == status
