"""Pods whose group could not be said: who is asked about them, when, and what comes of it."""

from collections.abc import Sequence

from engine.core.caching.cache import Cache
from engine.core.kernel.pod_groups import PodGroups
from engine.core.model.pod import Pod
from engine.core.queueing.throttle import Failures, Throttle, Work
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.lib.clock import VirtualClock
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import Call, InProcessEvaluator, PolicyFailure, Program, Verdict
from tests.builders import make_pod

POLICY = """
def group_of(pod):
    return gang(pod.labels["group"]) if pod.name else None

def permit(pod, group):
    return None
"""


class Moody:
    """Runs into the deadline of two seconds as long as it `is_slow`."""

    def __init__(self, program: Program, clock: VirtualClock) -> None:
        self._evaluator = InProcessEvaluator(program)
        self._clock = clock
        self.is_slow = True
        self.asked = 0

    def close(self) -> None:
        pass

    def evaluate(self, calls: Sequence[Call]) -> Sequence[Sequence[Verdict | PolicyFailure]]:
        self.asked += len(calls)
        if not self.is_slow:
            return self._evaluator.evaluate(calls)
        self._clock.advance(2.0 * len(calls))
        failure = PolicyFailure("mine", "group_of", "mine.star", 2, 1, "did not answer", "deadline")
        return [[failure] for _ in calls]


class Bench:
    def __init__(self) -> None:
        bundle = build_bundle({"mine.star": POLICY})
        self.clock = VirtualClock()
        self.evaluator = Moody(bundle.program, self.clock)
        self.scheduler = Scheduler(bundle, self.evaluator)
        self.lost: list[float] = []
        self.throttle = Throttle(self.clock, self._failed)
        self.groups = PodGroups(Cache(), throttle=self.throttle, clock=self.clock)
        self.groups.use(self.scheduler, list)

    def _failed(self, pod: Pod, failures: Failures, lost: Failures, seconds: float) -> None:
        self.lost.append(seconds)

    def _try_again(self, work: Work, uid: str) -> bool:
        return self.groups.ask_again(uid) if work is Work.GROUP else True

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1.0)
            self.throttle.retry(self._try_again)

    def members(self) -> int:
        keys = {key for i in range(60) for key in self.groups.keys_of(f"u{i}")}
        return sum(len(self.groups.pending_in(key)) for key in keys)


def many_pods() -> list[Pod]:
    return [make_pod(f"p{i}", uid=f"u{i}", labels={"group": "g"}) for i in range(60)]


def test_many_pods_are_not_grouped_one_by_one() -> None:
    """Each took the deadline as soon as it was seen, before anything else was looked at."""
    bench = Bench()
    for pod in many_pods():
        bench.groups.put(pod)
    assert bench.lost == [2.0]
    bench.run(60)
    assert 1 < len(bench.lost) < 15


def test_so_it_is_when_policies_come_into_force() -> None:
    bench = Bench()
    bench.groups.use(bench.scheduler, many_pods)
    assert bench.lost == [2.0]


def test_all_are_in_their_group_once_it_can_be_said() -> None:
    """A pod was in no group until it changed, if nobody could say so when it came."""
    bench = Bench()
    for pod in many_pods():
        bench.groups.put(pod)
    bench.evaluator.is_slow = False
    bench.run(5)  # one that succeeds is enough to ask about all others
    assert bench.members() == 60
    asked = bench.evaluator.asked
    bench.run(60)
    assert bench.evaluator.asked == asked


def test_a_pod_that_is_gone_is_not_asked_about() -> None:
    bench = Bench()
    for pod in many_pods():
        bench.groups.put(pod)
    for pod in many_pods():
        bench.groups.remove(pod.uid)
    bench.run(60)
    assert bench.lost == [2.0]


def test_what_asks_for_the_group_learns_why_it_is_not_known() -> None:
    bench = Bench()
    first, second, *_ = many_pods()
    bench.groups.put(first)
    asking = bench.scheduler.hooks.grouping()["default-scheduler"]
    (enabled,) = [one for one in asking if one.policy == "mine"]
    answer = bench.groups.state_of(enabled, second)
    assert isinstance(answer, PolicyFailure)
    assert bench.evaluator.asked == 1


def test_new_policies_are_asked_about_a_pod_as_it_was_seen_last() -> None:
    """One that is only assumed is known twice: on its node, and as the API server has it."""
    bench = Bench()
    bench.evaluator.is_slow = False
    assumed = make_pod("p", uid="u", labels={"group": "before"}).with_node("node-1")
    seen = make_pod("p", uid="u", labels={"group": "now"})
    bench.groups.use(bench.scheduler, lambda: [assumed, seen])
    assert [key.name for key in bench.groups.keys_of("u")] == ["now"]
    assert bench.evaluator.asked == 1


def test_pods_name_their_group_to_policies_that_name_none() -> None:
    scheduler = Scheduler(bundle := build_bundle({}), InProcessEvaluator(bundle.program))
    group = {"schedulingGroup": {"podGroupName": "g"}}
    pods = [make_pod("alone", uid="alone"), make_pod("member", uid="member", spec=group)]
    groups = PodGroups(Cache())
    groups.use(scheduler, lambda: pods)
    assert [key.name for key in groups.keys_of("member")] == ["g"]
    assert not groups.keys_of("alone")
