"""Reuse beside none, over devices: pods alike get the devices that a search on every node finds.

As `test_reuse_changes_nothing`, for the plugin that finds devices. What is decided is reserved, and
some of it given back; claims are allocated and deleted by others, pools and classes change, nodes
come and go. The other scheduler asks the same plugin about every node, every time.
"""

import copy
import itertools
from typing import Any, Final
from unittest import mock

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.core.caching.cache import Cache
from engine.core.model.node import Node
from engine.core.model.objects import from_plain
from engine.core.model.pod import Pod
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.plugins.dynamic_resources import DynamicResources
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.files.world import OBJECT_KINDS, pod_of
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from tests.builders import make_pod, node_manifest
from tests.engine.core.scheduling.devices.builders import (
    DRIVER,
    Json,
    claim,
    claiming_pod,
    device_class,
    request,
    resource_slice,
    taint_rule,
)
from tests.profiles import only
from tests.searching import examples

pytestmark = pytest.mark.slow("searches for long")

NODES: Final = ("n0", "n1", "n2", "n3")
RESOURCE, EXTENDED = "example.com/gpu", "extended"
PROFILE: Final = only("NodeResourcesFit", "DynamicResources", "DefaultPreemption")
BUNDLE: Final = build_bundle({"profile.yaml": PROFILE})

#: What pods ask for, by kind; a kind is asked for again and again.
REQUESTS: Final[dict[str, list[Json]]] = {
    "one": [request()],
    "two": [request(count=2)],
    "all": [request(allocationMode="All")],
    "large": [request(device_class="large")],
    "tolerant": [request(tolerations=[{"operator": "Exists"}])],
    "both": [request("a"), request("b", "large")],
    "either": [
        {
            "name": "r",
            "firstAvailable": [
                {"name": "x", "deviceClassName": "large"},
                {"name": "y", "deviceClassName": "gpu"},
            ],
        }
    ],
}


def _device(name: str, size: int, **more: Any) -> Json:
    return {"name": name, "attributes": {"size": {"int": size}}, **more}


PART: Final[Json] = {"counterSet": "board", "counters": {"parts": {"value": "1"}}}
COUNTERS: Final[list[Json]] = [{"name": "board", "counters": {"parts": {"value": "2"}}}]

DEVICES: Final[list[list[Json]]] = [
    [],
    [_device("g0", 1)],
    [_device("g0", 1), _device("g1", 2)],
    [_device("g0", 2), _device("g1", 2), _device("g2", 1)],
    [_device("g1", 1), _device("g2", 2)],
    [_device("g0", 1, capacity={"memory": {"value": "2Gi"}}, allowMultipleAllocations=True)],
    [_device(f"g{number}", 1, consumesCounters=[PART]) for number in range(3)],
]
LABELS: Final[list[dict[str, str]]] = [{}, {"zone": "x"}, {"zone": "y"}]
OFFERS: Final[list[dict[str, int]]] = [{}, {}, {RESOURCE: 0}, {RESOURCE: 1}]


