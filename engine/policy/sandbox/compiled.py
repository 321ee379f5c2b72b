"""Hooks that run as Python: made from a translation, asked like the interpreter's drivers.

Owns the making of the Python functions, what is worked out once per pod, the decoding of entries,
and the checks of verdicts. A compiled hook answers a call as a whole or not at all: whatever is not
plainly a good verdict is left to the interpreter, which alone says what is wrong.
"""

import ast
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from engine.policy.sandbox import operations
from engine.policy.sandbox.decoding import Decoders
from engine.policy.sandbox.hoisting import hoisted
from engine.policy.sandbox.kinds import (
    BOOL,
    INT,
    NONE,
    List,
    SchemaTypes,
    Struct,
    Type,
    Untranslatable,
)
from engine.policy.sandbox.operations import Refused, Verdict
from engine.policy.sandbox.protocol import MAX_REASONS, Call, HookSignature, RawAnswer
from engine.policy.sandbox.texts import Function, Texts
from engine.policy.sandbox.translate import define, translate_function
from engine.policy.sandbox.translation import NAMESPACE, UNKNOWN, Code, Translation, load

NODE_HOOKS: Final = frozenset({"filter", "score", "tie_key", "annotate"})
POD_HOOKS: Final = frozenset({"queue_key", "victim_key"})

_MAX_PASSES: Final = 12
_MAX_ENTRIES: Final = 8192
_MAX_PODS: Final = 2048
_MAX_ENTRY_BYTES: Final = 4096
# A hook that is left to the interpreter this often, and more often than not, stays there.
_MAX_REFUSALS: Final = 64
# Of the steps that an entry may take; beyond it the interpreter has to count.
_STEPS_PER_NODE: Final = 8
_STEPS_PER_BYTE: Final = 10
_SCORE_BOUND: Final = 1 << 62
_INT64: Final = 1 << 63

_encode: Final = msgspec.json.Encoder().encode

_COUNT: Final = Struct(
    "count",
    (
        ("here", INT | NONE),
        ("min", INT),
        ("max", INT),
        ("total", INT),
        ("domains", INT),
        ("is_empty", BOOL),
        ("feasible_domains", INT),
        ("feasible_nodes", INT),
        ("feasible_outside", INT),
    ),
)
_COUNTS: Final[Type] = frozenset({List(frozenset({_COUNT}) | NONE)}) | NONE
_OVER: Final[Type] = frozenset({Struct("over", (("min", INT), ("max", INT), ("count", INT)))})


def can_compile(hook: str) -> bool:
    """True if hooks of this name can be run as Python."""
    return hook in NODE_HOOKS | POD_HOOKS or hook == "normalize" or hook.startswith("among_")


