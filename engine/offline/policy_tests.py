"""Unit tests of policies: finding them, running them, and saying what failed.

Owns the `test_*` functions of `*_test.star` files and the two natives that `@std/testing.star`
stands on: one puts a question to the engine, one keeps both sides of a failed assertion. A test
sees the scheduling cycle of production; only the world around it is made up.
"""

import ast
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import starlark

from engine.framework.profile import EnabledPolicy, Profile
from engine.model.pod import Pod
from engine.model.pod_group import PodGroupState
from engine.offline.judge import judge
from engine.offline.policy_files import TEST_SUFFIX
from engine.offline.world import World, pod_of
from engine.policy.arguments import read_arguments
from engine.policy.bundle import Bundle, Policy
from engine.policy.documents import read_documents
from engine.policy.errors import PolicyErrors, Problem
from engine.policy.evaluator import InProcessEvaluator, Instance, PolicyFailure, Program
from engine.policy.sandbox import messages
from engine.policy.sandbox.modules import Modules, Natives
from engine.policy.syntax import parse
from engine.scheduling.scheduling_cycle import GroupSource, Scheduler

TESTING_MODULE: Final = "@std/testing.star"

# What one test may take before it is stopped.
TEST_SECONDS: Final = 10.0
_CALL_DEPTH: Final = 100

_DEF: Final = re.compile(r"^def[ \t]+(test_\w+)[ \t]*\(([^()]*)\)", re.MULTILINE)
_FRAME: Final = re.compile(r"^  \* (.+):(\d+), in .*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TestCase:
    """One `test_*` function: its file (module path), name and the line of its `def`."""

    __test__ = False

    file: str
    name: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}::{self.name}"


class TestResult(msgspec.Struct, frozen=True):
    """What became of one test.

    `line` is the line of the failed assertion, else of the test. `got` and `want` are the two
    sides of a failed comparison, as Starlark writes them; empty when something else went wrong.
    """

    __test__ = False

    file: str
    name: str
    line: int
    passed: bool
    seconds: float
    message: str = ""
    got: str = ""
    want: str = ""


def discover(bundle: Bundle) -> list[TestCase]:
    """The tests of the bundle's own test files, in the order of file and line."""
    return [case for file in sorted(bundle.tests) for case in _cases(file, bundle.files[file])]


def run_tests(
    bundle: Bundle,
    cases: Iterable[TestCase],
    *,
    seconds: float = TEST_SECONDS,
    monotonic: Callable[[], float] = time.monotonic,
    natives: Mapping[str, Natives] | None = None,
) -> Iterator[TestResult]:
    """Run *cases* one after the other, giving each result as soon as it is known.

    Runs in this process: time is limited between Starlark instructions, memory is not. *natives*
    are extra functions for single files of the bundle.
    """
    runner = _Runner(bundle, seconds, monotonic, natives or {})
    for case in cases:
        yield runner.run(case)


def _cases(file: str, text: str) -> list[TestCase]:
    tree = parse(text)
    if tree is None:
        found = [
            TestCase(file, match[1], text.count("\n", 0, match.start()) + 1)
            for match in _DEF.finditer(text)
        ]
    else:
        found = [
            TestCase(file, statement.name, statement.lineno)
            for statement in tree.body
            if isinstance(statement, ast.FunctionDef) and statement.name.startswith("test_")
        ]
    return found


