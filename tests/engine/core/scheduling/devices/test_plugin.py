"""DynamicResources as the loop uses it: reservations, shared claims, bad input, bounded time."""

import time
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from engine.core.framework.behaviors import behaviors_of
from engine.core.framework.status import Code, Status
from engine.core.model.devices import ResourceClaim
from engine.core.model.objects import from_plain
from engine.core.model.pod import Pod
from engine.core.scheduling.plugins.dynamic_resources import DynamicResources
from engine.files.world import World, pod_of
from tests.builders import node_manifest
from tests.engine.core.scheduling.devices.builders import (
    DRIVER,
    claim,
    claiming_pod,
    device_class,
    request,
    resource_slice,
)

Json = dict[str, Any]


class Bench:
    """A world with the plugin on it."""

    def __init__(self, *objects: Json, nodes: tuple[str, ...] = ("a", "b")) -> None:
        self.world = World.from_manifests([node_manifest(n) for n in nodes], (), objects)
        self.objects = self.world.cache.objects
        self.plugin = DynamicResources(self.objects)

    def decide(self, pod: Pod, **arguments: Any) -> tuple[Any, dict[str, Status | None]]:
        """The state of the pod and what filter says of each node, or the pod's rejection."""
        state = self.plugin.pre_filter(pod, self.world.snapshot, arguments)
        if state is None or isinstance(state, Status):
            return state, {}
        infos = [info for info in self.world.snapshot.infos if info is not None]
        said = {info.name: self.plugin.filter(state, info) for info in infos}
        assert_says_the_same_of_the_others(self.plugin, state, said)
        return state, said

    def feasible(self, pod: Pod) -> list[str]:
        state, statuses = self.decide(pod)
        assert not isinstance(state, Status), state
        return [name for name, status in statuses.items() if status is None]

    def place(self, pod: Pod, node: str) -> Any:
        """Decide for a node and reserve."""
        state, statuses = self.decide(pod)
        assert statuses[node] is None, statuses
        assert self.plugin.reserve(state, pod, node) is None
        return state

    def stored(self, key: str) -> ResourceClaim:
        found = self.objects.get("resourceclaims", key)
        assert isinstance(found, ResourceClaim)
        return found

    def write(self, state: Any, node: str) -> None:
        """What the writer and then the watch do with a reservation."""
        for index, allocation in state.answers[node].allocations.items():
            found = self.stored(state.claims[index].key)
            status = msgspec.structs.replace(found.status, allocation=allocation)
            self.objects.put("resourceclaims", msgspec.structs.replace(found, status=status))
            state.known.withdraw(found.metadata.uid, state.pod.uid)


def pod(name: str, *claims: str, **words: Any) -> Pod:
    return pod_of(claiming_pod(name, *claims, **words))


def assert_says_the_same_of_the_others(
    plugin: DynamicResources, state: Any, said: Mapping[str, Status | None]
) -> None:
    """Nodes that `only_nodes` leaves out are not asked about, so it has to know the answer."""
    only = plugin.only_nodes(state)
    if only is not None:
        names, status = only
        assert {name: status for name in said if name not in names} == {
            name: answer for name, answer in said.items() if name not in names
        }


def reasons(status: Any) -> tuple[str, ...]:
    assert isinstance(status, Status)
    return status.reasons


def test_it_has_nothing_to_say_about_a_pod_without_claims() -> None:
    bench = Bench(device_class(), resource_slice("a", "g0"))
    assert bench.decide(pod("p")) == (None, {})
    assert bench.plugin.post_filter(None, pod("p"), {}, bench.world.snapshot) is None


def test_a_reservation_is_taken_for_the_next_decision() -> None:
    bench = Bench(device_class(), resource_slice("a", "g0"), claim("one"), claim("two"))
    bench.place(pod("p", "one"), "a")
    assert bench.feasible(pod("q", "two")) == []


