"""Random functions run for many nodes at once, and for each of them: the same values.

That Python gives for one node what the interpreter gives is `test_random_policies`' to show.
"""

import os
import random
from typing import Any, Final

import msgspec
import numpy as np
import pytest

from engine.policy.errors import PolicyErrors
from engine.policy.sandbox.compiled import CompiledHook
from engine.policy.sandbox.lanes.functions import result_of
from engine.policy.sandbox.lanes.objects import ObjectLanes
from engine.policy.sandbox.lanes.plans import NobodyError, Run
from engine.policy.sandbox.lanes.values import BoolLanes, FloatLanes, IntLanes
from engine.policy.sandbox.protocol import Call
from engine.policy.sandbox.translation import operations
from tests.policy.translation.both_ways import BothWays, spelt
from tests.policy.translation.random_policies import Policy
from tests.policy.translation.test_random_policies import _NODE, _POD
from tests.policy.translation.views import Values

_FUNCTIONS: Final = 8
_NODES: Final = 24


def _entries(chance: random.Random, count: int) -> list[bytes]:
    found = [Values(chance).view("node", _NODE) for _ in range(count)]
    return [msgspec.json.encode(node, order="deterministic") for node in found]


def _one(value: Any, lane: int) -> Any:
    """The value of one lane in what a function returned."""
    if isinstance(value, IntLanes | FloatLanes | BoolLanes):
        return value._v.array[lane].item()
    if isinstance(value, ObjectLanes):
        return value._values()[lane]
    if type(value) in (list, tuple):
        return type(value)(_one(item, lane) for item in value)
    if type(value) is dict:
        return {key: _one(item, lane) for key, item in value.items()}
    if hasattr(value, "__struct_fields__"):
        return type(value)(*[_one(getattr(value, f), lane) for f in value.__struct_fields__])
    return value


def _spelt(value: Any) -> Any:
    try:
        return spelt(value)
    except AttributeError:
        return "a view that is not decoded as a whole"


def _run(hook: CompiledHook, call: Call, places: list[int]) -> tuple[Run, Any] | None:
    """The first way of a function over lanes, with its value; None if it is refused."""
    run = Run(np.array(places, np.intp), places)
    try:
        function, left = hook._prepared(call, hook._makers_of_lanes())
        operations.budget[0] = left
        return run, function(hook._entries.columns.root.lanes(run))
    except Exception:
        return None


def _check_plan(run: Run, found: Any, more: list[int], hook: CompiledHook, call: Call) -> int:
    """Other nodes by the plans of the lanes in *found*, and each by the function; how many."""
    count = 0
    for place, part in enumerate(found if type(found) is tuple else (found,)):
        if type(part) not in (IntLanes, BoolLanes):
            continue
        plan = run.plan(result_of(part))
        if plan is None:
            continue
        try:
            alive, numbers = plan.go(np.array(more, np.intp))
        except (NobodyError, ZeroDivisionError):
            continue
        assert numbers is not None
        function, left = hook._prepared(call, hook._makers)
        for lane in range(len(more)) if alive is None else np.flatnonzero(alive).tolist():
            operations.budget[0] = left
            want = function(hook._entries.objects[more[lane]])
            assert numbers[lane].item() == (want[place] if type(found) is tuple else want)
            count += 1
    return count


