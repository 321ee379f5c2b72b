"""A pytest plug-in for the quick tests: `-p tests.quick`, as `make check` and `make fast` load it.

Leaves out the tests marked `slow` or `long` and those that need a program which takes minutes to
build, and fails a quick test that takes more than its budget: one that needs longer becomes
smaller, is marked `@pytest.mark.slow("why")`, or, for the one quick test of something large,
`@pytest.mark.budget(seconds, "why")`. What counts is the CPU time of the test and
of the processes that it waited for; a budget grows with the load of a machine that others use too.
"""

import os
from collections.abc import Generator
from typing import Final

import pytest

BUDGET_SECONDS: Final = 2.0
_BUILT_PROGRAMS: Final = frozenset(
    {
        "browser",
        "control_plane",
        "own_control_plane",
        "kustomize",
        "helm",
        "image",
        "oracle",
        "original",
    }
)
_USED: Final = pytest.StashKey[float]()


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def crowding() -> float:
    """How many times the usual a test may take: 1 while at most two processes want each core.

    Beyond that they push one another out of the caches, and the same work takes twice the time.
    """
    return max(1.0, os.getloadavg()[0] / (2 * (os.cpu_count() or 1)))


def is_slow(item: pytest.Item) -> bool:
    """True for a test that only `make test`, or only `make test-long`, runs."""
    is_marked = any(item.get_closest_marker(name) for name in ("slow", "long"))
    return is_marked or not _BUILT_PROGRAMS.isdisjoint(getattr(item, "fixturenames", ()))


def budget_of(item: pytest.Item) -> float:
    """Seconds of CPU time that a quick test may take."""
    marker = item.get_closest_marker("budget")
    return BUDGET_SECONDS if marker is None else float(marker.args[0])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if is_slow(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not is_slow(item)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    before = _cpu_seconds()
    try:
        yield
    finally:
        item.stash[_USED] = _cpu_seconds() - before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    used, budget = item.stash.get(_USED, 0.0), budget_of(item) * crowding()
    if call.when == "call" and report.passed and used > budget:
        report.outcome = "failed"
        report.longrepr = (
            f"took {used:.2f} s of CPU time, want at most {budget:.3g} s for a quick test\n"
            'hint: make it smaller, or mark it `@pytest.mark.slow("why")`'
        )
    return report
