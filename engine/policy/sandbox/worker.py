"""The policy worker: loads a program, answers calls, and names what fails.

Owns the evaluation itself, the same in the child process and in process. It isolates failures: a
node that makes a hook fail costs that node's verdict, never the batch. It does not own limits
that only a process can have (memory, the deadline): see `child` and `process`.
"""

import difflib
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import starlark

from engine.policy.errors import PolicyErrors, Problem
from engine.policy.sandbox import drivers, messages
from engine.policy.sandbox.modules import Budget, Modules, Natives
from engine.policy.sandbox.node_views import LEAST, NodeViews
from engine.policy.sandbox.parts import MAX_EXHAUSTED, join, split
from engine.policy.sandbox.protocol import (
    Call,
    HookSignature,
    InstanceImage,
    PolicyFailure,
    ProgramImage,
    RawAnswer,
    Verdict,
    decode_answer,
    most_reasons,
)
from engine.policy.sandbox.translations import Translations

# When a batch fails, it is repeated in pieces of this size to find the entry that is to blame.
_PIECE: Final = 32
# In addition to the budget of one entry, a batch may take this many steps per entry. An overrun is
# not a failure yet: the batch is repeated in pieces, where each entry alone has the whole budget.
_STEPS_PER_ENTRY: Final = 5_000
# Entries of one call with the node's name in a reason that are looked at again.
_MAX_NAMED: Final = 3
# A name that no node has, to see whether a reason follows the node's name.
_PROBE: Final = "starsched-probe.invalid"


