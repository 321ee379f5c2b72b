"""Functions run both ways for their bare values: what they return, not yet a verdict."""

from typing import Any, NamedTuple

import msgspec

from engine.language import crossing
from engine.policy.evaluator import Limits, view_schema
from engine.policy.sandbox import drivers
from engine.policy.sandbox.compiled import CompiledHook
from engine.policy.sandbox.modules import Modules
from engine.policy.sandbox.protocol import Call, HookSignature
from engine.policy.sandbox.translation import exports, operations
from engine.policy.sandbox.translation.kinds import SchemaTypes, Untranslatable
from engine.policy.sandbox.translation.texts import Texts

_FILE = "x.star"
_SCHEMA = view_schema()
_TYPES = SchemaTypes(_SCHEMA)


class Outcome(NamedTuple):
    """A value as `exports` spells it, or why there is none."""

    value: Any = None
    problem: str = ""


class BothWays:
    """The functions `among_0(pod, node)`, `among_1`, ... of one file. Raises `PolicyErrors`."""

    def __init__(self, text: str, count: int) -> None:
        files = {_FILE: text}
        limits = Limits()
        modules = Modules(files, limits, keeps_constants=True)
        arguments = modules.arguments_module("{}", "")
        module = modules.instantiate(_FILE, arguments)
        constants = exports.read(modules.constants)
        views = modules.run_private(drivers.VIEWS_MODULE, drivers.views_text(_SCHEMA))
        spelling = modules.run_private(exports.MODULE, crossing.TEXT)
        self._plain = [
            modules.run_private(
                "@starsched/probe.star",
                _PROBE.format(index=index, views=drivers.VIEWS_MODULE, exports=exports.MODULE),
                {_FILE: module, drivers.VIEWS_MODULE: views, exports.MODULE: spelling},
            )
            for index in range(count)
        ]
        texts = Texts(files, lambda _: constants)
        self.translated: list[CompiledHook | str] = []
        for index in range(count):
            signature = HookSignature(("pod", "node"), 1, 1)
            try:
                made: CompiledHook | str = CompiledHook(
                    texts, _FILE, f"among_{index}", signature, _TYPES, limits.steps, bounded=True
                )
            except Untranslatable as error:
                made = str(error)
            self.translated.append(made)

    def interpret(self, index: int, pod: bytes, node: bytes) -> Outcome:
        """What the interpreter says."""
        try:
            text: Any = self._plain[index].call("go", pod.decode(), node.decode())
        except Exception as error:
            return Outcome(problem=str(error))
        return Outcome(msgspec.json.decode(text))

    def run(self, index: int, pod: bytes, node: bytes) -> Outcome:
        """What the Python function says; a problem if it leaves that to the interpreter."""
        hook = self.translated[index]
        assert not isinstance(hook, str)
        try:
            function, left = hook._prepared(Call(0, "", pod))
            (place,) = hook._entries.places([node])
            operations.budget[0] = left
            return Outcome(spelt(function(hook._entries.objects[place])))
        except Exception as error:
            return Outcome(problem=f"{type(error).__name__}: {error}")


_PROBE = """
load("x.star", "among_{index}")
load("{views}", "view_pod", "view_node")
load("{exports}", "carried")

def go(pod, node):
    pod, node = view_pod(json.decode(pod)), view_node(json.decode(node))
    return json.encode(carried(among_{index}(pod, node)))
"""


def spelt(value: Any) -> Any:
    """A Python value as `crossing.TEXT` spells that of the interpreter."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        is_finite = value == value and abs(value) != float("inf")
        return {"f": value if is_finite else _ODD[str(value)]}
    if type(value) is list:
        return [spelt(item) for item in value]
    if type(value) is tuple:
        return {"t": [spelt(item) for item in value]}
    if type(value) is dict:
        return {"d": [[spelt(key), spelt(item)] for key, item in value.items()]}
    fields = sorted(value.__struct_fields__)
    return {"s": [[name, spelt(getattr(value, name))] for name in fields]}


# The interpreter's names of what is no finite number.
_ODD = {"nan": "nan", "inf": "+inf", "-inf": "-inf"}
