import subprocess
import sys

import pytest

from devkit.benchmarks.processes import usage_of

pytestmark = pytest.mark.slow("runs a bench")

# Burns CPU and memory in a child, says so, and waits.
_PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", '''
import sys, time
block = b"x" * (64 << 20)
while time.process_time() < 0.3: pass
print("ready", flush=True)
sys.stdin.read()
'''], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print("ready", flush=True)
sys.stdin.read()
child.communicate()
"""


def test_children_count_with_their_parent() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        usage = usage_of(process.pid)
        process.communicate()
    assert usage.processes == 2
    assert usage.cpu_seconds >= 0.3
    assert usage.peak_mib >= 64


def test_a_process_that_is_gone_uses_nothing() -> None:
    assert usage_of(2**22 + 1).processes == 0
