"""Random device selectors, and what two evaluators say of them.

Owns the grammar and the devices; Kubernetes' own evaluator is the program `oracle`.
"""

import json
import random
import re
import subprocess
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from engine.core.framework.behaviors import RELEASED, behaviors_of
from engine.core.model.devices import ResourceSlice
from engine.core.model.objects import from_plain
from engine.core.scheduling.devices.pools import PoolSlice
from engine.core.scheduling.devices.selectors import SelectorError, matches
from tests.parity.oracle import oracle_of
from tests.scripts import go_program

Plain = dict[str, Any]

DRIVER: Final = "gpu.example.com"

#: Devices with attributes of all types, with few of them, and with none.
DEVICES: Final[list[Plain]] = [
    {
        "name": "full",
        "allowMultipleAllocations": True,
        "attributes": {
            "model": {"string": "A100-SXM"},
            "empty": {"string": ""},
            "unicode": {"string": "ä日本😀z"},
            "padded": {"string": " \u001c a b\u00a0"},
            "number": {"string": "42"},
            "count": {"int": 3},
            "zero": {"int": 0},
            "minus": {"int": -7},
            "most": {"int": 2**63 - 1},
            "least": {"int": -(2**63)},
            "yes": {"bool": True},
            "no": {"bool": False},
            "version": {"version": "12.4.1-rc.2+b7"},
            "plain": {"version": "1.10.0"},
            "ints": {"ints": [3, 1, 2, 3]},
            "bools": {"bools": [True, False]},
            "strings": {"strings": ["nvlink", "", "pcie"]},
            "versions": {"versions": ["1.2.3", "2.0.0-rc.1"]},
            "other.example.com/family": {"string": "ampere"},
        },
        "capacity": {
            "memory": {"value": "80Gi"},
            "cores": {"value": "1500m"},
            "tiny": {"value": "1n"},
            "whole": {"value": "12"},
            "huge": {"value": "8Ei"},
            "other.example.com/disk": {"value": "10G"},
        },
    },
    {
        "name": "other",
        "attributes": {
            "model": {"string": "T4"},
            "count": {"string": "three"},
            "yes": {"int": 1},
            "version": {"string": "12.4.1"},
            "ints": {"int": 3},
            "strings": {"strings": ["a"]},
        },
        "capacity": {"memory": {"value": "16Gi"}, "cores": {"value": "0"}},
    },
    {"name": "bare"},
]


