"""A sandbox process that says what it should not, as one might that a policy has taken over."""

import contextlib
import socket
import time
from array import array
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.policy.errors import PolicyErrors
from engine.policy.evaluator import Call, Limits, PolicyFailure, program_image
from engine.policy.sandbox import warm_pool
from engine.policy.sandbox.process import SandboxEvaluator
from engine.policy.sandbox.protocol import (
    NO_SCORE,
    Answers,
    Channel,
    Greeting,
    RawAnswer,
    check_answer,
    decode_answer,
)
from tests.engine.policy.programs import per_node, per_pod, program_of

_POLICY = "def score(pod, node): return 1\n"
_LIMITS = Limits(deadline=0.5)

# Greets and answers with `frames`, which is written by the test.
_IMPOSTOR = """
import socket, sys, time
import msgspec
from engine.lib.confinement import Confinement
from engine.policy.sandbox.projected import Request
from engine.policy.sandbox.protocol import Channel, Greeting, PolicyFailure, ProgramImage, RawAnswer

def answer(verdicts = b"[1,2]", failures = (), packed = b""):
    return RawAnswer(verdicts, list(failures), (), packed)

def frame(content):
    channel._socket.sendall(len(content).to_bytes(4, "big") + content)

channel = Channel(socket.socket(fileno=int(sys.argv[1])))
channel.receiver(ProgramImage)()
channel.send(Greeting(confinement=Confinement(True, 1)))
{greeting}
channel.send(Greeting(ready=True))
receive = channel.receiver(Request)
while True:
    receive()
    {says}
"""
_FAILURE = 'PolicyFailure("x", "score", "x.star", 1, 1, "no", "error")'


def _pretend(monkeypatch: pytest.MonkeyPatch, says: str, greeting: str = "") -> None:
    program = _IMPOSTOR.format(says=says, greeting=greeting)
    program = program.replace("{", "{{").replace("}", "}}")
    monkeypatch.setattr(warm_pool, "_PROGRAM", "import sys; sys.path[:] = {path!r}\n" + program)