class CompiledHook:
    """One hook of one instance as Python. Raises `Untranslatable` if it cannot be made so."""

    def __init__(
        self,
        texts: Texts,
        module: str,
        hook: str,
        signature: HookSignature,
        schema: SchemaTypes,
        steps: int,
        *,
        bounded: bool,
    ) -> None:
        if not can_compile(hook):
            raise Untranslatable(f"hook `{hook}`")
        self._hook = hook
        self._steps = steps
        self._bounded = bounded
        self._params = signature.params
        self._by_entry = hook in ("filter", "score") and "counts" in signature.params
        meaning = texts.meaning(module, hook)
        if not isinstance(meaning, Function):
            raise Untranslatable("a hook that is no function of its own file")
        types = {name: _parameter(name, hook, schema) for name in signature.params}
        entry = {"node", "score"} | ({"counts"} if self._by_entry else set())
        self._entry = [name for name in signature.params if name in entry]
        self._shared = [name for name in signature.params if name not in entry]
        self._make, self._make_plainly, reads = self._translate(texts, meaning, types)
        decoders = Decoders(reads, schema.whole, names=hook == "filter")
        self._decode_pod = decoders.decoder(types["pod"]).decode if "pod" in types else None
        others = {n: t for n, t in types.items() if n in self._shared and n != "pod"}
        self._decode_extra = (
            decoders.decoder(frozenset({Struct("extra", tuple(others.items()))})).decode
            if others
            else None
        )
        self._decode_entry = decoders.decoder(self._entry_type(types, schema)).decode
        self._entries: dict[bytes, Any] = {}
        self._pods: dict[tuple[bytes, bytes], tuple[Callable[..., Any], int]] = {}
        self._answered = self._refused = 0

    def _entry_type(self, types: Mapping[str, Type], schema: SchemaTypes) -> Type:
        if self._hook == "normalize":
            return INT
        node: Type = frozenset({schema.view("node")})
        if not self._by_entry:
            return node
        pair = Struct("entry", (("node", node), ("counts", types["counts"])))
        return frozenset({pair})

    def _translate(
        self, texts: Texts, meaning: Function, types: Mapping[str, Type]
    ) -> tuple[Callable[..., Any], Callable[..., Any], Mapping[str, set[str]]]:
        shared = Translation(texts)
        params = [argument.arg for argument in meaning.node.args.args]
        if tuple(params) != self._params:
            raise Untranslatable("parameters of another kind")
        arguments = [Code(load(f"v_{name}"), types[name], UNKNOWN) for name in params]
        for _ in range(_MAX_PASSES):
            shared.begin_pass()
            translate_function(shared, meaning, "hook", arguments)
            if not shared.has_grown:
                break
        else:
            raise Untranslatable("types that do not settle")
        if shared.nodes * _STEPS_PER_NODE > self._steps // 2:
            raise Untranslatable("a hook that may take too many steps")
        *functions, hook = shared.functions
        entry = [f"v_{name}" for name in self._entry]
        given = [f"v_{name}" for name in self._shared]
        before, body = hoisted(hook.body, frozenset(given), shared)
        makers = [
            _maker("make", given, entry, before, body),
            _maker("make_plainly", given, entry, [], hook.body),
        ]
        tree = ast.Module([*functions, *makers], [])
        namespace: dict[str, Any] = {"__builtins__": {}, **NAMESPACE, **shared.constants}
        with warnings.catch_warnings():
            # Python has opinions on texts; a policy is no Python.
            warnings.simplefilter("ignore", SyntaxWarning)
            code = compile(ast.fix_missing_locations(tree), f"<{meaning.path}>", "exec")
        exec(code, namespace)
        reads = {**shared.reads, "extra": set(self._shared), "entry": {"node", "counts"}}
        return namespace["make"], namespace["make_plainly"], reads

    # --- answering ----------------------------------------------------------------------------

    def answer(self, call: Call) -> RawAnswer | None:
        """The answer to *call*; None leaves it to the interpreter."""
        if self._refused > _MAX_REFUSALS and self._refused > self._answered:
            return None
        try:
            answer = self._answer(call)
        except Exception:  # whatever it is, the interpreter finds words for it
            self._refused += 1
            return None
        self._answered += 1
        return answer

    def _answer(self, call: Call) -> RawAnswer:
        hook, left = self._prepared(call.pod, call.extra)
        budget = operations.budget
        if self._hook in POD_HOOKS:
            if call.nodes:
                raise Refused
            budget[0] = left
            return RawAnswer(_encode([_key(hook())]), [])
        if call.nodes is None:
            raise Refused
        entries = self._decoded(call.nodes)
        if self._hook == "filter":
            return self._filtered(hook, left, entries)
        answers: list[Any] = []
        if self._by_entry:
            takes_node = "node" in self._entry
            is_first = takes_node and self._entry[0] == "node"
            for entry in entries:
                budget[0] = left
                if not takes_node:
                    answers.append(hook(entry.counts))
                elif is_first:
                    answers.append(hook(entry.node, entry.counts))
                else:
                    answers.append(hook(entry.counts, entry.node))
        elif self._entry:
            for entry in entries:
                budget[0] = left
                answers.append(hook(entry))
        else:
            for _ in entries:
                budget[0] = left
                answers.append(hook())
        return RawAnswer(_encode(self._checked(answers)), [])

    def _prepared(self, pod: bytes, extra: bytes) -> tuple[Callable[..., Any], int]:
        key = (pod, extra)
        found = self._pods.get(key)
        if found is None:
            if (len(pod) + len(extra)) * _STEPS_PER_BYTE > self._steps // 8:
                raise Refused
            values: dict[str, Any] = {}
            if self._decode_extra is not None:
                others = self._decode_extra(extra)
                values = {name: getattr(others, name) for name in self._shared if name != "pod"}
            if self._decode_pod is not None:
                values["pod"] = self._decode_pod(pod)
            given = [values[name] for name in self._shared]
            budget = operations.budget
            budget[0] = self._steps // 4
            try:
                hook = self._make(*given)
            except Exception:  # what is worked out beforehand may not be needed in the end
                hook = self._make_plainly(*given)
                budget[0] = self._steps // 4
            found = hook, budget[0]
            if len(self._pods) >= _MAX_PODS:
                self._pods.clear()
            self._pods[key] = found
        return found

    def _decoded(self, raws: list[bytes]) -> list[Any]:
        known, decode = self._entries, self._decode_entry
        found = []
        for raw in raws:
            entry = known.get(raw)
            if entry is None:
                entry = decode(raw)
                if len(raw) > _MAX_ENTRY_BYTES:
                    if len(raw) * _STEPS_PER_BYTE > self._steps // 8:
                        raise Refused
                else:
                    if len(known) >= _MAX_ENTRIES:
                        known.clear()
                    known[raw] = entry
            found.append(entry)
        return found

    # --- verdicts -----------------------------------------------------------------------------

    def _filtered(self, hook: Callable[..., Any], left: int, entries: list[Any]) -> RawAnswer:
        budget = operations.budget
        seen: dict[str, None] = {}
        answers: list[Any] = []
        order = self._entry
        for entry in entries:
            budget[0] = left
            node = entry.node if self._by_entry else entry
            if self._by_entry:
                answer = hook(*[node if name == "node" else entry.counts for name in order])
            else:
                answer = hook(entry) if order else hook()
            if answer is not None:
                if type(answer) is Verdict:
                    code, reasons = answer.verdict, answer.reasons
                else:
                    code, reasons = "r", operations.reasons_of(answer)
                name = node.name
                for reason in reasons:
                    seen[reason] = None
                    if name is not msgspec.UNSET and name in reason:
                        raise Refused
                answer = [code, reasons]
            answers.append(answer)
        if len(seen) > MAX_REASONS:
            raise Refused
        return RawAnswer(_encode(answers), [], list(seen))

    def _checked(self, answers: list[Any]) -> list[Any]:
        hook = self._hook
        if hook == "score":
            low, high = (0, 100) if self._bounded else (-_SCORE_BOUND, _SCORE_BOUND)
            for answer in answers:
                if answer is not None and not (type(answer) is int and low <= answer <= high):
                    raise Refused
            return answers
        if hook == "normalize":
            for answer in answers:
                if not (type(answer) is int and 0 <= answer <= 100):
                    raise Refused
            return answers
        if hook == "tie_key":
            return [_key(answer) for answer in answers]
        if hook == "annotate":
            return [_annotations(answer) for answer in answers]
        for answer in answers:
            if type(answer) is not bool:
                raise Refused
        return answers