class ReuseWithDevices(RuleBasedStateMachine):
    """A cluster whose devices change at random, and pods that take them."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache()
        self.plugin = DynamicResources(self.cache.objects)
        self.remembering, self.plain = (
            Scheduler(
                BUNDLE,
                InProcessEvaluator(BUNDLE.program),
                plugins={self.plugin.name: self.plugin},
            )
            for _ in range(2)
        )
        self.nodes: dict[str, Node] = {}
        self.reserved: list[tuple[Any, Any, str]] = []
        self.placed: dict[int, Pod] = {}
        self.number = 0
        for number, name in enumerate(NODES):
            self.a_node_comes_or_changes(name, {}, {})
            self.a_pod_is_placed(number, name, "2")
            self._put(resource_slice(name, *DEVICES[2]))
        self._put(device_class(extendedResourceName=RESOURCE))
        self._put(device_class("large", 'device.attributes["gpu.example.com"].size > 1'))

    def _put(self, plain: Json) -> str:
        plural, record = OBJECT_KINDS[plain["kind"]]
        obj: Any = from_plain(record, copy.deepcopy(plain))
        meta = obj.metadata
        key = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
        self.cache.objects.put(plural, obj)
        return str(key)

    # --- the cluster changes -----------------------------------------------------------------

    @rule(
        name=st.sampled_from(NODES),
        labels=st.sampled_from(LABELS),
        offers=st.sampled_from(OFFERS),
    )
    def a_node_comes_or_changes(
        self, name: str, labels: dict[str, str], offers: dict[str, int]
    ) -> None:
        plain = node_manifest(name, labels=labels)
        plain["status"]["allocatable"] |= offers
        node = Node.from_raw(msgspec.json.encode(plain))
        self.cache.add_node(node)
        self.nodes[name] = node

    @rule(name=st.sampled_from(NODES))
    def a_node_goes(self, name: str) -> None:
        if self.nodes.pop(name, None) is not None:
            self.cache.remove_node(name)

    @rule(name=st.sampled_from(NODES), devices=st.sampled_from(DEVICES))
    def a_pool_changes(self, name: str, devices: list[Json]) -> None:
        self._put(resource_slice(name, *devices, sharedCounters=COUNTERS))

    @rule(devices=st.sampled_from(DEVICES), zone=st.sampled_from(["", "x", "y"]))
    def a_pool_of_many_nodes_changes(self, devices: list[Json], zone: str) -> None:
        where: Json = {"allNodes": True, "sharedCounters": COUNTERS}
        if zone:
            values = {"key": "zone", "operator": "In", "values": [zone]}
            del where["allNodes"]
            where["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": [values]}]}
        made = resource_slice("", *devices, name="shared", **where)
        made["spec"]["pool"]["name"] = "shared"
        del made["spec"]["nodeName"]
        self._put(made)

    @rule(least=st.integers(0, 3))
    def a_class_changes(self, least: int) -> None:
        self._put(device_class("large", f'device.attributes["gpu.example.com"].size > {least}'))

    @rule(effect=st.sampled_from(["None", "NoSchedule"]), pool=st.sampled_from(NODES))
    def devices_are_tainted(self, effect: str, pool: str) -> None:
        self._put(taint_rule("rule", {"pool": pool}, key="k", effect=effect))

    @rule(pool=st.sampled_from([*NODES, "shared"]), device=st.sampled_from(["g0", "g1", "g2"]))
    def another_scheduler_allocates(self, pool: str, device: str) -> None:
        made = claim(f"other-{pool}-{device}")
        result = {"request": "r", "driver": DRIVER, "pool": pool, "device": device}
        self._put(made | {"status": {"allocation": {"devices": {"results": [result]}}}})

    @rule(pool=st.sampled_from([*NODES, "shared"]), device=st.sampled_from(["g0", "g1", "g2"]))
    def another_claim_goes(self, pool: str, device: str) -> None:
        key = f"default/other-{pool}-{device}"
        if self.cache.objects.get("resourceclaims", key) is not None:
            self.cache.objects.delete("resourceclaims", key)

    @rule(data=st.data())
    def a_pod_gives_its_devices_back(self, data: st.DataObject) -> None:
        if self.reserved:
            place = data.draw(st.integers(0, len(self.reserved) - 1))
            state, pod, node = self.reserved.pop(place)
            self.plugin.unreserve(state, pod, node)

    @rule(
        number=st.integers(0, 5), node=st.sampled_from(NODES), cpu=st.sampled_from(["1", "2", "4"])
    )
    def a_pod_is_placed(self, number: int, node: str, cpu: str) -> None:
        self.a_placed_pod_goes(number)
        # Of equally important pods those are reprieved that came first.
        pod = make_pod(f"placed-{number}", node=node, cpu=cpu, priority=number)
        self.placed[number] = pod
        self.cache.add_pod(pod)

    @rule(number=st.integers(0, 5))
    def a_placed_pod_goes(self, number: int) -> None:
        pod = self.placed.pop(number, None)
        if pod is not None:
            self.cache.remove_pod(pod)

    # --- decisions -----------------------------------------------------------------------------

    @rule(kind=st.sampled_from([*sorted(REQUESTS), EXTENDED]), stays=st.booleans())
    def a_pod_takes_the_same_devices(self, kind: str, stays: bool) -> None:
        self.number += 1
        pod = self._pod(kind, f"p{self.number}")
        got, want = self._decided(pod)
        if got.node is None:
            return
        taken = []
        for decision in (want, got):
            ((_, state),) = decision.reserves
            assert self.plugin.reserve(state, pod, got.node) is None
            answer = state.answers.get(got.node)
            taken.append([] if answer is None else list(answer.allocations.values()))
            if decision is want or not stays:
                self.plugin.unreserve(state, pod, got.node)
        assert taken[0] == taken[1], kind
        if stays:
            self.reserved.append((state, pod, got.node))

    @invariant()
    def every_kind_of_pod_is_decided_alike(self) -> None:
        for kind, cpu in itertools.product((*REQUESTS, EXTENDED), ("0", "3")):
            got, want = self._decided(self._pod(kind, kind, cpu))
            assert (got.node, got.feasible_count) == (want.node, want.feasible_count), kind
            assert got.message() == want.message(), kind
            assert got.eviction == want.eviction, kind
            assert not got.failures

    def _decided(self, pod: Pod) -> tuple[Decision, Decision]:
        """What the scheduler that remembers decides, and the other one."""
        snapshot = self.cache.snapshot()
        got = self.remembering.schedule(pod, snapshot)
        with mock.patch.object(DynamicResources, "kind_of", return_value=None):
            return got, self.plain.schedule(pod, snapshot)

    def _pod(self, kind: str, name: str, cpu: str = "0") -> Pod:
        """A pod of *kind*, with its claim in the cluster; it preempts if it asks for much."""
        words: dict[str, Any] = {"cpu": cpu, "priority": 9}
        if kind == EXTENDED:
            return pod_of(claiming_pod(name, requests={RESOURCE: "1"}, **words))
        if self.cache.objects.get("resourceclaims", f"default/{name}") is None:
            self._put(claim(name, *REQUESTS[kind]))
        return pod_of(claiming_pod(name, name, **words))


TestReuseWithDevices = ReuseWithDevices.TestCase
TestReuseWithDevices.settings = settings(
    max_examples=examples(25), stateful_step_count=40, deadline=None
)