@pytest.mark.parametrize(
    "says",
    [
        pytest.param("channel.send([])", id="nothing, for ever"),
        pytest.param('channel.send([answer(b"[1]")])', id="too few verdicts"),
        pytest.param('channel.send([answer(b"[1,2,3]")])', id="too many verdicts"),
        pytest.param('channel.send([answer(b"7")])', id="no list"),
        pytest.param('channel.send([answer(b"[1,")])', id="no JSON"),
        pytest.param('channel.send([answer(b"[" * 9999 + b"]" * 9999)])', id="too deep"),
        pytest.param('channel._socket.sendall(b"\\xff" * 4)', id="a frame of 4 GiB"),
        pytest.param("channel._socket.sendall(bytes(range(1, 256)) * 99)", id="noise"),
        pytest.param(
            'frame(b"\\x91\\x92\\xc4\\0\\x91\\x92\\0\\x81\\xa1x" + b"\\x91" * 99999 + b"\\xc0")',
            id="too deep a failure",
        ),
        pytest.param(
            r'channel._socket.sendall(b"\0\0\0\17\x91\x94\xc4\5[1,2]\x90\x91\xa1\xff\xc4\0")',
            id="a reason that is not UTF-8",
        ),
        pytest.param('channel.send([answer(b"[]", packed=b"cut")])', id="half a number"),
        pytest.param('channel.send([answer(b"[]", packed=bytes(80))])', id="too many numbers"),
        pytest.param(
            f'channel.send([answer(b"[]", [(1, {_FAILURE})], bytes(16))])',
            id="failures beside numbers",
        ),
        pytest.param(
            'channel.send([answer(b"[null]", packed=b"\\1" * 16)])',
            id="a verdict that is not there",
        ),
        pytest.param("channel.send([answer(b'[\"a\",1]')])", id="a text for a score"),
        pytest.param('channel.send([answer(b"[1,101]")])', id="too high a score"),
        pytest.param(
            'channel.send([answer(b"[]", packed=(101).to_bytes(8, "little") * 2)])',
            id="too high scores",
        ),
        pytest.param(
            'channel.send([answer(b"[1,101]", packed=bytes(8) + b"\\1" + bytes(7))])',
            id="too high a score in a place",
        ),
        pytest.param('channel.send([answer(b"[1,99999999999999999999]")])', id="too long an int"),
        pytest.param(
            'channel.send([answer(b"[1,null]", [(1, PolicyFailure('
            '"another", "score", "x.star", 1, 1, "no", "error"))])])',
            id="a failure of another policy",
        ),
        pytest.param(
            'channel.send([answer(b"[1,null]", [(1, PolicyFailure('
            '"x", "score", "x.star", 1, 1, "no", "made up"))])])',
            id="a failure of no kind",
        ),
        pytest.param(
            f"channel.send([answer(failures=[(-1, {_FAILURE})])])", id="a failure of nobody"
        ),
    ],
)
def test_what_is_no_answer_costs_the_process_and_its_call(
    monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    """Such an answer came out as verdicts of the wrong number, or ended the caller."""
    _pretend(monkeypatch, says)
    with SandboxEvaluator(program_of(_POLICY, limits=_LIMITS)) as evaluator:
        (verdicts,) = evaluator.evaluate([per_node("score", {}, {})])
        assert len(verdicts) == 2
        assert isinstance(verdicts[1], PolicyFailure)
        assert 1 <= evaluator.restarts <= 4


def test_a_failure_next_to_numbers_is_not_an_answer_without_a_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The failure excused a null, and was left out: a pod's place in the queue was None."""
    failure = _FAILURE.replace("score", "queue_key")
    _pretend(monkeypatch, f'channel.send([answer(b"[null]", [(0, {failure})], bytes(8))])')
    policy = "def queue_key(pod): return 1\n"
    with SandboxEvaluator(program_of(policy, limits=_LIMITS)) as evaluator:
        ((verdict,),) = evaluator.evaluate([per_pod("queue_key")])
        assert isinstance(verdict, PolicyFailure)


def test_more_answers_than_were_asked_for_cost_the_process_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _pretend(monkeypatch, "channel.send([answer()] * 3)")
    with SandboxEvaluator(program_of(_POLICY, limits=_LIMITS)) as evaluator:
        assert evaluator.evaluate([per_node("score", {}, {})]) == [[1, 2]]
        assert evaluator.restarts == 1


@pytest.mark.parametrize(
    ("kind", "announced"),
    [
        pytest.param(Answers, b"\xdd\x00\x10\x00\x00", id="a million answers"),
        pytest.param(Answers, b"\x91\x92\xc4\x00\xdd\x00\x10\x00\x00", id="failures"),
        pytest.param(Answers, b"\x91\x93\xc4\x00\x90\xdd\x00\x10\x00\x00", id="reasons"),
        pytest.param(Greeting, b"\x81\xa8problems\xdd\x00\x10\x00\x00", id="problems"),
    ],
)
def test_objects_without_number_are_refused_before_they_are_made(
    kind: Any, announced: bytes
) -> None:
    """Sixteen million answers fit into a frame, and took 2.5 GB of the scheduler's memory."""
    with pytest.raises(msgspec.ValidationError, match="length <="):
        msgspec.msgpack.decode(announced, type=kind)


_CALLS = [per_node("filter", {}, {}), per_node("score", {}, {})]
_IMAGE = program_image(program_of("def filter(pod, node): pass\n" + _POLICY))
_VERDICTS = [b"[]", b"[null,null]", b'[["r",["no"]],null]', b"[7,100]", b"[7]", b"[1,2,3]", b"7"]
_FAILURES = [
    (place, PolicyFailure("x", hook, "x.star", 1, 1, "no", "error"))
    for place in (-1, 0, 1, 2)
    for hook in ("filter", "score")
]
_ANSWERS = st.builds(
    RawAnswer,
    st.sampled_from(_VERDICTS) | st.binary(max_size=20),
    st.just([]) | st.lists(st.sampled_from(_FAILURES), max_size=2),
    st.sampled_from([[], ["no"]]),
    st.lists(st.sampled_from([-1, 0, 1, 2, 100, 101, NO_SCORE]), max_size=3).map(
        lambda numbers: array("q", numbers).tobytes()
    )
    | st.binary(max_size=20),
    st.integers(-(1 << 63), (1 << 64) - 1),
)


@given(
    st.sampled_from(_CALLS),
    _ANSWERS,
    st.just([])
    | st.lists(st.tuples(st.integers(0, 99), st.integers(0, 3), st.binary(max_size=8)), max_size=2),
)
@settings(max_examples=max(250, settings().max_examples))
def test_whatever_a_frame_has_is_an_answer_or_an_error_of_the_frame(
    call: Call, answer: RawAnswer, edits: list[tuple[int, int, bytes]]
) -> None:
    """The sender made up the answer, and then a few of its bytes."""
    content = bytearray(msgspec.msgpack.encode([answer]))
    for at, gone, new in edits:
        content[at : at + gone] = new
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(len(content).to_bytes(4, "big") + content)
        with contextlib.suppress(msgspec.DecodeError):
            for one in Channel(ours).receiver(Answers)():
                check_answer(one, call, 2, _IMAGE)
                assert len([*decode_answer(one)]) == 2


def test_an_answer_that_drips_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte began the deadline anew, so that a decision could take days."""
    says = (
        "frame = msgspec.msgpack.encode([answer()])\n"
        '    for byte in len(frame).to_bytes(4, "big") + frame:\n'
        "        channel._socket.sendall(bytes([byte]))\n"
        "        time.sleep(0.2)"
    )
    _pretend(monkeypatch, says)
    with SandboxEvaluator(program_of(_POLICY, limits=_LIMITS)) as evaluator:
        began = time.monotonic()
        (verdicts,) = evaluator.evaluate([per_node("score", {}, {})])
        assert time.monotonic() - began < 3.0
        assert isinstance(verdicts[0], PolicyFailure)
        assert verdicts[0].kind == "deadline"


@pytest.mark.parametrize(
    "greeting",
    [
        pytest.param("channel.send(Greeting(loading=7))", id="an instance that is not there"),
        pytest.param(
            "while True:\n    channel.send(Greeting(loading=0))\n    time.sleep(0.1)", id="for ever"
        ),
        pytest.param('frame(b"\\x81\\xa8problems\\x91\\x81\\xa1x\\x01")', id="no problem of ours"),
        pytest.param('frame(b"\\x81\\xa1x" + b"\\x91" * 99999 + b"\\xc0")', id="too deep"),
    ],
)
def test_a_greeting_that_is_none_is_a_load_that_failed(
    monkeypatch: pytest.MonkeyPatch, greeting: str
) -> None:
    _pretend(monkeypatch, "pass", greeting)
    with pytest.raises(PolicyErrors, match="sent what is no answer"):
        SandboxEvaluator(program_of(_POLICY, limits=_LIMITS))
