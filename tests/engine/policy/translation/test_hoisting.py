"""What is worked out of the pod beforehand: nothing of what only has its name."""

import msgspec
import pytest

from tests.engine.policy.translation.both_ways import BothWays

_POD = msgspec.json.encode({"namespace": "default", "priority": 3})
_NODE = msgspec.json.encode({"taints": [{"key": "a", "value": "", "effect": "NoExecute"}]})


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            "return [pod.priority for pod in [struct(priority = len(node.taints))]]",
            id="a comprehension",
        ),
        pytest.param(
            "return {t.key: pod.priority for t in node.taints for pod in [struct(priority = 1)]}",
            id="a comprehension of a dict",
        ),
        pytest.param(
            "made = [struct(priority = 9), struct(priority = 5)]\n"
            "    return sorted(made, key = lambda pod: pod.priority)[0].priority",
            id="a lambda",
        ),
        pytest.param(
            "found = []\n"
            "    for pod in [struct(priority = 1), struct(priority = len(node.taints))]:\n"
            "        found.append(pod.priority + 1)\n"
            "    return found",
            id="a loop",
        ),
        pytest.param(
            "pod = struct(priority = len(node.taints))\n    return -pod.priority",
            id="an assignment",
        ),
    ],
)
def test_another_value_under_the_name_of_the_pod_is_that_value(body: str) -> None:
    """The pod's own fields stood for those of what a loop called `pod`."""
    both = BothWays(f"def among_0(pod, node):\n    {body}\n", 1)
    got = both.run(0, _POD, _NODE)
    assert (got, got.problem) == (both.interpret(0, _POD, _NODE), "")


def test_what_is_read_of_the_pod_before_its_name_is_given_away_is_the_pods() -> None:
    text = (
        "def among_0(pod, node):\n"
        "    before = pod.priority + 1\n"
        "    pod = struct(priority = 7)\n"
        "    return before, pod.priority + 1\n"
    )
    both = BothWays(text, 1)
    got = both.run(0, _POD, _NODE)
    assert got.problem or got == both.interpret(0, _POD, _NODE)