def test_a_reservation_that_is_given_up_is_free_again() -> None:
    bench = Bench(device_class(), resource_slice("a", "g0"), claim("one"), claim("two"))
    first = pod("p", "one")
    state = bench.place(first, "a")
    bench.plugin.unreserve(state, first, "a")
    assert bench.feasible(pod("q", "two")) == ["a"]


def test_what_was_reserved_stays_taken_while_it_becomes_what_is_stored() -> None:
    bench = Bench(device_class(), resource_slice("a", "g0"), claim("one"), claim("two"))
    bench.write(bench.place(pod("p", "one"), "a"), "a")
    assert bench.feasible(pod("q", "two")) == []
    assert bench.feasible(pod("r", "one")) == ["a"], "a claim is shared once it is allocated"


def test_a_claim_that_another_scheduler_allocated_meanwhile_is_not_reserved() -> None:
    bench = Bench(device_class(), resource_slice("a", "g0", "g1"), claim("one"))
    member = pod("p", "one")
    state, _ = bench.decide(member)
    elsewhere = from_plain(ResourceClaim, _allocated("one", device="g1"))
    bench.objects.put("resourceclaims", elsewhere)
    assert bench.plugin.reserve(state, member, "a") is None
    assert state.known.reservation_of("uid-default-one") is None


def test_a_claim_that_goes_gives_its_devices_back() -> None:
    bench = Bench(device_class(), resource_slice("a", "g0"), claim("one"), claim("two"))
    bench.write(bench.place(pod("p", "one"), "a"), "a")
    bench.objects.delete("resourceclaims", "default/one")
    assert bench.feasible(pod("q", "two")) == ["a"]


def test_pods_share_a_claim_that_is_being_allocated() -> None:
    """A gang binds together, so its second pod cannot wait for the first one's claim."""
    bench = Bench(
        device_class(), resource_slice("a", "g0"), resource_slice("b", "g0"), claim("one")
    )
    first, second = pod("p", "one"), pod("q", "one")
    one = bench.place(first, "a")
    assert bench.feasible(second) == ["a"]
    two = bench.place(second, "a")
    bench.plugin.unreserve(one, first, "a")
    assert bench.feasible(pod("other", "one")) == ["a"], "the second one needs it still"
    bench.plugin.unreserve(two, second, "a")
    assert bench.feasible(pod("other", "one")) == ["a", "b"]


def test_a_write_is_seen_although_the_watch_still_shows_an_older_version() -> None:
    """The finalizer comes back through the watch before the allocation does.

    Were the claim shown as the watch has it, its devices would be given away a second time.
    """
    stored = claim("one")
    stored["metadata"]["resourceVersion"] = "5"
    bench = Bench(device_class(), resource_slice("a", "g0"), stored, claim("two"))
    first = pod("p", "one")
    state = bench.place(first, "a")
    before = bench.stored("default/one")
    allocation = state.answers["a"].allocations[0]

    def version(number: str, **status: Any) -> ResourceClaim:
        return msgspec.structs.replace(
            before,
            metadata=msgspec.structs.replace(before.metadata, resource_version=number),
            status=msgspec.structs.replace(before.status, **status),
        )

    state.known.wrote(version("7", allocation=allocation), before.metadata.uid)
    bench.objects.put("resourceclaims", version("6"))
    assert bench.feasible(pod("q", "two")) == []
    bench.objects.put("resourceclaims", version("7", allocation=allocation))
    assert bench.feasible(pod("q", "two")) == []
    bench.objects.put("resourceclaims", version("8"))  # deallocated by somebody
    assert bench.feasible(pod("q", "two")) == ["a"]


def test_a_claim_that_was_deleted_while_it_was_written_holds_nothing() -> None:
    bench = Bench(device_class(), resource_slice("a", "g0"), claim("one"), claim("two"))
    first = pod("p", "one")
    state = bench.place(first, "a")
    before = bench.stored("default/one")
    status = msgspec.structs.replace(before.status, allocation=state.answers["a"].allocations[0])
    bench.objects.delete("resourceclaims", "default/one")
    state.known.wrote(msgspec.structs.replace(before, status=status), before.metadata.uid)
    assert bench.feasible(pod("q", "two")) == ["a"]


