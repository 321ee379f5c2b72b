"""The interface between the runtime and the policies: calls of hooks, and their verdicts.

Owns the questions' and answers' types and the evaluator that runs in this process, for unit tests
of policies and for the command line. Production asks through `sandbox.process`, which answers the
same. Verdicts are plain data, one per entry of `Call.nodes`, or one for per-pod hooks; their forms
are those of `language.hooks`.

A `PolicyFailure` stands in place of a verdict that a hook failed to give.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from engine.core.framework.owner import Owner
from engine.policy import current_hook
from engine.policy.errors import PolicyErrors, Problem
from engine.policy.hook_signatures import hook_signatures
from engine.policy.sandbox.modules import Natives
from engine.policy.sandbox.protocol import (
    Call,
    Files,
    InstanceImage,
    Limits,
    PolicyFailure,
    ProgramImage,
    Schema,
    Verdict,
)
from engine.policy.sandbox.worker import PolicyWorker
from engine.policy.view_fields import RECORDS
from engine.policy.views import VIEWS

__all__ = [
    "Call",
    "Evaluator",
    "Files",
    "InProcessEvaluator",
    "Instance",
    "Limits",
    "PolicyFailure",
    "Program",
    "Timing",
    "Verdict",
    "first_reported",
    "of_policies",
    "program_image",
]


@dataclass(frozen=True, slots=True)
class Instance:
    """A policy file with its arguments applied.

    Attributes:
        policy: The policy's name, for failures and statuses.
        module: Path of its file in `Program.files`.
        args: What overrides the defaults that the file declares, by declared name.
        arg_types: Type text of the arguments whose value is a record (`NodeAffinity?`); the
            others are given as the plain data that they are.
    """

    policy: str
    module: str
    args: Mapping[str, Any] = field(default_factory=dict)
    arg_types: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Program:
    """Everything that an evaluator runs: files, instances in order, limits."""

    files: Files
    instances: tuple[Instance, ...]
    limits: Limits = field(default_factory=Limits)


def first_reported(failures: Iterable[PolicyFailure]) -> PolicyFailure:
    """The one of several failures that is reported: the same, whatever order they came in.

    What has to do with limits comes last: it need not happen again.
    """
    return min(failures, key=lambda failure: (failure.is_transient, str(failure)))


def of_policies(failures: Iterable[PolicyFailure]) -> tuple[PolicyFailure, ...]:
    """Those that policies are judged by: their texts are at fault, and nothing else is."""
    return tuple(failure for failure in failures if failure.owner is Owner.POLICY)


class Timing(NamedTuple):
    """How long a call took where hooks run, 0 if not known, and whether an entry failed."""

    seconds: float
    has_failed: bool


class Evaluator(Protocol):
    """Answers calls. Not safe for concurrent use."""

    def evaluate(self, calls: Sequence[Call]) -> Sequence[Sequence[Verdict | PolicyFailure]]:
        """One list of verdicts per call, in the order of *calls*. Never raises for a policy."""
        ...

    def close(self) -> None:
        """Release what the evaluator holds; it cannot be asked again."""
        ...


class InProcessEvaluator:
    """Runs the program in this process: same verdicts, without the sandbox's isolation.

    Raises `PolicyErrors` if a file does not load. Steps and call depth are limited; memory and time
    are not: for text that is not trusted, another process has to watch this one, see
    `current_hook`. *natives* are extra functions for single files, by module path; the coverage of
    tests is counted with them.
    Without *translates* every hook runs in the interpreter, see `sandbox.translation`.
    """

    def __init__(
        self,
        program: Program,
        natives: Mapping[str, Natives] | None = None,
        *,
        translates: bool = True,
    ) -> None:
        image = program_image(program)
        self._place = place = current_hook.current
        self._labels: dict[tuple[int, str], int] = {}
        if place is None:
            self._worker = PolicyWorker(image, natives=natives, translates=translates)
            return
        limits = program.limits
        place.allow(current_hook.CALL, limits.deadline, limits.address_space)
        place.allow(current_hook.TEST, 0.0, limits.address_space)
        loading = [place.label(f"{instance.module}: loading") for instance in image.instances]
        try:
            self._worker = PolicyWorker(
                image,
                lambda index: place.begin(current_hook.CALL, loading[index]),
                natives,
                translates=translates,
            )
        finally:
            place.end(current_hook.CALL)
        for index, instance in enumerate(image.instances):
            for hook, signature in instance.hooks.items():
                text = f"{instance.module}:{signature.line}: {hook}() of policy `{instance.policy}`"
                self._labels[index, hook] = place.label(text)

    def evaluate(self, calls: Sequence[Call]) -> list[Sequence[Verdict | PolicyFailure]]:
        """One list of verdicts per call, in the order of *calls*."""
        place = self._place
        if place is None:
            return [self._worker.verdicts(call) for call in calls]
        answers = []
        try:
            for call in calls:
                place.begin(current_hook.CALL, self._labels.get((call.instance, call.hook), 0))
                answers.append(self._worker.verdicts(call))
        finally:
            place.end(current_hook.CALL)
        return answers

    def close(self) -> None:
        """Nothing to release."""


def program_image(program: Program) -> ProgramImage:
    """What a worker is given to run *program*. Raises `PolicyErrors` for a file that is missing."""
    instances = []
    problems = []
    for instance in program.instances:
        text = program.files.get(instance.module)
        if text is None:
            problems.append(Problem(instance.module, 0, 0, f"no file `{instance.module}`"))
            continue
        instances.append(
            InstanceImage(
                instance.policy,
                instance.module,
                dict(instance.args),
                dict(instance.arg_types),
                hook_signatures(text),
            )
        )
    if problems:
        raise PolicyErrors(problems)
    return ProgramImage(dict(program.files), tuple(instances), program.limits, view_schema())


def view_schema() -> Schema:
    """The types of the views, as the worker needs them."""
    return Schema(
        records={
            record: {name: type_text for name, (type_text, _) in fields.items()}
            for record, fields in RECORDS.items()
        },
        views={
            view: {name: field.type for name, field in fields.items()}
            for view, fields in VIEWS.items()
        },
    )
