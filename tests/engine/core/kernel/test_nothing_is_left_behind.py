"""What is over leaves nothing behind in any part, and no time is measured longer than it was."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping

import pytest

from engine.core.kernel.events import ObjectChanged, WaitingPodPreempted
from engine.core.kernel.instructions import Evict
from engine.core.model.objects import Namespace, ObjectMeta
from engine.core.model.pod import Pod
from engine.core.model.pod_group import POD_GROUPS
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import GANGS, MOST_TURNS, World, _loaded, member
from tests.engine.core.kernel.test_group_attempts import (
    PREEMPTING,
    bound,
    evictions,
    grown,
    in_group,
    pod_group,
    rest,
    told,
)
from tests.engine.core.kernel.test_permits import decided, labelled, patient
from tests.profiles import only

_CONTAINERS = (dict, set, list, deque, frozenset)


def sizes(part: object, path: str, seen: set[int], depth: int = 4) -> Iterator[tuple[str, int]]:
    """How much each container in *part* holds, by its path; of what is counted, nothing."""
    if id(part) in seen or not depth:
        return
    seen.add(id(part))
    for name in (*getattr(part, "__dict__", ()), *getattr(part, "__slots__", ())):
        value = getattr(part, name, None)
        if isinstance(value, _CONTAINERS) and not isinstance(value, Counter):
            yield f"{path}.{name}", len(value)
        elif type(value).__module__.startswith(("engine.core.kernel", "engine.core.queueing")):
            yield from sizes(value, f"{path}.{name}", seen, depth - 1)


def held(world: World) -> dict[str, int]:
    return dict(sizes(world.kernel, "kernel", set()))


def live(world: World, run: int) -> None:
    """Pods and groups come, wait, evict each other, are bound or not, and go again."""
    group = f"g{run}"
    world.put_object(POD_GROUPS, pod_group(2, name=group))
    low = bound(f"low-{run}", cpu=8)
    pods: list[Pod] = [low]
    pods += [in_group(f"of-{run}-{i}", group=group, priority=9) for i in range(3)]
    pods += [member(f"gang-{run}-{i}", f"gang-{run}", 2, 1, 5) for i in range(2)]
    pods += [labelled(f"label-{run}-{i}", f"l{run}") for i in range(2)]
    pods += [make_pod(f"{run}-{cpu}", cpu=cpu, priority=cpu) for cpu in (1, 2, 3, 99)]
    pods += [in_group(f"never-{run}", group=f"never-{run}")]
    for pod in pods:
        world.add(pod)
    world.turns(MOST_TURNS)
    world.delete(low.name)
    for _ in range(3):
        world.turns(MOST_TURNS)
        world.wait(30.0)
    for uid in [pod.uid for pod in pods if pod.uid in world.permits][:1]:
        world.report(WaitingPodPreempted(uid))
    world.turns(MOST_TURNS)
    while world.bindings:
        world.end_binding(0, succeeds=len(world.bindings) % 2 == 0)
    world.turns(MOST_TURNS)
    while world.bindings:
        world.end_binding(0, succeeds=True)
    for name in list(world.known):
        world.delete(name)
    world.report(ObjectChanged(POD_GROUPS, pod_group(2, name=group), None))
    world.wait(2000.0)
    world.turns(MOST_TURNS)
    world.check()


@pytest.mark.parametrize("files", [PREEMPTING, patient()], ids=["preemption", "permits"])
def test_what_is_gone_is_kept_in_no_part(files: Mapping[str, str]) -> None:
    """What was counted of a group outlived its pods, for each group that ever waited in permit."""
    world = grown(8, dict(files))
    found = []
    for run in range(3):
        live(world, run)
        found.append(held(world))
    assert found[0] == found[1] == found[2]
    kept = {path for path, size in found[2].items() if size}
    for part in ("groups", "permits", "preemptions", "attempts", "cluster._pending"):
        mine = {path for path in kept if path.startswith(f"kernel.{part}")}
        assert mine <= {"kernel.groups._grouping", "kernel.groups._permitting"}, mine


@pytest.mark.parametrize("files", [PREEMPTING, patient()], ids=["preemption", "permits"])
def test_no_time_is_measured_that_did_not_pass(files: Mapping[str, str]) -> None:
    """Started at 1,000,000 s of its clock, as a machine that is up for days."""
    world = World(files)
    world.clock.advance(1_000_000.0)
    world.add_node(make_node("n", cpu=8))
    live(world, 0)
    took = {
        sample.name: sample.value
        for metric in world.registry.collect()
        for sample in metric.samples
        if sample.name.endswith("seconds_sum")
    }
    assert took
    assert {name: value for name, value in took.items() if not 0 <= value < 50_000} == {}


@pytest.mark.parametrize("before", [GANGS, patient(), PREEMPTING], ids=["gangs", "own", "more"])
@pytest.mark.parametrize("after", [GANGS, patient(), {}], ids=["gangs", "own", "shipped"])
def test_new_policies_see_groups_as_if_there_had_been_none_before(
    before: dict[str, str], after: dict[str, str]
) -> None:
    pods = [member(f"m-{i}", "red", 3, 1, 0) for i in range(2)]
    pods += [labelled(f"l-{i}", "blue") for i in range(2)]
    pods += [in_group(f"g-{i}", group="g") for i in range(2)]
    switched, fresh = World(before), World(after)
    for world in (switched, fresh):
        world.add_node(make_node("n", cpu=1))
        world.put_object(POD_GROUPS, pod_group(3))
        for pod in pods:
            world.add(pod)
        world.turns(MOST_TURNS)
    switched.bundle, switched.evaluator = _loaded(tuple(sorted(after.items())))
    switched.switch()
    switched.turns(MOST_TURNS)

    def seen(world: World) -> list[object]:
        groups = world.groups
        of_pod = [(groups.keys_of(pod.uid), groups.tried_in(pod.uid)) for pod in pods]
        keys = {key for keys, _ in of_pod for key in keys}
        gates = [world.queue.describe(pod.key).get("gate_reason") for pod in pods]
        return [of_pod, {key: groups.members_of(key) for key in keys}, gates]

    assert seen(switched) == seen(fresh)


# --- another one acts in between -------------------------------------------------------------


def test_a_process_that_starts_amid_the_preemption_for_a_group_evicts_no_more() -> None:
    """The pods' status says where they are nominated; the process before chose the victims."""
    preempted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    world = grown(3, PREEMPTING)
    world.add(bound("going", cpu=2, terminating=True, status={"conditions": [preempted]}))
    world.add(bound("other", cpu=1))
    world.put_object(POD_GROUPS, pod_group(2, priority=9))
    for name in ("a", "b"):
        world.add(in_group(name, priority=9, nominated="n"))
    rest(world)
    assert not [one for one in world.done if isinstance(one, Evict)]
    assert all(world.queue.nominator.node_of(world.known[name].uid) == "n" for name in ("a", "b"))
    world.delete("going")
    world.come_to_rest()
    assert all(world.known[name].node_name == "n" for name in ("a", "b"))


