"""Whose fault a failure is: a tenant's objects are not held against the operator's policies."""

from typing import Any

import pytest

from engine.core.framework.owner import Owner
from engine.core.framework.reason_kinds import REASONS
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.files.world import World, pod_of
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.rollout.rehearsal import rehearse
from tests.builders import node_manifest, pod_manifest
from tests.engine.core.scheduling.devices.builders import (
    claim,
    claiming_pod,
    device_class,
    request,
    resource_slice,
)
from tests.storage_builders import claim as volume_claim
from tests.storage_builders import volume

Json = dict[str, Any]

_SELECTOR = 'device.attributes["gpu.example.com"].model == "large"'
_KEEPS_RED_OFF = (
    "def filter(pod, node):\n"
    '    if pod.labels.get("team") == "red" and node.name == "a":\n'
    '        return reject("a is not for red")\n'
    "    return None\n"
)


def _selected(expression: str) -> Json:
    return claim("c", request(selectors=[{"cel": {"expression": expression}}]))


def _devices(*devices: Json | str) -> Json:
    return resource_slice("a", *devices or ("d0",))


def _decide(pod: Json, *objects: Json, text: str = _KEEPS_RED_OFF) -> tuple[Decision, Scheduler]:
    world = World.from_manifests([node_manifest("a"), node_manifest("b")], (), objects)
    bundle = build_bundle({"mine.star": text})
    scheduler = Scheduler(bundle, InProcessEvaluator(bundle.program))
    decision = scheduler.schedule(pod_of(pod), world.snapshot)
    found = rehearse(scheduler, bundle.profiles, [pod_of(pod)], world.snapshot)
    assert [one.failure for one in found if one.pod] == list(decision.policy_failures), (
        "the trial judges by something else"
    )
    return decision, scheduler


@pytest.mark.parametrize(
    ("objects", "token", "subject", "said"),
    [
        pytest.param(
            (device_class(), _devices(), _selected(_SELECTOR)),
            "ClaimSelectorFailed",
            "resourceclaim default/c",
            "claim default/c: selector #0 on device gpu.example.com/a/d0: CEL runtime error: "
            "no such key: model",
            id="a selector of a claim fails",
        ),
        pytest.param(
            (device_class(), _devices(), _selected("device.(")),
            "ClaimSelectorFailed",
            "resourceclaim default/c",
            "claim default/c: selector #0: CEL compile error",
            id="a selector of a claim is no expression",
        ),
        pytest.param(
            (device_class(), _devices(), _selected("device.driver")),
            "ClaimSelectorFailed",
            "resourceclaim default/c",
            "claim default/c: selector #0: CEL compile error: must evaluate to bool",
            id="a selector of a claim gives a text",
        ),
        pytest.param(
            (device_class("gpu", _SELECTOR), _devices(), claim("c")),
            "ClassSelectorFailed",
            "deviceclass gpu",
            "class gpu: selector #0 on device gpu.example.com/a/d0: CEL runtime error",
            id="a selector of a class fails",
        ),
        pytest.param(
            (device_class(), _devices(), claim("c", request(allocationMode="Some"))),
            "InvalidClaim",
            "resourceclaim default/c",
            "unsupported count mode Some",
            id="a mode that a newer API server knows",
        ),
        pytest.param(
            (device_class(), _devices(), claim("c", request(selectors=[{"sql": {}}]))),
            "InvalidClaim",
            "resourceclaim default/c",
            "selector #0: CEL expression empty (unsupported selector type?)",
            id="a selector that a newer API server knows",
        ),
        pytest.param(
            (
                device_class(),
                _devices({"name": "d0", "attributes": {"odd": {"complex": "1+i"}}}),
                _selected("device.driver == 'x'"),
            ),
            "InvalidDevice",
            "resourceslice a-gpus",
            "attribute odd: unsupported attribute value",
            id="an attribute that a newer API server knows",
        ),
    ],
)
def test_an_object_at_fault_costs_its_own_pod_and_no_policy(
    objects: tuple[Json, ...], token: str, subject: str, said: str
) -> None:
    """A claim of one tenant turned the operator's policies off at the next restart.

    Its selector failed on a device without the attribute, which counted as a policy's failure: the
    trial rejected every text, and the built-in policies decided alone.
    """
    decision, _ = _decide(claiming_pod("p", "c"), *objects)
    (failure,) = decision.failures
    assert (failure.owner, failure.token, failure.subject) == (Owner.OBJECT, token, subject)
    assert said in decision.message()
    assert decision.policy_failures == ()
    assert not decision.is_policy_failure
    assert decision.failed_objects == {"DynamicResources"}, "what wakes the pod again"
    assert decision.reason.token == token
    assert decision.reason.condition == "SchedulerError"
    assert "file and line" not in REASONS[token].next_step


@pytest.mark.parametrize(
    ("claimed", "problem"),
    [
        pytest.param(
            {"selector": {"matchLabels": {"a/b/c": "x"}}},
            "selector: key `a/b/c`: want [prefix/]name",
            id="label",
        ),
        pytest.param(
            {"selector": {"matchExpressions": [{"key": "zone", "operator": "Near"}]}},
            "selector: `zone`: unknown operator `Near`",
            id="operator",
        ),
        pytest.param(
            {"size": "many"}, "requests.storage: want a quantity, got `many`", id="amount"
        ),
    ],
)
def test_a_volume_claim_that_makes_no_sense_costs_its_own_pod(claimed: Json, problem: str) -> None:
    """Of a pod with several claims the message did not say which of them it was about."""
    late = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "odd"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    volumes = [{"name": n, "persistentVolumeClaim": {"claimName": n}} for n in ("good", "v")]
    pod = pod_manifest("p", spec={"volumes": volumes})
    claims = [volume_claim("good", storage_class="odd")]
    claims.append(volume_claim("v", storage_class="odd", **claimed))
    decision, _ = _decide(pod, late, *claims, volume("pv", storage_class="odd"))
    (failure,) = decision.failures
    assert failure.message.endswith(f'": persistentvolumeclaim default/v: {problem}')
    assert (failure.owner, failure.token) == (Owner.OBJECT, "InvalidVolume")
    assert failure.subject == "persistentvolumeclaim default/v"
    assert decision.policy_failures == ()


def test_an_error_of_a_text_is_the_policy_s_whatever_object_it_read() -> None:
    """A text has to cope with every object: it can ask before it reads."""
    text = 'def filter(pod, node):\n    return None if pod.labels["team"] else reject("no team")\n'
    decision, _ = _decide(pod_manifest("p"), text=text)
    (failure,) = decision.failures
    assert (failure.owner, failure.token) == (Owner.POLICY, "PolicyFailed")
    assert decision.policy_failures == decision.failures
    assert decision.failed_objects == frozenset()


def test_both_at_fault_count_for_the_policy() -> None:
    """The pod's attempt ends with the first of them; the policy's failure is not covered up."""
    text = 'def pre_filter(pod):\n    fail("always")\n'
    decision, _ = _decide(
        claiming_pod("p", "c"), device_class(), _devices(), _selected(_SELECTOR), text=text
    )
    assert decision.is_policy_failure


@pytest.mark.parametrize("token", [one.token for one in REASONS.values() if one.owner])
def test_every_failure_says_what_it_costs(token: str) -> None:
    kind = REASONS[token]
    assert kind.costs
    assert not kind.is_for_policies, "a policy must not put the blame on something else"
