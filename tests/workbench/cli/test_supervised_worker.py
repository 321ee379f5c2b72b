"""A function computed by a supervised worker."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow("runs commands")

# In a process of its own: a test's may have threads, and is not to be forked.
_PROGRAM = """
import os, signal
from workbench.cli.supervised_worker import PolicyEndedError, SupervisedWorker
from engine.policy import current_hook

asked = []

def function(question):
    asked.append(question)
    if question == "fails":
        raise ValueError("no such thing")
    if question == "crashes":
        with current_hook.at(current_hook.CALL, "x.star:1: filter()"):
            os.kill(os.getpid(), signal.SIGSEGV)
    return len(asked), os.getpid()

worker = SupervisedWorker(function)
(first, pid), (second, same) = worker.ask("a"), worker.ask("b")
print(first, second, pid == same != os.getpid())
for question in ("fails", "crashes", "a"):
    try:
        worker.ask(question)
    except (ValueError, PolicyEndedError) as error:
        print(type(error).__name__, error)
"""

CRASHED = "x.star:1: filter() crashed the interpreter, probably by values that nest too deeply"


def test_a_worker_keeps_its_state_and_reports_why_it_exited() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "1 2 True",
        "ValueError no such thing",
        f"PolicyEndedError {CRASHED}",
        f"PolicyEndedError {CRASHED}",
    ]