def test_devices_that_went_elsewhere_during_the_decision_are_not_reserved() -> None:
    bench = Bench(device_class(), resource_slice("a", "g0"), claim("one"), claim("two"))
    first, second = pod("p", "one"), pod("q", "two")
    state, _ = bench.decide(first)
    bench.place(second, "a")
    assert bench.plugin.reserve(state, first, "a") is not None


_ON_A: Json = {
    "nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    ]
}


def test_an_allocation_that_names_its_node_leaves_the_others_out() -> None:
    objects = device_class(), resource_slice("a", "g0"), _allocated("one", _ON_A), claim("two")
    bench = Bench(*objects, nodes=("a", "b", "c"))
    state, said = bench.decide(pod("p", "one"))
    only = bench.plugin.only_nodes(state)
    assert only is not None
    assert (only[0], only[1]) == ({"a"}, said["b"])
    # A search that fails says why it does, and not that the other claim is elsewhere.
    assert bench.plugin.only_nodes(bench.decide(pod("q", "one", "two"))[0]) is None


def test_a_claim_that_keeps_its_pod_from_nodes_that_were_left_out_is_given_up() -> None:
    bench = Bench(device_class(), resource_slice("a", "g0"), _allocated("one", _ON_A))
    late = pod("p", "one")
    state = bench.plugin.pre_filter(late, bench.world.snapshot, {})
    bench.plugin.leave_out(state, iter(["a"]))
    assert bench.plugin.post_filter(state, late, {}, bench.world.snapshot) is None
    bench.plugin.leave_out(state, iter(["a", "b"]))
    given_up = bench.plugin.post_filter(state, late, {}, bench.world.snapshot)
    assert given_up is not None
    assert given_up.message == "deallocation of ResourceClaim completed"


def test_nodes_without_devices_are_searched_once() -> None:
    nodes = tuple(f"n{i}" for i in range(2_000))
    bench = Bench(device_class(), resource_slice("n7", "g0"), claim("one"), nodes=nodes)
    state, statuses = bench.decide(pod("p", "one"))
    assert [name for name, status in statuses.items() if status is None] == ["n7"]
    assert len(state.searches) == 2


def test_an_earlier_alternative_scores_higher() -> None:
    either = {
        "name": "r",
        "firstAvailable": [
            {"name": "big", "deviceClassName": "big"},
            {"name": "any", "deviceClassName": "gpu"},
        ],
    }
    big = device_class("big", 'device.attributes["gpu.example.com"].?size.orValue("") == "big"')
    bench = Bench(
        device_class(),
        big,
        resource_slice("a", "g0"),
        resource_slice("b", {"name": "g0", "attributes": {"size": {"string": "big"}}}),
        claim("one", either),
    )
    first = pod("p", "one")
    state, statuses = bench.decide(first)
    assert set(statuses.values()) == {None}
    infos = [info for info in bench.world.snapshot.infos if info is not None]
    raw = bench.plugin.score(state, infos)
    assert raw is not None
    assert list(raw) == [7, 8]
    assert list(bench.plugin.normalize(raw)) == [87, 100]


def test_the_same_question_has_the_same_answer() -> None:
    slices = [resource_slice(n, "g0", "g1", "g2") for n in ("a", "b")]
    made = []
    for order in (slices, slices[::-1]):
        bench = Bench(device_class(), *order, claim("one", request(count=2)))
        state, _ = bench.decide(pod("p", "one", uid="u"))
        answers = {n: msgspec.json.encode(x.allocations[0]) for n, x in state.answers.items()}
        made.append(answers)
    assert made[0] == made[1]


# --- extended resources ----------------------------------------------------------------------


