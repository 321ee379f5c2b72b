"""The text of a pod that fits nowhere."""

import pytest

from engine.core.framework.status import Code, Status
from engine.core.scheduling.diagnosis import Diagnosis

CPU = Status(Code.UNSCHEDULABLE, ("Insufficient cpu",), "NodeResourcesFit")
BOTH = Status(Code.UNSCHEDULABLE, ("Insufficient cpu", "Insufficient memory"), "NodeResourcesFit")
TAINT = Status(Code.UNRESOLVABLE, ("node(s) had untolerated taint(s)",), "TaintToleration")


@pytest.mark.parametrize(
    ("diagnosis", "want"),
    [
        pytest.param(
            Diagnosis(5, rejections={CPU: 3, TAINT: 2}),
            "0/5 nodes are available: 2 node(s) had untolerated taint(s), 3 Insufficient cpu.",
            id="entries are sorted as text",
        ),
        pytest.param(
            Diagnosis(12, rejections={CPU: 10, TAINT: 2}),
            "0/12 nodes are available: 10 Insufficient cpu, 2 node(s) had untolerated taint(s).",
            id="also when that is not by number",
        ),
        pytest.param(
            Diagnosis(3, rejections={CPU: 1, BOTH: 2}),
            "0/3 nodes are available: 2 Insufficient memory, 3 Insufficient cpu.",
            id="a node counts once for each of its reasons",
        ),
        pytest.param(Diagnosis(0), "no nodes available to schedule pods", id="no nodes"),
        pytest.param(
            Diagnosis(4, pre_filter=Status(Code.UNRESOLVABLE, ("not today",), "Shop")),
            "0/4 nodes are available: not today.",
            id="a pre-filter speaks for all nodes",
        ),
        pytest.param(
            Diagnosis(1, rejections={CPU: 1}, post_filter="preemption: no."),
            "0/1 nodes are available: 1 Insufficient cpu. preemption: no.",
            id="preemption has the last word",
        ),
    ],
)
def test_the_message_is_kube_schedulers(diagnosis: Diagnosis, want: str) -> None:
    assert diagnosis.message() == want


def test_rejectors_are_all_policies_that_rejected() -> None:
    assert Diagnosis(3, rejections={CPU: 2, TAINT: 1}).rejectors == {
        "NodeResourcesFit",
        "TaintToleration",
    }
