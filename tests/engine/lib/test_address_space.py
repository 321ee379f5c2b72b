"""Limits on memory: the lower of what is wanted and what whoever started the process allows."""

import subprocess
import sys

import pytest

MIB = 1 << 20

# The limit of a sandbox, and whether the tests of a policy run, in a process that is allowed less
# than both want.
_LIMITED = f"""
import resource

resource.setrlimit(resource.RLIMIT_AS, ({600 * MIB}, {600 * MIB}))
from engine.testing.process import run_tests_confined
from engine.policy.evaluator import Instance, Limits, Program
from engine.policy.sandbox.process import SandboxEvaluator

program = Program(
    {{"x.star": "def score(pod, node): return 1"}},
    (Instance("x", "x.star", {{}}),),
    Limits(address_space={900 * MIB}),
)
with SandboxEvaluator(program) as evaluator:
    print(resource.prlimit(evaluator.pid, resource.RLIMIT_AS)[1] // {MIB})
files = {{"x_test.star": "def test_it():\\n    pass\\n"}}
print(run_tests_confined(files, address_space={900 * MIB})[0].passed)
"""


@pytest.mark.slow("computes for long")
def test_policies_run_where_less_may_be_mapped_than_they_are_given() -> None:
    """The sandbox ended with `not allowed to raise maximum limit`, and with it the scheduler.

    Root is allowed to raise it, and did.
    """
    ended = subprocess.run(
        [sys.executable, "-c", _LIMITED], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stdout.split() == ["600", "True"], ended.stderr