def test_devices_stand_for_an_extended_resource_where_the_node_has_none() -> None:
    nodes = [
        node_manifest("a"),
        node_manifest("b", allocatable={"example.com/gpu": "4"}),
        node_manifest("c"),
    ]
    world = World.from_manifests(
        nodes,
        (),
        [device_class(extendedResourceName="example.com/gpu"), resource_slice("a", "g0", "g1")],
    )
    plugin = DynamicResources(world.cache.objects)
    asking = pod_of(claiming_pod("p", requests={"example.com/gpu": "2"}))
    state = plugin.pre_filter(asking, world.snapshot, {})
    said = {i.name: plugin.filter(state, i) for i in world.snapshot.infos if i is not None}
    assert said["a"] is None
    assert said["b"] is None
    assert reasons(said["c"]) == ("cannot allocate all claims",)
    assert plugin.reserve(state, asking, "b") is None, "the node has the resource itself"
    assert plugin.reserve(state, asking, "a") is None
    answer = state.answers["a"]
    assert [m.plain() for m in answer.mappings] == [
        {
            "containerName": "main",
            "resourceName": "example.com/gpu",
            "requestName": "container-0-request-0",
        }
    ]
    again = plugin.pre_filter(
        pod_of(claiming_pod("q", requests={"example.com/gpu": "1"})), world.snapshot, {}
    )
    info = world.snapshot.info("a")
    assert info is not None
    assert reasons(plugin.filter(again, info)) == ("cannot allocate all claims",)


def test_init_containers_use_the_devices_of_the_containers_after_them() -> None:
    world = World.from_manifests(
        [node_manifest("a")],
        (),
        [device_class(extendedResourceName="example.com/gpu"), resource_slice("a", "g0", "g1")],
    )
    plugin = DynamicResources(world.cache.objects)
    one = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    two = {"requests": {"example.com/gpu": "2"}, "limits": {"example.com/gpu": "2"}}
    asking = pod_of(
        claiming_pod(
            "p",
            containers=[{"name": "main", "resources": one}],
            init_containers=[{"name": "first", "resources": two}],
        )
    )
    state = plugin.pre_filter(asking, world.snapshot, {})
    info = world.snapshot.info("a")
    assert info is not None
    assert plugin.filter(state, info) is None
    extended = state.answers["a"].extended
    assert extended is not None
    counts = {r.name: r.exactly and r.exactly.count for r in extended.spec.devices.requests}
    assert counts == {"container-0-request-0": 1, "container-1-request-0": 1}


@pytest.mark.parametrize("minor", [37, 38])
def test_of_classes_that_name_a_resource_the_best_that_is_there_stands_for_it(minor: int) -> None:
    """kube-scheduler until 1.37 knows of none any more when one of them goes, or is renamed.

    Source: `ExtendedResourceCache` of dynamic-resource-allocation, 0.37.2 and 0.38.0-beta.0.
    """

    def named(name: str, day: int, resource: str = "example.com/gpu") -> Json:
        made = device_class(name, extendedResourceName=resource)
        made["metadata"]["creationTimestamp"] = f"2026-01-0{day}T00:00:00Z"
        return made

    classes = named("middle", 2), named("new", 3), named("old", 1)
    bench = Bench(*classes, resource_slice("a", "g0"))
    bench.objects.behaves = behaviors_of(minor)

    def meant() -> Any:
        asking = pod_of(claiming_pod("p", requests={"example.com/gpu": "1"}))
        state, statuses = bench.decide(asking)
        if state is None:
            return None
        assert statuses["a"] is None
        [asked] = state.answers["a"].extended.spec.devices.requests
        return asked.exactly.device_class_name

    assert meant() == "new"
    bench.objects.delete("deviceclasses", "old")
    assert meant() == "new"
    renamed = World.from_manifests([], (), [named("new", 3, "example.com/other")])
    bench.objects.put("deviceclasses", *renamed.cache.objects.list("deviceclasses"))
    assert meant() == "middle"
    bench.objects.delete("deviceclasses", "middle")
    assert meant() is None


