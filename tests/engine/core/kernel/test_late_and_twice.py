"""What happens late, twice, or is undone: every part that knows of it follows."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from engine.core.kernel.events import (
    BindingFailed,
    BindingGivenUp,
    CanaryChanged,
    Event,
    LeadershipAcquired,
    ObjectChanged,
    PodGroupsServed,
    PreemptionEnd,
    PreemptionEnded,
    ReadabilityChanged,
    RevisionSwitched,
    TimePassed,
    TurnBegan,
    VersionChanged,
    WaitingPodPreempted,
)
from engine.core.kernel.instructions import (
    ReportDecision,
    ReportFailure,
    ReportFault,
    ReportNomination,
)
from engine.core.kernel.kernel import Kernel
from engine.core.kernel.scheduler_selector import Canary
from engine.core.model.pod import Pod
from engine.core.model.pod_group import POD_GROUPS
from engine.core.queueing.throttle import LARGE_POD_BYTES
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import Bundle
from engine.policy.evaluator import InProcessEvaluator
from tests.builders import make_node, make_pod, pod_manifest
from tests.engine.core.kernel.small_world import CONFIG, GANGS, MOST_TURNS, World, _loaded, member
from tests.engine.core.kernel.test_canary import NEVER
from tests.engine.core.kernel.test_decide import EXTENDER, answer
from tests.engine.core.kernel.test_group_attempts import (
    PREEMPTING,
    attempts,
    bound,
    evictions,
    grown,
    in_group,
    pod_group,
    rest,
    told,
)
from tests.engine.core.kernel.test_permits import decided, labelled, patient
from tests.engine.core.kernel.test_traces import Breaking
from tests.profiles import only

# The pods of groups that are known stand before all others.
BY_GROUP = """
def group_of(pod):
    return gang(pod.labels["group"]) if "group" in pod.labels else None

def queue_key(pod, group):
    return 1 if group == None else group.placed + group.pending + group.waiting
