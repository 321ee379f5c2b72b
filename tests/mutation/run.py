"""The pytest plug-in that runs the tests of each mutant in a process of its own.

All tests are collected once. A first child runs them all and notes which lines with a mutant each
reaches; then there is one child for each mutant: it puts the changed code into the function and
runs the tests that reach the line, the quickest first, until one fails.
"""

import contextlib
import gc
import itertools
import json
import os
import random
import resource
import select
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, Final, Literal, TypeAlias

import pytest

from tests.mutation.mutants import Mutant, code_of, mutants_of, mutated
from tests.quick import is_slow

Fate: TypeAlias = Literal["killed", "timed out", "survived", "not reached"]

_ROOT: Final = Path(__file__).resolve().parents[2]
#: A mutant that needs so much more CPU time than its tests took before has no end. One that waits
#: needs none: it has no end after as many times that, by the clock.
_SLOWER: Final = 4
_LEAST_SECONDS: Final = 20
_SURVIVED, _KILLED = 0, 1


@dataclass
class Outcome:
    """What became of one mutant.

    Attributes:
        mutant: It.
        fate: Whether a test failed, none did, or none reaches the line.
        tests: How many tests that reach the line were run, up to the first that failed.
        left_out: How many more reach it, and would have taken too long.
    """

    mutant: Mutant
    fate: Fate
    tests: int
    left_out: int


@dataclass
class Reach:
    """Which test reaches which line, and how many seconds of CPU time it takes."""

    lines: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def of(self, mutant: Mutant) -> list[str]:
        """The tests that reach the line of *mutant*, the quickest first."""
        tests = self.lines.get(mutant.path, {}).get(mutant.line, set())
        return sorted(tests, key=lambda one: (self.seconds[one], one))


class MutationRun:
    """A pytest plug-in: in place of running the tests, runs those of each mutant.

    Args:
        paths: The files to change, from the root of the checkout, by the name of their group.
        count: Mutants for each group.
        seed: Chooses them.
        only: If given, all whose key contains it, in place of random ones.
        most_seconds: Of CPU time for the tests of one mutant; the slower ones are left out.
        on_outcome: Called with each outcome as it is known, and how many there will be.
    """

    def __init__(
        self,
        paths: Mapping[str, Sequence[str]],
        *,
        count: int,
        seed: int,
        only: str | None = None,
        most_seconds: float,
        on_outcome: Callable[[str, Outcome, int], None],
    ) -> None:
        self._paths = paths
        # Read once: what is changed in the checkout meanwhile is not what the tests run.
        self._sources = {
            path: (_ROOT / path).read_text() for some in paths.values() for path in some
        }
        self._count = count
        self._seed = seed
        self._only = only
        self._most_seconds = most_seconds
        self._on_outcome = on_outcome
        self.outcomes: dict[str, list[Outcome]] = {}
        #: Tests that fail without any change: they say nothing of a mutant.
        self.broken: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [
            item for item in items if not is_slow(item) and item.get_closest_marker("alone") is None
        ]

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        chosen = {group: self._chosen(group) for group in self._paths}
        reach = self._reach(session, itertools.chain(*chosen.values()))
        total = sum(map(len, chosen.values()))
        items = {item.nodeid: item for item in session.items}
        for group, mutants in chosen.items():
            for mutant in mutants:
                all_tests = reach.of(mutant)
                tests = [items[one] for one in self._affordable(reach, all_tests)]
                fate = self._fate(mutant, tests, reach) if all_tests else "not reached"
                outcome = Outcome(mutant, fate, len(tests), len(all_tests) - len(tests))
                self.outcomes.setdefault(group, []).append(outcome)
                self._on_outcome(group, outcome, total)
        return True

    def _chosen(self, group: str) -> list[Mutant]:
        all_of_them = [
            mutant
            for path in self._paths[group]
            for mutant in mutants_of(self._sources[path], path)
        ]
        if self._only is not None:
            return [one for one in all_of_them if self._only in one.key]
        rng = random.Random(f"{self._seed} {group}")
        return rng.sample(all_of_them, min(self._count, len(all_of_them)))

    def _affordable(self, reach: Reach, tests: Iterable[str]) -> Iterator[str]:
        left = self._most_seconds
        for test in tests:
            left -= reach.seconds[test]
            if left < 0:
                return
            yield test

    # --- which test reaches which line ----------------------------------------------------------

    def _reach(self, session: pytest.Session, mutants: Iterable[Mutant]) -> Reach:
        wanted: dict[str, set[int]] = {}
        for mutant in mutants:
            wanted.setdefault(mutant.path, set()).add(mutant.line)
        with tempfile.TemporaryDirectory() as folder:
            found = Path(folder) / "reach"
            status = _in_child(lambda: _trace(session.items, wanted, found), None)
            if status != _SURVIVED:
                raise pytest.UsageError(f"the tests could not be traced: status {status}")
            noted = json.loads(found.read_text())
        reach = Reach(seconds=noted["seconds"])
        for test, by_path in noted["lines"].items():
            for path, lines in by_path.items():
                for line in lines:
                    reach.lines.setdefault(path, {}).setdefault(line, set()).add(test)
        self.broken = noted["failed"]
        return reach

    # --- one mutant -----------------------------------------------------------------------------

    def _fate(self, mutant: Mutant, tests: Sequence[pytest.Item], reach: Reach) -> Fate:
        usual = sum(reach.seconds[item.nodeid] for item in tests)
        source = self._sources[mutant.path]
        status = _in_child(
            lambda: _run_with(source, mutant, tests), max(_LEAST_SECONDS, int(_SLOWER * usual))
        )
        if status in (None, -signal.SIGXCPU):
            return "timed out"
        return "survived" if status == _SURVIVED else "killed"