# --- what a newer Kubernetes may ask for ------------------------------------------------------


def _allocated(name: str, node_selector: Json | None = None, **result: Any) -> Json:
    made = claim(name)
    device = {"request": "r", "driver": DRIVER, "pool": "a", "device": "g0", **result}
    allocation: Json = {"devices": {"results": [device]}}
    if node_selector is not None:
        allocation["nodeSelector"] = node_selector
    return made | {"status": {"allocation": allocation}}


def _declaring(*features: str) -> Json:
    return node_manifest("b") | {"status": {"declaredFeatures": list(features)}}


@pytest.mark.parametrize("is_pending", [False, True], ids=["allocated", "on its way"])
def test_devices_without_node_operations_need_a_node_that_can_do_without(is_pending: bool) -> None:
    one = _allocated("one", skipNodeOperations=["Prepare"])
    nodes = [node_manifest("a"), _declaring("DRAOptionalNodeOperations")]
    world = World.from_manifests(nodes, (), [one if not is_pending else claim("one")])
    plugin = DynamicResources(world.cache.objects)
    member = pod("p", "one")
    want = "resourceclaim not available on the node"
    if is_pending:
        allocation = from_plain(ResourceClaim, one).allocation
        assert allocation is not None
        plugin._known(world.cache.objects).reserve("uid-default-one", allocation, "other")
        want = (
            "resource claim default/one allocation requires DRAOptionalNodeOperations feature "
            "on the node"
        )
    state = plugin.pre_filter(member, world.snapshot, {})
    infos = [info for info in world.snapshot.infos if info is not None]
    said = {info.name: plugin.filter(state, info) for info in infos}
    assert reasons(said["a"]) == (want,)
    assert said["b"] is None


_UNKNOWN_OPERATOR: Json = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "Near", "values": ["x"]}]}
    ]
}


def test_an_allocation_for_nodes_that_cannot_be_told_costs_its_pods_the_attempt() -> None:
    bench = Bench(device_class(), _allocated("one", _UNKNOWN_OPERATOR), claim("two"))
    state, _ = bench.decide(pod("p", "one"))
    assert isinstance(state, Status)
    assert state.code is Code.ERROR
    assert state.message == (
        "resource claim default/one: nodeSelector of its allocation: "
        "`zone`: unknown operator `Near`"
    )
    assert not isinstance(bench.decide(pod("q", "two"))[0], Status)


def test_a_slice_for_nodes_that_cannot_be_told_spoils_its_own_pool_alone() -> None:
    odd = resource_slice("odd", "g1", nodeSelector=_UNKNOWN_OPERATOR)
    del odd["spec"]["nodeName"]
    bench = Bench(device_class(), resource_slice("a", "g0"), odd, claim("one"))
    _, statuses = bench.decide(pod("p", "one"))
    assert statuses["a"] is None
    assert reasons(statuses["b"]) == ("invalid resource pools were encountered",)


def test_a_device_that_cannot_be_had_keeps_no_counters() -> None:
    consumes = [{"counterSet": "card", "counters": {"memory": {"value": "10Gi"}}}]
    taints = [{"key": "broken", "effect": "NoSchedule"}]
    card = {"name": "card", "counters": {"memory": {"value": "10Gi"}}}
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 2}
    bench = Bench(
        device_class(),
        resource_slice(
            "a",
            {"name": "g0", "consumesCounters": consumes, "taints": taints},
            {"name": "g1", "consumesCounters": consumes},
            pool=pool,
        ),
        resource_slice("a", name="counters", sharedCounters=[card], pool=pool),
        claim("one"),
    )
    assert bench.feasible(pod("p", "one")) == ["a"]


