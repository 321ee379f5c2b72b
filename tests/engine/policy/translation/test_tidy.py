"""Python that was made shorter gives what the interpreter gives, and fails where that fails."""

import msgspec
import pytest

from engine.policy.sandbox.protocol import Call
from tests.engine.policy.translation.both_ways import BothWays

_POD = msgspec.json.encode({"namespace": "default", "priority": 3})
_TAINT = {"key": "a", "value": "", "effect": "NoExecute"}
_LOOP = """
    found = []
    for step in ["one", "two", "three"]:
        size = len(node.taints) + len(step)
        {body}
        found.append((step, size))
    return found
"""
_HELPERS = """
def _room(a, b):
    return max(a - b, 0) * 2

def _first(a, b):
    return a if a > 1 else b

def _rest(a, b):
    return 7 if b else a
"""


@pytest.mark.parametrize(
    "body",
    [
        _LOOP.format(body='if size == 4 and step == "one": continue'),
        _LOOP.format(body="if size > 4:\n            found.append(0)\n            continue"),
        _LOOP.format(
            body="if size > 3:\n"
            "            if size > 5: continue\n"
            "            found.append(1)\n"
            "        else:\n"
            "            continue"
        ),
        _LOOP.format(
            body="if size > 5: return found\n"
            "        elif size > 3: found.append(2)\n"
            "        else: continue"
        ),
        "    return [_room(x, y) for x, y in zip([pod.priority, 1], [len(node.taints), 2])]",
        "    return [_room(pod.priority, len(node.taints) + x) for x in range(4)]",
        "    return [x for x in range(_room(pod.priority, len(node.taints) * 2))]",
        "    return _room(_room(pod.priority, 1), _room(len(node.taints), 0))",
        "    return min(max(pod.priority, len(node.taints)), max(len(node.taints) + 1, 2))",
        "    return min(pod.priority / (1 + len(node.taints)), 2.0)",
        "    return max(_first(pod.priority, 2), _first(1, len(node.taints)))",
        "    return _rest(pod.priority, 6 // len(node.taints))",
        "    return _rest(6 // len(node.taints), True)",
        "    a, b = pod.priority, len(node.taints)\n    a, b = b, a\n    return [a, b]",
        "    total, a = 0, 4\n"
        "    for taint in node.taints:\n"
        "        total = total + 1 * a\n"
        "    return total",
    ],
)
@pytest.mark.parametrize("taints", [0, 1, 2, 3])
def test_what_is_written_shorter_says_the_same(body: str, taints: int) -> None:
    both = BothWays(f"{_HELPERS}\ndef among_0(pod, node):\n{body.lstrip(chr(10))}\n", 1)
    assert not isinstance(both.translated[0], str), both.translated[0]
    node = msgspec.json.encode({"taints": [_TAINT] * taints})
    want, got = both.interpret(0, _POD, node), both.run(0, _POD, node)
    assert bool(got.problem) == bool(want.problem)
    assert got.problem or got == want


def test_each_loop_over_a_list_of_the_pod_is_paid_for() -> None:
    pod = msgspec.json.encode({"labels": {str(x): "" for x in range(500)}})
    loop = "    for name in sorted(pod.labels):\n        found += len(name)\n"
    left = []
    for loops in range(3):
        start = "def among_0(pod, node):\n    found = len(node.taints)\n"
        both = BothWays(f"{start}{loop * loops}    return found\n", 1)
        assert both.run(0, pod, msgspec.json.encode({"taints": []})) == (loops * 1390, "")
        hook = both.translated[0]
        assert not isinstance(hook, str)
        left.append(hook._prepared(Call(0, "", pod))[1])
    assert left[0] > left[1] > left[2]
