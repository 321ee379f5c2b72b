"""Projections that both sides of the border know by number."""

import random
from array import array

import msgspec

from engine.policy.evaluator import Call, InProcessEvaluator, Instance, Limits, Program
from engine.policy.sandbox.process import SandboxEvaluator
from engine.policy.sandbox.projected import Inbox, Outbox, Projected, Request

_POLICY = """
def filter(pod, node):
    if node.pod_count > 3:
        return "full"
    return None

def score(pod, node):
    return 100 * node.requested.get("cpu", 0) // node.allocatable["cpu"]
"""


def _column(size: int) -> list[bytes]:
    return [
        msgspec.json.encode(
            {"allocatable": {"cpu": 100 + i}, "pod_count": i % 5, "requested": {"cpu": i % 90}}
        )
        for i in range(size)
    ]


def _program(limits: Limits | None = None) -> Program:
    return Program({"p.star": _POLICY}, (Instance("p", "p.star"),), limits or Limits())


def _sent(outbox: Outbox, inbox: Inbox, calls: list[Call]) -> list[Call]:
    """*calls* on the other side."""
    text = msgspec.msgpack.encode(outbox.request(calls))
    return inbox.calls(msgspec.msgpack.decode(text, type=Request))


def test_some_projections_of_a_column_read_like_a_list() -> None:
    values = _column(10)
    some = Projected(7, values, array("i", [3, 1, 3]))
    assert list(some) == [values[3], values[1], values[3]]
    assert len(some) == 3
    assert some[1] == values[1]
    assert some[1:] == [values[1], values[3]]
    assert some == [values[3], values[1], values[3]]


def test_the_other_side_sees_what_was_sent_whatever_was_forgotten() -> None:
    chance = random.Random(1)
    columns = [_column(chance.randrange(1, 5)) for _ in range(4)]
    outbox, inbox = Outbox(6_000), Inbox()
    forgotten = 0
    for _ in range(200):
        calls = []
        for number, values in enumerate(columns):
            if chance.random() < 0.5:
                values.extend(_column(chance.randrange(3)))
            ids = array("i", [chance.randrange(len(values)) for _ in range(3)])
            calls.append(Call(0, "score", b"{}", Projected(number, values, ids)))
        request = outbox.request(calls)
        forgotten += request.forgets
        text = msgspec.msgpack.encode(request)
        got = inbox.calls(msgspec.msgpack.decode(text, type=Request))
        assert [list(call.nodes or ()) for call in got] == [list(c.nodes or ()) for c in calls]
    assert forgotten > 2


def test_what_is_known_is_not_sent_again() -> None:
    values = _column(50)
    outbox, inbox = Outbox(1 << 20), Inbox()
    call = Call(0, "score", b"{}", Projected(1, values, array("i", range(50))))
    first = len(msgspec.msgpack.encode(outbox.request([call])))
    again = len(msgspec.msgpack.encode(outbox.request([call])))
    assert again < first / 10
    _sent(Outbox(1 << 20), inbox, [call])


def test_more_than_may_be_kept_is_sent_as_it_is() -> None:
    values = _column(50)
    outbox, inbox = Outbox(1_000), Inbox()
    call = Call(0, "score", b"{}", Projected(1, values, array("i", range(50))))
    (got,) = _sent(outbox, inbox, [call])
    assert got.nodes == values
    assert not inbox._columns


def test_the_answers_are_those_to_plain_lists_also_by_a_new_child() -> None:
    values = _column(300)
    chance = random.Random(2)
    plain = InProcessEvaluator(_program(), translates=False)
    with SandboxEvaluator(_program()) as sandbox:
        for step in range(12):
            ids = array("i", [chance.randrange(len(values)) for _ in range(40)])
            some = Projected(3, values, ids)
            calls = [Call(0, hook, b"{}", some) for hook in ("filter", "score")]
            want = plain.evaluate([call._replace(nodes=list(some)) for call in calls])
            assert [list(got) for got in sandbox.evaluate(calls)] == [list(w) for w in want]
            values.extend(_column(300 + 5 * step)[-5:])
            if step == 6:
                sandbox._children[0].end()  # another one takes over, and knows nothing yet
