"""The builtins of the policy language, one entry each, and the form of an entry.

Owns the form of entries and the table as a whole. The entries stand next to their implementations:
numbers in `numbers`, verdicts in `verdict_makers`, counters in `counter_makers`, division in
`sharing`, and what Starlark brings itself in `starlark`.
"""

import enum
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


class Effect(enum.Enum):
    """What a call does with its arguments, for analyses that follow values through a policy."""

    #: They are looked at as a whole, and the result holds nothing of them.
    WHOLE = "whole"
    #: Only the type of the argument is looked at.
    TYPE = "type"
    #: Only the number of elements is looked at.
    LENGTH = "length"
    #: A field of the first argument is read, under the name that the second one is.
    REFLECTS = "reflects"
    #: The result is a list or tuple of the argument's elements.
    ELEMENTS = "elements"
    #: The result is a list of tuples of the arguments' elements.
    PAIRS = "pairs"
    #: The result is one of the elements, or of the arguments if there are several.
    CHOOSES = "chooses"
    #: The truth of each element is looked at.
    TRUTH = "truth"


@dataclass(frozen=True, slots=True)
class Parameter:
    """What one parameter of a builtin takes.

    Attributes:
        name: Its name.
        kinds: The kinds of values that it takes: none, bool, int, float, str, list, tuple, dict,
            struct, verdict, function. Empty: any.
        wants: What to call those kinds in a message: `a list of node names`.
        default: The default as Starlark text; None: it must be given.
        is_positional: It cannot be given by name.
        low: No number below this one is taken.
        is_above_low: *low* itself is not taken either.
        is_filled: An empty text or list is not taken.
        holds_texts: A list must hold texts, and nothing else.
        choices: If not empty, the only texts that are taken.
        problem: What is wrong with a text, if only some are taken: what is wanted, and a hint; both
            empty if nothing is.
        is_rest: It stands for any number of arguments that are given by name.
        hints: What helps when a value of this kind is given, "" for any other; `{given}` is its
            text.
    """

    name: str
    kinds: frozenset[str] = frozenset()
    wants: str = ""
    default: str | None = None
    is_positional: bool = False
    low: float | None = None
    is_above_low: bool = False
    is_filled: bool = False
    holds_texts: bool = False
    choices: tuple[str, ...] = ()
    problem: Callable[[str], tuple[str, str]] | None = None
    is_rest: bool = False
    hints: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Builtin:
    """One builtin: everything that is known of it.

    Attributes:
        name: Its name; a member of a library has the library's before it: `math.sqrt`.
        parameters: What it takes, in order.
        is_variadic: It takes more arguments like the last one.
        result: The type text of what it returns: `int`, `str?`, `list[str]`; empty if that depends
            on the arguments or is not followed.
        default: The parameter whose value is returned where there is no *result*, or empty.
        bounds: The range of an int or float that it returns, bounds included; None: any number.
        effect: What it does with its arguments.
        is_pure: It changes nothing, and calls no function that it is given by name; `key`
            functions are called where there are any.
        python: Its implementation, if that is in Python. The interpreter and translated hooks
            call the same function.
        starlark: For a member of a library that is not written in Python: what it is in the
            runtime's Starlark text.
        makes: The code of the verdict that it makes, or empty.
        is_starlark: Starlark itself defines it; a file cannot take its name.
        is_translated: Hooks that call it can run as Python. Others are left to the interpreter,
            which gives the same and takes longer.
        doc: What it is for, in one line.
    """

    name: str
    parameters: tuple[Parameter, ...] = ()
    is_variadic: bool = False
    result: str = ""
    default: str = ""
    bounds: tuple[float, float] | None = None
    effect: Effect = Effect.WHOLE
    is_pure: bool = True
    python: Callable[..., Any] | None = None
    starlark: str = ""
    makes: str = ""
    is_starlark: bool = False
    is_translated: bool = True
    doc: str = ""

    @property
    def required(self) -> int:
        """How many arguments it takes at least."""
        return sum(one.default is None and not one.is_rest for one in self.parameters)

    @property
    def signature(self) -> str:
        """Its parameters as Starlark writes them."""
        return ", ".join(
            f"**{one.name}"
            if one.is_rest
            else one.name
            if one.default is None
            else f"{one.name} = {one.default}"
            for one in self.parameters
        )

    @property
    def call(self) -> str:
        """A call of it, for messages: `skip()`, `wait(...)`."""
        return f"{self.name}({'...' if self.parameters else ''})"

    @property
    def native(self) -> str:
        """The name under which the runtime's Starlark text calls *python*."""
        return f"_{self.name.removeprefix('math.')}"

    def parameter(self, name: str) -> Parameter | None:
        """The parameter of this name, if it can be given by name."""
        for one in self.parameters:
            if one.name == name and not one.is_positional:
                return one
        return None


def kinds(text: str) -> frozenset[str]:
    """The kinds that *text* lists, separated by spaces."""
    return frozenset(text.split())


def number(name: str, default: str | None = None) -> Parameter:
    """A number that cannot be given by name."""
    hints = {"str": "`parse_int({given}, 0)` makes an int of a text"}
    taken = kinds("int float bool")
    return Parameter(name, taken, "a number", default, is_positional=True, hints=hints)


@functools.cache
def builtins() -> Mapping[str, Builtin]:
    """Every builtin by its name: those of the runtime, then those of Starlark."""
    from engine.language import counter_makers, numbers, sharing, starlark, verdict_makers

    entries = (
        *verdict_makers.ENTRIES,
        *numbers.ENTRIES,
        *counter_makers.ENTRIES,
        *sharing.ENTRIES,
        *starlark.ENTRIES,
    )
    return MappingProxyType({entry.name: entry for entry in entries})
