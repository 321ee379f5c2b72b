"""What of failed attempts becomes one line of the log, and what becomes none."""

from typing import Any

import pytest

from engine.core.framework.reasons import Reason
from engine.core.kernel.instructions import ReportFailure
from engine.core.model.pod import Pod
from engine.core.scheduling.placement import Rejection
from engine.io.binding.failure_groups import INTERVAL_SECONDS, MOST_CLASSES, FailureGroups
from tests.builders import make_pod

CPU, PORTS = Reason("InsufficientResources"), Reason("PortConflict")


def failure(pod: Pod, reason: Reason = CPU, *, is_error: bool = False, **words: Any) -> Any:
    rejection = Rejection(
        "why", is_error, reason=reason, is_reported=words.pop("is_reported", True)
    )
    common = {"profile": "p", "revision": "r", "started_at": 0.0, "is_queued": True}
    return ReportFailure(pod, rejection, 1, "new pod", **{**common, **words})


def taken(groups: FailureGroups) -> list[tuple[str, str, int]]:
    return [
        (group.example.pod.name, group.example.rejection.reason.token, len(group.uids))
        for group in groups.take()
    ]


def test_equal_pods_are_one_group_for_each_reason() -> None:
    groups = FailureGroups()
    for i in range(100):
        groups.add(failure(make_pod(f"web-{i}", cpu=1)), 0.0)
        groups.add(failure(make_pod(f"large-{i}", cpu=9)), 0.0)
    groups.add(failure(make_pod("web-0", cpu=1), PORTS), 0.0)
    groups.add(failure(make_pod("web-1", cpu=1), is_error=True), 0.0)
    assert taken(groups) == [
        ("web-0", CPU.token, 100),
        ("large-0", CPU.token, 100),
        ("web-0", PORTS.token, 1),
        ("web-1", CPU.token, 1),
    ]
    assert taken(groups) == []


def test_a_pod_that_fails_twice_for_two_reasons_and_the_first_again_counts_once() -> None:
    groups, pod = FailureGroups(), make_pod("web")
    for reason in (CPU, PORTS, CPU):
        groups.add(failure(pod, reason), 0.0)
    assert taken(groups) == [("web", CPU.token, 1), ("web", PORTS.token, 1)]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param({"is_repeat": True}, id="the same reason as before"),
        pytest.param({"is_queued": False}, id="the pod is gone"),
        pytest.param({"is_reported": False}, id="it concerns no user"),
    ],
)
def test_what_is_no_news_is_in_no_group(words: dict[str, Any]) -> None:
    groups = FailureGroups()
    groups.add(failure(make_pod("web"), **words), 0.0)
    assert taken(groups) == []


def test_groups_are_due_once_an_interval_has_passed_since_the_first_failure() -> None:
    groups = FailureGroups()
    for start in (5.0, 105.0):
        groups.add(failure(make_pod("a")), start)
        groups.add(failure(make_pod("b", cpu=1)), start + INTERVAL_SECONDS - 1)
        assert not groups.take_due(start + INTERVAL_SECONDS - 0.01)
        assert len(groups.take_due(start + INTERVAL_SECONDS)) == 2
        assert not groups.take_due(start + 3 * INTERVAL_SECONDS)


def test_pods_that_all_differ_go_together_by_reason_and_those_of_too_many_reasons_as_others() -> (
    None
):
    groups = FailureGroups()
    for i in range(1_000):
        groups.add(failure(make_pod(f"web-{i}", cpu=i + 1)), 0.0)
    assert [count for *_, count in taken(groups)] == [1] * MOST_CLASSES + [1_000 - MOST_CLASSES]
    for i in range(1_000):
        reason = Reason(f"Made{i}")
        groups.add(failure(make_pod(f"web-{i}", cpu=i + 1), reason, is_error=i % 2 == 0), 0.0)
    counts = [count for *_, count in taken(groups)]
    assert len(counts) < 50
    assert sum(counts) == 1_000