"""


def breaking(world: World, hook: str) -> None:
    """Have the connection to the policies break when *hook* is asked, from now on."""
    world.scheduler = Scheduler(world.bundle, Breaking(world.evaluator, hook))
    world.report(RevisionSwitched(world.scheduler))


# --- time ----------------------------------------------------------------------------------


def test_nothing_is_to_be_waited_for_where_nothing_waits() -> None:
    world = grown(2)
    assert world.kernel.wakes_at() is None
    world.add(make_pod("a", cpu=1))
    rest(world)
    world.end_binding(0, succeeds=True)
    assert world.kernel.wakes_at() is None


def test_who_comes_back_when_asked_to_misses_no_end_of_a_wait_and_goes_round_in_no_circle() -> None:
    """Each wait ends at its moment: not one look earlier, nor one later."""
    world = grown(8, patient())
    decided(world, labelled("a", "g"))
    world.clock.advance(7.5)
    decided(world, labelled("b", "h"))
    ends, looks = {}, 0
    while world.permits:
        at = world.kernel.wakes_at()
        assert at is not None
        assert at > world.clock.monotonic()
        world.clock.advance(at - world.clock.monotonic())
        waited = {name for name, pod in world.known.items() if pod.uid in world.permits}
        world.report(TimePassed())
        looks += 1
        for name in waited:
            if world.known[name].uid not in world.permits:
                ends[name] = world.clock.monotonic()
    assert ends == pytest.approx({"a": 60.0, "b": 67.5})
    assert looks < 20


def test_what_is_throttled_is_looked_at_again_within_a_second() -> None:
    failing = 'def pre_enqueue(pod):\n    return fail("x")\n'
    world = grown(8, {"mine.star": failing})
    world.add(make_pod("a", cpu=1))
    assert world.kernel.throttle
    at = world.kernel.wakes_at()
    assert at is not None
    assert at - world.clock.monotonic() == 1.0


def test_pods_in_permit_wait_like_those_in_the_queue_and_are_as_old() -> None:
    world = grown(8, patient())
    for name, created in (("b", "2024-01-01T00:00:20Z"), ("a", "2024-01-01T00:00:10Z")):
        decided(world, labelled(name, name, created=created))
    world.add(labelled("unfit", "x", created="2024-01-01T00:00:05Z").with_node(""))
    found = world.kernel.waiting_reasons()
    assert sum(found.values()) == 3
    [key] = [key for key, count in found.items() if count == 2]
    oldest = world.kernel.oldest_waiting()
    assert oldest.keys() == found.keys()
    assert oldest[key] == world.known["a"].created_at


def test_the_time_that_an_extender_takes_is_not_the_policies_and_has_passed_afterwards() -> None:
    world = World({"config.yaml": CONFIG + EXTENDER})
    world.add_node(make_node("n1", cpu=4))
    world.add(make_pod("a", cpu=1))
    turn = world.begin_decision()
    next(turn)
    world.clock.advance(5.0)
    answer(turn)
    [report] = [one for one in world.done if isinstance(one, ReportDecision)]
    assert (report.seconds, report.own_seconds) == (5.0, 0.0)
    assert world.kernel.time.monotonic() == world.clock.monotonic()
    assert not world.kernel.throttle


def test_extenders_of_a_candidate_are_asked_by_it_alone() -> None:
    world = grown(8)
    assert not world.kernel.asks_extenders
    bundle, evaluator = _loaded((("config.yaml", CONFIG + EXTENDER),))
    world.report(CanaryChanged(Canary(Scheduler(bundle, evaluator), lambda pod, _: False)))
    assert world.kernel.asks_extenders
    world.report(CanaryChanged(None))
    assert not world.kernel.asks_extenders


# --- late or twice -------------------------------------------------------------------------


EVENTS: list[Callable[[World], Event]] = [
    lambda _: TimePassed(),
    lambda _: TurnBegan(),
    lambda _: LeadershipAcquired(),
    lambda _: PodGroupsServed(""),
    lambda _: PodGroupsServed("v1alpha2"),
    lambda _: VersionChanged(38),
    lambda _: ReadabilityChanged({"persistentvolumes": "forbidden"}),
    lambda _: CanaryChanged(None),
    lambda world: RevisionSwitched(world.scheduler),
    lambda world: WaitingPodPreempted(world.known["waits"].uid),
    lambda _: WaitingPodPreempted("never seen"),
    lambda world: PreemptionEnded(world.known["unfit"], "n"),
    lambda world: PreemptionEnded(world.known["unfit"], "n", PreemptionEnd.REFUSED),
    lambda world: BindingGivenUp(world.bindings[0]),
]


@pytest.mark.parametrize("make", EVENTS, ids=range(len(EVENTS)))
def test_an_event_that_comes_twice_does_what_it_did_the_first_time(
    make: Callable[[World], Event],
) -> None:
    world = grown(8, patient())
    decided(world, labelled("waits", "g"), make_pod("bound", cpu=1), make_pod("unfit", cpu=99))

    def seen() -> object:
        world.check()
        queued = {name: world.queue.describe(pod.key) for name, pod in world.known.items()}
        for state in queued.values():
            del state["moves"], state["tried_because"]  # what was asked for last
        return queued, world.cache.pod_count, len(world.permits), world.kernel.waiting_reasons()

    event = make(world)
    world.report(event)
    once = seen()
    world.report(event)
    assert seen() == once


def test_a_binding_that_fails_late_says_nothing_of_a_pod_that_is_gone() -> None:
    world = grown(2)
    world.add(make_pod("a", cpu=2))
    rest(world)
    placement = world.bindings.pop()
    world.delete("a")
    assert world.cache.pod_count == 0
    world.add(make_pod("b", cpu=2))
    rest(world)
    world.report(BindingFailed(placement, "not found"))
    assert world.cache.pod_count == 1
    failures = [one for one in world.done if isinstance(one, ReportFailure)]
    assert [(one.pod.name, one.is_queued) for one in failures] == [("a", False)]
    assert placement.pod.uid not in world.queue
    world.check()


def test_a_binding_that_fails_wakes_what_found_no_room() -> None:
    world = grown(2)
    for name in ("a", "b"):
        world.add(make_pod(name, cpu=2))
    rest(world)
    world.end_binding(0, succeeds=False)
    world.wait(11.0)
    rest(world)
    assert len(world.bindings) == 1


@pytest.mark.parametrize("is_reported", [True, False])
def test_a_binding_that_fails_is_an_error_in_the_words_of_what_refused_it(
    is_reported: bool,
) -> None:
    """And no verdict of the policies: the pod is tried again after its backoff."""
    world = grown(2)
    world.add(pod := make_pod("a", cpu=2))
    rest(world)
    world.report(BindingFailed(world.bindings.pop(), "refused", is_reported))
    (failed,) = [one.rejection for one in world.done if isinstance(one, ReportFailure)]
    assert (failed.message, failed.is_error, failed.is_reported) == ("refused", True, is_reported)
    assert (failed.rejectors, failed.reason.token) == (frozenset(), "BindingFailed")
    assert world.queue.describe(pod.key)["queue"] == "backoff"


def test_a_binding_that_was_given_up_holds_no_room() -> None:
    world = grown(2)
    world.add(make_pod("a", cpu=2))
    rest(world)
    world.report(BindingGivenUp(world.bindings.pop()))
    assert world.cache.pod_count == 0
    world.change(world.known["a"].with_node("n"))  # it had arrived
    assert world.cache.pod_count == 1
    world.check()


def test_a_pod_that_a_restored_etcd_shows_without_its_node_is_pending_again() -> None:
    world = grown(2)
    world.add(bound("a", cpu=2))
    assert world.cache.pod_count == 1
    before = world.known["a"]
    world.change(make_pod("a", cpu=2, uid=before.uid))
    assert world.cache.pod_count == 0
    rest(world)
    assert [one.pod.name for one in world.bindings] == ["a"]


def test_a_pod_that_another_scheduler_places_wakes_those_that_want_to_be_near_it() -> None:
    world = World({"config.yaml": only("NodeResourcesFit", "InterPodAffinity")})
    world.add_node(make_node("n", cpu=8))
    term = {
        "labelSelector": {"matchLabels": {"app": "db"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    world.add(make_pod("web", cpu=1, affinity=near))
    db = make_pod("db", cpu=1, labels={"app": "db"}, scheduler_name="another")
    world.add(db)
    rest(world)
    assert not world.bindings
    world.change(db.with_node("n"))
    world.wait(11.0)
    rest(world)
    assert [one.pod.name for one in world.bindings] == ["web"]


# --- undone in every part ------------------------------------------------------------------


@pytest.mark.parametrize("hook", ["filter", "score", "permit"])
def test_a_fault_in_an_attempt_leaves_nothing_of_a_group_behind(hook: str) -> None:
    """Capacity and what counts as tried are as before; the next attempt succeeds."""
    body = (
        "def filter(pod, node):\n    return None\n"
        "def score(pod, node):\n    return 1 if node.name == 'n' else 0\n"
    )
    config = GANGS["config.yaml"].replace("{name: NodeResourcesFit}", "{name: mine}")
    files = {"config.yaml": config, "mine.star": body}
    world = grown(8, files)
    world.add_node(make_node("other", cpu=8))
    breaking(world, hook)
    for name in ("a", "b"):
        world.add(member(name, "red", 2, 1, 0))
    world.turns(1)
    world.check()
    assert (world.cache.pod_count, len(world.permits), len(world.bindings)) == (0, 0, 0)
    failed = [one.rejection for one in world.done if isinstance(one, ReportFailure)]
    assert [(one.message, one.reason.token) for one in failed] == [
        ("RuntimeError: broken pipe", "InternalError")
    ] * 2
    pods, entities = world.kernel.entities.waiting(world.queue)
    assert (sum(pods.values()), sum(entities.values())) == (2, 1)
    assert pods["pending"] == 0
    world.switch()
    world.wait(11.0)
    rest(world)
    assert len(world.bindings) == 2


@pytest.mark.parametrize("hook", ["filter", "score"])
def test_a_fault_costs_one_pod_one_attempt_and_is_reported(hook: str) -> None:
    body = (
        "def filter(pod, node):\n    return None\n"
        "def score(pod, node):\n    return 1 if node.name == 'n' else 0\n"
    )
    world = grown(8, {"mine.star": body})
    world.add_node(make_node("other", cpu=8))
    breaking(world, hook)
    world.add(pod := make_pod("a", cpu=1))
    world.turns(1)
    world.check()
    [fault] = [one for one in world.done if isinstance(one, ReportFault)]
    assert (fault.pod.name, str(fault.error)) == ("a", "broken pipe")
    [failed] = [one for one in world.done if isinstance(one, ReportFailure)]
    assert (failed.rejection.is_error, failed.is_queued) == (True, True)
    assert (world.cache.pod_count, len(world.permits), len(world.bindings)) == (0, 0, 0)
    assert world.queue.describe(pod.key)["queue"] == "backoff"
    world.switch()
    world.wait(11.0)
    rest(world)
    assert len(world.bindings) == 1


def test_a_pod_whose_node_is_gone_when_the_extender_answers_is_tried_again_soon() -> None:
    """That is nothing which an event would have to change: it waits for its backoff alone."""
    world = World({"config.yaml": CONFIG + EXTENDER})
    world.add_node(node := make_node("n1", cpu=4))
    world.add(pod := make_pod("a", cpu=1))
    turn = world.begin_decision()
    next(turn)
    world.delete_node(node)
    answer(turn)
    [failed] = [one for one in world.done if isinstance(one, ReportFailure)]
    assert failed.rejection.is_error
    assert world.queue.describe(pod.key)["queue"] == "backoff"


def test_a_pod_whose_group_the_policies_before_could_not_say_is_asked_about_by_the_new_ones() -> (
    None
):
    failing = 'def group_of(pod):\n    return fail("x")\ndef permit(pod, group):\n    return None\n'
    world = grown(8, {"mine.star": failing})
    world.add(pod := make_pod("a", cpu=1))
    world.bundle, world.evaluator = _loaded((("mine.star", "def filter(pod, node):\n    pass\n"),))
    world.switch()
    assert not world.groups.ask_again(pod.uid)
    rest(world)
    assert len(world.bindings) == 1


def test_each_pod_that_is_in_no_group_enters_the_queue_by_itself() -> None:
    world = grown(8)
    for name in ("a", "b", "c"):
        world.add(make_pod(name, cpu=1))
    assert world.kernel.entities.incoming["active", "UnscheduledPodAdd", "pod"] == 3


def test_a_group_that_was_tried_enters_the_queue_again_with_its_next_pod() -> None:
    world = grown(8)
    world.put_object(POD_GROUPS, pod_group(1))
    for count, name in enumerate(("a", "b", "c"), start=1):
        world.add(in_group(name))
        rest(world)
        entered = world.kernel.entities.incoming
        assert entered["active", "UnscheduledPodAdd", "podgroup"] == count


@pytest.mark.parametrize(("priority", "expected"), [(5, "n"), (9, None)])
def test_a_nomination_gives_way_to_what_is_more_important_and_to_nothing_else(
    priority: int, expected: str | None
) -> None:
    world = grown(4, PREEMPTING)
    for name in ("low-0", "low-1"):
        world.add(bound(name, cpu=2))
    world.add(make_pod("first", cpu=2, priority=5))
    rest(world)
    world.add(make_pod("second", cpu=2, priority=priority))
    world.turns(1)
    first, second = (world.known[name].uid for name in ("first", "second"))
    nominator = world.queue.nominator
    assert len(evictions(world)) == 2
    assert nominator.node_of(second) == "n"
    assert nominator.node_of(first) == expected
    cleared = [one.pod.name for one in world.done if isinstance(one, ReportNomination)]
    assert cleared == ([] if expected else ["first"])
    if not expected:  # it looks for another node at once
        assert world.queue.describe("default/first")["queue"] in ("active", "backoff")
    world.check()


@pytest.mark.parametrize("is_whole", [False, True], ids=["a pod", "a whole group"])
@pytest.mark.parametrize("priority", [5, 6])
def test_a_group_evicts_what_is_less_important_and_nothing_that_is_equally(
    priority: int, is_whole: bool
) -> None:
    world = grown(2, PREEMPTING)
    world.put_object(POD_GROUPS, pod_group(2, priority=priority))
    if is_whole:
        mode: dict[str, Any] = {"disruptionMode": {"all": {}}}
        world.put_object(POD_GROUPS, pod_group(1, "other", priority=5, **mode))
        world.add(in_group("other", "other", node="n", cpu=2, priority=5))
    else:
        world.add(bound("other", cpu=2, priority=5))
    for name in ("a", "b"):
        world.add(in_group(name, priority=priority))
    rest(world)
    assert len(evictions(world)) == (priority > 5)


@pytest.mark.parametrize("cpu", [2, 3])
def test_a_group_whose_victims_are_still_going_evicts_no_more(cpu: int) -> None:
    """It is tried again meanwhile, for whatever reason, and keeps its nominations."""
    world = grown(cpu, PREEMPTING)
    for name in ("low-0", "low-1"):
        world.add(bound(name, cpu=1))
    world.put_object(POD_GROUPS, pod_group(2, priority=9))
    for name in ("a", "b"):
        world.add(in_group(name, priority=9))
    rest(world)
    preempted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    for victim in evictions(world)[0].victims:
        going = bound(
            victim.name,
            uid=victim.uid,
            cpu=1,
            terminating=True,
            status={"conditions": [preempted]},
        )
        world.change(going)
    for _ in range(3):
        world.queue.activate([world.known[name].uid for name in ("a", "b")])
        rest(world)
    assert len(evictions(world)) == 1
    nodes = {world.queue.nominator.node_of(world.known[name].uid) for name in ("a", "b")}
    assert nodes == {"n"}
    assert attempts(world, "waiting_on_preemption") > 1


def test_a_trial_of_a_group_without_its_victims_ends_where_it_is_hopeless() -> None:
    world = grown(2, PREEMPTING)
    world.add(bound("small", cpu=1, priority=1))
    world.put_object(POD_GROUPS, pod_group(4, priority=9))
    for name in ("a", "b", "c", "d"):
        world.add(in_group(name, priority=9))
    rest(world)
    assert not evictions(world)
    assert told(world)["a"].endswith("minCount (4) cannot be satisfied: 2 scheduled, 1 remaining")


# --- what groups are like after what happened ----------------------------------------------


def test_a_group_whose_gated_pod_is_deleted_goes_on() -> None:
    config = only("NodeResourcesFit", "GangScheduling", "SchedulingGates")
    for switches in (False, True):
        world = grown(8, {"config.yaml": config})
        world.put_object(POD_GROUPS, pod_group(2))
        for name in ("a", "b"):
            world.add(in_group(name))
        world.add(in_group("held", gates=["example.com/wait"]))
        rest(world)
        assert not world.bindings
        if switches:  # to policies that gate no pod
            world.bundle, world.evaluator = _loaded(tuple(GANGS.items()))
            world.switch()
        else:
            world.delete("held")
        world.report(TurnBegan())
        rest(world)
        assert {one.pod.name for one in world.bindings} >= {"a", "b"}


def test_pods_stand_in_the_queue_as_their_group_is_after_each_change() -> None:
    """The order is that of a process which sees the same cluster for the first time."""

    def order(world: World) -> list[str]:
        found = []
        while (queued := world.queue.pop()) is not None:
            found.append(queued.pod.name)
        return found

    files = {"mine.star": BY_GROUP}
    world = World(files)
    for name, group in (("a", "one"), ("b", "one"), ("c", "two"), ("d", "two"), ("e", "two")):
        world.add(make_pod(name, labels={"group": group}))
    world.add(make_pod("alone"))
    world.report(TurnBegan())
    world.delete("a")
    world.change(make_pod("d", uid=world.known["d"].uid, labels={"group": "one"}))
    world.change(make_pod("alone", uid=world.known["alone"].uid, labels={"group": "two"}))
    world.report(TurnBegan())
    fresh = World(files)
    for pod in world.known.values():
        fresh.add(pod)
    fresh.report(TurnBegan())
    assert order(world) == order(fresh)


@pytest.mark.parametrize("gone", ["mine", "theirs"])
def test_a_group_that_ends_in_one_profile_goes_on_in_another(gone: str) -> None:
    """Two profiles see a group of one name; what one forgets of it the other still follows."""
    config = only("NodeResourcesFit", "GangScheduling")
    profile = config[config.index("- schedulerName") :]
    both = config + profile.replace("default-scheduler", "other-scheduler")
    world = grown(8, {"config.yaml": both})
    world.add(in_group("mine"))
    world.add(in_group("theirs", scheduler_name="other-scheduler"))
    world.delete(gone)
    [left] = world.known.values()
    assert world.queue.describe(left.key)["gated_by"]
    world.put_object(POD_GROUPS, pod_group(1))
    world.report(TurnBegan())
    rest(world)
    assert [one.pod.name for one in world.bindings] == [left.name]


def test_pod_groups_that_are_served_later_let_their_pods_go() -> None:
    world = grown(8)
    world.report(PodGroupsServed(""))
    for name in ("a", "b"):
        world.add(in_group(name))
    rest(world)
    before = world.queue.describe("default/a")["gate_reason"]
    world.report(PodGroupsServed("v1alpha2"))
    world.report(TurnBegan())
    assert world.queue.describe("default/a")["gate_reason"] != before
    world.put_object(POD_GROUPS, pod_group(2))
    world.report(TurnBegan())
    rest(world)
    assert len(world.bindings) == 2
    world.report(ObjectChanged(POD_GROUPS, pod_group(2), None))
    world.check()


def test_a_canary_takes_back_from_permit_what_it_decides_and_nothing_else() -> None:
    world = grown(8, NEVER)
    decided(world, make_pod("stays", cpu=1), make_pod("moves", cpu=1))
    assert len(world.permits) == 2
    bundle, evaluator = _loaded(tuple(GANGS.items()))
    candidate = Scheduler(bundle, evaluator)
    world.report(CanaryChanged(Canary(candidate, lambda pod, _: pod.name == "moves")))
    assert world.known["stays"].uid in world.permits
    assert world.known["moves"].uid not in world.permits
    world.turns(MOST_TURNS)
    assert [one.pod.name for one in world.bindings] == ["moves"]
    world.check()


class _Slow(InProcessEvaluator):
    """Takes three seconds for whatever it is asked, by the kernel's stopwatch."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle.program)
        self.elapsed = 0.0

    def evaluate(self, calls: Sequence[Any]) -> Any:
        self.elapsed += 3.0
        return super().evaluate(calls)


@pytest.mark.parametrize("is_large", [True, False])
def test_large_pods_that_take_long_hold_up_those_of_their_namespace_alone(is_large: bool) -> None:
    """Their creators choose how large they are; a policy that is slow for any pod is no fault."""
    bundle, _ = _loaded(tuple(sorted(GANGS.items())))
    slow = _Slow(bundle)
    world = World(make_kernel=functools.partial(Kernel, stopwatch=lambda: slow.elapsed))
    world.add_node(make_node("n", cpu=8))
    world.report(RevisionSwitched(Scheduler(bundle, slow)))
    annotations = {"x": "y" * LARGE_POD_BYTES} if is_large else {}
    for name, namespace in (("a", "theirs"), ("b", "theirs"), ("c", "ours")):
        plain = pod_manifest(name, namespace, cpu=1, annotations=annotations)
        world.add(Pod.from_raw(msgspec.json.encode(plain)))
    world.turns(MOST_TURNS)
    placed = sorted(one.pod.namespace for one in world.bindings)
    assert placed == ["ours", *["theirs"] * (1 if is_large else 2)]
    world.wait(60.0)
    world.turns(MOST_TURNS)
    assert {one.pod.name for one in world.bindings} == {"a", "b", "c"}
