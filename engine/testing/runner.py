"""Finds and runs unit tests of policies, and reports what failed.

Owns the `test_*` functions and case tables of `*_test.star` files, and the natives that
`@std/testing.star` stands on. A test sees the scheduling cycle of production; only the world around
it is made up.
"""

import ast
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import starlark

from engine.core.framework.behaviors import RELEASED
from engine.language.syntax import parse
from engine.policy.bundle import Bundle
from engine.policy.errors import PolicyErrors, Problem
from engine.policy.sandbox import messages
from engine.policy.sandbox.modules import Modules, Natives
from engine.testing.answers import Answers
from engine.testing.drawing import Plan, runs_of, shown, shrunk
from engine.testing.fixtures import (
    FixtureError,
    GivenFiles,
    NoFileHere,
    TestFiles,
    read_data,
    read_manifests,
)

TESTING_MODULE: Final = "@std/testing.star"

# What one test may take before it is stopped.
TEST_SECONDS: Final = 10.0
_CALL_DEPTH: Final = 100
# How many simpler cases are tried in place of one that fails.
_MOST_SHRINKS: Final = 400

_DEF: Final = re.compile(r"^(?:def[ \t]+(test_\w+)[ \t]*\(|(test_\w+)[ \t]*=)", re.MULTILINE)
_FRAME: Final = re.compile(r"^  \* (.+):(\d+), in .*$", re.MULTILINE)
_TABLE_DRIVER: Final = """
load({file}, table = {name})
def names():
    return json.encode(table.names)
def run(name):
    table.run(name)
def given(name):
    return json.encode(table.given(name))
"""
# The interpreter's words for a case that does not have what its function takes.
_OTHER_ARGUMENTS: Final = re.compile(r"Missing parameter|Found .*extra (named|positional)")


@dataclass(frozen=True, slots=True)
class PolicyTest:
    """One test: its file (module path), name and the line that defines it.

    `is_table` says that it is a table of cases; `case` is one of them.
    """

    file: str
    name: str
    line: int
    is_table: bool = False
    case: str = ""

    @property
    def title(self) -> str:
        """Its name, with that of its case."""
        return f"{self.name}[{self.case}]" if self.case else self.name

    def __str__(self) -> str:
        return f"{self.file}::{self.title}"


class PolicyTestResult(msgspec.Struct, frozen=True):
    """The result of one test.

    `line` is the line of the failed assertion, else of the test. `got` and `want` are the two
    sides of a failed comparison, as Starlark writes them; empty when something else went wrong.
    `example` is the drawn case that failed, which `seed` gives again. `skipped` says why a test
    that counts as passed was not run.
    """

    file: str
    name: str
    line: int
    passed: bool
    seconds: float
    message: str = ""
    got: str = ""
    want: str = ""
    example: str = ""
    seed: int = 0
    skipped: str = ""


def discover(bundle: Bundle) -> list[PolicyTest]:
    """The tests of the bundle's own test files, in the order of file and line."""
    return [case for file in sorted(bundle.tests) for case in _cases(file, bundle.files[file])]


def run_tests(
    bundle: Bundle,
    cases: Iterable[PolicyTest],
    *,
    seconds: float = TEST_SECONDS,
    monotonic: Callable[[], float] = time.monotonic,
    natives: Mapping[str, Natives] | None = None,
    files: Callable[[str], TestFiles] | None = None,
    seed: int = 0,
) -> Iterator[PolicyTestResult]:
    """Run *cases* one after the other, giving each result as soon as it is known.

    Of a table every case is run. See `PolicyTestRunner` for the rest.
    """
    runner = PolicyTestRunner(
        bundle, seconds=seconds, monotonic=monotonic, natives=natives, files=files, seed=seed
    )
    for test in cases:
        for case in runner.expand(test):
            yield runner.run(case)


def _cases(file: str, text: str) -> list[PolicyTest]:
    tree = parse(text)
    if tree is None:
        return [
            PolicyTest(
                file,
                match[1] or match[2],
                text.count("\n", 0, match.start()) + 1,
                is_table=match[1] is None,
            )
            for match in _DEF.finditer(text)
        ]
    found = []
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name.startswith("test_"):
            found.append(PolicyTest(file, statement.name, statement.lineno))
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name) and target.id.startswith("test_"):
                found.append(PolicyTest(file, target.id, statement.lineno, is_table=True))
    return found


@dataclass(slots=True)
class _Drawn:
    """What one call of `for_any` drew: its plan, its values, and which of them is being tried."""

    plan: Plan
    values: list[Any]
    current: int = -1


