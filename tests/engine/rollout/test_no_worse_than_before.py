"""What the policies in force fail in as well is not held against an edit of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from engine.core.caching.cache import Cache
from engine.core.caching.snapshot import Snapshot
from engine.core.model.pod import Pod
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import InProcessEvaluator, PolicyFailure
from engine.rollout.revisions import DecisionCounts, FailingPods
from engine.rollout.trial import CandidateStages, LoadedRevision, Rejected
from tests.builders import make_node, make_pod

# Too much work for a pod with as many labels as no one would give it, and for no other.
_WORKS_MUCH = """
def filter(pod, node):
    for a in pod.labels:
        for b in pod.labels:
            for c in pod.labels:
                pass
    return None
"""
_OTHERWISE = _WORKS_MUCH + "\ndef score(pod, node):\n    return 1\n"
_READS = "def filter(pod, node):\n    return None\n"
_ABSURD = make_pod("absurd", namespace="tenant", labels={f"l{i}": "x" for i in range(300)})


class _World:
    def __init__(self, *pods: Pod) -> None:
        self._pods = pods
        self._cache = Cache()
        self._cache.add_node(make_node("a"))

    def snapshot(self) -> Snapshot:
        return self._cache.snapshot()

    def sample_pods(self) -> list[Pod]:
        return list(self._pods)

    def waiting_pods(self) -> list[Pod]:
        return list(self._pods)

    def rejected_pods(self) -> list[Pod]:
        return []

    def pods_by_queue(self) -> Mapping[str, int]:
        return {}

    async def watch(self, bundle: Bundle) -> Sequence[str]:
        return ()

    async def prepare(self, bundle: Bundle) -> None:
        pass

    async def until_idle(self) -> None:
        pass

    async def until_decided(self) -> None:
        pass


def _make(bundle: Bundle) -> InProcessEvaluator:
    return InProcessEvaluator(bundle.program)


_STAGES = CandidateStages(
    build=lambda files: build_bundle(dict(files)),
    make_evaluator=_make,
    run_tests=lambda _: [],
)


async def _loaded(text: str, **more: str) -> LoadedRevision:
    files: Mapping[str, str] = {"mine.star": text, **more}
    return await _STAGES.load(await _STAGES.build(files), files)


async def _try(text: str, base: str | None, *pods: Pod) -> list[str]:
    """The problems of the trial of *text* where *base* is in force."""
    known = None if base is None else await _loaded(base)
    try:
        await _STAGES.try_out(await _loaded(text), _World(*pods), known)
    except Rejected as rejected:
        return [problem.message for problem in rejected.problems]
    return []


async def test_an_object_that_no_text_can_cope_with_blocks_no_edit() -> None:
    """One pod of one tenant would keep the operator from ever changing the policies."""
    assert await _try(_OTHERWISE, _WORKS_MUCH, _ABSURD, make_pod("plain")) == []


@pytest.mark.parametrize("base", [None, _READS], ids=["nothing", "a text that copes"])
async def test_a_failure_that_the_text_in_force_does_not_have_rejects_an_edit(
    base: str | None,
) -> None:
    (problem,) = await _try(_WORKS_MUCH, base, _ABSURD, make_pod("plain"))
    assert "steps" in problem


async def test_a_failure_over_another_pod_still_rejects_an_edit() -> None:
    text = _WORKS_MUCH.replace("    return None", '    return 1 if pod.name == "plain" else None')
    (problem,) = await _try(text, _WORKS_MUCH, _ABSURD, make_pod("plain"))
    assert "filter() returned 1" in problem


async def test_a_pod_that_nothing_decided_before_is_worse_off_when_it_fails() -> None:
    config = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- schedulerName: other\n"
    )
    base = await _loaded(_WORKS_MUCH, **{"config.yaml": config})
    with pytest.raises(Rejected, match="steps"):
        await _STAGES.try_out(await _loaded(_WORKS_MUCH), _World(_ABSURD), base)


async def test_an_edit_that_fails_for_every_pod_is_worse_than_one_that_fails_for_one() -> None:
    text = _WORKS_MUCH + '\ndef score(pod, node):\n    return "high"\n'
    assert await _try(text, _WORKS_MUCH, _ABSURD) != []


async def test_a_revision_that_was_in_force_is_no_worse_than_itself() -> None:
    """After a restart there is nothing in force that it could be compared with."""
    assert await _try(_WORKS_MUCH, _WORKS_MUCH, _ABSURD) == []


async def test_an_exception_over_one_pod_ends_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of ours over one tenant's object rejected every edit."""
    decide = Scheduler.schedule

    def schedule(self: Scheduler, pod: Pod, *rest: Any, **words: Any) -> Any:
        if pod.namespace == "tenant":
            raise ZeroDivisionError
        return decide(self, pod, *rest, **words)

    monkeypatch.setattr(Scheduler, "schedule", schedule)
    assert await _try(_READS, None, _ABSURD, make_pod("plain")) == []
    (problem,) = await _try(
        "def filter(pod, node):\n    return 1\n", None, _ABSURD, make_pod("plain")
    )
    assert "filter() returned 1" in problem


# --- probation -------------------------------------------------------------------------------


def _lost(policy: str = "mine") -> Sequence[PolicyFailure]:
    return [PolicyFailure(policy, "filter", "mine.star", 1, 1, "too long", "deadline")]


def test_pods_that_failed_before_are_no_evidence_in_probation() -> None:
    """An absurd pod that is retried rolled the next edit back, whatever that was about."""
    before = DecisionCounts()
    before.count(1.0, True, _lost(), "absurd")
    before.count(0.0, False, (), "plain")
    counts = DecisionCounts(failing_before=before.failing)
    counts.count(1.0, True, _lost(), "absurd")
    assert (counts.decisions, counts.failed, counts.stalled) == (0, 0, 0)
    counts.count(1.0, True, _lost(), "plain")
    assert (counts.decisions, counts.failed, counts.stalled) == (1, 1, 1)


def test_a_pod_that_was_decided_well_counts_when_it_fails_again() -> None:
    before = DecisionCounts()
    before.count(0.0, True, (), "p")
    counts = DecisionCounts(failing_before=before.failing)
    counts.count(0.0, False, (), "p")
    counts.count(0.0, True, (), "p")
    assert (counts.decisions, counts.failed) == (2, 1)


def test_the_failing_pods_that_are_remembered_are_bounded() -> None:
    pods = FailingPods()
    for i in range(5_000):
        pods.note(str(i), True)
    assert "0" not in pods
    assert "4999" in pods
    pods.note("4999", False)
    assert "4999" not in pods
