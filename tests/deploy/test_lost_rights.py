"""Each right to read that the account has is taken away, one after the other, on a real API server.

What it costs is in the stories: a pod that a budget protects was evicted, and a pod was bound
beside the one that it has to avoid, by a replica that was ready and led.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog

from engine.app import App
from engine.io.kube import resources
from engine.io.kube.config import Endpoint
from engine.io.kube.resources import Resource
from engine.surfaces.preflight.rights import watched_resources
from tests.controlplane import ControlPlane, serving_groups
from tests.deploy.rendering import render
from tests.deploy.scheduler_process import create_all, node, pod
from tests.engine.app.harness import metric, scheduler_at
from tests.waiting import eventually

pytestmark = pytest.mark.slow("starts the real control plane")

WATCHED = watched_resources()
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/starsched"
PODS = "/api/v1/namespaces/default/pods"
SCHEDULER = "default-scheduler"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
HOSTNAME = "kubernetes.io/hostname"


@pytest.fixture(scope="module")
def plane(kustomize: Path) -> Iterator[ControlPlane]:
    """A control plane with the manifests, and the ServiceAccount's rights."""
    with ControlPlane(apiserver_args=[*serving_groups()]) as plane:
        create_all(plane, render("overlays/beside"))
        yield plane


@pytest.fixture
def role(plane: ControlPlane) -> Iterator["Role"]:
    """The account's role; it has all of its rights again afterwards."""
    made = Role(plane)
    yield made
    made.restore()
    plane.request("DELETE", PODS, {"kind": "DeleteOptions", "gracePeriodSeconds": 0})
    plane.request("DELETE", "/api/v1/nodes")
    plane.request("DELETE", BUDGETS)