class _Runner:
    """Runs the tests of one bundle; modules and schedulers are shared between them."""

    def __init__(
        self,
        bundle: Bundle,
        seconds: float,
        monotonic: Callable[[], float],
        natives: Mapping[str, Natives],
    ) -> None:
        self._bundle = bundle
        self._seconds = seconds
        self._monotonic = monotonic
        self._deadline = 0.0
        self._engine = _Engine(bundle, natives)
        self._sides: dict[str, str] | None = None
        self._modules = Modules(
            bundle.files,
            bundle.program.limits,
            {
                **natives,
                TESTING_MODULE: {
                    "testing_engine": self._answer,
                    "testing_report": self._report,
                },
            },
        )

    def run(self, case: TestCase) -> TestResult:
        """The result of one test."""
        start = self._monotonic()
        self._deadline = start + self._seconds
        self._sides = None
        self._engine.file = case.file
        line, message = case.line, ""
        try:
            module = self._modules.load(case.file)
            module.call_with(self._options(), case.name)
        except PolicyErrors as error:
            message = "; ".join(str(problem) for problem in error.problems)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # Also the interpreter's own panics, which are not `Exception`s.
            line, message = self._understand(case, error)
        sides: dict[str, str] = self._sides or {}
        return TestResult(
            case.file,
            case.name,
            line,
            not message,
            self._monotonic() - start,
            message,
            sides.get("got", ""),
            sides.get("want", ""),
        )

    def _options(self) -> starlark.EvalOptions:
        return starlark.EvalOptions(check_cancelled=self._is_late, max_callstack_size=_CALL_DEPTH)

    def _is_late(self) -> bool:
        return self._monotonic() > self._deadline

    def _understand(self, case: TestCase, error: BaseException) -> tuple[int, str]:
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

    # --- what `@std/testing.star` calls ------------------------------------------------------

    def _report(self, text: str) -> None:
        self._sides = msgspec.json.decode(text)

    def _answer(self, text: str) -> str:
        if self._is_late():
            raise TimeoutError(f"took longer than {self._seconds:g} s")
        try:
            answer = self._engine.answer(msgspec.json.decode(text))
        except PolicyErrors as error:
            raise ValueError("; ".join(str(problem) for problem in error.problems)) from error
        return msgspec.json.encode(answer).decode()


