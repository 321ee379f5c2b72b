"""The names that every policy can use beside Starlark's own: verdicts, numbers, selectors.

Owns their Starlark text and the few functions that Starlark cannot express. Everything here is a
function of its arguments: no clock, no randomness, no state.
"""

import math
import re
from collections.abc import Callable
from typing import Any, Final

MODULE: Final = "@starsched/builtins.star"

# What the runtime adds to every policy file. A file may define a name of its own instead.
NAMES: Final = (
    "unresolvable",
    "reject",
    "skip",
    "only_nodes",
    "state",
    "wait",
    "gang",
    "math",
    "parse_int",
    "parse_float",
    "matches",
    "count_pods",
    "count_terms",
    "pods_in",
)

# Starlark's own libraries, on in every policy file; documented with the names above.
LIBRARIES: Final = ("struct", "json", "record", "field", "enum", "typing")

# From shape parameters of this size on, a Beta variable is normal but for its skewness.
_LARGE_SHAPE: Final = 1e5
_LARGEST_POWER: Final = 700.0  # of e, in a float

_INT64: Final = 1 << 63
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,400}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,6})?", re.ASCII)


def parse_int(text: str, default: Any = None) -> Any:
    """The int that *text* spells in base 10 (as Go's ParseInt does), or *default*.

    Only ASCII digits with an optional sign count, and only values that fit in 64 bits.
    """
    if isinstance(text, str) and _INTEGER.fullmatch(text):
        value = int(text)
        if -_INT64 <= value < _INT64:
            return value
    return default


def parse_float(text: str, default: Any = None) -> Any:
    """The finite float that *text* spells in decimal, or *default*."""
    if isinstance(text, str) and _NUMBER.fullmatch(text):
        value = float(text)
        if math.isfinite(value):
            return value
    return default


def beta_cdf(x: float, a: float, b: float) -> float:
    """The chance that a Beta(*a*, *b*) variable is at most *x*.

    The regularised incomplete beta function by its continued fraction (Lentz's method), accurate
    to about 1e-14 for small parameters; if both are above 100,000, by the normal distribution with
    a term for the skewness, to 1e-6. Raises ValueError unless *a* and *b* are positive.
    """
    if not (a > 0 and b > 0):
        raise ValueError(f"want positive shape parameters, got {a} and {b}")
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
    # Of a huge parameter the terms hardly differ, and their difference is only rounding.
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


NATIVES: Final[dict[str, Callable[..., Any]]] = {
    "_sqrt": math.sqrt,
    "_exp": math.exp,
    "_log": math.log,
    "_pow": math.pow,
    "_floor": math.floor,
    "_ceil": math.ceil,
    "_round": round_half_away,
    "_lgamma": math.lgamma,
    "_beta_cdf": beta_cdf,
    "_parse_int": parse_int,
    "_parse_float": parse_float,
    "_isfinite": math.isfinite,
}