def test_distinct_devices_stay_distinct_when_the_search_steps_back() -> None:
    def model(name: str, model: str, *, fast: bool = False) -> Json:
        return {"name": name, "attributes": {"model": {"string": model}, "fast": {"bool": fast}}}

    fast = _cel(f'device.attributes["{DRIVER}"].fast')
    wanted = claim(
        "one",
        request("different", count=2),
        request("fast", selectors=[fast]),
        constraints=[{"distinctAttribute": f"{DRIVER}/model", "requests": ["different"]}],
    )
    slices = resource_slice("a", model("g0", "b"), model("g2", "a", fast=True), model("g1", "b"))
    bench = Bench(device_class(), slices, wanted)
    assert bench.feasible(pod("p", "one")) == []


def test_a_pool_with_compatibility_groups_is_passed_over() -> None:
    counted = {"counterSet": "s", "counters": {}, "compatibilityGroups": ["x"]}
    bench = Bench(
        device_class(),
        resource_slice("a", {"name": "g0", "consumesCounters": [counted]}),
        resource_slice("b", "g0"),
        claim("one"),
    )
    assert bench.feasible(pod("p", "one")) == ["b"]


# --- what is wrong or too much ---------------------------------------------------------------


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("1 +", id="no expression"),
        pytest.param("device.nothing", id="unknown field"),
        pytest.param('"text"', id="no bool"),
        pytest.param("(" * 5_000 + "1" + ")" * 5_000, id="deep"),
        pytest.param("x" * 20_000, id="long"),
        pytest.param('device.attributes["x"].y == 1', id="attribute that is not there"),
        pytest.param("1 / 0 == 1", id="division by zero"),
        pytest.param('timestamp("2020-01-01T00:00:00Z") < timestamp("x")', id="not supported"),
        pytest.param('quantity("x") == quantity("1")', id="no quantity"),
        pytest.param("\x00", id="control character"),
        pytest.param("", id="empty"),
    ],
)
def test_a_selector_that_makes_no_sense_costs_the_pod_its_attempt(expression: str) -> None:
    bench = Bench(
        device_class(),
        resource_slice("a", "g0"),
        claim("one", request(selectors=[_cel(expression)])),
    )
    _, statuses = bench.decide(pod("p", "one"))
    status = statuses["a"]
    assert status is not None
    assert status.code is Code.ERROR
    assert status.message.startswith("claim default/one: selector #0")
    assert ": CEL " in status.message


_TEN = "[" + ",".join(["1"] * 10) + "]"


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(f"{_TEN}.all(a," * 9 + "true" + ")" * 9, id="nested loops"),
        pytest.param(
            'cel.bind(a, "0123456789", '
            + "".join(
                f"cel.bind({y}, {x} + {x} + {x} + {x}, "
                for x, y in zip("abcdefghij", "bcdefghijk", strict=True)
            )
            + 'k == ""'
            + ")" * 11,
            id="growing text",
        ),
        pytest.param(
            "lists.range(1000).map(x, lists.range(1000).map(y, x * y)).size() > 0", id="large lists"
        ),
        pytest.param(
            '"'
            + "a" * 5_000
            + '".matches("(a*)*b") || lists.range(100000).all(x, "'
            + "a" * 1_000
            + '".matches("(a|a)*b") || true)',
            id="patterns",
        ),
    ],
)
def test_a_selector_cannot_take_all_the_time_or_memory(expression: str) -> None:
    bench = Bench(
        device_class(),
        resource_slice("a", *(f"g{i}" for i in range(100))),
        claim("one", request(selectors=[_cel(expression)])),
        nodes=("a",),
    )
    started_at = time.monotonic()
    _, statuses = bench.decide(pod("p", "one"))
    assert time.monotonic() - started_at < 20
    status = statuses["a"]
    assert status is not None
    assert status.code is Code.ERROR
    assert "cost limit exceeded" in status.message or "timed out" in status.message


