"""A decision is held exactly if something that it depends on cannot be read."""

from collections.abc import Iterable
from typing import Any

import pytest

from engine.core.caching.cache import Cache
from engine.core.caching.objects import ObjectStore
from engine.core.framework.reasons import CLUSTER_READS
from engine.core.model.devices import ResourceClaim
from engine.core.model.event_kinds import KINDS
from engine.core.model.objects import Namespace, from_plain
from engine.core.model.pod import Pod
from engine.core.model.storage import PersistentVolumeClaim
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.dependencies import of_plugin
from engine.core.scheduling.plugins.registry import make_plugins
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.io.informers import OTHER_OBJECTS
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.policy.views import VIEWS
from tests.builders import make_node, make_pod
from tests.profiles import only
from tests.storage_builders import claim

EVERY_KIND = sorted(KINDS)
VOLUMES = {
    "persistentvolumeclaims",
    "persistentvolumes",
    "storageclasses",
    "csinodes",
    "csidrivers",
    "csistoragecapacities",
    "volumeattachments",
}
DEVICES = {"resourceclaims", "resourceslices", "deviceclasses", "devicetaintrules"}
#: By these, every pod of the built-in policies is judged.
FOR_EVERY_POD = {
    "namespaces",  # placed pods may have anti-affinity to this one by its namespace's labels
    "services",
}


DATA = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
PLAIN = make_pod("plain", cpu="1")
WITH_VOLUME = make_pod("with-volume", cpu="1", volumes=[DATA])
WITH_DEVICE = make_pod(
    "with-device",
    cpu="1",
    spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
)
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs"}


def scheduler_of(files: dict[str, str] | None = None) -> Scheduler:
    bundle = build_bundle(files or {})
    return Scheduler(bundle, InProcessEvaluator(bundle.program))


def cluster(unknown: Iterable[str] = (), *, cpu: str = "4") -> Cache:
    cache = Cache()
    cache.add_node(make_node("node-1", cpu=cpu))
    cache.objects.unknown = {one: f"{one} cannot be read: no right" for one in unknown}
    return cache


def is_held(decision: Decision) -> bool:
    return decision.reason.token == "ClusterNotReadable"


def holding(scheduler: Scheduler, pod: Pod) -> set[str]:
    """The kinds that, if unknown, hold *pod*."""
    found = set()
    for kind in EVERY_KIND:
        cache = cluster([kind])
        cache.objects.put(
            "persistentvolumeclaims", from_plain(PersistentVolumeClaim, claim("data"))
        )
        decision = scheduler.schedule(pod, cache.snapshot())
        if is_held(decision):
            found.add(kind)
    return found


def test_a_plain_pod_depends_on_no_volumes_devices_groups_or_budgets() -> None:
    assert holding(scheduler_of(), PLAIN) == FOR_EVERY_POD


def test_a_pod_with_a_claim_depends_on_what_volumes_are_found_by() -> None:
    got = holding(scheduler_of(), WITH_VOLUME)
    assert got - FOR_EVERY_POD == VOLUMES - {"volumeattachments"}


def test_a_pod_with_a_device_claim_depends_on_what_devices_are_found_by() -> None:
    assert holding(scheduler_of(), WITH_DEVICE) - FOR_EVERY_POD == DEVICES


@pytest.mark.parametrize("kind", ["pods", "nodes"])
def test_every_decision_depends_on_pods_and_nodes(kind: str) -> None:
    files = {
        "own.star": '"""Takes all.\n\nHooks: filter."""\ndef filter(pod, node):\n    return None\n'
    }
    for scheduler in (scheduler_of(), scheduler_of(files | {"profile.yaml": only("own")})):
        assert is_held(scheduler.schedule(PLAIN, cluster([kind]).snapshot()))


@pytest.mark.parametrize(
    ("view", "field"),
    [
        (view, name)
        for view in ("pod", "node", "cluster")
        for name, field in VIEWS[view].items()
        if set(field.changed_by) & set(KINDS.values())
    ],
)
def test_a_policy_depends_on_what_is_behind_the_fields_that_it_reads(view: str, field: str) -> None:
    """The pods of an own profile, in which nothing else is asked."""
    params = "pod, node" if view in ("pod", "node") else f"pod, node, {view}"
    text = f'"""Reads one field.\n\nHooks: filter."""\n\ndef filter({params}):\n'
    text += f"    return None if {view}.{field} == 7 else None\n"
    scheduler = scheduler_of({"own.star": text} | {"profile.yaml": only("own")})
    pod = make_pod("web", cpu="1", volumes=[DATA], owner=OWNER, labels={"a": "b"})
    plurals = {kind: plural for plural, kind in KINDS.items()}
    behind = {plurals[kind] for kind in VIEWS[view][field].changed_by if kind in plurals}
    got = holding(scheduler, pod)
    assert got <= behind
    if view == "node":
        assert got == behind


