"""Clusters that are hard on a scheduler: what an event costs, and whether other pods wait for it.

Owns the scenarios and the timing. In each round a scenario changes objects and adds pods of its
own; then an ordinary pod comes, and the kernel decides until that one has a node. What counts is
the time of every event, and the time of the ordinary pods, decisions about others included.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

import msgspec

from devkit.benchmarks import objects
from devkit.benchmarks.kernel_decisions import collecting_as_deciding, kernel_on, read, read_pod
from devkit.benchmarks.load import percentile
from devkit.benchmarks.objects import Manifest
from engine.core.kernel.events import (
    NODES,
    PODS,
    BindingFailed,
    Bound,
    Event,
    ObjectChanged,
    TimePassed,
    TurnBegan,
)
from engine.core.kernel.instructions import Bind, Instruction
from engine.core.kernel.kernel import Kernel, decided
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.scheduling.placement import Placement

#: Decisions about the scenario's own pods after each round, as far as there are any.
_MORE_DECISIONS: Final = 64
#: Pods of a scenario before its first round.
_WAITING_PODS: Final = 1000
#: Devices of one driver that all nodes reach, by slice as many as an API server takes.
_DEVICES, _DEVICES_PER_SLICE = 10_000, 128
_VOLUMES: Final = 10_000
_GATES_PER_ROUND: Final = 50
_FIRST_ORDINARY: Final = 50_000_000
_IMPORTANT: Final = 1000


@dataclass(frozen=True, slots=True)
class Result:
    """Figures of one run, in milliseconds.

    `placed` and `waiting` are the scenario's own pods at the end, `starved` the ordinary pods that
    found no node.
    """

    scenario: str
    title: str
    nodes: int
    events: int
    event_p50_ms: float
    event_p99_ms: float
    event_worst_ms: float
    ordinary: int
    starved: int
    ordinary_p50_ms: float
    ordinary_p99_ms: float
    ordinary_worst_ms: float
    placed: int
    waiting: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data, rounded to what is meaningful."""
        return {k: round(v, 4) if isinstance(v, float) else v for k, v in asdict(self).items()}