def test_a_search_without_end_is_cut_off_and_says_on_which_node() -> None:
    """Twelve of sixteen devices with values that never match: there are many ways to fail."""
    devices: list[Json] = [
        {"name": f"g{i}", "attributes": {"link": {"int": i % 8}, "x": {"int": 1}}}
        for i in range(40)
    ]
    bench = Bench(
        device_class(),
        resource_slice("a", *devices),
        claim(
            "one",
            request("r", count=8),
            request("s", count=8),
            request("t", count=8),
            constraints=[
                {"requests": ["r", "s"], "matchAttribute": "gpu.example.com/x"},
                {"requests": ["t"], "matchAttribute": "gpu.example.com/link"},
            ],
        ),
        nodes=("a",),
    )
    started_at = time.monotonic()
    _, statuses = bench.decide(pod("p", "one"), filter_timeout=1.0)
    assert time.monotonic() - started_at < 10
    status = statuses["a"]
    assert status is not None
    assert status.code is Code.ERROR
    assert status.message == "node a: timed out trying to allocate devices"


def test_more_devices_than_there_are_is_known_soon() -> None:
    """Without a look at how many are left, every subset of the devices would be tried."""
    bench = Bench(
        device_class(),
        resource_slice("a", *(f"g{i}" for i in range(31))),
        claim("one", request(count=32)),
        nodes=("a",),
    )
    state, statuses = bench.decide(pod("p", "one"))
    assert reasons(statuses["a"]) == ("cannot allocate all claims",)
    assert state.steps_left > 2_900_000


def test_many_claims_of_many_devices_do_not_exhaust_the_stack() -> None:
    names = [f"claim-{i}" for i in range(100)]
    slices = [
        resource_slice("a", *(f"g{k}" for k in range(128)), name=f"s{i}") | {} for i in range(25)
    ]
    for i, made in enumerate(slices):
        made["spec"]["pool"] = {"name": f"pool-{i}", "generation": 1, "resourceSliceCount": 1}
    bench = Bench(
        device_class(), *slices, *(claim(n, request(count=32)) for n in names), nodes=("a",)
    )
    state, statuses = bench.decide(pod("p", *names), filter_timeout=600.0)
    assert statuses == {"a": None}
    taken = {
        (r.pool, r.device)
        for allocation in state.answers["a"].allocations.values()
        for r in allocation.devices.results
    }
    assert len(taken) == 3_200


@pytest.mark.parametrize(
    "devices",
    [
        pytest.param([{"name": "g0", "capacity": {"m": {"value": "lots"}}}], id="quantity"),
        pytest.param(
            [
                {
                    "name": "g0",
                    "capacity": {
                        "m": {
                            "value": "1",
                            "requestPolicy": {"validRange": {"min": "-", "step": "0"}},
                        }
                    },
                }
            ],
            id="policy",
        ),
        pytest.param([{"name": "g0"}, {"name": "g0"}], id="the same name twice"),
        pytest.param(
            [{"name": "g0", "consumesCounters": [{"counterSet": "x", "counters": {}}]}],
            id="counter set that is not there",
        ),
    ],
)
def test_a_pool_that_makes_no_sense_is_passed_over(devices: list[Json]) -> None:
    bench = Bench(
        device_class(),
        resource_slice("a", *devices),
        resource_slice("b", *devices),
        resource_slice("b", "g0", name="sound", pool={"name": "x", "resourceSliceCount": 1}),
        claim("one"),
    )
    _, statuses = bench.decide(pod("p", "one"))
    assert reasons(statuses["a"]) == ("invalid resource pools were encountered",)
    assert statuses["b"] is None


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param(
            request(capacity={"requests": {"m": "x"}}),
            "claim default/one, request r: capacity: want a quantity, got `x`",
            id="quantity",
        ),
        pytest.param(
            request(allocationMode="Some"),
            "claim default/one, request r: unsupported count mode Some",
            id="mode",
        ),
        pytest.param(
            request(selectors=[{}]),
            "claim default/one, request r, selector #0: "
            "CEL expression empty (unsupported selector type?)",
            id="selector",
        ),
        pytest.param(
            request(count=33),
            "claim default/one, request r: adding 33 devices exceeds the claim limit of 32, "
            "with 0 already accounted for",
            id="count",
        ),
    ],
)
def test_a_request_that_makes_no_sense_costs_the_pod_its_attempt(asked: Json, want: str) -> None:
    bench = Bench(device_class(), resource_slice("a", "g0"), claim("one", asked))
    _, statuses = bench.decide(pod("p", "one"))
    status = statuses["a"]
    assert status is not None
    assert (status.code, status.message) == (Code.ERROR, want)


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param(
            {"name": "r"}, "resource claim default/one, request r: unknown request type", id="kind"
        ),
        pytest.param(
            request(device_class="nope"), "request r: device class nope does not exist", id="class"
        ),
    ],
)
def test_a_request_that_cannot_be_met_waits(asked: Json, want: str) -> None:
    bench = Bench(device_class(), resource_slice("a", "g0"), claim("one", asked))
    state, _ = bench.decide(pod("p", "one"))
    assert isinstance(state, Status)
    assert (state.code, state.reasons) == (Code.UNRESOLVABLE, (want,))