def test_a_pod_that_cannot_stay_is_in_the_way_of_no_other_that_can() -> None:
    world = grown(4, PREEMPTING)
    world.add(bound("large", cpu=3, priority=3))
    world.add(bound("small", cpu=1, priority=2))
    world.put_object(POD_GROUPS, pod_group(2, priority=9))
    for name in ("a", "b"):
        world.add(in_group(name, priority=9))
    rest(world)
    assert [[pod.name for pod in one.victims] for one in evictions(world)] == [["large"]]


def test_a_group_that_loses_one_that_it_does_not_need_goes_on_waiting() -> None:
    """As many as it needs are enough; with one less it lets go of its nodes."""
    body = (
        'def group_of(pod):\n    return gang("g", min_count = 2)\n'
        'def permit(pod, group):\n    return wait(60, "for you")\n'
    )
    world = grown(8, {"mine.star": body})
    decided(world, *(make_pod(name, cpu=1) for name in ("a", "b", "c")))
    assert len(world.permits) == 3
    world.delete("c")
    assert len(world.permits) == 2
    world.delete("b")
    assert len(world.permits) == 0
    assert world.cache.pod_count == 0


@pytest.mark.parametrize(
    ("priority", "cpu", "spec", "result"),
    [
        (9, 1, {}, "Success"),
        (9, 5, {}, "Unschedulable"),
        (1, 1, {}, "UnschedulableAndUnresolvable"),
        (9, 1, {"preemptionPolicy": "Never"}, "Unschedulable"),
    ],
)
def test_what_preemption_did_for_a_group_is_counted_as_that(
    priority: int, cpu: int, spec: dict[str, str], result: str
) -> None:
    world = grown(2, PREEMPTING)
    world.add(bound("low", cpu=2, priority=1))
    world.put_object(POD_GROUPS, pod_group(2, priority=priority))
    for name in ("a", "b"):
        world.add(in_group(name, priority=priority, cpu=cpu, spec=spec))
    rest(world)
    counted = {
        sample.labels["result"]: sample.value
        for metric in world.registry.collect()
        for sample in metric.samples
        if sample.name == "scheduler_workload_preemption_attempts_total" and sample.value
    }
    assert counted == {result: 1}
    assert len(evictions(world)) == (result == "Success")


