"""The tests of paths, run once or again after changes.

Owns the choice of tests: by path, by name, and by which files changed. A test depends on its
policy, on the files that both load, on the fixtures that it reads and on the configuration of its
directory. A test that ended an earlier worker (see `supervisor`) counts as failed and is not run
again.
"""

import fnmatch
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from engine.core.framework.behaviors import RELEASED
from engine.files.policy_files import PolicyFiles
from engine.policy import current_hook
from engine.policy.bundle import Bundle
from engine.policy.errors import Problem
from engine.policy.file_names import TEST_DATA_SUFFIXES, TEST_SUFFIX
from engine.surfaces.cli.policy_paths import build, read_paths
from engine.testing.fixtures import DirectoryFiles
from engine.testing.runner import (
    TEST_SECONDS,
    PolicyTest,
    PolicyTestResult,
    PolicyTestRunner,
    discover,
)
from workbench.cli import supervisor
from workbench.coverage.coverage import Coverage, FileCoverage, merged, with_libraries

_WHOLE_PROFILE: Final = re.compile(r"\bprofile\s*=")

# A runner stops a slow test by itself; only one that cannot be interrupted gets beyond this.
_GRACE_SECONDS: Final = 2.0
# After so many tests of a file that ended the process, its others are not run: each costs a time.
_MOST_LOST: Final = 3


@dataclass(slots=True)
class Outcome:
    """The outcome of one run: results, problems of the policies, and covered lines.

    Lines are those of all tests, also of those that this run did not repeat.
    """

    results: list[PolicyTestResult] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    reached: list[FileCoverage] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """True if nothing failed."""
        return not self.problems and all(result.passed for result in self.results)