@pytest.mark.parametrize("name", ["missing", "c0", "deep"])
def test_a_pod_is_not_tried_before_its_claims_are_there(name: str) -> None:
    """A claim whose parameters cannot be read was said to be missing."""
    going = claim("c0")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    bench = Bench(going, {**claim("deep"), "isTooDeep": True})
    want = {
        "missing": 'could not find ResourceClaim "default/missing"',
        "c0": 'resourceclaim "c0" is being deleted',
        "deep": 'resourceclaim "deep" has parameters that nest too deep',
    }
    assert bench.plugin.pre_enqueue(pod("p", name), bench.world.snapshot) == want[name]
    state, _ = bench.decide(pod("p", name))
    assert reasons(state) == (want[name],)
    assert bench.plugin.pre_enqueue(pod("q"), bench.world.snapshot) is None


def test_thousands_of_devices_take_a_fraction_of_a_second() -> None:
    expression = 'device.attributes["gpu.example.com"].n >= 0 && device.driver == "gpu.example.com"'
    made = []
    for i in range(40):
        devices = [{"name": f"g{k}", "attributes": {"n": {"int": k}}} for k in range(128)]
        each = resource_slice(f"n{i % 20}", *devices, name=f"s{i}")
        each["spec"]["pool"] = {"name": f"p{i}", "generation": 1, "resourceSliceCount": 1}
        made.append(each)
    nodes = tuple(f"n{i}" for i in range(20))
    bench = Bench(
        device_class("gpu", expression), *made, claim("one", request(count=4)), nodes=nodes
    )
    started_at = time.monotonic()
    assert len(bench.feasible(pod("p", "one"))) == 20
    assert time.monotonic() - started_at < 3


def test_a_plain_record_keeps_what_the_api_sends() -> None:
    """What is written is made of records: it must be what the API server sent, field by field."""
    allocation = {
        "devices": {
            "results": [
                {
                    "request": "r",
                    "driver": "d",
                    "pool": "p",
                    "device": "x",
                    "adminAccess": True,
                    "shareID": "s",
                    "consumedCapacity": {"m": "1Gi"},
                    "tolerations": [{"operator": "Exists", "tolerationSeconds": 3}],
                    "bindingConditions": ["A"],
                    "bindingFailureConditions": ["B"],
                }
            ],
            "config": [
                {
                    "source": "FromClaim",
                    "requests": ["r"],
                    "opaque": {"driver": "d", "parameters": {"a": [1]}},
                }
            ],
        },
        "nodeSelector": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
            ]
        },
        "allocationTimestamp": "2026-01-01T00:00:00Z",
    }
    record = from_plain(ResourceClaim, {"status": {"allocation": allocation}})
    assert msgspec.json.decode(msgspec.json.encode(record))["status"]["allocation"] == allocation


def _cel(expression: str) -> Json:
    return {"cel": {"expression": expression}}