def _run_with(source: str, mutant: Mutant, tests: Sequence[pytest.Item]) -> int:
    path = str(_ROOT / mutant.path)
    before = code_of(compile(source, path, "exec"), mutant.function)
    after = code_of(mutated(source, mutant).replace(co_filename=path), mutant.function)
    if before is None or after is None or before.co_freevars != after.co_freevars:
        return _SURVIVED  # a name that is defined twice: not for us
    gc.unfreeze()
    functions = [
        one
        for one in gc.get_objects()
        if type(one) is FunctionType
        and one.__code__.co_filename == path
        and one.__code__.co_qualname == mutant.function
    ]
    for function in functions:
        function.__code__ = after
    failed = _Failures()
    for index, item in enumerate(tests):
        following = tests[index + 1] if index + 1 < len(tests) else None
        _run(item, following, failed)
        if failed.nodeids:
            return _KILLED
    return _SURVIVED


class _Failures:
    """A pytest plug-in that notes which tests fail."""

    def __init__(self) -> None:
        self.nodeids: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.nodeids.append(report.nodeid)


def _run(item: pytest.Item, following: pytest.Item | None, failed: _Failures) -> None:
    plugins = item.config.pluginmanager
    plugins.unregister(name="terminalreporter")  # it writes past what stdout is now
    plugins.register(failed, "mutation-failures")
    try:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    finally:
        plugins.unregister(failed)


def _trace(items: Sequence[pytest.Item], wanted: Mapping[str, set[int]], to: Path) -> int:
    """Run *items* and write which of the lines *wanted*, by file, each reaches.

    A function is traced until each of its lines that are wanted was reached: most are not at all.
    """
    by_file = {str(_ROOT / path): (path, numbers) for path, numbers in wanted.items()}
    lines: dict[str, set[int]] = {}
    left: dict[int, set[int]] = {}  # by identity of the code, which is cheaper than its hash

    def on_line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and frame.f_lineno in (unseen := left[id(frame.f_code)]):
            unseen.discard(frame.f_lineno)
            lines.setdefault(by_file[frame.f_code.co_filename][0], set()).add(frame.f_lineno)
            frame.f_trace_lines = bool(unseen)
        return on_line

    def on_call(frame: FrameType, _: str, __: Any) -> Any:
        code = frame.f_code
        if code.co_filename not in by_file:
            return None
        unseen = left.get(id(code))
        if unseen is None:
            _, numbers = by_file[code.co_filename]
            unseen = left[id(code)] = {line for _, _, line in code.co_lines() if line in numbers}
        return on_line if unseen else None

    failed = _Failures()
    reached: dict[str, dict[str, list[int]]] = {}
    seconds: dict[str, float] = {}
    for index, item in enumerate(items):
        lines.clear()
        left.clear()
        started = _cpu_seconds()
        sys.settrace(on_call)
        try:
            _run(item, items[index + 1] if index + 1 < len(items) else None, failed)
        finally:
            sys.settrace(None)
        seconds[item.nodeid] = _cpu_seconds() - started
        if item.nodeid not in failed.nodeids:
            reached[item.nodeid] = {path: sorted(found) for path, found in lines.items()}
    to.write_text(json.dumps({"lines": reached, "seconds": seconds, "failed": failed.nodeids}))
    return _SURVIVED


def _cpu_seconds() -> float:
    """What this process and the children that it waited for have used."""
    used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _in_child(work: Callable[[], int], most_seconds: int | None) -> int | None:
    """The status with which a fork of this process ends that does *work*; None if it has no end.

    Of CPU time it may use *most_seconds*: after these, SIGXCPU ends it.
    """
    child = os.fork()
    if child == 0:
        status = 70
        try:
            os.setpgid(0, 0)
            if most_seconds is not None:
                _, hard = resource.getrlimit(resource.RLIMIT_CPU)
                resource.setrlimit(resource.RLIMIT_CPU, (most_seconds, hard))
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.dup2(nothing, 2)
            status = work()
        finally:
            os._exit(status)
    ends = os.pidfd_open(child)
    try:
        if not select.select([ends], [], [], most_seconds and _SLOWER * most_seconds)[0]:
            return None
    finally:
        os.close(ends)
        with contextlib.suppress(ProcessLookupError):  # and what its tests have started
            os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
