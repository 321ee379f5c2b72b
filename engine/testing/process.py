"""Runs the tests of a candidate bundle in a confined child process.

Owns the child process: what it is given, how long it may take, and the report of a test that ends
it. The child has no credentials, no environment, no descriptors but its pipes, and bounded memory.
A test that hangs or takes all memory fails, and the others go on in a new child.
"""

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import structlog

from engine.lib.deep_json import UNREADABLE
from engine.lib.stopping import never
from engine.testing.child import Announcement, Refusal, Report, Request
from engine.testing.runner import TEST_SECONDS, PolicyTestResult

MIB: Final = 1 << 20

# In addition to what the interpreter and its modules take.
ADDRESS_SPACE: Final = 512 * MIB
# To start, to import and to build the bundle.
_START_SECONDS: Final = 30.0
# How often a run checks whether it should stop.
_LOOK_SECONDS: Final = 0.2
# A child stops a slow test by itself; only one that cannot be interrupted gets beyond this.
_GRACE_SECONDS: Final = 2.0
_READ_BYTES: Final = 1 << 16
# Of all children of a run; most reports have a few hundred.
_MOST_REPORT_BYTES: Final = 16 * MIB

_PROGRAM: Final = (
    "import sys; sys.path[:] = {path!r}; from engine.testing.child import main; main()"
)

# The name of the result that says why no test could run.
LOADING: Final = "loading"

_TOO_LATE: Final = "took longer than {seconds:g} s, in a call that cannot be interrupted"
_NO_MEMORY: Final = "ended the sandbox: it exceeded the memory limit"
_NO_REPORT: Final = "ended the sandbox: it sent what is no report"
_TOO_MUCH: Final = f"ended the sandbox: it reported more than {_MOST_REPORT_BYTES // MIB} MiB"

log = structlog.get_logger(component="tests")

_decoder = msgspec.json.Decoder(Announcement | Report | Refusal)


def run_tests_confined(
    user_files: Mapping[str, str],
    config: str | None = None,
    *,
    seconds: float = TEST_SECONDS,
    total_seconds: float = 120.0,
    address_space: int = ADDRESS_SPACE,
    is_stopped: Callable[[], bool] = never,
) -> list[PolicyTestResult]:
    """Run all tests of *user_files* (with the text *config* as their configuration) in a child.

    Blocks until they are done. After *total_seconds*, or soon after *is_stopped* says so, the test
    that runs then fails and the rest is not run. Tests that need files which are not among
    *user_files* are skipped: they say nothing about the policies. Files that do not make a bundle,
    or are not understood within memory and time, are failed results of the name `LOADING`, one per
    problem.
    """
    deadline = time.monotonic() + total_seconds
    results: list[PolicyTestResult] = []
    most_bytes = _MOST_REPORT_BYTES
    while True:
        done = [f"{result.file}::{result.name}" for result in results]
        request = Request(dict(user_files), config, seconds, address_space, done)
        child = _Child(request, deadline, is_stopped, most_bytes)
        try:
            is_done = child.collect(results)
        finally:
            child.kill()
        most_bytes = child.most_bytes
        if is_done or most_bytes < 0 or time.monotonic() > deadline or is_stopped():
            for one in results:
                if one.skipped:
                    log.warning("Skipped test", file=one.file, test=one.name, reason=one.skipped)
            return results


class _Child:
    """One child process, from its start to the end of its tests or of itself.

    It runs text that is not trusted: of what it reports, no more than *most_bytes* are read.
    """

    def __init__(
        self,
        request: Request,
        deadline: float,
        is_stopped: Callable[[], bool],
        most_bytes: int,
    ) -> None:
        self.most_bytes = most_bytes
        self._request = request
        self._deadline = deadline
        self._is_stopped = is_stopped
        self._buffer = bytearray()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _PROGRAM.format(path=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # One thread in numpy: each would reserve address space of its own.
            env={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            cwd="/",
        )

    def collect(self, results: list[PolicyTestResult]) -> bool:
        """Append the results as they come; False if a test ended the child before the others."""
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(msgspec.json.encode(self._request))
            self._process.stdin.close()
        except OSError:
            pass  # it has ended already: the reading below says so
        running: Announcement | None = None
        while True:
            patience = _START_SECONDS if running is None else self._request.seconds + _GRACE_SECONDS
            try:
                line = self._read_line(min(self._deadline, time.monotonic() + patience))
                if not line:
                    how = _TOO_LATE if line is None else _NO_MEMORY
                    results.append(self._blame(running, how))
                    return running is None
                message = _decoder.decode(line)
            except UNREADABLE:
                how = _TOO_MUCH if self.most_bytes < 0 else _NO_REPORT
                results.append(self._blame(running, how))
                return running is None
            if isinstance(message, Refusal):
                results += [_unloaded(p.file, p.line, p.message) for p in message.problems]
                return True
            if isinstance(message, Announcement):
                if message.is_last:
                    return True
                running = message
            else:
                results.append(message.result)

    def kill(self) -> None:
        """End the child, whatever it does."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _blame(self, running: Announcement | None, how: str) -> PolicyTestResult:
        """Report *how* the child ended: in the test that ran, or while it loaded the files."""
        if running is None:
            what = "took too long" if how == _TOO_LATE else how.rpartition(": it ")[2]
            return _unloaded("", 0, f"the files {what}")
        message = how.format(seconds=self._request.seconds)
        return PolicyTestResult(running.file, running.name, running.line, False, 0.0, message)

    def _read_line(self, until: float) -> bytes | None:
        """The next line; empty at the end of the child, None when it is *until* or to stop.

        Raises `msgspec.DecodeError` when the child has sent more than may be read.
        """
        assert self._process.stdout is not None
        stream = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                left = until - time.monotonic()
                if left <= 0 or self._is_stopped():
                    return None
                if not selector.select(min(left, _LOOK_SECONDS)):
                    continue
                chunk = os.read(stream, _READ_BYTES)
                if not chunk:
                    return b""
                self._buffer += chunk
                self.most_bytes -= len(chunk)
                if self.most_bytes < 0:
                    raise msgspec.DecodeError("more than reports take")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return bytes(line)


def _unloaded(file: str, line: int, message: str) -> PolicyTestResult:
    return PolicyTestResult(file, LOADING, line, False, 0.0, message)
