"""Hooks that run as Python: made from a translation, called like the interpreter's drivers.

Owns the making of the Python functions, what is worked out once per pod, the decoding of entries,
and the checks of verdicts. A compiled hook answers a call as a whole or not at all: whatever is not
plainly a good verdict is left to the interpreter, whose messages say what is wrong.
"""

import ast
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Final, TypeVar

import msgspec

from engine.language.flow import UNKNOWN
from engine.language.hooks import PARAMETERS, hook_of
from engine.language.resolve import parameters_of
from engine.language.values import INT, NONE, OPAQUE, Function, Items, Struct, Summary, Value, View
from engine.policy.sandbox.answers import Answers, answers_of
from engine.policy.sandbox.decoding import Decoders
from engine.policy.sandbox.entries import Entries
from engine.policy.sandbox.protocol import Call, HookSignature, RawAnswer, Verdict, most_reasons
from engine.policy.sandbox.translation import operations
from engine.policy.sandbox.translation.hoisting import hoisted
from engine.policy.sandbox.translation.kinds import Given, SchemaTypes, Untranslatable
from engine.policy.sandbox.translation.operations import Refused, TooMuchError
from engine.policy.sandbox.translation.state import NAMESPACE, Code, Translation, load
from engine.policy.sandbox.translation.texts import Texts
from engine.policy.sandbox.translation.translate import MAX_PASSES, define, translate_function

_POD_HOOKS: Final = frozenset({"queue_key", "victim_key"})

# Pods whose hooks are kept, and bytes of them: decoded they take fifteen times as much.
_MAX_PODS: Final = 2048
_MAX_POD_BYTES: Final = 1 << 20
# A hook that is left to the interpreter this often, and more often than not, stays there.
_MAX_REFUSALS: Final = 64
# Of the steps that an entry may take; beyond it the interpreter has to count. It takes a seventh of
# a step at most to make a byte of JSON into a view.
_STEPS_PER_NODE: Final = 8
_STEPS_PER_BYTE: Final = 1

Form = TypeVar("Form")

_OF_PARAMETERS: Final[Mapping[str, Value]] = {
    "list[Count]": frozenset({Items(frozenset({Summary("counts")}) | NONE, "list")}) | NONE,
    "Over": frozenset({Summary("over")}),
}


@dataclass(slots=True)
class _Makers:
    """What makes the hook for a pod: with what the pod decides worked out beforehand, or plainly.

    `made` are the hooks of the pods seen lately, each with the steps that are left to it; `bytes`
    are those of the pods.
    """

    make: Callable[..., Any]
    make_plainly: Callable[..., Any]
    made: dict[tuple[bytes, bytes], tuple[Callable[..., Any], int]] = field(default_factory=dict)
    bytes: int = 0


def can_compile(hook: str) -> bool:
    """True if hooks of this name can be run as Python."""
    return hook_of(hook).is_per_node or hook in _POD_HOOKS or hook == "normalize"


