"""What is counted in the arms of a canary, by what a kernel does about its pods."""

from collections.abc import Callable, Mapping

import pytest

from engine.core.kernel.events import Event
from engine.core.kernel.instructions import Instruction, ReportHookFailure
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator, PolicyFailure
from engine.policy.rollout_config import CanaryStage, CanaryStep
from engine.rollout.comparing import GROUP_PATIENCE, LiveComparing
from engine.rollout.measures import ArmMeasures
from engine.rollout.shadow.shadow import Shadow
from engine.rollout.trial import LoadedRevision
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import World
from tests.engine.core.kernel.test_canary import NOWHERE, with_policy

SHUT = with_policy('def pre_enqueue(pod):\n    return "not by me"\n')
BROKEN = with_policy('def pre_enqueue(pod):\n    fail("broken")\n')
REFUSES = with_policy('def permit(pod, group):\n    return "not by me"\n')
GROUPS = with_policy("""
def group_of(pod):
    job = pod.labels.get("job")
    return gang(job, min_count = 3) if job else None

def pre_enqueue(pod, group):
    if group != None and group.pod_count < group.min_count:
        return "the others are not there yet"
    return None

def permit(pod, group):
    if group != None and group.waiting + group.placed < group.min_count:
        return wait(60, "for the others")
    return None
""")
OPEN = with_policy("def score(pod, node):\n    return 0\n")


class Bench(World):
    """A kernel whose instructions are counted, and half of whose pods a candidate decides."""

    def __init__(self, files: Mapping[str, str], were_failing: bool = False) -> None:
        self.comparing: LiveComparing | None = None
        super().__init__(files)
        self.add_node(make_node("n1", cpu=800))
        self.comparing = LiveComparing(
            self.kernel,
            self._report,
            Shadow(lambda bundle: InProcessEvaluator(bundle.program)),
            lambda _: None,
            self.clock,
            lambda _uid: were_failing,
        )

    def _report(self, event: Event) -> None:
        self.report(event)

    def _carry_out(self, instructions: list[Instruction]) -> list[Instruction]:
        if self.comparing is not None:
            self.comparing.handled(instructions)
        return super()._carry_out(instructions)

    def begin(
        self, files: Mapping[str, str], share: float = 0.5
    ) -> tuple[ArmMeasures, ArmMeasures]:
        assert self.comparing is not None
        bundle = build_bundle(files)
        evaluator = InProcessEvaluator(bundle.program)
        loaded = LoadedRevision(bundle, files, evaluator, Scheduler(bundle, evaluator))
        stage = CanaryStage(steps=(CanaryStep(share),))
        return self.comparing.begin_canary(loaded, None, stage, share)

    def add_many(self, count: int = 40, prefix: str = "p") -> None:
        for number in range(count):
            self.add(make_pod(f"{prefix}{number}", cpu=1))
        self.turns(100)


@pytest.mark.parametrize(
    ("files", "count"),
    [
        pytest.param(NOWHERE, lambda arm: (arm.pending, arm.pending_owners), id="no node"),
        pytest.param(SHUT, lambda arm: (arm.pending, arm.pending_owners), id="gate"),
        pytest.param(REFUSES, lambda arm: (arm.pending, arm.pending_owners), id="permit"),
        pytest.param(BROKEN, lambda arm: (arm.failed, arm.failed_owners), id="a gate that fails"),
    ],
)
def test_whatever_keeps_a_pod_pending_is_counted(
    files: dict[str, str], count: Callable[[ArmMeasures], tuple[int, int]]
) -> None:
    bench = Bench(OPEN)
    canary, control = bench.begin(files)
    bench.add_many()
    assert canary.owners + control.owners == 40
    assert count(canary) == (canary.owners, canary.owners)
    assert count(control) == (0, 0)


def test_pods_that_those_in_force_fail_too_are_no_failures_of_the_candidate() -> None:
    """One pod that no text can cope with, tried again and again, ended a canary."""
    bench = Bench(OPEN, were_failing=True)
    canary, _ = bench.begin(BROKEN)
    bench.add_many()
    assert canary.owners > 0
    assert (canary.failed, canary.failed_owners) == (0, 0)