class World:
    """A kernel and what the API server would hold; every event is timed once `is_timed`.

    Its clock goes on by a second a round.
    """

    def __init__(self, kernel: Kernel, nodes: int, rounds: int) -> None:
        self.nodes = nodes
        self.rounds = rounds
        self.is_timed = False
        self.event_seconds: list[float] = []
        self.bound: dict[str, str] = {}  # node by uid
        #: Called with a placement; True if the API server takes the binding.
        self.takes: Callable[[Placement], bool] = lambda placement: True
        self._kernel = kernel
        self._held: dict[tuple[str, str], Any] = {}
        self._now = 0.0

    def put(self, manifest: Manifest) -> None:
        """Create or change an object that is neither a pod nor a node."""
        plural, record = read(manifest)
        self._change(plural, _key(manifest), record)

    def remove(self, manifest: Manifest) -> None:
        """Delete it."""
        self._change(read(manifest)[0], _key(manifest), None)

    def put_node(self, manifest: Manifest) -> None:
        """Create or change a node."""
        self._change(NODES, _key(manifest), Node.from_raw(msgspec.json.encode(manifest)))

    def put_pod(self, manifest: Manifest, number: int) -> str:
        """Create or change the pod with *number*, which is its uid; returns that."""
        pod = read_pod(manifest, number)
        self._change(PODS, pod.uid, pod)
        return pod.uid

    def remove_pod(self, uid: str) -> None:
        """Delete a pod."""
        self._change(PODS, uid, None)

    def decide_until(self, uid: str, more: int) -> float | None:
        """Decide until that pod has a node, and then up to *more* times.

        Returns the seconds up to the node; None if it has none when no pod can be tried any more.
        """
        found: float | None = None
        started = time.perf_counter()
        while True:
            self._report(TurnBegan())
            if found is None and uid in self.bound:
                found = time.perf_counter() - started
            if not self._kernel.queue.has_poppable or (found is not None and more <= 0):
                return found
            more -= found is not None
            self._carry_out(decided(self._kernel.decide(self._now)))

    def pass_time(self) -> None:
        """A second."""
        self._now += 1.0
        self._report(TimePassed())

    @property
    def waiting_count(self) -> int:
        """Pods in the queue."""
        return sum(self._kernel.queue.counts().values())

    def _change(self, plural: str, key: str, new: Any) -> None:
        old = self._held.pop((plural, key), None)
        if new is not None:
            self._held[plural, key] = new
        self._report(ObjectChanged(plural, old, new))

    def _report(self, event: Event) -> None:
        started = time.perf_counter()
        done = self._kernel.handle(event, self._now)
        if self.is_timed and not isinstance(event, TurnBegan):
            self.event_seconds.append(time.perf_counter() - started)
        self._carry_out(done)

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for one in instructions:
            if not isinstance(one, Bind):
                continue
            placement = one.placement
            if not self.takes(placement):
                self._report(BindingFailed(placement, "the claim is gone"))
                continue
            uid = placement.pod.uid
            self.bound[uid] = placement.node
            self._report(Bound(placement))
            pod: Pod = self._held[PODS, uid]
            self._change(PODS, uid, pod.with_node(placement.node))


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is there before, and what happens in each round."""

    name: str
    title: str
    prepare: Callable[[World], None]
    step: Callable[[World, int], None]
    priority: int = 0  # of the ordinary pods


def run_scenario(
    scenario: Scenario,
    nodes: int,
    rounds: int,
    progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> Result:
    """Run *rounds* rounds on *nodes* nodes."""
    seconds: list[float] = []
    starved = 0
    with kernel_on(nodes) as kernel:
        world = World(kernel, nodes, rounds)
        scenario.prepare(world)
        for number in range(-3, 0):  # the first decisions evaluate everything
            world.decide_until(_ordinary(world, scenario, number), 0)
        own = len(world.bound)
        with collecting_as_deciding():
            world.is_timed = True
            for number in range(rounds):
                scenario.step(world, number)
                took = world.decide_until(_ordinary(world, scenario, number), _MORE_DECISIONS)
                if took is None:
                    starved += 1
                else:
                    seconds.append(took)
                world.pass_time()
                if number % 16 == 0:
                    progress("rounds", number, rounds)
        events, ordinary = (
            [1000 * one for one in sorted(all_of)] for all_of in (world.event_seconds, seconds)
        )
        return Result(
            scenario.name,
            scenario.title,
            nodes,
            len(events),
            percentile(events, 0.50),
            percentile(events, 0.99),
            events[-1],
            rounds,
            starved,
            percentile(ordinary, 0.50),
            percentile(ordinary, 0.99),
            ordinary[-1] if ordinary else 0.0,
            len(world.bound) - own - len(seconds),
            world.waiting_count,
        )


def _ordinary(world: World, scenario: Scenario, number: int) -> str:
    """Add an ordinary pod; returns its uid."""
    spec = {"priority": scenario.priority} if scenario.priority else {}
    name = f"ordinary-{number + 3:06d}"
    return world.put_pod(objects.pod(name, spec=spec), _FIRST_ORDINARY + number + 3)


def _key(manifest: Manifest) -> str:
    return f"{manifest['metadata'].get('namespace', '')}/{manifest['metadata']['name']}"


# --- the scenarios -----------------------------------------------------------------------------


def _add_claiming_pod(world: World, number: int, *selectors: str) -> tuple[str, Manifest]:
    """A pod with a claim for one device; returns its uid, and the claim."""
    claim = objects.claim(number)
    (only,) = claim["spec"]["devices"]["requests"]
    only["exactly"] = {
        "deviceClassName": only["exactly"]["deviceClassName"],
        "selectors": [{"cel": {"expression": selector}} for selector in selectors],
    }
    named = {"name": "devices", "resourceClaimName": claim["metadata"]["name"]}
    world.put(claim)
    pod = objects.pod(f"claiming-{number:06d}", spec={"resourceClaims": [named]})
    return world.put_pod(pod, number), claim


def _devices_everywhere(world: World) -> None:
    world.put(objects.device_class())
    for number in range(world.nodes):
        world.put(objects.resource_slice(number))


def _republished(number: int, generation: int) -> Manifest:
    """The slice of a node after its driver has measured something again."""
    manifest = objects.resource_slice(number)
    manifest["spec"]["pool"]["generation"] = generation
    device = manifest["spec"]["devices"][generation % objects.DEVICES_PER_NODE]
    device["attributes"]["temperature"] = {"int": generation}
    return manifest


def _slices_change(world: World, number: int) -> None:
    _add_claiming_pod(world, number)
    for node in range(8):
        world.put(_republished((8 * number + node) % world.nodes, number + 2))


def _one_large_driver(world: World) -> None:
    world.put(objects.device_class())
    devices = range(_DEVICES)
    firsts = devices[::_DEVICES_PER_SLICE]
    for place, first in enumerate(firsts):
        some = devices[first : first + _DEVICES_PER_SLICE]
        world.put(_shared_slice(place, len(firsts), some))


def _shared_slice(place: int, slices: int, devices: range) -> Manifest:
    manifest = objects.resource_slice(0)
    manifest["metadata"]["name"] = f"shared-{place:03d}"
    spec = manifest["spec"]
    del spec["nodeName"]
    spec["allNodes"] = True
    spec["pool"] = {"name": "shared", "generation": 1, "resourceSliceCount": slices}
    spec["devices"] = [
        {"name": f"device-{n:05d}", "attributes": {"shard": {"int": n % 100}}} for n in devices
    ]
    return manifest


def _claim_of_a_shard(world: World, number: int) -> None:
    wanted = f"device.attributes['{objects.DRIVER}'].shard == {99 - number % 100}"
    _add_claiming_pod(world, number, wanted)


def _half_described(world: World) -> None:
    world.put(objects.device_class())
    for number in range(world.nodes):
        world.put(_half_of(objects.resource_slice(number)))


def _half_of(manifest: Manifest) -> Manifest:
    for device in manifest["spec"]["devices"][::2]:
        del device["attributes"]["model"]
    return manifest


def _selector_that_fails(world: World, number: int) -> None:
    wanted = f"device.attributes['{objects.DRIVER}'].model == 'model-1'"
    _add_claiming_pod(world, number, wanted)
    world.put(_half_of(_republished(number % world.nodes, number + 2)))


def _claims_that_go(world: World) -> None:
    _devices_everywhere(world)
    world.takes = lambda placement: not placement.pod.name.startswith("claiming")


def _claim_is_deleted(world: World, number: int) -> None:
    uid, claim = _add_claiming_pod(world, number)
    world.decide_until(uid, 0)
    world.remove(claim)


def _loose_volumes(world: World) -> None:
    world.put(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "loose"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
    )
    for number in range(_VOLUMES):
        world.put(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"volume-{number:06d}"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "capacity": {"storage": f"{1 + number % 50}Gi"},
                    "storageClassName": "loose",
                    "csi": {"driver": "csi.example.com", "volumeHandle": f"handle-{number}"},
                },
                "status": {"phase": "Available"},
            }
        )


def _claim_of_a_volume(world: World, number: int) -> None:
    name = f"data-{number:06d}"
    world.put(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name,
                "namespace": objects.NAMESPACE,
                "uid": f"00000000-0000-4000-a000-{number:012d}",
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": f"{1 + number % 50}Gi"}},
                "storageClassName": "loose",
            },
            "status": {"phase": "Pending"},
        }
    )
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
    world.put_pod(objects.pod(f"stateful-{number:06d}", spec={"volumes": [volume]}), number)


def _gated(number: int, *, is_open: bool) -> Manifest:
    spec = {} if is_open else {"schedulingGates": [{"name": "example.com/quota"}]}
    return objects.pod(f"gated-{number:06d}", requests={"cpu": "1m"}, spec=spec)


def _gates(world: World) -> None:
    for number in range(_GATES_PER_ROUND * world.rounds):
        world.put_pod(_gated(number, is_open=False), number)


def _gates_open(world: World, number: int) -> None:
    if number == 0:
        for one in range(_GATES_PER_ROUND * world.rounds):
            world.put_pod(_gated(one, is_open=True), one)


def _too_large(world: World) -> None:
    for number in range(_WAITING_PODS):
        spec = {"nodeSelector": {"side": "left"}}
        pod = objects.pod(f"large-{number:06d}", requests={"cpu": "1k"}, spec=spec)
        world.put_pod(pod, number)


def _label_flips(world: World, number: int) -> None:
    world.put_node(objects.node(0, labels={"side": ("right", "left")[number % 2]}))


SCENARIOS: Final = (
    Scenario("slices", "eight slices change a round", _devices_everywhere, _slices_change),
    Scenario("large-driver", "10,000 devices of one pool", _one_large_driver, _claim_of_a_shard),
    Scenario("selectors", "a selector fails for half", _half_described, _selector_that_fails),
    Scenario("claims-deleted", "claims go before bindings", _claims_that_go, _claim_is_deleted),
    Scenario("volumes", "10,000 volumes for any node", _loose_volumes, _claim_of_a_volume),
    Scenario("gates", "all gates open at once", _gates, _gates_open, _IMPORTANT),
    Scenario("label", "a label that 1,000 pods wait for flips", _too_large, _label_flips),
)
