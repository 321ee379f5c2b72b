"""The child process in which the tests of a candidate bundle run.

Owns its own confinement and the loop over the tests; the parent is `process`. The request is
one JSON document on stdin. Progress is reported in JSON lines on stdout, each test before it runs,
so that the parent knows which one ended the child.
"""

import resource
import signal
import sys
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import numpy.ma  # noqa: F401  # numpy loads it when first needed, and then no file can be opened

from engine.core.manifests.schema import read_document
from engine.lib.address_space import be_ended_first
from engine.lib.confinement import confine
from engine.lib.time_zones import read_zones
from engine.policy.bundle import build_bundle
from engine.policy.config import decode_configuration
from engine.policy.errors import PolicyErrors, Problem
from engine.policy.file_names import STARLARK_SUFFIX
from engine.policy.shipped import shipped_files
from engine.testing.fixtures import GivenFiles
from engine.testing.runner import PolicyTest, PolicyTestResult, PolicyTestRunner, discover

# The parent kills a late test before this is over; it is for a child that has lost its parent.
_ALARM_SECONDS: Final = 10.0
_LOAD_SECONDS: Final = 60.0


class Request(msgspec.Struct, frozen=True):
    """What to run, but for the tests and cases that are *done* (`file::name`)."""

    files: dict[str, str]
    config: str | None
    seconds: float
    address_space: int
    done: list[str]


class Announcement(msgspec.Struct, frozen=True, tag="runs"):
    """The test or case that runs next; `is_last` says that there is none.

    A table of cases is announced before its cases are known: finding them runs its file.
    """

    file: str = ""
    name: str = ""
    line: int = 0
    is_last: bool = False


class Report(msgspec.Struct, frozen=True, tag="ran"):
    """The result of the test that was announced."""

    result: PolicyTestResult


class Refusal(msgspec.Struct, frozen=True, tag="refused"):
    """Why the files do not make a bundle."""

    problems: list[Problem]


def main() -> None:
    """Read the request, confine this process, run the tests, report the results."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    # What is read now: no file can be opened later.
    shipped_files()
    read_document()
    for name, text in {**request.files, "": request.config or ""}.items():
        if not name.endswith(STARLARK_SUFFIX):
            read_zones(text)
    _confine(request.address_space)
    signal.setitimer(signal.ITIMER_REAL, _LOAD_SECONDS)
    run(request, sys.stdout.buffer)


def run(request: Request, sink: BinaryIO) -> None:
    """Run the tests of *request* and report to *sink*."""
    try:
        config = None if request.config is None else decode_configuration(request.config)
        bundle = build_bundle(request.files, config)
    except PolicyErrors as error:
        _report(sink, Refusal(error.problems))
        return
    runner = PolicyTestRunner(
        bundle, seconds=request.seconds, files=lambda _: GivenFiles(request.files)
    )
    done = set(request.done)
    for test in discover(bundle):
        if str(test) in done:
            continue
        _announce(test, sink, request.seconds)
        for case in runner.expand(test):
            if str(case) in done:
                continue
            if case is not test:
                _announce(case, sink, request.seconds)
            _report(sink, Report(runner.run(case)))
    _report(sink, Announcement(is_last=True))


def _announce(case: PolicyTest, sink: BinaryIO, seconds: float) -> None:
    _report(sink, Announcement(case.file, case.title, case.line))
    # Whatever the interpreter is doing, the kernel ends it, also without a parent.
    signal.setitimer(signal.ITIMER_REAL, seconds + _ALARM_SECONDS)


def _report(sink: BinaryIO, message: msgspec.Struct) -> None:
    sink.write(msgspec.json.encode(message) + b"\n")
    sink.flush()


def _confine(address_space: int) -> None:
    """Irrevocably take from this process what tests do not need.

    It has *address_space* bytes in addition to what is in use; fewer if the machine has no more,
    because the kernel then kills this process first.
    """
    if sys.platform != "linux":
        return  # a workstation; clusters run Linux
    be_ended_first()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    confine(pages * resource.getpagesize() + address_space)
