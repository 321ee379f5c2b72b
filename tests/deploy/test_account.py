"""The scheduler runs as its ServiceAccount on a real API server: enough rights, and no more.

The API server's audit log has every request of the account. None is refused, and every verb of
every rule in the manifests is used.
"""

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from engine.core.caching.cache import Cache
from engine.core.model.devices import AllocationResult, ResourceClaim
from engine.core.model.node import Node
from engine.core.model.objects import decode, from_plain
from engine.core.model.pod import Pod
from engine.core.model.storage import ClaimReference, PersistentVolume, PersistentVolumeClaim
from engine.core.scheduling.plugins.volume_plan import VolumePlan
from engine.io.binding.binder import Binder
from engine.io.binding.claim_writer import DeviceClaimWriter
from engine.io.binding.volume_binder import VolumeBinder
from engine.lib.clock import SystemClock
from engine.telemetry.metrics import Metrics
from tests.controlplane import (
    NEWEST,
    ControlPlane,
    group_version,
    kubernetes_minor,
    serving_groups,
)
from tests.deploy.image import Image
from tests.deploy.rendering import Manifest, container, pick, policies, render
from tests.deploy.scheduler_process import SchedulerProcess, create_all, node, pod
from tests.storage_builders import BOUND, SELECTED_NODE, claim, volume
from tests.waiting import wait_until
from tests.workloads import SPOT_SHARE