class PolicyTestRunner:
    """Runs the tests of one bundle; modules and schedulers are shared between them.

    Runs in this process: time is limited between Starlark instructions, memory is not.

    Args:
        bundle: What is tested.
        seconds: What one test may take.
        monotonic: The clock.
        natives: Extra functions for single files of the bundle.
        files: What the tests of a file may read; without, nothing is there.
        seed: What properties draw their cases with.
        minor: The minor version of Kubernetes that is answered like.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        seconds: float = TEST_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
        natives: Mapping[str, Natives] | None = None,
        files: Callable[[str], TestFiles] | None = None,
        seed: int = 0,
        minor: int = RELEASED,
    ) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._deadline = 0.0
        self._files = files or (lambda _: GivenFiles({}))
        self._seed = seed
        self._file = ""
        self._answers = Answers(bundle, natives or {}, minor)
        self._answers.seed = seed
        self._answers.on_decided = self._expect_time
        self._sides: dict[str, str] | None = None
        self._absent: NoFileHere | None = None
        self._absent_of: dict[str, NoFileHere] = {}
        self._draws: list[_Drawn] = []
        self._draw_seed = ""
        # While a failed case is made simpler: the `for_any` it is of, by number, and the case.
        self._forced: tuple[int, Any] | None = None
        self._modules = Modules(
            bundle.files,
            bundle.program.limits,
            {
                **(natives or {}),
                TESTING_MODULE: {
                    "testing_engine": self._answer,
                    "testing_report": self._report,
                    "testing_manifests": self._manifests,
                    "testing_data": self._data,
                    "testing_draw": self._draw,
                    "testing_trial": self._trial,
                },
            },
        )

    def expand(self, test: PolicyTest) -> list[PolicyTest]:
        """The cases of a table; *test* itself if it is not one, or its cases cannot be found."""
        if not test.is_table:
            return [test]
        self._begin(test)
        try:
            module = self._load(test.file)
            names: str = self._driver(test, module).call("names")  # type: ignore[assignment]  # ours
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            return [test]  # running it says why
        return [replace(test, case=name) for name in msgspec.json.decode(names)]

    def run(self, case: PolicyTest) -> PolicyTestResult:
        """The result of one test, or of one case of a table."""
        start = self._monotonic()
        self._begin(case)
        result = self._attempt(case)
        if not result.passed and not result.skipped and self._failing() is not None:
            result = self._simplified(case, result)
        return msgspec.structs.replace(result, seconds=self._monotonic() - start)

    def _begin(self, case: PolicyTest) -> None:
        self._deadline = self._monotonic() + self._seconds
        self._file = self._answers.file = case.file
        self._draw_seed = f"{self._seed}:{case}"
        self._forced = None

    def _attempt(self, case: PolicyTest) -> PolicyTestResult:
        self._sides = self._absent = None
        self._draws = []
        line, message = case.line, ""
        try:
            module = self._load(case.file)
            if not case.is_table:
                module.call_with(self._options(), case.name)
            elif case.case:
                self._driver(case, module).call_with(self._options(), "run", case.case)
            else:
                message = f"want `{case.name} = cases(function, table)`: a table of cases"
        except PolicyErrors as error:
            line, message = self._not_loaded(case, error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # Also the interpreter's own panics, which are not `Exception`s.
            line, message = self._understand(case, error)
            if case.case and _OTHER_ARGUMENTS.match(message):
                message = self._with_given(case, message)
        # A fixture that is missing at the top level is missing for every test of the file.
        absent = self._absent or self._absent_of.get(case.file)
        sides: dict[str, str] = self._sides or {}
        return PolicyTestResult(
            case.file,
            case.title,
            line,
            not message or absent is not None,
            0.0,
            "" if absent else message,
            "" if absent else sides.get("got", ""),
            "" if absent else sides.get("want", ""),
            skipped=str(absent or ""),
        )

    def _load(self, file: str) -> starlark.FrozenModule:
        self._absent = None
        try:
            return self._modules.load(file)
        except PolicyErrors:
            if self._absent is not None:
                self._absent_of[file] = self._absent
            raise

    def _driver(self, case: PolicyTest, module: starlark.FrozenModule) -> starlark.FrozenModule:
        text = _TABLE_DRIVER.format(
            file=msgspec.json.encode(case.file).decode(),
            name=msgspec.json.encode(case.name).decode(),
        )
        return self._modules.run_private(f"{messages.PRIVATE}cases.star", text, {case.file: module})

    def _options(self) -> starlark.EvalOptions:
        return starlark.EvalOptions(check_cancelled=self._is_late, max_callstack_size=_CALL_DEPTH)

    def _is_late(self) -> bool:
        return self._monotonic() > self._deadline

    def _expect_time(self) -> None:
        if self._is_late():
            raise TimeoutError(f"took longer than {self._seconds:g} s")

    # --- what went wrong ---------------------------------------------------------------------

    def _not_loaded(self, case: PolicyTest, error: PolicyErrors) -> tuple[int, str]:
        """Why the file of the test cannot be loaded."""
        if error.__cause__ is not None and error.problems[0].file == TESTING_MODULE:
            # What the top level asked of the testing library: the line there is what matters.
            return self._understand(case, error.__cause__)
        return case.line, "; ".join(str(problem) for problem in error.problems)

    def _understand(self, case: PolicyTest, error: BaseException) -> tuple[int, str]:
        """The line of the test file that led to *error*, and what to say."""
        problem = messages.read(error, case.file)
        frames = [int(line) for file, line in _FRAME.findall(str(error)) if file == case.file]
        line = problem.line if problem.file == case.file and problem.line else case.line
        if frames and problem.file != case.file:
            line = frames[-1]
        if problem.kind == "steps":
            return line, f"took longer than {self._seconds:g} s"
        if self._sides is not None:
            return line, self._sides["what"]
        place = "" if problem.file in (case.file, TESTING_MODULE) else f"{problem.file}: "
        return line, f"{place}{problem.message}"

    def _with_given(self, case: PolicyTest, message: str) -> str:
        """*message* about the arguments of a case, with those that it gives."""
        driver = self._driver(case, self._load(case.file))
        text: str = driver.call("given", case.case)  # type: ignore[assignment]  # ours
        given: list[str] = msgspec.json.decode(text)
        listed = ", ".join(f"`{name}`" for name in given) or "no names"
        return f"{message}; the case gives {listed}"

    def _failing(self) -> int | None:
        """The number of the `for_any` whose case failed; None: something else did."""
        for number, drawn in enumerate(self._draws):
            if drawn.current >= 0:
                return number
        return None

    def _simplified(self, case: PolicyTest, result: PolicyTestResult) -> PolicyTestResult:
        """The failure of the simplest case that fails as well, with the case."""
        number = self._failing()
        assert number is not None
        drawn = self._draws[number]
        left = _MOST_SHRINKS

        def fails(candidate: Any) -> bool | None:
            nonlocal result, left
            left -= 1
            if left < 0 or self._is_late():
                return None
            self._forced = (number, candidate)
            tried = self._attempt(case)
            # Only what fails in the same way; one that is merely late proves nothing.
            if tried.passed or self._failing() != number or self._is_late():
                return False
            result = tried
            return True

        plan = drawn.plan
        value = shrunk(plan, drawn.values[drawn.current], fails)
        self._forced = None
        return msgspec.structs.replace(result, example=shown(plan, value)[1:-1], seed=self._seed)

    # --- what `@std/testing.star` calls ------------------------------------------------------

    def _report(self, text: str) -> None:
        self._sides = msgspec.json.decode(text)

    def _answer(self, text: str) -> str:
        self._expect_time()
        try:
            answer = self._answers.answer(msgspec.json.decode(text))
        except PolicyErrors as error:
            raise ValueError("; ".join(str(problem) for problem in error.problems)) from error
        return msgspec.json.encode(answer).decode()

    def _manifests(self, text: str) -> str:
        paths = msgspec.json.decode(text, type=list[str])
        return self._read(lambda files: read_manifests(files, paths))

    def _data(self, path: str) -> str:
        return self._read(lambda files: read_data(files, path))

    def _read(self, read: Callable[[TestFiles], Any]) -> str:
        try:
            return msgspec.json.encode(read(self._files(self._file))).decode()
        except NoFileHere as error:
            self._absent = error
            raise
        except FixtureError as error:
            raise ValueError(str(error)) from error

    def _draw(self, text: str) -> str:
        if self._failing() is not None:
            raise ValueError("for_any inside for_any: give all generators to the outer one")
        request = msgspec.json.decode(text)
        number, plan = len(self._draws), request["plan"]
        if self._forced is None:
            values = runs_of(plan, request["runs"], f"{self._draw_seed}:{number}")
        else:
            values = [self._forced[1]] if self._forced[0] == number else []
        self._draws.append(_Drawn(plan, values))
        return msgspec.json.encode(values).decode()

    def _trial(self, index: int) -> None:
        self._draws[-1].current = index


def failed(results: Iterable[PolicyTestResult]) -> list[Problem]:
    """The failed tests as problems, for callers that report both."""
    return [
        Problem(result.file, result.line, 0, f"{result.name}: {describe(result)}")
        for result in results
        if not result.passed
    ]


def describe(result: PolicyTestResult) -> str:
    """The failure of a test on one line."""
    text = result.message
    if result.got or result.want:
        text += f": got {result.got}, want {result.want}"
    if result.example:
        text += f", for {result.example}"
    return text