class CompiledHook:
    """One hook of one instance as Python. Raises `Untranslatable` if it cannot be translated."""

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
        self._params = signature.params
        self._by_entry = hook in ("filter", "score") and "counts" in signature.params
        meaning = texts.meaning(module, hook)
        if not isinstance(meaning, Function):
            raise Untranslatable("a hook that is no function of its own file")
        types = {name: _parameter(name, schema) for name in signature.params}
        entry = {"node", "score"} | ({"counts"} if self._by_entry else set())
        self._entry = [name for name in signature.params if name in entry]
        self._shared = [name for name in signature.params if name not in entry]
        self._makers, reads = self._translate(Translation(texts, schema), meaning, types)
        decoders = Decoders(schema, reads, names=hook == "filter")
        self._decode_pod = decoders.decoder(types["pod"]).decode if "pod" in types else None
        others = {n: t for n, t in types.items() if n in self._shared and n != "pod"}
        self._decode_extra = (
            decoders.decoder(frozenset({Struct(tuple(others.items()))})).decode if others else None
        )
        decode_entry = decoders.decoder(self._entry_type(types)).decode
        most_bytes = steps // 8 // _STEPS_PER_BYTE
        self._entries = (
            Entries(decode_entry, most_bytes, self._is_named)
            if hook == "filter"
            else Entries(decode_entry, most_bytes)
        )
        # What the hook takes of an entry; None: the entry itself.
        self._fields = self._entry if self._by_entry or not self._entry else None
        self._answers = answers_of(hook, bounded=bounded)
        self._answered = self._refused = 0

    def _entry_type(self, types: Mapping[str, Value]) -> Value:
        if self._hook == "normalize":
            return INT
        node: Value = frozenset({View("node")})
        if not self._by_entry:
            return node
        return frozenset({Struct((("node", node), ("counts", types["counts"])))})

    def _translate(
        self, shared: Translation, meaning: Function, types: Mapping[str, Value]
    ) -> tuple[_Makers, Mapping[Given, set[str]]]:
        params = parameters_of(meaning.node.args).positional
        if params != self._params:
            raise Untranslatable("parameters of another kind")
        arguments = [Code(load(f"v_{name}"), types[name], UNKNOWN) for name in params]
        for _ in range(MAX_PASSES):
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
        code = _compiled(tree, meaning.module.path)
        return _made(code, {**NAMESPACE, **shared.constants}), shared.reads

    # --- answering ----------------------------------------------------------------------------

    def answer(self, call: Call) -> RawAnswer | None:
        """The answer to *call*, to be sent; None leaves it to the interpreter."""
        return self._tried(call, lambda found: found.encoded())

    def verdicts(self, call: Call) -> Sequence[Verdict] | None:
        """The answer to *call*, decoded; None leaves it to the interpreter."""
        return self._tried(call, lambda found: found.verdicts())

    def _tried(self, call: Call, form: Callable[[Answers], Form]) -> Form | None:
        if self._refused > _MAX_REFUSALS and self._refused > self._answered:
            return None
        try:
            answer = form(self._found(call))
        except TooMuchError:
            return None
        except Exception:  # the interpreter then reports what went wrong
            self._refused += 1
            return None
        self._answered += 1
        return answer

    def _found(self, call: Call) -> Answers:
        hook, left = self._prepared(call)
        budget = operations.budget
        if self._hook in _POD_HOOKS:
            if call.nodes:
                raise Refused
            budget[0] = left
            return self._answers([hook()], 0, None)
        if call.nodes is None:
            raise Refused
        places = self._entries.places(call.nodes)
        entries = self._entries.objects
        fields = self._fields
        values = []
        for place in places:
            budget[0] = left
            entry = entries[place]
            if fields is None:
                values.append(hook(entry))
            else:
                values.append(hook(*[getattr(entry, name) for name in fields]))
        names = (
            [self._name_of(entries[place]) for place in places] if self._entries.are_named else None
        )
        return self._answers(values, most_reasons(call), names)

    def _name_of(self, entry: Any) -> Any:
        return entry.node.name if self._by_entry else entry.name

    def _is_named(self, entry: Any) -> bool:
        return self._name_of(entry) is not msgspec.UNSET

    def _prepared(self, call: Call) -> tuple[Callable[..., Any], int]:
        """The hook for the call's pod, and the steps that are left to it."""
        makers = self._makers
        pod, extra = call.pod, call.extra
        key = (pod, extra)
        found = makers.made.get(key)
        if found is None:
            if (len(pod) + len(extra)) * _STEPS_PER_BYTE > self._steps // 8:
                raise TooMuchError
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
                hook = makers.make(*given)
            except Exception:  # what is worked out beforehand may not be needed in the end
                hook = makers.make_plainly(*given)
                budget[0] = self._steps // 4
            found = hook, budget[0]
            if len(makers.made) >= _MAX_PODS or makers.bytes > _MAX_POD_BYTES:
                makers.made.clear()
                makers.bytes = 0
            makers.made[key] = found
            makers.bytes += len(pod) + len(extra)
        return found


def _parameter(name: str, schema: SchemaTypes) -> Value:
    text = PARAMETERS[name].type
    if text.startswith("view:"):
        view: Value = frozenset({View(text.removeprefix("view:").removesuffix("?"))})
        return view | NONE if text.endswith("?") else view
    found = _OF_PARAMETERS.get(text) or schema.of(text)
    if found == OPAQUE:
        raise Untranslatable(f"parameter `{name}`")
    return found


def _compiled(tree: ast.Module, path: str) -> CodeType:
    with warnings.catch_warnings():
        # Python warns about some texts; a policy is not Python.
        warnings.simplefilter("ignore", SyntaxWarning)
        return compile(ast.fix_missing_locations(tree), f"<{path}>", "exec")


def _made(code: CodeType, namespace: Mapping[str, Any]) -> _Makers:
    held: dict[str, Any] = {"__builtins__": {}, **namespace}
    exec(code, held)
    return _Makers(held["make"], held["make_plainly"])


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