class PolicyTestSession:
    """The tests of *paths*.

    Args:
        paths: Test files, policy files or directories.
        config: A configuration for directories without one.
        pattern: Only tests whose name contains it; `*` and `?` are wildcards.
        seed: Seeds the order of the tests of a directory, and the draws of their properties.
            None: the order of the files, and draws with seed 0.
        counts_lines: Measure the coverage of lines.
        minor: The minor version of Kubernetes that is answered like.
    """

    def __init__(
        self,
        paths: tuple[Path, ...],
        config: Path | None = None,
        *,
        pattern: str | None = None,
        seed: int | None = None,
        counts_lines: bool = False,
        minor: int = RELEASED,
    ) -> None:
        self._paths = paths
        self._config = config
        # `[` is no wildcard: it opens the name of a case.
        self._pattern = None if pattern is None else f"*{pattern.replace('[', '[[]')}*"
        self._seed = seed
        self._minor = minor
        self._counts_lines = counts_lines
        # By test file, what it read when it last ran.
        self._fixtures: dict[Path, set[Path]] = {}
        # By directory, the changes since its files last made a bundle.
        self._pending: dict[Path, set[Path]] = {}
        # By directory, the lines that its tests reached when they last ran.
        self._reached: dict[Path, list[FileCoverage]] = {}
        # Changes that arrived while the paths could not be read.
        self._postponed: set[Path] | None = set()
        self._runs = 0
        if current_hook.current is not None:
            current_hook.current.allow(current_hook.TEST, TEST_SECONDS + _GRACE_SECONDS)

    def names(self) -> tuple[list[str], list[Problem]]:
        """Every test that would run, as `file::name`, and the problems of the policies."""
        names: list[str] = []
        problems: list[Problem] = []
        for files in read_paths(self._paths):
            bundle, found = build(files, self._config)
            if bundle is None:
                problems += found
                continue
            reader = DirectoryFiles(files.directory)
            chosen = self._chosen(_runner(bundle, reader), bundle, files, None)
            names += [f"{files.shown(case.file)}::{case.title}" for case in chosen]
        return names, problems

    def run(
        self, on_result: Callable[[PolicyTestResult], None], changed: Iterable[Path] | None = None
    ) -> Outcome:
        """Run the tests, or only those that the *changed* files concern.

        If lines are counted, all tests of a directory run if one does, or if a file of it changed:
        their coverage is measured together.

        *on_result* is called with each result as soon as it is known. Raises `InputError`
        for a path that cannot be read.
        """
        outcome = Outcome()
        place = current_hook.current
        if place is not None:
            place.runs = self._runs
        found = read_paths(self._paths)
        due = None
        if changed is not None and self._postponed is not None:
            due = {path.resolve() for path in changed} | self._postponed
        self._postponed = set()
        for files in found:
            new = None if due is None else set(due)
            if new is not None:
                new |= self._pending.get(files.directory, set())
            bundle, problems = build(files, self._config)
            if bundle is None:
                # All its tests are due once it works if none has run; else those of the changes.
                self._pending[files.directory] = new or {files.directory.resolve()}
                if new is None or any(self._is_of(path, files) for path in new):
                    outcome.problems += problems
                self._reached.pop(files.directory, None)
                continue
            self._pending.pop(files.directory, None)
            counts = Coverage(bundle)
            if self._counts_lines:
                names = (_policy_of(n) for n in files.selected if n.endswith(".star"))
                counts.watch(with_libraries(bundle, (n for n in names if n in bundle.files)))
            if self._counts_lines and any(self._is_of(path, files) for path in new or ()):
                new = None
            has_run = new is None
            for result in self._results(files, counts, new):
                has_run = True
                shown = msgspec.structs.replace(result, file=files.shown(result.file))
                outcome.results.append(shown)
                if self._runs or len(outcome.results) > supervisor.reported:
                    on_result(shown)
                if place is not None:
                    place.reported = len(outcome.results)
            if has_run:
                found_here = [replace(one, file=files.shown(one.file)) for one in counts.files()]
                self._reached[files.directory] = found_here
            outcome.reached += self._reached.get(files.directory, [])
        outcome.reached = merged(outcome.reached)
        self._runs += 1
        return outcome

    def postpone(self, changed: Iterable[Path] | None) -> None:
        """Remember what a run that could not begin was for."""
        if changed is None or self._postponed is None:
            self._postponed = None
        else:
            self._postponed |= {path.resolve() for path in changed}

    def _results(
        self, files: PolicyFiles, counts: Coverage, changed: set[Path] | None
    ) -> Iterator[PolicyTestResult]:
        readers: dict[str, DirectoryFiles] = {}

        def reader(file: str) -> DirectoryFiles:
            return readers.setdefault(file, DirectoryFiles(files.directory))

        runner = PolicyTestRunner(
            counts.bundle,
            natives=counts.natives,
            files=reader,
            seed=self._seed or 0,
            minor=self._minor,
        )
        chosen = self._chosen(runner, counts.bundle, files, changed)
        if self._seed is not None:
            random.Random(self._seed).shuffle(chosen)
        lost: Counter[str] = Counter()
        for case in chosen:
            name = f"{files.shown(case.file)}::{case.title}"
            why = self._lost.get(name)
            if why is not None:
                lost[case.file] += 1
            elif lost[case.file] >= _MOST_LOST:
                why = f"not run: {_MOST_LOST} tests of the file had to be stopped before it"
            if why is not None:
                yield PolicyTestResult(case.file, case.title, case.line, False, 0.0, why)
                continue
            with current_hook.at(current_hook.TEST, name):
                result = runner.run(case)
            yield result
        for file, used in readers.items():
            self._fixtures[files.directory / file] = {path.resolve() for path in used.used}

    def _chosen(
        self,
        runner: PolicyTestRunner,
        bundle: Bundle,
        files: PolicyFiles,
        changed: set[Path] | None,
    ) -> list[PolicyTest]:
        tests = [
            test
            for test in discover(bundle)
            if test.file in files.selected or _policy_of(test.file) in files.selected
        ]
        concerned = {
            file: changed is None or self._concerns(changed, file, bundle, files)
            for file in dict.fromkeys(test.file for test in tests)
        }
        if self._counts_lines and any(concerned.values()):
            concerned = dict.fromkeys(concerned, True)
        chosen: list[PolicyTest] = []
        for test in tests:
            if not concerned[test.file]:
                continue
            if self._pattern is None or test.is_table or self._matches(test):
                name = f"{files.shown(test.file)}::{test.title}"
                if name in self._lost:
                    chosen.append(test)
                    continue
                with current_hook.at(current_hook.TEST, name):
                    cases = runner.expand(test)
                chosen += [case for case in cases if self._matches(case)]
        return chosen

    @property
    def _lost(self) -> Mapping[str, str]:
        """The tests that ended a process before this one, unless something has changed since."""
        return {} if self._runs else supervisor.failed_tests

    def _matches(self, case: PolicyTest) -> bool:
        return self._pattern is None or any(
            fnmatch.fnmatchcase(name, self._pattern) for name in (case.title, str(case))
        )

    # --- what a change concerns --------------------------------------------------------------

    def _concerns(self, changed: set[Path], test: str, bundle: Bundle, files: PolicyFiles) -> bool:
        directory = files.directory.resolve()
        own = {test, _policy_of(test)} & bundle.files.keys()
        if _WHOLE_PROFILE.search(bundle.files[test]):
            # Judged with every policy of a profile, any of which may be here.
            own |= {name for name in files.texts if name.endswith(".star")}
        stands_on = {directory / test, directory / _policy_of(test), directory}
        stands_on |= {directory / name for name in with_libraries(bundle, own)}
        stands_on |= {
            directory / name
            for name in files.texts
            if not name.endswith((".star", *TEST_DATA_SUFFIXES))
        }
        if self._config is not None:
            stands_on.add(self._config.resolve())
        read = self._fixtures.get(files.directory / test, set())
        stands_on |= read
        return any(path in stands_on or bool(read & set(path.parents)) for path in changed)

    def _is_of(self, path: Path, files: PolicyFiles) -> bool:
        """True if *path* is a file of the directory, or the configuration."""
        directory = files.directory.resolve()
        config = self._config.resolve() if self._config is not None else None
        return path in (directory, config) or path.parent == directory


def _runner(bundle: Bundle, files: DirectoryFiles) -> PolicyTestRunner:
    return PolicyTestRunner(bundle, files=lambda _: files)


def _policy_of(name: str) -> str:
    """The policy file that *name* is, or is the test of."""
    return name.removesuffix(TEST_SUFFIX) + ".star" if name.endswith(TEST_SUFFIX) else name
