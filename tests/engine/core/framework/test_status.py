"""What a step answers: its reasons are fit to be shown wherever they go."""

import pytest

from engine.core.framework.status import Code, Status
from engine.lib.printable import LONGEST_TEXT
from engine.policy.sandbox.protocol import PolicyFailure
from tests.engine.lib.hostile import HOSTILE, raw_in


@pytest.mark.parametrize("reason", [HOSTILE, "w" * 100_000, "\n", "a\nb", "\u202e" * 5_000])
def test_a_reason_is_one_printable_line_of_bounded_length(reason: str) -> None:
    (shown, other) = Status(Code.UNSCHEDULABLE, (reason, "node(s) had no room")).reasons
    assert raw_in(shown) == []
    assert "\n" not in shown
    assert len(shown) <= LONGEST_TEXT
    assert other == "node(s) had no room"


def test_equal_reasons_stay_equal() -> None:
    assert Status(Code.UNSCHEDULABLE, (HOSTILE,)) == Status(Code.UNSCHEDULABLE, (HOSTILE,))


def test_a_failure_of_a_policy_is_as_printable_whoever_sends_it() -> None:
    """A process that runs policies may be hostile: what it sends is made fit to be shown here."""
    failure = PolicyFailure("p", "filter", "p.star", 1, 1, HOSTILE, "error", HOSTILE)
    about = failure.about(f"node `{HOSTILE}`")
    assert raw_in(str(failure)) == raw_in(str(about)) == []
    assert "\nfake" not in str(failure)