def test_pods_that_wait_for_the_others_of_their_group_are_not_pending() -> None:
    """Each of three was counted at the gate, and once more while it waited to be approved."""
    bench = Bench(GROUPS)
    canary, control = bench.begin(with_policy(GROUPS["picky.star"] + "\n# another text\n"))
    for number in range(36):
        bench.add(make_pod(f"p{number}", cpu=1, labels={"job": f"job-{number // 3}"}))
        bench.turns(3)
    assert len(bench.bindings) == 36
    while bench.bindings:
        bench.end_binding(0, succeeds=True)
    assert min(canary.held, control.held) > 0
    bench.wait(3600.0)
    assert (canary.pending, control.pending) == (0, 0)


def test_pods_that_wait_long_for_the_others_of_their_group_are_pending() -> None:
    bench = Bench(GROUPS)
    canary, control = bench.begin(with_policy(GROUPS["picky.star"] + "\n# another text\n"))
    for number in range(24):
        bench.add(make_pod(f"p{number}", cpu=1, labels={"job": f"job-{number // 2}"}))
    bench.turns(3)
    longest = CanaryStep(0.5).duration.total_seconds() * GROUP_PATIENCE
    bench.wait(longest - 1.0)
    assert (canary.pending, control.pending) == (0, 0)
    bench.wait(2.0)
    assert canary.pending_owners + control.pending_owners == 12
    assert min(canary.pending_owners, control.pending_owners) > 0


def test_pods_that_a_candidate_has_no_profile_for_stay_pending() -> None:
    """Those in force decided them, which was counted as if the candidate had."""
    other = OPEN | {"config.yaml": OPEN["config.yaml"].replace("default-scheduler", "another")}
    assert other != OPEN
    bench = Bench(OPEN)
    canary, control = bench.begin(other)
    bench.add_many()
    assert len(bench.bindings) == 40
    assert canary.decisions == 0
    assert canary.pending_owners == canary.owners > 0
    assert (control.pending, control.decisions) == (0, control.owners)


def test_pods_that_were_pending_before_are_not_newly_pending() -> None:
    bench = Bench(NOWHERE)
    bench.add_many()
    canary, control = bench.begin(with_policy(NOWHERE["picky.star"] + "\n# another text\n"))
    bench.turns(100)
    assert canary.decisions > 0  # they are tried anew, and those of the control sample are not
    assert (canary.pending, control.pending) == (0, 0)
    bench.add_many(prefix="new")
    assert canary.pending_owners > 0
    assert control.pending_owners > 0


def test_pods_that_were_pending_before_a_step_are_not_newly_pending() -> None:
    """Those that a larger share takes from the others are tried anew, and no others."""
    bench = Bench(NOWHERE)
    same = with_policy(NOWHERE["picky.star"] + "\n# another text\n")
    bench.begin(same, share=0.05)
    bench.add_many()
    canary, control = bench.begin(same)
    bench.turns(100)
    assert canary.decisions > 0
    assert (canary.pending, control.pending) == (0, 0)


def test_what_a_pod_has_waited_before_is_not_the_candidates() -> None:
    bench = Bench(NOWHERE)
    bench.add_many()
    bench.wait(3600.0)
    canary, _ = bench.begin(OPEN)
    bench.turns(100)
    bench.add_many(prefix="new")
    while bench.bindings:
        bench.end_binding(0, succeeds=True)
    assert 0 < canary.bound < canary.decisions
    assert canary.bind_seconds == 0.0


def test_failures_of_a_candidate_are_not_those_of_the_policies_in_force() -> None:
    bench = Bench(OPEN)
    canary, _ = bench.begin(BROKEN)
    bench.add_many()
    assert bench.comparing is not None
    failed = [one for one in bench.done if isinstance(one, ReportHookFailure)]
    assert len(failed) == canary.failed > 0
    assert all(bench.comparing.is_candidates(one) for one in failed)
    # Which group a pod is in is said by those in force, for every pod.
    of_group = PolicyFailure("gangs", "group_of", "gangs.star", 1, 1, "no", "failure")
    before = canary.failed
    asked = ReportHookFailure(failed[0].pod, [of_group], [], 0.0)
    bench.comparing.handled([asked])
    assert not bench.comparing.is_candidates(asked)
    assert canary.failed == before