TEXT: Final = '''
"""Names that every policy can use."""

def _reasons(given, function):
    reasons = [given] if type(given) == "string" else given
    if type(reasons) not in ("list", "tuple") or not reasons:
        fail(function + "() wants a reason or a list of reasons, got " + repr(given))
    for reason in reasons:
        if type(reason) != "string" or not reason.strip():
            fail(function + "() wants reasons that are non-empty strings, got " + repr(reason))
    return list(reasons)

def unresolvable(reasons):
    return struct(verdict = "u", reasons = _reasons(reasons, "unresolvable"))

def reject(reasons):
    return struct(verdict = "r", reasons = _reasons(reasons, "reject"))

def skip():
    return struct(verdict = "skip")

def state(**values):
    return struct(verdict = "state", state = values)

def only_nodes(names, state = None):
    if type(names) not in ("list", "tuple", "dict"):
        fail("only_nodes() wants a list of node names, got " + repr(names))
    for name in names:
        if type(name) != "string":
            fail("only_nodes() wants names that are strings, got " + repr(name))
    if state != None and getattr(state, "verdict", None) != "state":
        fail("only_nodes() wants `state = state(...)`, got " + repr(state))
    return struct(
        verdict = "only",
        names = list(names),
        state = None if state == None else state.state,
    )

# No pod waits longer for leave, so a longer wait means this.
_MOST_SECONDS = 900

def wait(seconds, reason = "waiting for the rest of its group"):
    if type(seconds) not in ("int", "float") or not 0 < seconds:
        fail("wait() wants a number of seconds above 0, got " + repr(seconds))
    return struct(
        verdict = "wait",
        seconds = float(min(seconds, _MOST_SECONDS)),
        reasons = _reasons(reason, "wait"),
    )

def gang(name, min_count = None):
    if type(name) != "string" or not name:
        fail("gang() wants a name that is a non-empty string, got " + repr(name))
    if min_count != None and (type(min_count) != "int" or min_count < 0):
        fail("gang() wants a min_count that is an int of at least 0, got " + repr(min_count))
    return struct(
        verdict = "gang",
        name = name,
        min_count = None if min_count == None else min(min_count, 1000000000),
    )

def _clamp(x, low, high):
    return max(low, min(x, high))

math = struct(
    inf = float("inf"),
    pi = 3.141592653589793,
    e = 2.718281828459045,
    sqrt = _sqrt,
    exp = _exp,
    log = _log,
    pow = _pow,
    floor = _floor,
    ceil = _ceil,
    round = _round,
    lgamma = _lgamma,
    beta_cdf = _beta_cdf,
    abs = abs,
    clamp = _clamp,
)

def parse_int(text, default = None):
    return _parse_int(text, default)

def parse_float(text, default = None):
    return _parse_float(text, default)

def matches(selector, labels):
    if selector == None:
        return False
    if type(selector) == "dict":
        return _has(selector, labels)
    if not _has(selector.labels, labels):
        return False
    for requirement in selector.expressions:
        value, operator = labels.get(requirement.key), requirement.operator
        if operator == "In":
            holds = value != None and value in requirement.values
        elif operator == "NotIn":
            holds = value == None or value not in requirement.values
        elif operator == "Exists":
            holds = value != None
        elif operator == "DoesNotExist":
            holds = value == None
        else:
            holds = False
        if not holds:
            return False
    return True

def _has(wanted, labels):
    for key, value in wanted.items():
        if labels.get(key) != value:
            return False
    return True

def _check_texts(values, function, what):
    if type(values) not in ("list", "tuple"):
        fail("%s() wants a list of %s, got %s" % (function, what, repr(values)))
    for value in values:
        if type(value) != "string":
            fail("%s() wants %s that are strings, got %s" % (function, what, repr(value)))

def _plain_selector(selector, function):
    if selector == None:
        return None
    if type(selector) == "dict" and type(selector.get("expressions")) == "list":
        labels, expressions = selector.get("labels", {}), selector["expressions"]
    elif type(selector) == "dict":
        labels, expressions = selector, []
    elif hasattr(selector, "labels") and hasattr(selector, "expressions"):
        labels, expressions = dict(selector.labels), [
            {"key": r.key, "operator": r.operator, "values": list(r.values)}
            for r in selector.expressions
        ]
    else:
        fail("%s() wants a selector or a dict of labels, got %s" % (function, repr(selector)))
    if type(labels) != "dict" or type(expressions) != "list":
        fail("%s() wants a selector or a dict of labels, got %s" % (function, repr(selector)))
    for key, value in labels.items():
        if type(key) != "string" or type(value) != "string":
            fail("%s() wants labels that are strings, got %s" % (function, repr({key: value})))
    for requirement in expressions:
        if type(requirement) != "dict" or "key" not in requirement or "operator" not in requirement:
            fail("%s() wants requirements, got %s" % (function, repr(requirement)))
        _check_texts([requirement["key"], requirement["operator"]], function, "requirements")
        _check_texts(requirement.get("values", []), function, "values")
    return {"labels": labels, "expressions": expressions}

def pods_in(namespaces, selector, namespace_selector = None):
    """Pods of *namespaces* (or of those that a selector of namespaces means) that are selected."""
    return _pods_in(namespaces, selector, namespace_selector, "pods_in")

def _pods_in(namespaces, selector, namespace_selector, function):
    _check_texts(namespaces, function, "namespaces")
    return {
        "namespaces": list(namespaces),
        "selector": _plain_selector(selector, function),
        "namespace_selector": _plain_selector(namespace_selector, function),
    }

# So that no sum of weights is too large to be kept.
_HEAVIEST = 2147483648
_MOST = 9007199254740992

def _check_amounts(weight, up_to, function):
    if type(weight) != "int" or weight < -_HEAVIEST or weight > _HEAVIEST:
        fail("%s() wants a weight that is an int in -2**31..2**31, got %s" %
             (function, repr(weight)))
    if up_to != None and (type(up_to) != "int" or up_to < 0 or up_to > _MOST):
        fail("%s() wants an up_to that is an int of at least 0, got %s" % (function, repr(up_to)))

def count_pods(
        topology,
        selectors = None,
        labels = None,
        namespaces = None,
        among = None,
        keys = [],
        weight = 1,
        terminating = False,
        up_to = None):
    """A counter of placed pods that all of *selectors* mean, per value of the label *topology*."""
    if topology != None and type(topology) != "string":
        fail("count_pods() wants a label key or None as topology, got " + repr(topology))
    if among != None and type(among) != "string":
        fail("count_pods() wants the name of a function as among, such as " +
             '"among_x", got ' + repr(among))
    if type(terminating) != "bool":
        fail("count_pods() wants a terminating that is a bool, got " + repr(terminating))
    _check_texts(keys, "count_pods", "keys")
    _check_amounts(weight, up_to, "count_pods")
    terms = list(selectors or [])
    for term in terms:
        if type(term) != "dict" or sorted(term) != ["namespace_selector", "namespaces", "selector"]:
            fail("count_pods() wants selectors made by pods_in(...), got " + repr(term))
    # What is left out by mistake would count nothing, in silence.
    if labels != None:
        _plain_selector(labels, "count_pods")
        if namespaces == None:
            fail("count_pods() wants namespaces beside labels, such as [pod.namespace]; for all " +
                 "of them it takes selectors = [pods_in([], labels, namespace_selector = {})]")
        terms.append(_pods_in(namespaces, labels, None, "count_pods"))
    elif namespaces != None:
        fail("count_pods() wants labels beside namespaces, {} for all of their pods")
    elif selectors == None:
        fail("count_pods() wants labels and namespaces, or selectors made by pods_in(...)")
    return {
        "kind": "pods",
        "topology": topology,
        "terms": terms,
        "among": among,
        "keys": list(keys),
        "weight": weight,
        "terminating": terminating,
        "up_to": up_to,
    }

_TERMS = (
    "required_affinity",
    "required_anti_affinity",
    "preferred_affinity",
    "preferred_anti_affinity",
)

def count_terms(kind, weight = 1, up_to = None):
    """A counter of the placed pods' affinity terms of *kind* that mean the incoming pod."""
    if kind not in _TERMS:
        fail("count_terms() wants one of %s, got %s" % (", ".join(_TERMS), repr(kind)))
    _check_amounts(weight, up_to, "count_terms")
    part = {"kind": "terms", "of": kind, "keys": [], "among": None}
    return part | {"weight": weight, "up_to": up_to}

def _word(value):
    names = {"NoneType": "None", "string": "str"}
    return names.get(type(value), type(value))

def _fits(given, default):
    if default == None or type(given) == type(default):
        return True
    return type(default) == "float" and type(given) == "int"

def bind_arguments(given, defaults, convert):
    """The struct of arguments: *defaults* overridden by *given*."""
    for name, value in given.items():
        if name not in defaults:
            fail("unknown argument `%s`, want one of %s" % (name, sorted(defaults)))
        if not _fits(value, defaults[name]):
            fail("argument `%s`: want %s, got %s" % (name, _word(defaults[name]), repr(value)))
    converted = {name: convert(name, value) for name, value in given.items()}
    return struct(**(defaults | converted))
'''
