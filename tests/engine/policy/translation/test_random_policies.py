"""Random functions, as Python and in the interpreter: the same value, or none from Python."""

import os
import random
from typing import Final

import msgspec
import pytest

from engine.policy.errors import PolicyErrors
from tests.engine.policy.translation.both_ways import BothWays
from tests.engine.policy.translation.random_policies import Policy
from tests.engine.policy.translation.views import Values

_FUNCTIONS: Final = 8
_PAIRS: Final = 3
_NODE: Final = (
    "name", "labels[zone]", "allocatable", "taints", "pod_count", "unschedulable", "facts[x]",
    "device_shares[x]",
)  # fmt: skip
_POD: Final = ("namespace", "priority", "host_network", "node_affinity", "scheduling_gates")


@pytest.mark.slow("compares much")
def test_random_functions_give_the_same_values() -> None:
    """`TRANSLATION_SEED` and `TRANSLATION_FILES` search elsewhere and longer."""
    first = int(os.environ.get("TRANSLATION_SEED", "1"))
    count = int(os.environ.get("TRANSLATION_FILES", "100"))
    same = 0
    for seed in range(first, first + count):
        chance = random.Random(seed)
        text = Policy(chance, _FUNCTIONS).text
        try:
            both = BothWays(text, _FUNCTIONS)
        except PolicyErrors:
            continue
        for index, hook in enumerate(both.translated):
            if isinstance(hook, str):
                continue
            for _ in range(_PAIRS):
                values = Values(chance)
                # Nodes come with their keys in order, pods as they may.
                node = msgspec.json.encode(values.view("node", _NODE), order="deterministic")
                pod = msgspec.json.encode(values.view("pod", _POD))
                got = both.run(index, pod, node)
                if got.problem:
                    continue
                want = both.interpret(index, pod, node)
                assert repr(got) == repr(want), (
                    f"seed {seed}: among_{index} of {text}{pod!r} {node!r}"
                )
                same += 1
    assert same > 4 * count