def ask_kubernetes(selectors: Iterable[str], minor: str | None = None) -> list[Plain]:
    """What Kubernetes' evaluator says: `invalid`, or an answer for each of `DEVICES`.

    That of *minor*, such as `1.38`; None: of the newest release.
    """
    devices = [{"driver": DRIVER, **device} for device in DEVICES]
    lines = [json.dumps({"selector": text, "devices": devices}) for text in selectors]
    done = subprocess.run(
        [go_program(oracle_of(minor)), "-selectors"],
        input="\n".join(lines),
        capture_output=True,
        timeout=300,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def ask_ours(selectors: Iterable[str], minor: int = RELEASED) -> list[Plain]:
    """The same of ours, as 1.*minor* has it."""
    spec = {"driver": DRIVER, "pool": {"name": "p"}, "devices": DEVICES}
    devices = PoolSlice(
        from_plain(ResourceSlice, {"spec": spec}), behaves=behaviors_of(minor)
    ).devices
    return [_ask(text, devices) for text in selectors]


def _ask(text: str, devices: Iterable[Any]) -> Plain:
    answers: list[Any] = []
    for device in devices:
        try:
            answers.append(matches(text, device)[0])
        except SelectorError as error:
            if not error.is_about_device:
                return {"invalid": str(error)}
            answers.append(str(error))
    return {"answers": answers}


def outcome(said: Plain) -> list[str]:
    """What matters to a decision: matches, does not, or fails; an invalid one always fails."""
    if "invalid" in said:
        return ["invalid"]
    return ["fails" if isinstance(one, str) else str(one).lower() for one in said["answers"]]


class Difference(NamedTuple):
    """A way in which the two are known to differ, on purpose or because nothing comes of it.

    Attributes:
        name: Of what.
        selector: A pattern of the selectors that it is about.
        theirs: A pattern of what Kubernetes says.
        documented: Words of docs/dynamic-resources.md about it.
        examples: Selectors that show it.
        ours: A pattern of what ours says.
    """

    name: str
    selector: str
    theirs: str
    documented: str
    examples: tuple[str, ...]
    ours: str = ""


#: Outside of these there is no difference.
DIFFERENCES: Final = (
    Difference(
        "refused by the API server",
        "",
        "'invalid': ",
        "What the API server refuses",
        ('device["driver"] == "x"', '[1, "a"] == [1]', 'true || int("x") == 1'),
    ),
    Difference(
        "internal errors",
        "",
        "internal error",
        "an internal error of Kubernetes' evaluator",
        (f'device.attributes["{DRIVER}"].plain in [1]',),
    ),
    Difference(
        "times",
        r"\b(timestamp|duration)\(",
        "",
        "timestamps and durations",
        (
            'duration("1h") == duration("60m")',
            'timestamp("2020-01-01T00:00:00Z") > timestamp("2019-01-01T00:00:00Z")',
        ),
    ),
    Difference(
        "formatting",
        r"\.format\(|strings\.quote\(|\bformat\.",
        "",
        "`format`, the formats of names and `strings.quote`",
        (
            '"%d".format([1]) == "1"',
            'strings.quote("a") == "a"',
            'format.dns1123Label().validate("A").hasValue()',
        ),
    ),
    Difference(
        "finding",
        r"\.find(All)?\(",
        "",
        "`find` and `findAll`",
        ('"abc".find("b") == "b"', '"abc".findAll("b") == ["b"]'),
    ),
    Difference(
        "addresses",
        r"\b(ip|cidr|url|isIP|isCIDR|isURL)\(",
        "",
        "IP addresses, CIDRs and URLs",
        ('ip("1.2.3.4").family() == 4', 'isCIDR("1.0.0.0/8")', 'isURL("http://a")'),
    ),
    Difference(
        "two variables and keys of order",
        r"\.(exists|all|existsOne|transformList|transformMap\w*|sortBy)\(\w+, ",
        "",
        "comprehensions over two variables, `sortBy`",
        (
            "[1].exists(i, v, v > 0)",
            "[3, 1].sortBy(x, x) == [1, 3]",
            "[1].transformList(i, v, v) == [1]",
        ),
    ),
    Difference(
        "depth",
        "",
        "",
        "nest deeper than 32",
        (
            f"1{' + 1' * 32} == 33",
            f"{'(' * 33}true{')' * 33}",
            f"'a'{'.trim()' * 32} == 'a'",
            f"{'false ? false : ' * 33}true",
            f"{'[' * 33}{']' * 33} == []",
        ),
        ours="recursion (depth|limit)",
    ),
)


def known_difference(selector: str, theirs: Plain, ours: Plain) -> Difference | None:
    """The known difference that *selector* is about, or None."""
    for one in DIFFERENCES:
        texts = ((one.selector, selector), (one.theirs, str(theirs)), (one.ours, str(ours)))
        if all(re.search(pattern, text) for pattern, text in texts):
            return one
    return None


class Grammar:
    """Random selectors of every type of value, most of them valid, many that fail for a device."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._names = 0

    def selector(self) -> str:
        """One selector."""
        self._names = 0
        return self._of("bool", self._rng.randint(1, 4))

    def _of(self, kind: str, depth: int) -> str:
        if depth <= 0:
            return self._pick(_LITERALS[kind])
        shape = self._pick(_SHAPES[kind] + (_ANY if kind != "map" else []))
        return self._filled(shape, kind, depth - 1)

    def _filled(self, shape: str, kind: str, depth: int) -> str:
        """*shape* with `<kind>` for values, `<T>` for one of this kind, `<A>` for any one kind."""
        free = self._pick(["int", "string", "double", "bool", "uint"])
        self._names += 1
        name = f"x{self._names}"
        parts = shape.replace("<v>", name).replace("<T>", f"<{kind}>").replace("<A>", f"<{free}>")
        made = ""
        while "<" in parts:
            head, _, rest = parts.partition("<")
            wanted, close, tail = rest.partition(">")
            if close and wanted in _LITERALS:
                made, parts = f"{made}{head}{self._of(wanted, depth)}", tail
            else:
                made, parts = f"{made}{head}<", rest
        return made + parts

    def _pick(self, choices: list[str]) -> str:
        return self._rng.choice(choices)


_ATTRIBUTES: Final = [
    *("model", "empty", "unicode", "padded", "number", "count", "zero", "minus", "most", "least"),
    *("yes", "no", "version", "plain", "ints", "bools", "strings", "versions", "missing"),
]
_DOMAIN: Final = f'device.attributes["{DRIVER}"]'
_AMOUNTS: Final = f'device.capacity["{DRIVER}"]'
_ATTRIBUTE: Final = [f"{_DOMAIN}.{name}" for name in _ATTRIBUTES]

#: What each kind of value may be without a part.
_LITERALS: Final[dict[str, list[str]]] = {
    "bool": ["true", "false", f"{_DOMAIN}.yes", "device.allowMultipleAllocations"],
    "int": [
        *("0", "1", "-1", "2", "3", "7", "100", "9223372036854775807", "-9223372036854775808"),
        *(f"{_DOMAIN}.{name}" for name in ("count", "zero", "minus", "most")),
    ],
    "uint": ["0u", "1u", "3u", "42u", "18446744073709551615u"],
    "double": [
        *("0.0", "-0.0", "0.5", "1.0", "2.5", "-3.75", "1e6", "999999.0", "123456789.125"),
        *("1e-5", "0.0001", "1e21", "1.7e308", "9.3e18", "(0.0 / 0.0)", "(1.0 / 0.0)"),
    ],
    "string": [
        *(
            '""',
            '"a"',
            '"abc"',
            '"A1 b"',
            '"ä日本😀z"',
            '" \\u001c\\u00a0x "',
            '"42"',
            '"-7"',
            '"1e3"',
        ),
        *(
            '"0x1p3"',
            '"true"',
            '"1.2.3"',
            '"1.5Gi"',
            '"Ki"',
            '"2000m"',
            '"a,b,,c"',
            '"v1.2"',
            '"."',
        ),
        *(f"{_DOMAIN}.{name}" for name in ("model", "unicode", "padded", "number")),
        "device.driver",
    ],
    "bytes": ['b""', 'b"abc"', 'b"\\xff"'],
    "ints": ["[1]", "[3, 1, 2]", "[2, 2]", f"{_DOMAIN}.ints"],
    "texts": ['["b", "a"]', '["a"]', '["", "x", "a"]', f"{_DOMAIN}.strings"],
    "doubles": ["[0.5, 2.5]", "[1e6, -0.0]"],
    "map": ['{"a": 1, "b": 2}', '{"a": 1, "a": 2}', "{1: 2}", "{1.5: 1, 2.0: 3}", _DOMAIN],
    "quantity": [
        *(
            f'quantity("{text}")'
            for text in ("0", "1", "1.0", "1.5Gi", "2000m", "80Gi", "1Pi", "1Ei")
        ),
        *(
            f'quantity("{text}")'
            for text in ("-3", "1e3", "1n", "0.5Ki", "9E", "12345678901234567890")
        ),
        *(f"{_AMOUNTS}.{name}" for name in ("memory", "cores", "tiny", "whole", "huge", "missing")),
    ],
    "semver": [
        *('semver("1.2.3")', 'semver("1.10.0")', 'semver("2.0.0-rc.1")', 'semver("2.0.0-rc.1+b")'),
        *('semver("v1.2", true)', 'semver("18446744073709551615.0.0")'),
        *(f"{_DOMAIN}.{name}" for name in ("version", "plain")),
    ],
    "optional": [
        "optional.none()",
        "optional.of(3)",
        f"{_DOMAIN}.?count",
        f"{_DOMAIN}[?'missing']",
    ],
    "dyn": _ATTRIBUTE,
}

#: What any kind of value may be made of.
_ANY: Final = [
    "(<bool> ? <T> : <T>)",
    "cel.bind(<v>, <T>, <v>)",
    "optional.of(<T>).value()",
    "dyn(<T>)",
]
_SHAPES: Final[dict[str, list[str]]] = {
    "bool": [
        *["<A> == <A>", "<A> != <A>", "(<bool> && <bool>)", "(<bool> || <bool>)", "!(<bool>)"],
        *["<int> < <int>", "<int> <= <double>", "<double> > <double>", "<uint> >= <int>"],
        *["<string> < <string>", "<bytes> == <bytes>", "<bool> < <bool>", "<dyn> == <A>"],
        *["<string>.contains(<string>)", "<string>.startsWith(<string>)", "isSemver(<string>)"],
        *["<string>.endsWith(<string>)", '<string>.matches("^[a-z0-9]+$")', "isQuantity(<string>)"],
        *["<quantity>.isInteger()", "<quantity>.isLessThan(<quantity>)", "bool(<string>)"],
        *["<quantity> == <quantity>", "<quantity>.isGreaterThan(<quantity>)", "has(<map>.a)"],
        *["<semver> == <semver>", "<semver>.isLessThan(<semver>)", "<optional>.hasValue()"],
        *["<ints> == <ints>", "<int> in <ints>", "<string> in <texts>", "<string> in <map>"],
        *["<ints>.exists(<v>, <v> > <int>)", "<ints>.all(<v>, <v> != <int>)", "<dyn> != <dyn>"],
        *["<texts>.exists_one(<v>, <v> == <string>)", "<ints>.isSorted()", "<dyn>.includes(<A>)"],
        *["sets.contains(<ints>, <ints>)", "sets.intersects(<texts>, <texts>)", "<dyn> in <ints>"],
        *["sets.equivalent(<ints>, <ints>)", "<dyn> > <int>", "type(<A>) == type(<A>)"],
        *[f"has({_DOMAIN}.{name})" for name in ("model", "missing")],
        *["<map>.exists(<v>, <v> == <string>)", "<map> == <map>", "<dyn>"],
    ],
    "int": [
        *["<int> + <int>", "<int> - <int>", "<int> * <int>", "<int> / <int>", "<int> % <int>"],
        *["-(<int>)", "int(<double>)", "int(<string>)", "int(<uint>)", "size(<string>)"],
        *["<ints>.size()", "<ints>[<int>]", "<ints>.sum()", "<ints>.max()", "<ints>.min()"],
        *["<ints>.indexOf(<int>)", "<ints>.lastIndexOf(<int>)", "<string>.indexOf(<string>)"],
        *["<string>.indexOf(<string>, <int>)", "<string>.lastIndexOf(<string>, <int>)"],
        *["<string>.lastIndexOf(<string>)", "<quantity>.asInteger()", "sign(<quantity>)"],
        *["<quantity>.compareTo(<quantity>)", "<semver>.major()", "<semver>.patch()"],
        *["<semver>.compareTo(<semver>)", "<optional>.orValue(<int>)", "<map>.a", "<map>[1]"],
        *["<texts>.size()", "<bytes>.size()", "<map>.size()", "<ints>.first().orValue(<int>)"],
    ],
    "uint": [
        "<uint> + <uint>",
        "<uint> - <uint>",
        "uint(<int>)",
        "uint(<double>)",
        "<uint> % <uint>",
    ],
    "double": [
        *["<double> + <double>", "<double> * <double>", "<double> / <double>", "double(<int>)"],
        *["double(<string>)", "<quantity>.asApproximateFloat()", "<doubles>.sum()", "-(<double>)"],
        *["<doubles>.max()", "<doubles>[<int>]", "double(<uint>)", "<doubles>.min()"],
    ],
    "string": [
        *["<string> + <string>", "string(<double>)", "string(<int>)", "string(<bool>)"],
        *[
            "<string>.charAt(<int>)",
            "<string>.substring(<int>)",
            "<string>.substring(<int>, <int>)",
        ],
        *["<string>.trim()", "<string>.lowerAscii()", "<string>.upperAscii()", "string(<bytes>)"],
        *["<string>.replace(<string>, <string>)", "<string>.replace(<string>, <string>, <int>)"],
        *["<texts>.join()", "<texts>.join(<string>)", "<texts>[<int>]", "string(<uint>)"],
        *["<texts>.max()", "<string>.reverse()", "string(<dyn>)"],
    ],
    "bytes": ["bytes(<string>)", "<bytes> + <bytes>"],
    "ints": [
        *["<ints> + <ints>", "<ints>.map(<v>, <v> + <int>)", "<ints>.filter(<v>, <v> > <int>)"],
        *["<ints>.sort()", "<ints>.distinct()", "<ints>.reverse()", "<ints>.slice(<int>, <int>)"],
        *["[<ints>, <ints>].flatten()", "lists.range(<int>)", "[<int>, <int>]", "[?<optional>]"],
        *["<ints>.map(<v>, <v> > <int>, <v>)"],
    ],
    "texts": [
        *["<string>.split(<string>)", "<string>.split(<string>, <int>)", "<texts>.sort()"],
        *["<texts>.map(<v>, <v> + <string>)", "<texts>.distinct()", "[<string>, <string>]"],
    ],
    "doubles": ["<doubles> + <doubles>", "[<double>, <double>]", "<doubles>.sort()"],
    "map": ["{<string>: <int>, <string>: <int>}", "{<double>: <int>}", "{?<string>: <optional>}"],
    "quantity": [
        *["quantity(<string>)", "<quantity>.add(<quantity>)", "<quantity>.sub(<quantity>)"],
        *["<quantity>.add(<int>)", "<quantity>.sub(<int>)"],
    ],
    "semver": ["semver(<string>)", "semver(<string>, <bool>)"],
    "optional": [
        *["optional.of(<int>)", "optional.ofNonZeroValue(<int>)", "<optional>.or(<optional>)"],
        *["<ints>.first()", "<ints>.last()", "<map>[?<string>]", "<optional>.optMap(<v>, <int>)"],
        "optional.of(<optional>.orValue(<int>))",
    ],
    "dyn": ["<dyn>", "<dyn>[<int>]", "<map>[<string>]"],
}