def test_a_group_that_is_evicted_whole_for_another_is_counted_once() -> None:
    world = grown(2, PREEMPTING)
    world.put_object(POD_GROUPS, pod_group(2, name="low", priority=1, disruptionMode={"all": {}}))
    for name in ("l-0", "l-1"):
        world.add(in_group(name, group="low", node="n", priority=1))
    world.put_object(POD_GROUPS, pod_group(2, priority=9))
    for name in ("a", "b"):
        world.add(in_group(name, priority=9))
    rest(world)
    name = "scheduler_preemption_workload_disruptions_sum"
    assert world.registry.get_sample_value(name, {"preemptor": "podgroup"}) == 1


def test_a_policy_that_fails_for_one_pod_ends_the_attempt_of_its_group() -> None:
    """The others learn of it; no node is held for them, and none of them is tried in vain."""
    body = 'def filter(pod, node):\n    return fail("x") if pod.name == "b" else None\n'
    config = GANGS["config.yaml"].replace("{name: NodeResourcesFit}", "{name: mine}")
    world = grown(8, {"config.yaml": config, "mine.star": body})
    for name in ("a", "b", "c"):
        world.add(member(name, "red", 2, 1, 0))
    world.turns(1)
    messages = told(world)
    assert world.cache.pod_count == 0
    assert not world.bindings
    assert messages["a"] == messages["c"]
    assert messages["b"] in messages["a"]
    assert messages["b"] != messages["a"]  # it learns of its own failure
    assert {world.queue.describe(f"default/{name}")["error_count"] for name in "abc"} == {1}


def test_the_rest_of_a_group_is_tried_again_as_soon_as_enough_have_a_node() -> None:
    world = grown(2)
    world.put_object(POD_GROUPS, pod_group(2))
    for name in ("a", "b", "c"):
        world.add(in_group(name))
    rest(world)
    assert world.queue.describe("default/c")["attempts"] == 2


def test_a_pod_on_a_node_that_changes_wakes_those_that_it_may_let_in() -> None:
    world = World({"config.yaml": only("NodeResourcesFit", "InterPodAffinity")})
    world.add_node(make_node("n", cpu=8))
    term = {
        "labelSelector": {"matchLabels": {"app": "db"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    world.add(bound("db", cpu=1))
    world.add(make_pod("web", cpu=1, affinity=near))
    rest(world)
    assert not world.bindings
    uid = world.known["db"].uid
    world.change(bound("db", cpu=1, uid=uid, labels={"app": "db"}))
    world.wait(11.0)
    rest(world)
    assert [one.pod.name for one in world.bindings] == ["web"]


def test_a_binding_that_fails_releases_what_its_group_holds_if_too_few_are_left() -> None:
    """One was approved before the others; without it they can no longer be whole."""
    body = (
        'def group_of(pod):\n    return gang("g", min_count = 2)\n'
        'def permit(pod, group):\n    return None if pod.name == "a" else wait(60, "for a")\n'
    )
    for succeeds, waiting in ((True, 1), (False, 0)):
        world = grown(8, {"mine.star": body})
        decided(world, make_pod("a", cpu=1), make_pod("b", cpu=1))
        assert [one.pod.name for one in world.bindings] == ["a"]
        world.end_binding(0, succeeds=succeeds)
        assert len(world.permits) == waiting
        world.check()


@pytest.mark.parametrize("is_update", [False, True])
def test_an_object_that_comes_or_changes_wakes_the_pods_that_it_may_let_in(
    is_update: bool,
) -> None:
    def namespace(**labels: str) -> Namespace:
        return Namespace(ObjectMeta(name="other", labels=labels))

    world = World({"config.yaml": only("NodeResourcesFit", "InterPodAffinity")})
    world.add_node(make_node("n", cpu=8))
    term = {
        "labelSelector": {"matchLabels": {"app": "db"}},
        "namespaceSelector": {"matchLabels": {"team": "a"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    before = namespace() if is_update else None
    if before is not None:
        world.put_object("namespaces", before)
    world.add(make_pod("db", namespace="other", node="n", labels={"app": "db"}))
    world.add(make_pod("web", cpu=1, affinity=near))
    rest(world)
    assert not world.bindings
    world.report(ObjectChanged("namespaces", before, namespace(team="a")))
    world.wait(11.0)
    rest(world)
    assert [one.pod.name for one in world.bindings] == ["web"]
