"""Frames that a sandbox process sends, which runs policies and may be hostile."""

import functools
import socket
from collections.abc import Callable
from typing import Any, Final

import msgspec

from engine.policy.evaluator import Call, PolicyFailure, program_image
from engine.policy.sandbox.parts import entry_count
from engine.policy.sandbox.protocol import (
    Channel,
    ChannelClosedError,
    Greeting,
    ProgramImage,
    RawAnswer,
    check_answer,
    decode_answer,
    unpacked,
)
from tests.engine.policy.programs import named, per_node, per_pod, program_of

_POLICY: Final = """
def filter(pod, node): return None
def score(pod, node): return 1
def normalize(score, over): return score
def queue_key(pod): return 1
def counters(pod): return []
def pre_filter(pod, cluster): return None
"""
_CALLS: Final = (
    per_node("filter", *named("a", "b", "c")),
    per_node("score", *named("a", "b", "c")),
    per_node("normalize", 1, 2, 3),
    per_pod("queue_key"),
    per_pod("counters"),
    per_pod("pre_filter"),
)


@functools.cache
def _image() -> ProgramImage:
    return program_image(program_of(_POLICY))


def run(data: bytes) -> None:
    """Read *data* as a greeting and as answers, and use what is let through."""
    for kind in (Greeting, list[RawAnswer]):
        ours, theirs = socket.socketpair()
        channel = Channel(ours, 1 << 24)
        channel.wait_at_most(5.0)
        receive = channel.receiver(kind)
        try:
            theirs.setblocking(False)
            theirs.sendall(data)
            theirs.close()
            while True:
                for answer in _answers(receive):
                    for call in _CALLS:
                        _use(answer, call)
        except ChannelClosedError:
            pass
        finally:
            theirs.close()
            channel.close()


def _answers(receive: Callable[[], Any]) -> list[RawAnswer]:
    """The next answers; none for a frame that is refused, or that holds a greeting."""
    try:
        received = receive()
    except msgspec.DecodeError:
        return []
    return received if isinstance(received, list) else []


def _use(answer: RawAnswer, call: Call) -> None:
    try:
        check_answer(answer, call, entry_count(call), _image())
    except msgspec.DecodeError:
        return
    verdicts = list(decode_answer(answer))
    assert len(verdicts) == entry_count(call)
    assert list(decode_answer(unpacked(answer))) == verdicts
    for verdict in verdicts:
        if isinstance(verdict, PolicyFailure):
            str(verdict.about("node `a`"))