class Role:
    """The ClusterRole of the account, from which rights to read can be taken."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._rules: list[dict[str, Any]] = plane.request("GET", ROLE)["rules"]

    def take(self, resource: Resource) -> None:
        """Take the right to list and watch *resource* away."""
        rules = []
        for rule in self._rules:
            if resource.group not in rule["apiGroups"] or resource.plural not in rule["resources"]:
                rules.append(rule)
                continue
            others = [one for one in rule["resources"] if one != resource.plural]
            left = [verb for verb in rule["verbs"] if verb not in ("list", "watch")]
            rules += [{**rule, "resources": others}] if others else []
            rules += [{**rule, "resources": [resource.plural], "verbs": left}] if left else []
        self._put(rules)

    def restore(self) -> None:
        """Give all rights back."""
        self._put(self._rules)

    def _put(self, rules: list[dict[str, Any]]) -> None:
        self._plane.request("PUT", ROLE, {**self._plane.request("GET", ROLE), "rules": rules})


async def readyz(app: App) -> tuple[int, str]:
    url = f"http://127.0.0.1:{app.surfaces.endpoints.local_port}/readyz"
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        return answer.status, await answer.text()


def placed(plane: ControlPlane, name: str) -> str:
    return str(plane.request("GET", f"{PODS}/{name}")["spec"].get("nodeName", ""))


def is_going(plane: ControlPlane, name: str) -> bool:
    found = plane.request("GET", PODS)["items"]
    by_name = {one["metadata"]["name"]: one for one in found}
    return name not in by_name or "deletionTimestamp" in by_name[name]["metadata"]


async def is_refused(app: App, resource: Resource) -> None:
    """Wait until the refusal of *resource* is all that keeps the replica from deciding."""
    others = [one for one in app.watching.informers if one.resource.plural != resource.plural]
    label = str(resource)
    await eventually(lambda: metric(app, "starsched_watch_forbidden", resource=label) == 1)
    await eventually(lambda: all(one.has_synced for one in others))
    status, text = await readyz(app)
    assert status == 500
    assert f"resources: [{resource.plural}], verbs: [list, watch]" in text
    assert not app.leadership.leading.is_set()


def endpoint(plane: ControlPlane) -> Endpoint:
    return plane.endpoint(plane.service_account_token("starsched", "starsched"))


@pytest.mark.parametrize("resource", WATCHED, ids=str)
@pytest.mark.long("takes the rights away one by one")
async def test_without_one_right_a_replica_is_not_ready_decides_nothing_and_says_which(
    plane: ControlPlane, role: Role, resource: Resource
) -> None:
    plane.request("POST", "/api/v1/nodes", node("node-1"))
    plane.request("POST", PODS, pod("web", SCHEDULER))
    role.take(resource)
    with structlog.testing.capture_logs() as logs:
        async with scheduler_at(endpoint(plane), local_port=0, wait=False) as app:
            await is_refused(app, resource)
            assert not placed(plane, "web")
            role.restore()
            await eventually(lambda: placed(plane, "web") == "node-1", seconds=60)
            assert (await readyz(app))[0] == 200
    errors = [log for log in logs if log["log_level"] == "error" and "hint" in log]
    assert {log["resource"] for log in errors} == {str(resource)}


def protect(plane: ControlPlane, label: str) -> None:
    """A budget that lets no pod with *label* go; there is no controller to say so."""
    selector = {"matchLabels": {"app": label}}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": label, "namespace": "default"},
        "spec": {"selector": selector, "minAvailable": 1},
    }
    made = plane.request("POST", BUDGETS, budget)
    made["status"] = {
        "disruptionsAllowed": 0,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 1,
        "observedGeneration": 1,
    }
    plane.request("PUT", f"{BUDGETS}/{label}/status", made)


def crowd(plane: ControlPlane) -> None:
    """Two full nodes: with a protected pod that matters little, and one that may go."""
    for name, value in (("low", 10), ("middle", 20), ("urgent", 1000)):
        group = "scheduling.k8s.io/v1"
        of = {"apiVersion": group, "kind": "PriorityClass", "metadata": {"name": name}}
        plane.create_if_missing(f"/apis/{group}/priorityclasses", {**of, "value": value})
    for name, priority, place in (("protected", "low", "node-1"), ("plain", "middle", "node-2")):
        plane.request("POST", "/api/v1/nodes", node(place, cpu="1"))
        made = pod(name, SCHEDULER, cpu="1", priority=priority)
        made["metadata"]["labels"] = {"app": name}
        made["spec"]["nodeName"] = place
        plane.request("POST", PODS, made)
    protect(plane, "protected")


async def test_a_protected_pod_is_not_evicted_by_a_replica_that_may_not_read_budgets(
    plane: ControlPlane, role: Role
) -> None:
    crowd(plane)
    plane.request("POST", PODS, pod("urgent", SCHEDULER, cpu="1", priority="urgent"))
    role.take(resources.POD_DISRUPTION_BUDGETS)
    async with scheduler_at(endpoint(plane), local_port=0, wait=False) as app:
        await is_refused(app, resources.POD_DISRUPTION_BUDGETS)
        assert not is_going(plane, "protected")
        assert not is_going(plane, "plain")
        role.restore()
        await eventually(lambda: is_going(plane, "plain"), seconds=60)
        assert not is_going(plane, "protected")


async def test_a_right_to_budgets_that_goes_while_it_runs_ends_evictions_alone(
    plane: ControlPlane, role: Role
) -> None:
    crowd(plane)
    budgets = resources.POD_DISRUPTION_BUDGETS
    async with scheduler_at(endpoint(plane), local_port=0, most_watch_age=1.0) as app:
        role.take(budgets)
        (one,) = [one for one in app.watching.informers if one.resource == budgets]
        # The API server ends no watch for a right that goes: as if its time were over.
        restarted = asyncio.ensure_future(one.catch_up("9" * 18, 0.0))
        await eventually(lambda: budgets.plural in app.cache.objects.unknown, seconds=60)
        assert metric(app, "starsched_watch_forbidden", resource=str(budgets)) == 1
        assert (await readyz(app))[0] == 500
        plane.request("POST", PODS, pod("urgent", SCHEDULER, cpu="1", priority="urgent"))

        def reason() -> str:
            status = plane.request("GET", f"{PODS}/urgent")["status"]
            return str(next((c["reason"] for c in status.get("conditions", ())), ""))

        await eventually(lambda: reason() == "ClusterNotReadable", seconds=60)
        assert not is_going(plane, "protected")
        assert not is_going(plane, "plain")
        # A pod that fits is placed all the same.
        plane.request("POST", "/api/v1/nodes", node("node-3", cpu="100m"))
        plane.request("POST", PODS, pod("small", SCHEDULER, cpu="100m"))
        await eventually(lambda: placed(plane, "small") == "node-3", seconds=60)
        role.restore()
        await eventually(lambda: is_going(plane, "plain"), seconds=60)
        assert not is_going(plane, "protected")
        await restarted


async def test_a_pod_is_not_bound_beside_one_that_it_must_avoid_by_namespaces_unread(
    plane: ControlPlane, role: Role
) -> None:
    for name in ("alone", "other"):
        place = {"metadata": {"name": name, "labels": {"team": name}}, "kind": "Namespace"}
        plane.create_if_missing("/api/v1/namespaces", {"apiVersion": "v1", **place})
        account = {"metadata": {"name": "default"}, "kind": "ServiceAccount", "apiVersion": "v1"}
        plane.create_if_missing(f"/api/v1/namespaces/{name}/serviceaccounts", account)
    made = node("node-1")
    made["metadata"]["labels"] = {HOSTNAME: "node-1"}
    plane.request("POST", "/api/v1/nodes", made)
    first = pod("first", SCHEDULER)
    first["metadata"] |= {"namespace": "other", "labels": {"app": "web"}}
    first["spec"]["nodeName"] = "node-1"
    plane.create_if_missing("/api/v1/namespaces/other/pods", first)
    avoiding = pod("avoiding", SCHEDULER)
    term = {
        "topologyKey": HOSTNAME,
        "labelSelector": {"matchLabels": {"app": "web"}},
        "namespaceSelector": {"matchLabels": {"team": "other"}},
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    avoiding["spec"]["affinity"] = {"podAntiAffinity": required}
    plane.request("POST", PODS, avoiding)
    role.take(resources.NAMESPACES)
    async with scheduler_at(endpoint(plane), local_port=0, wait=False) as app:
        await is_refused(app, resources.NAMESPACES)
        role.restore()
        await eventually(app.leadership.leading.is_set, seconds=60)
        plane.request("POST", PODS, pod("later", SCHEDULER))
        await eventually(lambda: placed(plane, "later") == "node-1", seconds=60)
        assert not placed(plane, "avoiding")
