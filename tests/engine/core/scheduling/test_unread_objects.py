"""An object of which a part cannot be read holds what depends on it, and nothing else."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from engine.core.caching.cache import Cache
from engine.core.caching.objects import object_key
from engine.core.model.pod import Pod
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.files.world import pod_of
from engine.io.informers import OTHER_OBJECTS, decode_node, decoder_of, pod_decoder
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from tests.builders import make_pod, node_manifest, pod_manifest
from tests.engine.core.scheduling.devices.builders import claim as device_claim
from tests.engine.core.scheduling.devices.builders import (
    claiming_pod,
    device_class,
    request,
    resource_slice,
    taint_rule,
)
from tests.storage_builders import claim, storage_class, uses, volume

Json = dict[str, Any]

# Python 3.11 builds fewer than 1,000 levels, 3.12 and 3.13 build some 10,000.
IS_BUILT = sys.version_info >= (3, 12)

TOKEN = "ObjectNotReadable"
_RECORDS = {resource.plural: record for resource, record in OTHER_OBJECTS}
_PLURALS = {resource.kind: resource.plural for resource, _ in OTHER_OBJECTS}


def odd(manifest: Json, path: str, value: Any) -> Json:
    """*manifest* with a *value* at *path* that its type does not allow."""
    copy: Json = json.loads(json.dumps(manifest))
    *parents, last = path.split(".")
    at: Any = copy
    for name in parents:
        at = at.setdefault(name, {})
    at[last] = value
    return copy


def cluster(*manifests: Json) -> Cache:
    """What informers make of *manifests*."""
    cache = Cache()
    for manifest in manifests:
        raw = json.dumps(manifest).encode()
        kind = manifest["kind"]
        if kind == "Node":
            cache.add_node(decode_node(raw))
        elif kind == "Pod":
            cache.add_pod(pod_decoder()(raw))
        else:
            plural = _PLURALS[kind]
            cache.objects.put(plural, decoder_of(_RECORDS[plural])(raw))
    return cache


@pytest.fixture(scope="module")
def decide() -> Callable[[Json | Pod, Cache], Decision]:
    bundle = build_bundle({})
    scheduler = Scheduler(bundle, InProcessEvaluator(bundle.program))

    def decided(pod: Json | Pod, cache: Cache) -> Decision:
        return scheduler.schedule(pod if isinstance(pod, Pod) else pod_of(pod), cache.snapshot())

    return decided


NODE = node_manifest("a", cpu=4)
PLAIN = pod_manifest("plain", cpu=1)
STORED = pod_manifest("stored", cpu=1, spec={"volumes": uses("data")})
WITH_DEVICE = claiming_pod("accelerated", "c", cpu=1)
LATE = storage_class("local")
DEVICES = [device_class(), device_claim("c"), resource_slice("a", "d")]
BY_CLAIM_REF = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default"}


def named(api: str, kind: str, name: str, *, namespace: str = "default", **rest: Any) -> Json:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": {}, **rest}


#: The objects, the odd one last, and the pod that depends on it; `plain` does not.
HOLDS: dict[str, tuple[list[Json], Json]] = {
    "claim": ([LATE, odd(claim(), "spec.accessModes", "ReadWriteOnce")], STORED),
    "storage class": ([claim(), odd(LATE, "allowedTopologies", "zone-a")], STORED),
    "volume of the claim": (
        [LATE, claim(volume="disk"), odd(volume("disk"), "spec.nodeAffinity", "zone-a")],
        STORED,
    ),
    "volume that a claim may get": (
        [LATE, claim(), odd(volume("disk", storage_class="local"), "spec.volumeMode", ["x"])],
        STORED,
    ),
    "device claim": (
        [DEVICES[0], DEVICES[2], odd(DEVICES[1], "spec.devices.requests", [request(count="all")])],
        WITH_DEVICE,
    ),
    "device class": ([*DEVICES[1:], odd(DEVICES[0], "spec.selectors", ["gpu"])], WITH_DEVICE),
    "allocation of another claim": (
        [*DEVICES, odd(device_claim("other"), "status.allocation.devices.results", ["d"])],
        WITH_DEVICE,
    ),
    "service": (
        [odd(named("v1", "Service", "s"), "spec.selector", "app=web")],
        pod_manifest("web", cpu=1, labels={"app": "web"}),
    ),
}
ELSEWHERE = pod_manifest("plain", namespace="elsewhere", cpu=1)


@pytest.mark.parametrize(("objects", "pod"), list(HOLDS.values()), ids=list(HOLDS))
def test_a_pod_waits_for_the_object_that_it_depends_on_and_others_do_not(
    objects: list[Json], pod: Json, decide: Callable[[Json | Pod, Cache], Decision]
) -> None:
    cache = cluster(NODE, *objects)
    held = decide(pod, cache)
    (unread,) = cache.objects.unread.values()
    assert held.node is None
    assert held.reason.token == TOKEN
    assert f"{objects[-1]['kind']} `{object_key(unread)}` cannot be read: " in held.message()
    assert unread.metadata.unread[0] in held.message()
    assert decide(ELSEWHERE, cache).node == "a"


def test_an_odd_volume_of_another_claim_holds_no_pod(
    decide: Callable[[Json | Pod, Cache], Decision],
) -> None:
    """Or one bound volume of a class would hold all new claims of the class."""
    other = odd(volume("other", storage_class="local"), "spec.volumeMode", ["x"])
    other["spec"]["claimRef"] = {**BY_CLAIM_REF, "name": "other", "uid": "u"}
    free = volume("disk", storage_class="local")
    assert decide(STORED, cluster(NODE, LATE, claim(), free, other)).node == "a"


CLOSES: dict[str, tuple[Json, Json]] = {
    "node": (odd(NODE, "spec.taints", "dedicated"), PLAIN),
    "placed pod": (odd(pod_manifest("odd", cpu=1, node="a"), "spec.affinity", "near"), PLAIN),
    "what drivers say of the node": (
        odd(named("storage.k8s.io/v1", "CSINode", "a", namespace=""), "spec.drivers", "disk"),
        STORED,
    ),
    "attachment": (
        named(
            "storage.k8s.io/v1",
            "VolumeAttachment",
            "x",
            namespace="",
            spec={"attacher": 7, "nodeName": "a", "source": {}},
        ),
        STORED,
    ),
}


@pytest.mark.parametrize(("unread", "pod"), list(CLOSES.values()), ids=list(CLOSES))
def test_a_node_takes_no_pods_while_what_is_said_of_it_cannot_be_read(
    unread: Json, pod: Json, decide: Callable[[Json | Pod, Cache], Decision]
) -> None:
    objects = [LATE, claim(volume="disk"), volume("disk", storage_class="local")]
    cache = cluster(NODE, *objects, unread)
    rejected = decide(pod, cache)
    assert rejected.node is None
    assert rejected.reason.token == TOKEN
    assert "cannot be read: " in rejected.message()
    cache.add_node(decode_node(json.dumps(node_manifest("b", cpu=4)).encode()))
    assert decide(pod, cache).node == "b"
    if pod is STORED:
        assert decide(PLAIN, cache).node in ("a", "b")


def test_a_placed_pod_counts_by_what_can_be_read_of_it() -> None:
    manifest = odd(pod_manifest("odd", cpu=3, node="a"), "spec.tolerations", "all")
    info = cluster(NODE, manifest).node_info("a")
    assert info is not None
    assert info.requested["cpu"] == 3000


def test_a_node_whose_objects_are_read_again_takes_pods(
    decide: Callable[[Json | Pod, Cache], Decision],
) -> None:
    manifest = pod_manifest("odd", cpu=1, node="a")
    cache = cluster(NODE, odd(manifest, "spec.affinity", "near"))
    assert decide(PLAIN, cache).node is None
    cache.add_pod(pod_decoder()(json.dumps(manifest).encode()))
    assert decide(PLAIN, cache).node == "a"
    cache.add_pod(pod_decoder()(json.dumps(odd(manifest, "spec.affinity", "far")).encode()))
    assert decide(PLAIN, cache).node is None
    cache.remove_pod(make_pod("odd", node="a", uid=manifest["metadata"].get("uid")))
    assert decide(PLAIN, cache).node == "a"


def test_no_pod_of_a_namespace_is_evicted_while_a_budget_of_it_cannot_be_read(
    decide: Callable[[Json | Pod, Cache], Decision],
) -> None:
    """It was skipped, so the pod that it protects had no budget."""
    budget = odd(named("policy/v1", "PodDisruptionBudget", "b"), "spec.selector", "app=web")
    nodes = [node_manifest(name, cpu=1) for name in ("a", "b")]
    protected = pod_manifest("protected", cpu=1, node="a", priority=0)
    urgent = pod_manifest("urgent", cpu=1, priority=100)
    cache = cluster(nodes[0], protected, budget)
    refused = decide(urgent, cache)
    assert refused.eviction is None
    assert "PodDisruptionBudget `default/b` cannot be read: spec.selector: " in refused.message()
    # Pods of other namespaces make way.
    cache.add_node(decode_node(json.dumps(nodes[1]).encode()))
    other = make_pod("other", namespace="elsewhere", cpu=1, node="b", priority=0)
    cache.add_pod(other)
    evicts = decide(urgent, cache)
    assert evicts.eviction is not None
    assert [pod.key for pod in evicts.eviction.victims] == ["elsewhere/other"]
    # So do those of this one once the budget is gone.
    cache.remove_pod(other)
    cache.remove_node("b")
    cache.objects.delete("poddisruptionbudgets", "default/b")
    assert decide(urgent, cache).eviction is not None


def test_a_pending_pod_waits_until_it_is_replaced(
    decide: Callable[[Json | Pod, Cache], Decision],
) -> None:
    manifest = odd(pod_manifest("odd", cpu=1), "spec.hostNetwork", "maybe")
    decision = decide(pod_decoder()(json.dumps(manifest).encode()), cluster(NODE))
    assert decision.reason.token == "InvalidPod"
    assert 'spec.hostNetwork: want `bool`, got `"maybe"`' in decision.message()


@pytest.mark.parametrize(
    "unread",
    [
        pytest.param(odd(DEVICES[2], "spec.devices", "d"), id="slice"),
        pytest.param(taint_rule("r", {"driver": ["x"]}), id="taint rule"),
    ],
)
def test_no_device_is_taken_of_a_pool_of_which_a_part_cannot_be_read(
    unread: Json, decide: Callable[[Json | Pod, Cache], Decision]
) -> None:
    objects = DEVICES if unread["kind"] == "DeviceTaintRule" else DEVICES[:2]
    decision = decide(WITH_DEVICE, cluster(NODE, *objects, unread))
    assert decision.node is None
    assert not decision.failures


def test_parameters_that_nest_too_deep_cost_pods_of_their_class_alone(
    decide: Callable[[Json | Pod, Cache], Decision],
) -> None:
    """The API server takes them: they are for drivers. The class was skipped, and did not exist."""
    raw = json.dumps(DEVICES[0] | {"spec": {"config": [{"opaque": {"parameters": "HERE"}}]}})
    raw = raw.replace('"HERE"', "[" * 5000 + "]" * 5000)
    cache = cluster(NODE, *DEVICES[1:])
    cache.objects.put("deviceclasses", decoder_of(_RECORDS["deviceclasses"])(raw.encode()))
    decision = decide(WITH_DEVICE, cache)
    if IS_BUILT:
        assert decision.node == "a"
    else:
        assert "DeviceClass `gpu` cannot be read: spec.config[0]" in decision.message()
        assert "nests too deep" in decision.message()
    assert decide(PLAIN, cache).node == "a"
