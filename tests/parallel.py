"""How tests share the machine when several workers run them (`pytest -n 2 --dist loadgroup`).

Owns three rules. Workers wait for servers and processes much of the time, so there are more of
them than cores. Tests that share a fixture of their module, or one that takes long to make, run on
one worker, so that it is made once; each worker has its own control plane. And a test marked
`alone` runs while no other worker runs one: it measures time, or takes all the cores. Without
workers nothing happens here.
"""

import fcntl
import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from _pytest.nodeid import coerce_node_id

_FOLDER: Final = "STARSCHED_TESTS_FOLDER"
_SHARED_SCOPES: Final = frozenset({"module", "class", "package"})
#: Fixtures of several modules that are made by one worker: each takes ten seconds, or more.
_MADE_ONCE: Final = frozenset({"image", "made_release", "monitored"})
#: Workers for each core (`-n auto`).
_WORKERS_PER_CORE: Final = 1.5
_MOST_WORKERS: Final = 8


class Worker:
    """The rules for one worker; *folder* is shared by all of a run."""

    def __init__(self, folder: Path) -> None:
        self._queue = folder / "queue"
        self._floor = folder / "floor"

    # After the hooks that mark tests.
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            fixtures = getattr(item, "_fixtureinfo", None)
            made = fixtures.name2fixturedefs if fixtures else {}
            if once := _MADE_ONCE & made.keys():
                item.add_marker(pytest.mark.xdist_group(min(once)))
            elif any(found[-1].scope in _SHARED_SCOPES for found in made.values()):
                item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
            # xdist appends the group to an attribute that pytest 9.2 reads no more.
            if (group := item.get_closest_marker("xdist_group")) and "@" not in item.name:
                item._id = coerce_node_id(f"{item.nodeid}@{group.args[0]}")

    # Around everything, pytest-timeout's clock included.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, bool, bool]:
        is_alone = item.get_closest_marker("alone") is not None
        with ExitStack() as stack:
            queue = stack.enter_context(self._queue.open("ab"))
            floor = stack.enter_context(self._floor.open("ab"))
            # Who wants the floor for itself waits for the others while it holds the queue, so
            # that they cannot begin one test after the other meanwhile.
            fcntl.flock(queue, fcntl.LOCK_EX)
            fcntl.flock(floor, fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH)
            fcntl.flock(queue, fcntl.LOCK_UN)
            # Said, not left to the end of the file: processes that the test forked have it open.
            stack.callback(fcntl.flock, floor, fcntl.LOCK_UN)
            return (yield)


def number_of_workers() -> int:
    """How many workers `-n auto` starts."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(_MOST_WORKERS, round(cores * _WORKERS_PER_CORE))


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        config.pluginmanager.register(Worker(Path(os.environ[_FOLDER])), "worker")
    else:
        # Workers inherit the environment.
        folder = tempfile.TemporaryDirectory(prefix="starsched-tests-")
        os.environ[_FOLDER] = folder.name
        config.add_cleanup(folder.cleanup)