class _Failed(Exception):
    """A driver run that gave no answer; carries the failure."""

    def __init__(self, failure: PolicyFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class _Hook:
    """One hook of one instance, ready to run."""

    __slots__ = ("index", "instance", "module", "name", "signature", "takes_views")

    def __init__(
        self, index: int, instance: InstanceImage, name: str, module: starlark.FrozenModule
    ) -> None:
        self.index = index
        self.instance = instance
        self.name = name
        self.signature: HookSignature = instance.hooks[name]
        self.module = module
        self.takes_views = drivers.takes_views(name, self.signature)

    def failure(self, kind: str, message: str, hint: str = "") -> PolicyFailure:
        """A failure at the place where the hook is defined."""
        return PolicyFailure(
            self.instance.policy,
            self.name,
            self.instance.module,
            self.signature.line,
            self.signature.column,
            message,
            kind,
            hint,
        )


class PolicyWorker:
    """All hooks of a program, loaded. Raises `PolicyErrors` with every file that does not load.

    *on_load* is called with the index of each instance before it is loaded; *natives* are given to
    files by their path. With *translates*, hooks that can be run as Python are (see `translation`);
    the interpreter answers for the others, and wherever something is wrong.
    """

    def __init__(
        self,
        image: ProgramImage,
        on_load: Callable[[int], None] = lambda index: None,
        natives: Mapping[str, Natives] | None = None,
        *,
        translates: bool = True,
    ) -> None:
        self._image = image
        self._budget = Budget(image.limits)
        self._hooks: dict[tuple[int, str], _Hook] = {}
        kinds = [*image.schema.views.values(), *image.schema.records.values()]
        self._field_names = tuple(sorted({name for fields in kinds for name in fields}))
        # A caller that passes natives counts what the interpreter runs (coverage).
        translates = translates and not natives
        modules = Modules(image.files, image.limits, natives, keeps_constants=translates)
        self._constants: list[str] = []
        views = modules.run_private(drivers.VIEWS_MODULE, drivers.views_text(image.schema))
        verdicts = modules.run_private(drivers.VERDICTS_MODULE, drivers.verdicts_text())
        private = {drivers.VIEWS_MODULE: views, drivers.VERDICTS_MODULE: verdicts}
        self._node_views = NodeViews(views, image.limits.address_space)
        problems: list[Problem] = []
        for index, instance in enumerate(image.instances):
            on_load(index)
            try:
                self._load_instance(modules, private, index, instance)
            except PolicyErrors as error:
                problems.extend(error.problems)
        if problems:
            raise PolicyErrors(problems)
        self.translations: Translations | None = None
        if translates:
            self.translations = Translations(image, self._constants, modules.loaded_constants)

    def _load_instance(
        self,
        modules: Modules,
        private: dict[str, starlark.FrozenModule],
        index: int,
        instance: InstanceImage,
    ) -> None:
        schema = self._image.schema
        arguments = modules.arguments_module(
            json.dumps(instance.arguments),
            drivers.converter_text(schema, instance.argument_types),
            private,
        )
        module = modules.instantiate(instance.module, arguments)
        self._constants.append(modules.constants)
        bounded = "normalize" not in instance.hooks
        functions = [name for name in instance.hooks if name.startswith("among_")]
        for name, signature in instance.hooks.items():
            driver = modules.run_private(
                f"@starsched/run_{name}.star",
                drivers.driver_text(name, signature, bounded, schema, functions),
                {**private, drivers.HOOK_MODULE: module},
            )
            self._hooks[index, name] = _Hook(index, instance, name, driver)

    # --- answering ---------------------------------------------------------------------------

    def evaluate(self, call: Call) -> RawAnswer:
        """Answer *call*: a JSON list of verdicts, and the failures by entry."""
        hook = self._hook(call)
        if self.translations is not None:
            answer = self.translations.answer(call)
            if answer is not None:
                return answer
        return self._interpreted(hook, call)

    def verdicts(self, call: Call) -> Sequence[Verdict | PolicyFailure]:
        """The same, decoded: what runs as Python does not become text first."""
        hook = self._hook(call)
        if self.translations is not None:
            verdicts = self.translations.verdicts(call)
            if verdicts is not None:
                return verdicts
        return decode_answer(self._interpreted(hook, call))

    def _hook(self, call: Call) -> _Hook:
        hook = self._hooks.get((call.instance, call.hook))
        if hook is None:
            raise ValueError(f"instance {call.instance} has no hook `{call.hook}`")
        return hook

    def _interpreted(self, hook: _Hook, call: Call) -> RawAnswer:
        entries = call.nodes if call.nodes is not None and call.hook != "score_all" else None
        if entries is None:
            return self._single(hook, call, call.nodes or [])
        if not entries:
            return RawAnswer(b"[]", [])
        parts = split(entries)
        if len(parts) == 1:
            return self._part(hook, call, entries)
        answers: list[RawAnswer] = []
        exhausted = 0
        for part in parts:
            if exhausted >= MAX_EXHAUSTED:
                # Each costs a full budget, and the call has a deadline.
                answers.append(_nothing(part))
                continue
            answers.append(self._part(hook, call, part))
            exhausted += sum(f.kind == "steps" for _, f in answers[-1].failures)
        counts = [len(part) for part in parts]
        return join(answers, counts, hook.failure, most_reasons(call))

    def _part(self, hook: _Hook, call: Call, entries: Sequence[bytes]) -> RawAnswer:
        """The answer to a part of a call, or to all of a small one."""
        steps = self._image.limits.steps + _STEPS_PER_ENTRY * len(entries)
        try:
            return self._run(hook, call, entries, steps)
        except _Failed as failed:
            if len(entries) == 1:
                return RawAnswer(b"[null]", [(0, failed.failure)])
        return self._isolate(hook, call, entries)

    def evaluate_each(self, call: Call) -> Iterator[RawAnswer]:
        """Answer *call* one entry at a time: what is answered before a crash is known."""
        if call.nodes is None or call.hook == "score_all":
            yield self.evaluate(call)
            return
        for node in call.nodes:
            yield self.evaluate(call._replace(nodes=[node]))

    def _single(self, hook: _Hook, call: Call, entries: Sequence[bytes]) -> RawAnswer:
        try:
            return self._run(hook, call, entries, self._image.limits.steps)
        except _Failed as failed:
            return RawAnswer(b"[null]", [(0, failed.failure)])

    def _isolate(self, hook: _Hook, call: Call, entries: Sequence[bytes]) -> RawAnswer:
        """Answer entry by entry where a piece of the batch fails."""
        answers: list[RawAnswer] = []
        counts: list[int] = []
        exhausted = 0
        limit = self._image.limits.steps
        for start in range(0, len(entries), _PIECE):
            piece = entries[start : start + _PIECE]
            if exhausted < MAX_EXHAUSTED and len(entries) > _PIECE:
                try:
                    answer = self._run(hook, call, piece, limit + _STEPS_PER_ENTRY * len(piece))
                except _Failed:
                    pass
                else:
                    answers.append(answer)
                    counts.append(len(piece))
                    continue
            for entry in piece:
                counts.append(1)
                if exhausted >= MAX_EXHAUSTED:
                    answers.append(_nothing([entry]))
                    continue
                try:
                    answers.append(self._run(hook, call, [entry], limit))
                except _Failed as failed:
                    answers.append(RawAnswer(b"[null]", [(0, failed.failure)]))
                    exhausted += failed.failure.kind == "steps"
        return join(answers, counts, hook.failure, most_reasons(call))

    def _run(self, hook: _Hook, call: Call, entries: Sequence[bytes], steps: int) -> RawAnswer:
        """One run of the driver. Raises `_Failed` when the interpreter gave no answer."""
        text = f"[{b','.join(entries).decode()}]"
        if hook.takes_views and len(entries) >= LEAST:
            answer = self._run_views(hook, call, entries, text, steps)
            if answer is not None:
                return answer
        try:
            found: Any = hook.module.call_with(
                self._budget.allow(steps), "run", call.pod.decode(), text, call.extra.decode()
            ).value
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            # Also the interpreter's own panics, which are not `Exception`s.
            raise _Failed(_failure_of(hook, error, self._field_names)) from error
        flag = found[0]
        if flag == "=":
            return _answer_of(found)
        if flag == "M":
            # The entries before it may have seen the change too: nothing of this run counts.
            message = f"{hook.name}() changed `{found[1:]}`, want it left as it was given"
            hint = "values passed to a hook are read-only: copy before changing"
            raise _Failed(hook.failure("error", message, hint))
        return self._sort_out(hook, call, entries, found)

    def _run_views(
        self, hook: _Hook, call: Call, entries: Sequence[bytes], text: str, steps: int
    ) -> RawAnswer | None:
        """The answer over views that are kept; None if it is not simply good."""
        texts = [text]
        if hook.name == "score_all":
            texts = [f"[{b','.join(part).decode()}]" for part in split(entries)]
        try:
            module = self._node_views.bound((hook.index, hook.name), hook.module, texts)
            found: Any = module.call_with(
                self._budget.allow(steps), "go", call.pod.decode(), call.extra.decode()
            ).value
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException:
            return None
        return _answer_of(found) if found[0] == "=" else None

    def _sort_out(self, hook: _Hook, call: Call, entries: Sequence[bytes], text: str) -> RawAnswer:
        """Separate the failures from an answer that has some."""
        answer = _answer_of(text)
        verdicts: list[Any] = msgspec.json.decode(answer.verdicts)
        failures: list[tuple[int, PolicyFailure]] = []
        named = 0
        for index, verdict in enumerate(verdicts):
            if type(verdict) is not dict:
                continue
            verdicts[index] = None
            if "n" not in verdict:
                failure = hook.failure(verdict["k"], verdict["m"], verdict["h"])
                failures.append((index, failure))
            elif named < _MAX_NAMED and not self._follows_name(
                hook, call, entries[index], verdict["n"]
            ):
                verdicts[index] = verdict["n"]
            else:
                named += 1
                failures.append((index, _named_failure(hook, verdict["n"][1])))
        return RawAnswer(msgspec.json.encode(verdicts), failures, answer.reasons)

    def _follows_name(self, hook: _Hook, call: Call, entry: bytes, verdict: Any) -> bool:
        """True if the reasons of *verdict* change with the node's name.

        A short name (`node`) may occur in a constant reason by chance, so the hook is asked again
        about the same node under another name.
        """
        probe = msgspec.json.decode(entry)
        node = probe["node"] if "counts" in probe else probe
        name, node["name"] = node["name"], _PROBE
        try:
            text: Any = hook.module.call_with(
                self._budget.allow(self._image.limits.steps),
                "run",
                call.pod.decode(),
                f"[{msgspec.json.encode(probe).decode()}]",
                call.extra.decode(),
            ).value
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException:
            text = ""  # the hook does not know such a node: the texts decide below
        if _PROBE in text:
            return True
        if text and _answer_of(text).verdicts == b"[" + msgspec.json.encode(verdict) + b"]":
            return False
        # Another branch for another name. A reason that the file spells out is a constant.
        source = self._image.files[hook.instance.module]
        return any(name in reason and reason not in source for reason in verdict[1])


def _answer_of(text: str) -> RawAnswer:
    """The answer in what a driver returned, its flag aside."""
    verdicts, _, reasons = text[1:].partition("\n")
    return RawAnswer(verdicts.encode(), [], msgspec.json.decode(reasons) if reasons else [])


def _nothing(entries: Sequence[bytes]) -> RawAnswer:
    """What stands for entries that are not tried; `join` says why."""
    return RawAnswer(b"[" + b",".join([b"null"] * len(entries)) + b"]", [])


def _named_failure(hook: _Hook, reasons: Sequence[str]) -> PolicyFailure:
    message = (
        f"{hook.name}() returned the reason {json.dumps(reasons[0])} with the node's name in it, "
        "want reasons that are constants"
    )
    return hook.failure("type", message, "reasons are counted over nodes: leave out the name")


_MISSING_FIELD: Final = re.compile(r"Object of type `struct` has no attribute `(\w+)`")


@functools.lru_cache(maxsize=256)
def _closest(name: str, names: tuple[str, ...]) -> str:
    """The one of *names* that *name* probably means, or "". Slow, and asked once per entry."""
    return next(iter(difflib.get_close_matches(name, names, 1)), "")


def _failure_of(hook: _Hook, error: BaseException, field_names: tuple[str, ...]) -> PolicyFailure:
    if isinstance(error, MemoryError):
        return hook.failure("memory", f"{hook.name}() ran out of memory")
    found = messages.read(error, hook.instance.module)
    message, hint = found.message, found.hint
    if match := _MISSING_FIELD.match(message):
        message = f"no field or argument `{match[1]}`{message[match.end() :]}"
        # The struct at hand has only the fields that the hook reads: look among all there are.
        close = _closest(match[1], field_names)
        if close and "did you mean" not in message and close != match[1]:
            hint = f"did you mean `{close}`?"
    message = f"{hook.name}() failed: {message}"
    line = found.line or hook.signature.line
    return PolicyFailure(
        hook.instance.policy, hook.name, found.file, line, found.column, message, found.kind, hint
    )