class _Engine:
    """Answers the questions of assertions with schedulers made for them.

    `file` is the test file that asks: its assertions judge with the policy of the same stem unless
    they name a profile.
    """

    def __init__(self, bundle: Bundle, natives: Mapping[str, Natives]) -> None:
        self.file = ""
        self._natives = natives
        self._bundle = bundle
        self._whole: Scheduler | None = None
        self._alone: dict[tuple[str, bytes, str], Scheduler] = {}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one request of `@std/testing.star`. Raises ValueError for what is wrong in it."""
        question = request["question"]
        if question == "judge":
            pods = _told_apart(request["pods"])
            world = World.from_manifests(
                request["nodes"], pods, request["objects"], request["facts"]
            )
            world.cache.set_pod_type_labels(self._bundle.runtime.facts.pod_type_labels)
            pod, scheduler = self._ready(request["pod"], request)
            return judge(world, scheduler, pod).to_plain()
        nothing = World.from_manifests([])
        if question == "order":
            keyed = []
            groups = request["groups"] or [None] * len(request["pods"])
            for manifest, group in zip(request["pods"], groups, strict=True):
                pod, scheduler = self._ready(manifest, request, "queue_key")
                scheduler.groups = _always(group)
                key = scheduler.queue_key(pod, nothing.snapshot)
                if isinstance(key, PolicyFailure):
                    raise ValueError(str(key))
                keyed.append((key, pod.name))
            keyed.sort(key=lambda pair: pair[0])
            return {"order": [name for _, name in keyed]}
        if question == "gate":
            pod, scheduler = self._ready(request["pod"], request, "pre_enqueue")
            scheduler.groups = _always(request["group"])
            gate = scheduler.pre_enqueue(pod, nothing.snapshot)
            return {"reason": None if gate is None else gate[1]}
        if question == "leave":
            pod, scheduler = self._ready(request["pod"], request, "permit")
            scheduler.groups = _always(request["group"])
            return {"verdicts": _sound(v for _, v in scheduler.permit(pod, nothing.snapshot))}
        if question == "group":
            pod, scheduler = self._ready(request["pod"], request)
            policies = scheduler.grouping()[pod.scheduler_name]
            said = _sound(scheduler.group_of(e, pod, nothing.snapshot) for e in policies)
            return {"group": next((group for group in said if group is not None), None)}
        raise ValueError(f"no question `{question}`")

    def _ready(
        self, manifest: Mapping[str, Any], request: Mapping[str, Any], hook: str = ""
    ) -> tuple[Pod, Scheduler]:
        """The pod of *manifest* and the scheduler that is to judge it."""
        args, profile = request["args"], request["profile"]
        if profile is None:
            policy = self._policy()
            if hook and hook not in policy.hooks:
                raise ValueError(f"policy `{policy.name}` has no hook `{hook}`")
            pod = pod_of(manifest)
            return pod, self._scheduler_of(policy, args or {}, pod.scheduler_name)
        if args is not None:
            raise ValueError("want `args` or `profile`, got both: a profile has its own arguments")
        if self._whole is None:
            self._whole = Scheduler(
                self._bundle, InProcessEvaluator(self._bundle.program, self._natives)
            )
        pod = pod_of({**manifest, "spec": {**manifest["spec"], "schedulerName": profile}})
        if self._whole.profile_of(pod) is None:
            names = ", ".join(f"`{p.scheduler_name}`" for p in self._bundle.profiles)
            raise ValueError(f"no profile `{profile}`, want one of {names}")
        return pod, self._whole

    def _policy(self) -> Policy:
        module = self.file.removesuffix(TEST_SUFFIX) + ".star"
        for policy in self._bundle.policies.values():
            if policy.module == module:
                return policy
        raise ValueError(
            f"no policy `{module}` beside `{self.file}`: name one with `profile = ...`"
        )

    def _scheduler_of(
        self, policy: Policy, args: Mapping[str, Any], scheduler_name: str
    ) -> Scheduler:
        """A scheduler with *policy* alone at every extension point that it has a hook for."""
        key = (policy.name, msgspec.json.encode(args), scheduler_name)
        found = self._alone.get(key)
        if found is None:
            enabled = (EnabledPolicy(policy.name, 0),)
            profile = Profile(scheduler_name, dict.fromkeys(policy.hooks, enabled), {})
            given, types = _arguments(policy, args)
            instance = Instance(policy.name, policy.module, given, types)
            program = Program(self._bundle.files, (instance,), self._bundle.program.limits)
            bundle = replace(self._bundle, profiles=(profile,), program=program)
            found = self._alone[key] = Scheduler(bundle, InProcessEvaluator(program, self._natives))
        return found


def _always(group: Mapping[str, Any] | None) -> GroupSource:
    """Every pod is in this group."""
    state = None if group is None else PodGroupState(**group)
    return lambda enabled, pod: state


def _sound(verdicts: Iterable[Any]) -> list[Any]:
    """The verdicts. Raises ValueError if one is a failure."""
    found = list(verdicts)
    for verdict in found:
        if isinstance(verdict, PolicyFailure):
            raise ValueError(str(verdict))
    return found


def _arguments(policy: Policy, args: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Values and record types of *args*, read as a profile's `pluginConfig` is."""
    documents, problems = read_documents("args", msgspec.json.encode(args).decode())
    for document in documents:
        found = read_arguments(policy.name, document, policy.defaults)
        problems = [*problems, *document.report.problems]
        if not problems:
            return found.given, found.types
    raise ValueError("; ".join(" ".join([p.message, p.hint]).strip() for p in problems))


def _told_apart(manifests: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Placed pods with names of their own: builders may give the same pod several times."""
    apart: list[dict[str, Any]] = []
    taken: set[tuple[str, str]] = set()
    for manifest in manifests:
        metadata = dict(manifest.get("metadata") or {})
        namespace, name = str(metadata.get("namespace", "")), str(metadata.get("name", ""))
        unique, copy = name, 2
        while (namespace, unique) in taken:
            unique, copy = f"{name}-{copy}", copy + 1
        taken.add((namespace, unique))
        if unique != name:
            metadata |= {"name": unique, "uid": ""}
        apart.append({**manifest, "metadata": metadata})
    return apart


def failed(results: Iterable[TestResult]) -> list[Problem]:
    """The failed tests as problems, for those who report both."""
    return [
        Problem(result.file, result.line, 0, f"{result.name}: {describe(result)}")
        for result in results
        if not result.passed
    ]


def describe(result: TestResult) -> str:
    """What a failed test has to say, on one line."""
    if result.got or result.want:
        return f"{result.message}: got {result.got}, want {result.want}"
    return result.message