def _check(both: BothWays, call: Call, index: int, raws: list[bytes]) -> tuple[int, int]:
    """How many values of lanes were found right, and how many of plans."""
    hook = both.translated[index]
    if isinstance(hook, str):
        return 0, 0
    try:
        nodes = list(hook._entries.places(raws))
    except Exception:
        return 0, 0  # one that is no node: the whole call is the interpreter's
    rest, more = nodes[: len(nodes) // 2], nodes[len(nodes) // 2 :]
    same = planned = 0
    while rest:
        found = _run(hook, call, rest)
        if found is None:
            break
        run, value = found
        alive = [True] * len(rest) if run.alive is None else run.alive.tolist()
        for lane, counts in enumerate(alive):
            if counts:
                function, left = hook._prepared(call, hook._makers)
                operations.budget[0] = left
                want = _spelt(function(hook._entries.objects[rest[lane]]))
                assert repr(_spelt(_one(value, lane))) == repr(want)
                same += 1
        planned += _check_plan(run, value, more, hook, call)
        rest = [place for place, counts in zip(rest, alive, strict=True) if not counts]
    return same, planned


_FIRST: Final = int(os.environ.get("TRANSLATION_SEED", "1"))


def test_random_functions_give_each_node_what_they_give_it_alone() -> None:
    """`TRANSLATION_SEED` and `TRANSLATION_FILES` search elsewhere and longer."""
    count = int(os.environ.get("TRANSLATION_FILES", "30"))
    same = 0
    for seed in range(_FIRST, _FIRST + count):
        chance = random.Random(seed)
        try:
            both = BothWays(Policy(chance, _FUNCTIONS).text, _FUNCTIONS)
        except PolicyErrors:
            continue
        for index in range(_FUNCTIONS):
            pod = msgspec.json.encode(Values(chance).view("pod", _POD))
            call = Call(0, f"among_{index}", pod)
            same += _check(both, call, index, _entries(chance, 2 * _NODES))[0]
    assert same > 10 * count


class _Arithmetic:
    """Random functions of the kind that policies mostly are: numbers of nodes, and choices."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def text(self, count: int) -> str:
        return "".join(self._function(index) for index in range(count))

    def node(self) -> dict[str, Any]:
        chance = self._chance
        amounts = {
            field: {
                key: chance.choice((0, 1, 2, 7, 100, 4000, 1 << 36, chance.randrange(-9, 9)))
                for key in ("cpu", "memory", "gpu")
                if chance.random() < 0.9
            }
            for field in ("allocatable", "requested", "nonzero_requested")
        }
        return {
            **amounts,
            "pod_count": chance.randrange(0, 5),
            "unschedulable": chance.random() < 0.1,
            "labels": {
                key: chance.choice(values)
                for key, values in (("zone", "ab"), ("rank", ("7", "40")), ("cost", ("3", "many")))
                if chance.random() < 0.8
            },
            "device_shares": {
                "x": [chance.randrange(0, 1001) for _ in range(chance.choice((2, 3)))]
            },
            "facts": {"x": self._fact() if chance.random() < 0.8 else None},
        }

    def _fact(self) -> dict[str, Any]:
        age = self._chance.choice((None, 0, 60, 3600))
        return {"value": 0.5, "text": "0.5", "age_seconds": age}

    def _function(self, index: int) -> str:
        chance = self._chance
        lines = [f"    {name} = {self._leaf()}" for name in "abc"]
        lines.append("    total, ratio, best = 0, 0.5, None")
        for _ in range(chance.randrange(1, 6)):
            lines += self._statement()
        lines.append(f"    return {self._int(2)}")
        return f"\ndef among_{index}(pod, node):\n" + "\n".join(lines) + "\n"

    def _statement(self) -> list[str]:
        chance = self._chance
        kind = chance.randrange(8)
        if kind < 2:
            return [f"    if {self._test()}:", f"        total += {self._int(2)}"]
        if kind == 2:
            return [f"    if {self._test()}:", f"        return {self._int(1)}"]
        if kind == 3:
            return [f"    ratio = {self._float(2)}"]
        if kind == 4:
            body = chance.choice(("total += milli", "total = max(total, milli - a)"))
            return ['    for milli in node.device_shares["x"]:', f"        {body}"]
        if kind == 5:
            return [
                f"    for name in {chance.choice((('cpu', 'memory'), ('gpu', 'cpu', 'memory')))}:",
                f"        if node.allocatable.get(name, 0) == 0 and {self._test()}:",
                "            continue",
                f"        b += node.requested.get(name, {chance.randrange(3)})",
            ]
        if kind == 6:
            return [f"    best = {self._int(1)} if best == None or {self._test()} else a"]
        return [f"    c = {self._int(3)}"]

    def _leaf(self) -> str:
        field = self._chance.choice(("allocatable", "requested", "nonzero_requested"))
        key = self._chance.choice(("cpu", "memory", "gpu"))
        return self._chance.choice(
            ("node.pod_count", f'node.{field}.get("{key}", 0)', f'node.{field}["{key}"]',
             "pod.priority", "3", "len(node.labels)", 'len(node.device_shares["x"])',
             'parse_int(node.labels.get("rank", ""), 0)',
             'parse_int(node.labels.get("cost", ""), 5)',
             '((node.facts["x"].age_seconds or 0) if node.facts["x"] else 5)',
             'len(node.labels.get("cost", ""))')
        )  # fmt: skip

    def _filled(self, template: str, depth: int) -> str:
        """*template* with an int for each I, a float for each F, a test for each T."""
        made = {"I": self._int, "F": self._float, "T": self._test}
        return "".join(made[c](depth) if c in made else c for c in template)

    def _int(self, depth: int) -> str:
        chance = self._chance
        if depth <= 0 or chance.random() < 0.2:
            return chance.choice(("a", "b", "c", "total", str(chance.choice((0, 1, 2, 100, -3)))))
        return self._filled(chance.choice(_INTS), depth - 1)

    def _float(self, depth: int) -> str:
        chance = self._chance
        if depth <= 0:
            return chance.choice(("ratio", "0.5", "float(a)", "100.0", "-2.5"))
        return self._filled(chance.choice(_FLOATS), depth - 1)

    def _test(self, depth: int = 1) -> str:
        chance = self._chance
        operator = chance.choice(("<", "<=", "==", "!=", ">", ">="))
        return self._filled(chance.choice(_TESTS).replace("?", operator), depth - 1)


_INTS: Final = (
    "(I + I)", "(I - I)", "(I * I)", "(I // I)", "(I % I)", "min(I, I)", "max(I, I)", "abs(I)",
    "-I", "int(F)", "(I if T else I)", "math.round(F)",
)  # fmt: skip
_FLOATS: Final = (
    "(F + F)", "(F - F)", "(F * F)", "(F / F)", "(a / F)", "min(F, 1.0)", "max(F, F)", "abs(F)",
    "(I / I)", "math.sqrt(F)", "(b * F)", "math.exp(F)",
)  # fmt: skip
_TESTS: Final = (
    "I ? I", "F ? F", "node.unschedulable", 'node.labels.get("zone") == "a"', "not I",
    '"zone" in node.labels', "I ? I and a", "I ? I or best == None",
    'node.labels.get("zone") == None',
)  # fmt: skip


def test_random_arithmetic_gives_each_node_what_it_gives_it_alone() -> None:
    """Also by the plans, which other nodes go by."""
    count = int(os.environ.get("TRANSLATION_FILES", "30"))
    same = planned = 0
    for seed in range(_FIRST, _FIRST + count):
        chance = random.Random(seed)
        policy = _Arithmetic(chance)
        both = BothWays(policy.text(_FUNCTIONS), _FUNCTIONS)
        for index in range(_FUNCTIONS):
            pod = msgspec.json.encode({"priority": chance.choice((0, 5, 100))})
            raws = [
                msgspec.json.encode(policy.node(), order="deterministic") for _ in range(4 * _NODES)
            ]
            found = _check(both, Call(0, f"among_{index}", pod), index, raws)
            same += found[0]
            planned += found[1]
    assert same > 20 * count
    assert planned > 20 * count


def test_numbers_that_are_worked_out_node_by_node_are_told_apart() -> None:
    """Both had no name in a run, so what was done with the second was taken for the first's."""
    text = """
def among_0(pod, node):
    a = parse_int(node.labels.get("a", ""), 0)
    b = parse_int(node.labels.get("b", ""), 0)
    return int((a / 10 + b / 10) * 10) + (1000 if a < b else 0) + max(b, 5)
"""
    both = BothWays(text, 1)
    raws = [
        msgspec.json.encode({"labels": {"a": str(number), "b": str(number * 7 % _NODES)}})
        for number in range(2 * _NODES)
    ]
    same, _ = _check(both, Call(0, "among_0", b"{}"), 0, raws)
    assert same == _NODES


def test_a_default_that_no_array_can_hold_is_the_default_of_a_node_that_comes_later() -> None:
    """It was taken to have what was left in the array."""
    text = """
def among_0(pod, node):
    most = 9223372036854775807 + 1
    return node.allocatable.get("gpu", most) > 100 + pod.priority
"""
    hook = BothWays(text, 1).translated[0]
    assert not isinstance(hook, str)
    offering = [_offering(gpu=number) for number in range(_NODES)]
    lacking = _offering(cpu=1)
    hook.verdicts(Call(0, "among_0", b'{"priority":0}', offering))
    for pod in (b'{"priority":1}', b'{"priority":2}'):
        found = hook.verdicts(Call(0, "among_0", pod, [*offering, lacking]))
        assert found is None or list(found) == [False] * _NODES + [True]


def _offering(**allocatable: int) -> bytes:
    return msgspec.json.encode({"allocatable": allocatable})


def _lanes(values: list[int], low: int, high: int) -> IntLanes:
    run = Run(np.arange(len(values)), list(range(len(values))))
    return IntLanes(run, run.do("add", _register(run, values), 0), low, high)


def _register(run: Run, values: list[int]) -> Any:
    return run.do("filled", 0)._replace(array=np.array(values, np.int64))


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x + (2**63 - 1),
        lambda x: x * 2**62,
        lambda x: -(x - 2**63),
        lambda x: x // 0,
        lambda x: x % 0,
        lambda x: x < "1",
        lambda x: x == None,  # noqa: E711  # what a policy may ask
        lambda x: x + True,
        lambda x: x / 2,
        lambda x: f"{x}",
        lambda x: [1, 2][x],
        lambda x: {x: 1},
        lambda x: "a" + x,
    ],
)
def test_what_is_not_surely_the_same_is_refused(operation: Any) -> None:
    with pytest.raises((operations.Refused, TypeError, ZeroDivisionError)):
        operation(_lanes([1, 4], 1, 4))


def test_lanes_that_go_another_way_do_not_count_any_more() -> None:
    lanes = _lanes([1, 5, 6], 0, 8)
    run = lanes._run
    assert bool(lanes > 2) is True
    assert run.alive is not None
    assert run.alive.tolist() == [False, True, True]
    assert bool(lanes < 2) is False
    assert bool(lanes == 5) in (True, False)
    assert run.living == 1
