"""Builtins for numbers: `math`, `parse_int` and `parse_float`, with their implementations.

Owns the functions that Starlark cannot express. Each is a function of its arguments: no clock, no
randomness, no state.
"""

import math
import re
from typing import Any, Final

from engine.language.table import Builtin, Parameter, kinds, number

# With larger shape parameters, a Beta variable is normal except for its skewness.
_LARGE_SHAPE: Final = 1e5
_LARGEST_POWER: Final = 700.0  # of e, in a float

_INT64: Final = 1 << 63
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,400}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,6})?", re.ASCII)


def parse_int(text: str, default: Any = None) -> Any:
    """The int that *text* is in base 10 (as Go's ParseInt reads it), or *default*.

    Only ASCII digits with an optional sign count, and only values that fit in 64 bits.
    """
    if isinstance(text, str) and _INTEGER.fullmatch(text):
        value = int(text)
        if -_INT64 <= value < _INT64:
            return value
    return default


def parse_float(text: str, default: Any = None) -> Any:
    """The finite float that *text* is in decimal, or *default*."""
    if isinstance(text, str) and _NUMBER.fullmatch(text):
        value = float(text)
        if math.isfinite(value):
            return value
    return default


def beta_cdf(x: float, a: float, b: float) -> float:
    """The probability that a Beta(*a*, *b*) variable is at most *x*.

    The regularised incomplete beta function by its continued fraction (Lentz's method), accurate
    to about 1e-14 for small parameters; if both are above 100,000, by the normal distribution with
    a term for the skewness, to 1e-6. Raises ValueError unless *a* and *b* are positive and finite,
    and for an *x* that is not a number.
    """
    if not (0 < a < math.inf and 0 < b < math.inf):
        raise ValueError(f"want positive, finite shape parameters, got {a} and {b}")
    if math.isnan(x):
        raise ValueError("want a number, got nan")
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    if min(a, b) > _LARGE_SHAPE:
        return _nearly_normal_cdf(x, a, b)
    # The fraction converges fast on this side of the mean only; the other side is its mirror.
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - beta_cdf(1.0 - x, b, a)
    power = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    # With a huge parameter the terms hardly differ, and their difference is only rounding.
    front = math.exp(min(power, _LARGEST_POWER))
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    fraction = d
    for m in range(1, 500):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + numerator * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + numerator / c
            c = c if abs(c) > tiny else tiny
            fraction *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return min(front * fraction / a, 1.0)


def _nearly_normal_cdf(x: float, a: float, b: float) -> float:
    """`beta_cdf` for large *a* and *b*: the normal distribution and the first Edgeworth term.

    There the fraction needs ever more steps, and its front is a small difference of huge numbers.
    """
    mean, rest = a / (a + b), b / (a + b)
    deviation = math.sqrt(mean * rest / (a + b + 1.0))
    skewness = 2.0 * (rest - mean) / math.sqrt((a + b) * mean * rest)
    z = (x - mean) / deviation
    density = math.exp(-min(z * z / 2.0, _LARGEST_POWER)) / math.sqrt(2.0 * math.pi)
    below = 0.5 * math.erfc(-z / math.sqrt(2.0))
    return min(max(below - skewness / 6.0 * (z * z - 1.0) * density, 0.0), 1.0)


def round_half_away(x: float) -> int:
    """*x* rounded to the nearest int, halves away from zero, as Go's math.Round does."""
    whole = math.trunc(x)
    return whole + (int(math.copysign(1, x)) if abs(x - whole) >= 0.5 else 0)


_TEXT: Final = Parameter(
    "text",
    kinds("str none"),
    "a text",
    hints={
        **dict.fromkeys(("int", "float"), "it is a number already; for one, the default is given"),
        "": "for anything but a text, the default is given",
    },
)
_DEFAULT: Final = Parameter("default", default="None")
_X: Final = number("x")

#: Members of `math` that are numbers: their value as Starlark text, and what they are.
CONSTANTS: Final = {
    "inf": 'float("inf")',
    "pi": repr(math.pi),
    "e": repr(math.e),
}

ENTRIES: Final[tuple[Builtin, ...]] = (
    Builtin(
        name="math.sqrt",
        parameters=(_X,),
        result="float",
        python=math.sqrt,
        doc="The square root of *x*.",
    ),
    Builtin(
        name="math.exp",
        parameters=(_X,),
        result="float",
        python=math.exp,
        doc="*e* to the power of *x*.",
    ),
    Builtin(
        name="math.log",
        parameters=(_X, number("base", "math.e")),
        result="float",
        python=math.log,
        doc="The logarithm of *x*, natural unless another *base* is given.",
    ),
    Builtin(
        name="math.pow",
        parameters=(_X, number("y")),
        result="float",
        python=math.pow,
        doc="*x* to the power of *y*.",
    ),
    Builtin(
        name="math.floor",
        parameters=(_X,),
        result="int",
        python=math.floor,
        doc="The largest int that is at most *x*.",
    ),
    Builtin(
        name="math.ceil",
        parameters=(_X,),
        result="int",
        python=math.ceil,
        doc="The smallest int that is at least *x*.",
    ),
    Builtin(
        name="math.round",
        parameters=(_X,),
        result="int",
        python=round_half_away,
        doc="The int that is nearest to *x*; halves are rounded away from zero.",
    ),
    Builtin(
        name="math.lgamma",
        parameters=(_X,),
        result="float",
        python=math.lgamma,
        doc="The natural logarithm of the absolute value of the Gamma function at *x*.",
    ),
    Builtin(
        name="math.beta_cdf",
        parameters=(_X, number("a"), number("b")),
        result="float",
        bounds=(0.0, 1.0),
        python=beta_cdf,
        doc="The probability that a Beta(*a*, *b*) variable is at most *x*.",
    ),
    Builtin(
        name="math.abs",
        parameters=(_X,),
        starlark="abs",
        doc="*x* without its sign.",
    ),
    Builtin(
        name="math.clamp",
        parameters=(_X, number("low"), number("high")),
        starlark="_clamp",
        doc="*x*, or the one of *low* and *high* that it is beyond.",
    ),
    Builtin(
        name="parse_int",
        parameters=(_TEXT, _DEFAULT),
        result="int",
        default="default",
        python=parse_int,
        doc="The int that *text* is in base 10, else *default*.",
    ),
    Builtin(
        name="parse_float",
        parameters=(_TEXT, _DEFAULT),
        result="float",
        default="default",
        python=parse_float,
        doc="The finite float that *text* is in decimal, else *default*.",
    ),
)

#: Starlark for those that are written in it.
TEXT: Final = """\
def _clamp(x, low, high):
    return max(low, min(x, high))
"""