def _key(answer: Any) -> list[Any]:
    parts = list(answer) if type(answer) in (tuple, list) else [answer]
    if not parts:
        raise Refused
    for part in parts:
        if type(part) is not str and not (type(part) is int and -_INT64 <= part < _INT64):
            raise Refused
    return parts


def _annotations(answer: Any) -> list[list[str]] | None:
    if answer is None:
        return None
    if type(answer) is not dict:
        raise Refused
    for key, text in answer.items():
        if type(key) is not str or type(text) is not str or not key:
            raise Refused
    return [[key, text] for key, text in answer.items()]


def _parameter(name: str, hook: str, schema: SchemaTypes) -> Type:
    if name in ("pod", "node", "cluster", "group"):
        view: Type = frozenset({schema.view(name)})
        return view | NONE if name == "group" else view
    if name == "counts" and hook in ("filter", "score"):
        return _COUNTS
    if name == "over":
        return _OVER
    if name == "score" and hook == "normalize":
        return INT
    raise Untranslatable(f"parameter `{name}`")


def _maker(
    name: str,
    given: list[str],
    entry: list[str],
    before: list[ast.stmt],
    body: list[ast.stmt],
) -> ast.FunctionDef:
    """Python for a function of what all entries share; it gives the function of an entry."""
    hook = define("hook", entry, body)
    return define(name, given, [*before, hook, ast.Return(load("hook"))])
