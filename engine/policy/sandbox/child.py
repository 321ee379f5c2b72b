"""The sandbox process: drops its privileges, loads a program, answers calls.

Owns when the process confines itself (see `lib.confinement`): before any policy text is read, and
the parent is told what is in force before that, too. It has no descriptor but the socket, knows the
program and nothing else; when it exits for any reason, the parent starts another one with the same
program.

Started as `python -I -S -c "...; main()"` with a path and a socket as arguments; see `process`.
"""

import contextlib
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Final

from engine.lib.address_space import be_ended_first
from engine.lib.confinement import confine
from engine.lib.parent_death import die_with
from engine.policy.errors import PolicyErrors
from engine.policy.sandbox.projected import Inbox, Request
from engine.policy.sandbox.protocol import (
    Call,
    Channel,
    ChannelClosedError,
    Greeting,
    ProgramImage,
    Progress,
    RawAnswer,
)
from engine.policy.sandbox.worker import PolicyWorker

# The parent kills at the deadline. If there is no parent any more, the kernel does at this many
# times the deadline, whatever the interpreter is busy with.
_ALARM_FACTOR: Final = 3
_ALARM_SECONDS: Final = 5.0
# Answers wait for each other no longer than this.
_FLUSH_SECONDS: Final = 0.005


def main() -> None:
    """Serve the socket that the first argument numbers until the parent closes it.

    The second numbers the shared memory of `Progress`; the third is the process to die with, or 0.
    """
    descriptor, parent = int(sys.argv[1]), int(sys.argv[3])
    progress = Progress(int(sys.argv[2]))
    be_ended_first()
    _drop_descriptors(descriptor)
    # Control-C at a terminal reaches the whole group; the parent decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if parent:
        die_with(parent)
    channel = Channel(socket.socket(fileno=descriptor))
    with contextlib.suppress(ChannelClosedError):  # the parent is done, or gone
        _serve(channel, progress)
    os._exit(0)


def _drop_descriptors(kept: int) -> None:
    os.chdir("/")
    os.closerange(3, kept)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.closerange(kept + 1, min(limit, 65_536) if limit > 0 else 65_536)


def _serve(channel: Channel, progress: Progress) -> None:
    # Making decoders imports modules, so all are made while files can still be opened.
    receive = channel.receiver(Request)
    image: ProgramImage = channel.receiver(ProgramImage)()
    # Sent before there is text that could have it forged.
    channel.send(Greeting(confinement=confine(image.limits.address_space)))
    alarm = image.limits.deadline * _ALARM_FACTOR + _ALARM_SECONDS
    try:
        signal.setitimer(signal.ITIMER_REAL, alarm * max(1, len(image.instances)))
        worker = PolicyWorker(image, on_load=lambda index: channel.send(Greeting(loading=index)))
    except PolicyErrors as errors:
        channel.send(Greeting(problems=errors.problems))
        return
    channel.send(Greeting(ready=True))
    inbox = Inbox()
    while True:
        signal.setitimer(signal.ITIMER_REAL, 0)
        request: Request = receive()
        signal.setitimer(signal.ITIMER_REAL, alarm * max(1, len(request.calls)))
        calls = inbox.calls(request)
        if request.one_by_one:
            for call in calls:
                for answer in worker.evaluate_each(call):
                    channel.send([answer])
        else:
            _answer(channel, progress, worker, calls, is_timed=request.is_timed)


def _answer(
    channel: Channel,
    progress: Progress,
    worker: PolicyWorker,
    calls: Sequence[Call],
    *,
    is_timed: bool,
) -> None:
    """Answer *calls*; answers are sent together, but are not held back for long."""
    answers: list[RawAnswer] = []
    sent_at = began_at = time.monotonic()
    for index, call in enumerate(calls):
        progress.position = index
        answer = worker.evaluate(call)
        now = time.monotonic()
        if is_timed:
            answer = answer._replace(nanoseconds=int((now - began_at) * 1e9))
        answers.append(answer)
        began_at = now
        if now - sent_at > _FLUSH_SECONDS:
            channel.send(answers)
            answers, sent_at = [], now
    if answers:
        channel.send(answers)