def test_a_policy_that_reads_none_of_them_goes_on_whatever_is_unknown() -> None:
    text = '"""By labels.\n\nHooks: filter."""\n\ndef filter(pod, node):\n'
    text += '    return None if node.labels.get("a") == None else "no"\n'
    scheduler = scheduler_of({"own.star": text} | {"profile.yaml": only("own")})
    decision = scheduler.schedule(PLAIN, cluster(EVERY_KIND).snapshot())
    assert decision.node == "node-1"


def test_counters_depend_on_the_labels_of_namespaces() -> None:
    text = '"""Counts.\n\nHooks: counters, filter."""\n\ndef counters(pod):\n'
    text += '    return [count_pods(topology = "kubernetes.io/hostname", labels = {"a": "b"})]\n\n'
    text += "def filter(pod, node, counts):\n    return None if counts[0].here == 0 else 'no'\n"
    assert holding(scheduler_of({"own.star": text} | {"profile.yaml": only("own")}), PLAIN) == {
        "namespaces"
    }


def test_the_reason_names_the_resource_the_right_and_what_depends_on_it() -> None:
    cache = cluster()
    right = "- {apiGroups: [resource.k8s.io], resources: [resourceslices], verbs: [list, watch]}"
    cache.objects.unknown = {"resourceslices": f"resourceslices cannot be read: {right}"}
    cache.objects.put("resourceclaims", _device_claim())
    decision = scheduler_of().schedule(WITH_DEVICE, cache.snapshot())
    assert right in decision.message()
    assert "DynamicResources depends on" in decision.message()
    assert decision.reason.token == decision.reason.condition == "ClusterNotReadable"
    assert not decision.reason.node_helps
    assert CLUSTER_READS in decision.diagnosis.rejectors


def _device_claim() -> Any:
    plain = {"metadata": {"name": "gpu", "namespace": "default", "uid": "u"}, "spec": {}}
    return from_plain(ResourceClaim, plain)


def test_a_pod_is_not_evicted_while_budgets_are_unknown() -> None:
    """Without the right to read them there are none, so a protected pod was evicted."""
    cache = cluster(["poddisruptionbudgets"], cpu="1")
    cache.add_pod(make_pod("protected", node="node-1", cpu="1", priority=0))
    urgent = make_pod("urgent", cpu="1", priority=100)
    decision = scheduler_of().schedule(urgent, cache.snapshot())
    assert decision.eviction is None
    assert is_held(decision)
    assert "poddisruptionbudgets cannot be read" in decision.message()
    # What keeps it from the node is not forgotten: a pod that goes lets it in.
    assert {"NodeResourcesFit", CLUSTER_READS} <= decision.diagnosis.rejectors
    cache.objects.unknown = {}
    decision = scheduler_of().schedule(urgent, cache.snapshot())
    assert decision.eviction is not None


def test_a_pod_that_eviction_would_not_help_has_its_own_reason() -> None:
    cache = cluster(["poddisruptionbudgets"], cpu="1")
    decision = scheduler_of().schedule(make_pod("big", cpu="8", priority=100), cache.snapshot())
    assert decision.reason.token == "InsufficientResources"


def test_victims_that_a_policy_chooses_by_namespaces_depend_on_them() -> None:
    text = '"""Keeps.\n\nHooks: victim_key."""\n\ndef victim_key(pod):\n'
    text += '    return None if pod.namespace_labels.get("keep") else [0]\n'
    bundle = build_bundle({"own.star": text})
    scheduler = Scheduler(bundle, InProcessEvaluator(bundle.program))
    assert scheduler.missing_for_preemption(PLAIN, cluster(["namespaces"]).snapshot()) is not None
    assert scheduler.missing_for_preemption(PLAIN, cluster(["services"]).snapshot()) is None


def test_no_kind_that_is_watched_is_forgotten() -> None:
    """Each is behind a field, a plugin or preemption; one that is watched by nobody's need, or
    read past the derivation, fails here.
    """
    scheduler = scheduler_of()
    profile = scheduler.bundle.profiles[0]
    plurals = {kind: plural for plural, kind in KINDS.items()}
    fields = {
        plurals[kind]
        for view in VIEWS.values()
        for field in view.values()
        for kind in field.changed_by
        if kind in plurals
    }
    plugins = {plural for plugin in make_plugins().values() for plural in of_plugin(plugin)}
    preemption = {plural for _, plural in scheduler.dependencies.of_preemption(profile)}
    groups = {"podgroups"}  # `test_a_pod_of_a_group_depends_on_groups`
    assert fields | plugins | preemption | groups == set(KINDS)
    assert {resource.plural for resource, _ in OTHER_OBJECTS} == set(KINDS)


def test_a_pod_of_a_group_depends_on_groups() -> None:
    member = make_pod("member", cpu="1", spec={"schedulingGroup": {"podGroupName": "train"}})
    scheduler = scheduler_of()
    assert "podgroups" in holding(scheduler, member)
    assert "podgroups" not in holding(scheduler, PLAIN)


def test_a_copy_of_the_objects_knows_what_is_unknown() -> None:
    store = ObjectStore()
    store.put("namespaces", from_plain(Namespace, {"metadata": {"name": "a"}}))
    before = store.frozen()
    store.unknown = {"namespaces": "no right"}
    assert store.frozen(before).unknown == {"namespaces": "no right"}
