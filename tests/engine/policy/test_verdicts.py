"""The memo of verdicts: that it is bounded whatever is asked, and what it takes as a verdict."""

from collections.abc import Sequence
from typing import Any

from engine.policy.evaluator import Call
from engine.policy.verdicts import VerdictMemo


class _Answering:
    """An evaluator that gives one answer to everything."""

    def __init__(self, answer: Any = None) -> None:
        self._answer = answer

    def evaluate(self, calls: Sequence[Call]) -> list[Sequence[Any]]:
        return [[self._answer] for _ in calls]

    def close(self) -> None:
        pass


def test_large_questions_about_a_pod_alone_are_not_kept_for_ever() -> None:
    """16,384 answers are kept, and gated pods of a megabyte each filled the memory."""
    evaluator = _Answering()
    memo = VerdictMemo(evaluator, ["x"])
    for number in range(80):
        memo.single(0, "pre_enqueue", b"%d" % number + bytes(1 << 20))
        memo.node_singles([(0, "annotate", b"%d" % number + bytes(1 << 20), b"{}", b"{}")])
    asked = memo.asked
    memo.single(0, "pre_enqueue", b"79" + bytes(1 << 20))
    assert memo.asked == asked  # the newest is known
    assert memo.single_bytes < 8 << 20
    small = VerdictMemo(evaluator, ["x"])
    for number in range(20_000):
        small.single(0, "pre_enqueue", b"%d" % number)
    small.single(0, "pre_enqueue", b"5000")
    assert small.asked == 20_000
    successor = VerdictMemo(evaluator, ["x"])
    successor.reuse_from(memo, {0: 0}, {})
    assert successor.single_bytes == memo.single_bytes


def test_large_answers_are_not_kept_for_ever() -> None:
    """Only questions were counted: what 500 spread constraints count takes 15 MB, 16,384 times."""
    memo = VerdictMemo(_Answering([f"key-{number}" for number in range(20_000)]), ["x"])
    for number in range(40):
        memo.single(0, "counters", b"%d" % number)
    assert memo.single_bytes < 8 << 20
    asked = memo.asked
    memo.single(0, "counters", b"39")
    assert memo.asked == asked  # the newest is known


def test_a_token_that_no_policy_may_give_is_not_taken() -> None:
    """A sandbox may be taken over; a condition `Unschedulable` would make autoscalers buy nodes."""
    memo = VerdictMemo(_Answering(), ["x"])
    tokens = ["SoldOut", "QuotaReached", "Unschedulable", "Throttled", "sold out", "A" * 41, ""]
    codes = [memo.code(["r", ["no"], token], "x") for token in tokens]
    assert [memo.reasons.status(code).token for code in codes] == [*tokens[:2], *[""] * 5]
    assert memo.reasons.status(memo.code(["r", ["no"]], "x")).token == ""
    assert memo.reasons.status(memo.code(["u", ["no"], "SoldOut"], "x")).token == "SoldOut"
