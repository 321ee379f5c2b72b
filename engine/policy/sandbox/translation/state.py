"""The state of one translation: what its functions share, and what code is.

Owns constants, the types of what the hook makes itself, and the namespace of the Python that is
made. Statements are `translate`, expressions `expressions`.
"""

import ast
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from engine.language.flow import UNKNOWN
from engine.language.values import NOTHING, Items, Map, Site, Value
from engine.policy.sandbox.translation import operations
from engine.policy.sandbox.translation.kinds import (
    Given,
    SchemaTypes,
    Sites,
    check_depth,
    join,
    of_data,
)
from engine.policy.sandbox.translation.texts import Texts


class Code(NamedTuple):
    """Python for an expression, its type, and its value where that is a constant."""

    node: ast.expr
    type: Value
    value: Any = UNKNOWN

    @property
    def is_known(self) -> bool:
        """True for a constant."""
        return self.value is not UNKNOWN


@dataclass
class Spec:
    """One function for arguments of certain types (and of certain constants)."""

    name: str
    result: Value = NOTHING
    result_value: Any = UNKNOWN
    changes: set[Site] = field(default_factory=set)
    cost: int = 0


@dataclass
class Translation:
    """What the functions of one hook share while they are translated."""

    texts: Texts
    schema: SchemaTypes
    lists: dict[Site, Value] = field(default_factory=dict)
    dicts: dict[Site, tuple[Value, Value]] = field(default_factory=dict)
    reads: dict[Given, set[str]] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    functions: list[ast.FunctionDef] = field(default_factory=list)
    types: dict[ast.expr, Value] = field(default_factory=dict)
    specs: dict[Any, Spec] = field(default_factory=dict)
    ids: dict[Any, int] = field(default_factory=dict)
    running: list[Any] = field(default_factory=list)
    changed: set[Site] = field(default_factory=set)
    of_constants: dict[int, tuple[Any, Value]] = field(default_factory=dict)
    nodes: int = 0
    temporaries: int = 0
    has_grown: bool = True

    def begin_pass(self) -> None:
        """Forget what is only true of one pass; types of what grows are kept."""
        self.has_grown = False
        self.functions, self.types, self.specs = [], {}, {}
        self.changed, self.nodes, self.temporaries = set(), 0, 0

    def fresh(self) -> str:
        """A name for a value within one expression."""
        self.temporaries += 1
        return f"t{self.temporaries}"

    def put(self, sites: Sites, item: Value) -> None:
        """Something of type *item* goes into the lists of *sites*."""
        for site in sites:
            before = self.lists.get(site, NOTHING)
            after = join(before, item)
            check_depth(after)
            if after != before:
                self.lists[site], self.has_grown = after, True

    def put_pair(self, sites: Sites, key: Value, value: Value) -> None:
        """The same for dicts."""
        for site in sites:
            before = self.dicts.get(site, (NOTHING, NOTHING))
            after = join(before[0], key), join(before[1], value)
            check_depth(after[0] | after[1])
            if after != before:
                self.dicts[site], self.has_grown = after, True

    def item_of(self, one: Items) -> Value:
        """What a list holds."""
        return join(one.items, *(self.lists.get(site, NOTHING) for site in one.sites))

    def pair_of(self, one: Map) -> tuple[Value, Value]:
        """What keys and values a dict holds."""
        held = [self.dicts.get(site, (NOTHING, NOTHING)) for site in one.sites]
        return join(one.keys, *(k for k, _ in held)), join(one.values, *(v for _, v in held))

    def constant(self, value: Any) -> ast.expr:
        """Python for a constant: a literal, or a name of the namespace."""
        if value is None or type(value) in (bool, int, str, float):
            return ast.Constant(value)
        for name, held in self.constants.items():
            if held is value:
                return load(name)
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        return load(name)

    def type_of(self, value: Any) -> Value:
        """The type of a constant."""
        found = self.of_constants.get(id(value))
        if found is None:
            # The constant is kept too: its id is its own as long as it is.
            found = self.of_constants[id(value)] = value, of_data(value)
        return found[1]

    def verdict(self, made: operations.Verdict) -> ast.expr:
        """A verdict that is a constant: one object for equal ones."""
        for held in self.constants.values():
            if type(held) is not operations.Verdict:
                continue
            if msgspec.structs.astuple(held) == msgspec.structs.astuple(made):
                return self.constant(held)
        return self.constant(made)


def load(name: str) -> ast.Name:
    """Python that reads *name*."""
    return ast.Name(name, ast.Load())


def call(name: str, *arguments: ast.expr) -> ast.Call:
    """Python that calls *name*."""
    return ast.Call(load(name), list(arguments), [])


HELPERS: Final = {
    **{f"h{native}": function for native, function in operations.natives().items()},
    **{
        f"h_{name}": getattr(operations, name)
        for name in (
            "refuse", "spend", "bounded", "concatenated", "repeated", "less", "less_or_equal",
            "equal", "lesser", "larger", "float_less", "float_less_or_equal", "least", "greatest",
            "ordered", "whole", "clamped", "hashed", "texts", "joined", "as_text", "unresolvable",
            "reject", "kind_of", "product", "number", "small",
        )
    },
}  # fmt: skip
_PYTHON: Final = (
    len, sorted, min, max, any, all, bool, int, float, abs, list, zip, enumerate, range,
)  # fmt: skip
NAMESPACE: Final = {**HELPERS, **{f"b_{function.__name__}": function for function in _PYTHON}}


def constant_key(value: Any) -> Any:
    """What a constant is known by among the arguments of a call."""
    if value is UNKNOWN:
        return None
    if value is None or type(value) in (str, int, bool):
        return ("plain", type(value).__name__, value)
    return ("object", id(value))