_ACCOUNT = "system:serviceaccount:starsched:starsched"
_AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    users: ["system:serviceaccount:starsched:starsched"]
"""
_AT_ONCE = {"kind": "DeleteOptions", "gracePeriodSeconds": 0}
_CLASSES = [
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }
    for name, value in (("urgent", 1000), ("important", 500))
]


# What the API server asks the authorizer besides, which no request names: whoever writes what a
# claim got needs the right to its `binding` too.
_ASKED_BESIDES = {"resourceclaims/status": "resourceclaims/binding"}


class Right(NamedTuple):
    """One verb of one rule; namespace and name are "" where the rule holds for all."""

    namespace: str
    group: str
    resource: str
    name: str
    verb: str


class Request(NamedTuple):
    """One request of the account, as the audit log has it."""

    right: Right
    status: int


@dataclass
class Cluster:
    """A control plane of its own with an overlay applied and every request written down."""

    plane: ControlPlane
    objects: list[Manifest]
    audit_log: Path

    @property
    def scheduler_name(self) -> str:
        profile: str = policies(self.objects)["data"]["profile.yaml"]
        return profile.partition("schedulerName:")[2].split()[0]

    @property
    def lease(self) -> str:
        """The path of the lease that the Deployment asks for."""
        args = pick(self.objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
        found = dict(arg.split("=", 1) for arg in args if "=" in arg)
        namespace = found["--leader-elect-resource-namespace"]
        name = found.get("--leader-elect-resource-name", "starsched")
        return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"

    def requests(self) -> list[Request]:
        """Every request of the account so far that is about an object."""
        found = []
        for line in self.audit_log.read_text().splitlines():
            event = json.loads(line)
            about = event.get("objectRef")
            if event["user"]["username"] != _ACCOUNT or about is None:
                continue
            resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
            right = Right(
                about.get("namespace", ""),
                about.get("apiGroup", ""),
                resource,
                about.get("name", ""),
                event["verb"],
            )
            found.append(Request(right, event["responseStatus"]["code"]))
        return found

    def events(self, reason: str) -> list[dict[str, Any]]:
        """The events with *reason*, in all namespaces."""
        items = self.plane.request("GET", "/apis/events.k8s.io/v1/events")["items"]
        return [event for event in items if event["reason"] == reason]

    def node_of(self, name: str) -> str | None:
        """Where a pod of the namespace `default` is."""
        found = self.plane.request("GET", f"/api/v1/namespaces/default/pods/{name}")
        node_name: str | None = found["spec"].get("nodeName")
        return node_name

    def edit(self, path: str, change: Callable[[dict[str, Any]], None]) -> None:
        """Read the object at *path*, change it and write it back."""
        found = self.plane.request("GET", path.removesuffix("/status"))
        change(found)
        self.plane.request("PUT", path, found)


@pytest.fixture(params=["overlays/beside", "overlays/replace"])
def cluster(request: pytest.FixtureRequest, kustomize: Path, tmp_path: Path) -> Iterator[Cluster]:
    policy = tmp_path / "audit-policy.yaml"
    policy.write_text(_AUDIT_POLICY)
    log = tmp_path / "audit.log"
    plane = ControlPlane(
        apiserver_args=[
            f"--audit-policy-file={policy}",
            f"--audit-log-path={log}",
            *serving_groups(),
        ]
    )
    with plane:
        objects = render(request.param)
        create_all(plane, objects)
        plane.request("POST", "/api/v1/nodes", node("small", cpu="1"))
        plane.request("POST", "/api/v1/nodes", node("large", cpu="4"))
        yield Cluster(plane, objects, log)


_LEARNS = """
apiVersion: starsched.dev/v1
kind: PolicyRuntime
facts: {sources: [{podDemand: {}}]}
"""


#: A role of every cluster that the account is bound to, and what it uses of it.
_BUILT_IN = {
    "extension-apiserver-authentication-reader": Right(
        "kube-system", "", "configmaps", "extension-apiserver-authentication", "get"
    )
}


def rights_of(objects: list[Manifest]) -> set[Right]:
    """Every single right that the account has by *objects*."""
    bound = [o["roleRef"]["name"] for o in objects if o["kind"].endswith("RoleBinding")]
    found = {right for name, right in _BUILT_IN.items() if name in bound}
    for role in objects:
        if role["kind"] not in ("Role", "ClusterRole") or role["metadata"]["name"] not in bound:
            continue
        namespace = role["metadata"].get("namespace", "")
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for name in rule.get("resourceNames", [""]):
                        for verb in rule["verbs"]:
                            found.add(Right(namespace, group, resource, name, verb))
    return found


def uses(request: Right, right: Right) -> bool:
    """True if *right* allows *request*."""
    resources = (request.resource, _ASKED_BESIDES.get(request.resource))
    return (
        (request.group, request.verb) == (right.group, right.verb)
        and right.resource in resources
        and right.namespace in ("", request.namespace)
        and right.name in ("", request.name)
    )


@pytest.mark.long("takes the rights away one by one")
async def test_every_right_is_used_and_none_is_missing(cluster: Cluster, image: Image) -> None:
    plane, scheduler = cluster.plane, cluster.scheduler_name
    pods = "/api/v1/namespaces/default/pods"
    edited = "/api/v1/namespaces/starsched/configmaps/starsched-policies"
    with SchedulerProcess(plane, image, container(cluster.objects)["args"]) as process:
        wait_until(lambda: process.get("/readyz")[0] == 200, what="readiness")
        # Who may see the metrics: a ServiceAccount that is bound to the role for that.
        scraper = scraper_token(plane)
        wait_until(lambda: process.get("/metrics", scraper)[0] == 200, what="the metrics")
        assert process.get("/metrics", "wrong")[0] == 401
        assert process.get("/policies", scraper)[0] == 403
        # Pods that fit, one that does not, and one that is somebody else's.
        for manifest in _CLASSES:
            plane.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", manifest)
        fits = pod("fits", scheduler, cpu="1500m", port="127.0.0.1:80", priority="important")
        plane.request("POST", pods, fits)
        plane.request("POST", pods, pod("goes", scheduler, cpu="1100m", port="127.0.0.2:80"))
        wait_until(lambda: cluster.node_of("fits") == "large", what="the pod to be bound")
        wait_until(lambda: cluster.node_of("goes") == "large", what="the pod that goes to be bound")
        plane.request("POST", pods, pod("clashes", scheduler, cpu="1100m", port="0.0.0.0:80"))
        plane.request("POST", pods, pod("other", "other-scheduler"))
        wait_until(
            lambda: cluster.events("FailedScheduling"), what="the event of the pod that clashes"
        )

        # The same refusal again, after one of two ports was given back: its event is counted up.
        plane.request("DELETE", f"{pods}/goes", _AT_ONCE)
        wait_until(
            lambda: any("series" in event for event in cluster.events("FailedScheduling")),
            what="the event to be counted",
        )
        # A pod that is more important than another one takes its room.
        plane.request("POST", pods, pod("lesser", scheduler, cpu="1500m"))
        wait_until(lambda: cluster.node_of("lesser") == "large", what="the lesser pod to be bound")
        plane.request("POST", pods, pod("urgent", scheduler, cpu="1500m", priority="urgent"))
        wait_until(lambda: cluster.events("Preempted"), what="the lesser pod to be evicted")
        plane.request("DELETE", f"{pods}/lesser", _AT_ONCE)
        wait_until(lambda: cluster.node_of("urgent") == "large", what="the urgent pod to be bound")
        if version := group_version():
            place_a_group(cluster, version)
        # An edit that is accepted, and so saved, and by which facts are learned, and so kept.
        # It reads Deployments and Jobs.
        profile = policies(cluster.objects)["data"]["profile.yaml"]
        shares = profile.replace("enabled:", "enabled:\n          - name: share", 1)
        added = {"share.star": SPOT_SHARE, "profile.yaml": shares, "facts.yaml": _LEARNS}
        cluster.edit(edited, lambda found: found["data"].update(added))
        wait_until(
            lambda: len(cluster.events("PolicyAccepted")) >= 2, what="the edit to be accepted"
        )
        wait_until(
            lambda: plane.request("GET", f"{edited}-facts").get("data"), what="facts to be kept"
        )
        # An edit that is not.
        cluster.edit(edited, lambda found: found["data"].update({"bad.star": "def filter(:\n"}))
        wait_until(lambda: cluster.events("PolicyRejected"), what="the edit to be rejected")
        assert process.is_running()
    assert process.status == 0
    assert not plane.request("GET", cluster.lease)["spec"].get("holderIdentity")
    assert cluster.node_of("other") is None

    # An answer that was lost is looked up. No server loses answers on demand: the part that does
    # it runs here, as the same account, on a pod that is bound already.
    await bind_again(cluster, "fits", "large")
    # Nor does one change a claim between the decision and the writing on demand.
    await write_a_claim(cluster, "fits")
    await write_volumes(cluster, "fits", "large")

    got = {request.right for request in cluster.requests()}
    refused = {request for request in cluster.requests() if request.status in (401, 403)}
    rights = rights_of(cluster.objects)
    assert refused == set()
    assert {r for r in got if not any(uses(r, right) for right in rights)} == set()
    if kubernetes_minor() == NEWEST:  # an older API server has no use for some of them
        assert {right for right in rights if not any(uses(r, right) for r in got)} == set()


def place_a_group(cluster: Cluster, version: str) -> None:
    """Make a group of one pod, and wait until its condition says that it is placed."""
    groups = f"/apis/scheduling.k8s.io/{version}/namespaces/default/podgroups"
    gang = {"schedulingPolicy": {"gang": {"minCount": 1}}}
    group = {"kind": "PodGroup", "metadata": {"name": "train"}, "spec": gang}
    cluster.plane.request("POST", groups, {"apiVersion": f"scheduling.k8s.io/{version}"} | group)
    member = pod("member", cluster.scheduler_name, cpu="100m")
    member["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    cluster.plane.request("POST", "/api/v1/namespaces/default/pods", member)

    def is_placed() -> bool:
        status = cluster.plane.request("GET", f"{groups}/train").get("status", {})
        return "True" in [condition["status"] for condition in status.get("conditions", [])]

    wait_until(is_placed, what="the condition of the group")


def scraper_token(plane: ControlPlane) -> str:
    """The token of a ServiceAccount that may read the metrics."""
    token = plane.service_account_token("monitoring", "prometheus")
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "prometheus"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "starsched-metrics-reader",
        },
        "subjects": [{"kind": "ServiceAccount", "namespace": "monitoring", "name": "prometheus"}],
    }
    plane.create_if_missing("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    return token


async def bind_again(cluster: Cluster, name: str, node_name: str) -> None:
    """Bind a bound pod as the account: refused as a conflict, read, and found to be in place."""
    manifest = cluster.plane.request("GET", f"/api/v1/namespaces/default/pods/{name}")
    token = cluster.plane.service_account_token("starsched", "starsched")
    async with cluster.plane.client(token) as client:
        binder = Binder(
            client,
            clock=SystemClock(),
            metrics=Metrics(CollectorRegistry()),
            rng=random.Random(1),
        )
        await binder.bind(Pod.from_plain(manifest), node_name)


async def write_a_claim(cluster: Cluster, pod_name: str) -> None:
    """Make, allocate and delete a claim as the account; meanwhile somebody else changes it."""
    manifest = cluster.plane.request("GET", f"/api/v1/namespaces/default/pods/{pod_name}")
    exactly = {"deviceClassName": "gpu"}
    wanted = {
        "metadata": {"generateName": "devices-", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }
    got = {"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "d"}
    token = cluster.plane.service_account_token("starsched", "starsched")
    async with cluster.plane.client(token) as client:
        metrics = Metrics(CollectorRegistry())
        writer = DeviceClaimWriter(client, Cache(), clock=SystemClock(), metrics=metrics)
        claim = await writer.create(from_plain(ResourceClaim, wanted))
        name = claim.metadata.name
        path = f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}"
        cluster.edit(path, lambda found: found["metadata"].update({"labels": {"a": "b"}}))
        allocation = from_plain(AllocationResult, {"devices": {"results": [got]}})
        pod = Pod.from_plain(manifest)
        written = await writer.reserve(pod, claim, allocation)
        assert written.is_reserved_for(pod.uid)
        writer.start_release(pod, written)
        await writer.drain()
        await writer.deallocate(
            decode(ResourceClaim, json.dumps(cluster.plane.request("GET", path)))
        )
        await writer.delete(written)
    items = cluster.plane.request("GET", path.rpartition("/")[0])["items"]
    assert name not in [item["metadata"]["name"] for item in items]


async def write_volumes(cluster: Cluster, pod_name: str, node_name: str) -> None:
    """Bind volumes as the account that another pod of the same claims has bound meanwhile."""
    plane = cluster.plane
    volumes, claims = (
        "/api/v1/persistentvolumes",
        "/api/v1/namespaces/default/persistentvolumeclaims",
    )
    disk = _created(cluster, PersistentVolume, volumes, volume())
    old = _created(cluster, PersistentVolumeClaim, claims, claim("old"))
    new = _created(cluster, PersistentVolumeClaim, claims, claim("new", storage_class="made"))
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "old"}
    reference["uid"] = old.metadata.uid
    chosen = {**BOUND, SELECTED_NODE: node_name}
    cluster.edit(f"{volumes}/disk", lambda found: found["spec"].update(claimRef=reference))
    for name, annotations in (("old", BOUND), ("new", chosen)):

        def bind(found: dict[str, Any], annotations: dict[str, str] = annotations) -> None:
            found["metadata"]["annotations"] = annotations
            found["spec"]["volumeName"] = "disk"

        cluster.edit(f"{claims}/{name}", bind)

    cache = Cache()
    cache.add_node(Node.from_plain(plane.request("GET", f"/api/v1/nodes/{node_name}")))
    running = plane.request("GET", f"/api/v1/namespaces/default/pods/{pod_name}")
    cache.assume(Pod.from_plain(running).unplaced(), node_name)
    cache.objects.put("persistentvolumes", _read(plane, PersistentVolume, f"{volumes}/disk"))
    for name in ("old", "new"):
        found = _read(plane, PersistentVolumeClaim, f"{claims}/{name}")
        cache.objects.put("persistentvolumeclaims", found)
    replace = msgspec.structs.replace
    spec = replace(disk.spec, claim_ref=from_plain(ClaimReference, reference))
    selected = replace(new.metadata, annotations={SELECTED_NODE: node_name})
    plan = VolumePlan(((replace(disk, spec=spec), old),), (replace(new, metadata=selected),))
    async with plane.client(plane.service_account_token("starsched", "starsched")) as client:
        binder = VolumeBinder(client, cache, clock=SystemClock())
        await binder.bind(Pod.from_plain(running), node_name, plan, 30)


def _created(cluster: Cluster, record: type[Any], path: str, manifest: Manifest) -> Any:
    """Create an object, and read it as the scheduler does."""
    kept = {"name", "namespace", "labels", "annotations"}
    manifest["metadata"] = {k: v for k, v in manifest["metadata"].items() if k in kept}
    found = cluster.plane.request("POST", path, manifest)
    return decode(record, json.dumps(found))


def _read(plane: ControlPlane, record: type[Any], path: str) -> Any:
    return decode(record, json.dumps(plane.request("GET", path)))


@pytest.mark.long("starts a control plane with kube-scheduler for one question")
@pytest.mark.parametrize("cluster", ["overlays/replace"], indirect=True)
def test_it_stands_by_for_as_long_as_kube_scheduler_holds_the_lease(
    cluster: Cluster, image: Image
) -> None:
    plane = cluster.plane
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "kube-scheduler", "namespace": "kube-system"},
        "spec": {
            "holderIdentity": "kube-scheduler-of-a-node",
            "leaseDurationSeconds": 3600,
            "acquireTime": now,
            "renewTime": now,
        },
    }
    plane.request("POST", cluster.lease.rpartition("/")[0], lease)
    with SchedulerProcess(plane, image, container(cluster.objects)["args"]) as process:
        wait_until(lambda: process.get("/readyz")[0] == 200, what="readiness of the standby")
        plane.request(
            "POST", "/api/v1/namespaces/default/pods", pod("waits", cluster.scheduler_name)
        )
        # It has looked at the lease twice, and knows of the pod.
        looks = Right("kube-system", "coordination.k8s.io", "leases", "kube-scheduler", "get")
        wait_until(
            lambda: [r.right for r in cluster.requests()].count(looks) >= 2,
            what="looks at the lease",
        )
        assert cluster.node_of("waits") is None

        def give_back(found: dict[str, Any]) -> None:
            found["spec"]["holderIdentity"] = ""

        cluster.edit(cluster.lease, give_back)
        wait_until(lambda: cluster.node_of("waits"), what="the pod to be bound")
    assert process.status == 0
