"""Not readable is not empty: on an embedded API server that refuses, fails or talks nonsense."""

import functools
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import aiohttp
import pytest
import structlog

from devkit.cluster import DevCluster, make_node, make_pod
from devkit.cluster.faults import Match
from engine.app import App
from engine.io.kube.client import ApiClient
from engine.io.kube.resources import Resource
from engine.lib.saved_state import SavedStates
from engine.rollout.last_good import ConfigMapStore
from engine.surfaces.preflight.rights import watched_resources
from tests.engine.app import harness
from tests.engine.app.harness import condition, metric, node_of, scheduler
from tests.waiting import eventually

pytestmark = [pytest.mark.slow("runs whole schedulers"), pytest.mark.usefixtures("no_sandboxes")]

WATCHED = watched_resources()


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as cluster:
        yield cluster


async def readyz(app: App) -> tuple[int, str]:
    url = f"http://127.0.0.1:{app.surfaces.endpoints.local_port}/readyz"
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        return answer.status, await answer.text()


def is_going(cluster: DevCluster, name: str) -> bool:
    pod = cluster.get("pods", name)
    return pod is None or "deletionTimestamp" in pod["metadata"]


def budgets_of(app: App) -> list[Any]:
    return app.cache.objects.list("poddisruptionbudgets")


def forbid(cluster: DevCluster, resource: Resource) -> Any:
    """Take the right to read *resource* away, for all of its versions."""
    return [
        cluster.faults.fail(403, verb=verb, resource=f"{resource.plural}*", times=None)
        for verb in ("list", "watch")
    ]


@pytest.mark.parametrize("resource", WATCHED, ids=str)
async def test_a_replica_that_may_not_list_one_resource_is_not_ready_and_decides_nothing(
    cluster: DevCluster, resource: Resource
) -> None:
    faults = forbid(cluster, resource)
    cluster.create(make_node("node-1"), make_pod("web"))
    with structlog.testing.capture_logs() as logs:
        async with scheduler(cluster, local_port=0, wait=False) as app:
            await eventually(
                lambda: metric(app, "starsched_watch_forbidden", resource=str(resource)) == 1
            )
            await eventually(
                lambda: all(i.has_synced for i in app.watching.informers if i.resource != resource)
            )
            status, text = await readyz(app)
            assert status == 500
            assert f"resources: [{resource.plural}], verbs: [list, watch]" in text
            assert not app.watching.synced.is_set()
            assert not app.leadership.leading.is_set()
            assert not node_of(cluster, "web")
            for fault in faults:
                cluster.faults.remove(fault)
            await eventually(lambda: node_of(cluster, "web") == "node-1")
            await eventually(
                lambda: metric(app, "starsched_watch_forbidden", resource=str(resource)) == 0
            )
            assert (await readyz(app))[0] == 200
    errors = [log for log in logs if log["log_level"] == "error" and "hint" in log]
    assert {log["resource"] for log in errors} == {str(resource)}


@pytest.mark.parametrize("code", [401, 403, 500, 503])
async def test_what_can_no_longer_be_read_is_used_for_a_while_and_then_holds_what_needs_it(
    cluster: DevCluster, code: int
) -> None:
    """Budgets: pods that fit are placed all the while, and none is evicted by what is too old."""
    urgent = {"metadata": {"name": "urgent"}, "value": 100, "kind": "PriorityClass"}
    cluster.create({"apiVersion": "scheduling.k8s.io/v1", **urgent})
    cluster.create(make_node("node-1", cpu="1"))
    cluster.create(make_pod("protected", cpu="1"))
    async with scheduler(cluster, local_port=0, most_watch_age=1.0) as app:
        await eventually(lambda: node_of(cluster, "protected") == "node-1")
        assert (await readyz(app))[0] == 200
        faults = [
            cluster.faults.fail(code, verb=verb, resource="poddisruptionbudgets*", times=None)
            for verb in ("list", "watch")
        ]
        cluster.close_watches("poddisruptionbudgets.policy", abort=True)
        await eventually(lambda: "poddisruptionbudgets" in app.cache.objects.unknown)
        status, text = await readyz(app)
        assert status == 500
        assert "poddisruptionbudgets.policy cannot be read" in text
        budgets = "poddisruptionbudgets.policy"
        refused = float(code in (401, 403))
        await eventually(
            lambda: metric(app, "starsched_watch_forbidden", resource=budgets) == refused
        )
        cluster.create(make_pod("urgent", cpu="1", priorityClassName="urgent"))
        await eventually(lambda: condition(cluster, "urgent").get("reason") == "ClusterNotReadable")
        assert "poddisruptionbudgets.policy" in condition(cluster, "urgent")["message"]
        # What does not depend on them goes on.
        cluster.create(make_node("node-2", cpu="1"))
        await eventually(lambda: node_of(cluster, "urgent") == "node-2")
        cluster.create(make_pod("second", cpu="1", priorityClassName="urgent"))
        await eventually(lambda: condition(cluster, "second").get("reason") == "ClusterNotReadable")
        assert not is_going(cluster, "protected")
        # It is tried by itself once they can be read.
        for fault in faults:
            cluster.faults.remove(fault)
        # A watch that works says so with its next event or bookmark.
        spec = {"selector": {"matchLabels": {"app": "other"}}, "minAvailable": 1}
        budget = {"metadata": {"name": "other", "namespace": "default"}, "spec": spec}
        api = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
        cluster.create({**api, **budget})
        await eventually(lambda: not app.cache.objects.unknown, seconds=40)
        assert (await readyz(app))[0] == 200
        await eventually(lambda: is_going(cluster, "protected"), seconds=40)


async def test_a_budget_of_which_a_part_cannot_be_read_protects_its_namespace(
    cluster: DevCluster,
) -> None:
    """It was skipped with a warning, so its pods had no budget, and were evicted."""
    urgent = {"metadata": {"name": "urgent"}, "value": 100, "kind": "PriorityClass"}
    cluster.create({"apiVersion": "scheduling.k8s.io/v1", **urgent})
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
    }
    cluster.create(make_node("node-1", cpu="1"), make_pod("protected", cpu="1"), budget)

    def change(**fields: Any) -> None:
        known = cluster.get("poddisruptionbudgets", "web")
        assert known is not None
        cluster.store_as_is("poddisruptionbudgets", {**known, **fields})

    change(status={"disruptionsAllowed": "many"})
    said = "PodDisruptionBudget `default/web` cannot be read: status.disruptionsAllowed: want `int`"
    label = {"resource": "poddisruptionbudgets.policy"}
    with structlog.testing.capture_logs() as logs:
        async with scheduler(cluster) as app:
            await eventually(lambda: node_of(cluster, "protected") == "node-1")
            assert metric(app, "starsched_unread_objects", **label) == 1
            cluster.create(make_pod("urgent", cpu="1", priorityClassName="urgent"))
            await eventually(lambda: said in condition(cluster, "urgent").get("message", ""))
            # Changed, and as odd as before: that is said once.
            change(spec={"selector": {"matchLabels": {"app": "web", "a": "b"}}})
            await eventually(
                lambda: [len(one.spec.selector.match_labels) for one in budgets_of(app)] == [2]
            )
            assert not is_going(cluster, "protected")
            change(status={"disruptionsAllowed": 1})
            await eventually(lambda: is_going(cluster, "protected"), seconds=40)
            assert metric(app, "starsched_unread_objects", **label) == 0
    errors = [log for log in logs if log["event"] == "Cannot read a part of an object"]
    assert [(log["log_level"], log["object"]) for log in errors] == [("error", "default/web")]
    assert errors[0]["resource"] == "poddisruptionbudgets.policy"


async def test_a_server_that_hangs_for_too_long_holds_what_needs_it(
    cluster: DevCluster,
) -> None:
    async with scheduler(cluster, most_watch_age=0.5) as app:
        hung = [
            cluster.faults.hang(verb=verb, resource="namespaces", times=None)
            for verb in ("list", "watch")
        ]
        cluster.close_watches("namespaces", abort=True)
        await eventually(lambda: "namespaces" in app.cache.objects.unknown)
        cluster.create(make_node("node-1"), make_pod("web"))
        await eventually(lambda: condition(cluster, "web").get("reason") == "ClusterNotReadable")
        for fault in hung:
            cluster.faults.remove(fault)
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}})
        await eventually(lambda: node_of(cluster, "web") == "node-1", seconds=40)


async def test_with_no_bound_what_was_known_is_used_for_ever(cluster: DevCluster) -> None:
    async with scheduler(cluster, most_watch_age=float("inf")) as app:
        cluster.faults.fail(403, verb="list", resource="namespaces", times=None)
        cluster.faults.fail(403, verb="watch", resource="namespaces", times=None)
        cluster.close_watches("namespaces", abort=True)
        label = "namespaces"
        await eventually(lambda: metric(app, "starsched_watch_forbidden", resource=label) == 1)
        (one,) = [i for i in app.watching.informers if str(i.resource) == label]
        await eventually(lambda: one.currency.is_older(1.5, app._clock.monotonic()))
        cluster.create(make_node("node-1"), make_pod("web"))
        await eventually(lambda: node_of(cluster, "web") == "node-1")


#: What is waited for, what the API server refuses then, and the right that is missing.
UNREAD: Final[Mapping[str, tuple[Match, str]]] = {
    "rollout-mode": (
        {"resource": "configmaps", "times": None, "verb": "list"},
        'add to the Role in the namespace starsched: - {apiGroups: [""], '
        "resources: [configmaps], resourceNames: [policies-rollout], verbs: [list, watch]}",
    ),
    "policies": (
        {"resource": "configmaps", "times": None, "verb": "list", "skip": 1},
        'add to the Role in the namespace starsched: - {apiGroups: [""], '
        "resources: [configmaps], resourceNames: [policies], verbs: [list, watch]}",
    ),
    "last-good": (
        {"resource": "configmaps", "times": None, "verb": "get", "name": "saved"},
        "starsched/saved",
    ),
}


@pytest.mark.parametrize("state", UNREAD)
async def test_readiness_names_what_is_waited_for_by_the_word_of_log_and_metric(
    cluster: DevCluster, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said "handlers are not fully synchronized", and all of them were."""
    impatient = functools.partial(SavedStates, patience=0.5)
    monkeypatch.setattr("engine.app.environment.SavedStates", impatient)
    requests, right = UNREAD[state]
    cluster.create(harness.namespace())
    harness.edit(cluster, {})
    fault = cluster.faults.fail(403, **requests)

    def store(client: ApiClient) -> ConfigMapStore:
        return ConfigMapStore(client, harness.NAMESPACE, "saved")

    words: dict[str, Any] = {
        "local_port": 0,
        "wait": False,
        "from_config_map": True,
        "store": store,
    }
    with structlog.testing.capture_logs() as logs:
        async with scheduler(cluster, **words) as app:
            await eventually(lambda: all(one.has_synced for one in app.watching.informers))
            await eventually(lambda: metric(app, "starsched_saved_state_unread", state=state) == 1)
            await eventually(lambda: right in (app.env.saved.waits_for() or ""))
            status, text = await readyz(app)
            assert status == 500
            assert "[+]sched-handler-sync ok" in text
            assert f"[-]policies failed: {state}: cannot be read: " in text
            assert right in text
            # The log says it once reading has taken half a second, or failed.
            await eventually(lambda: state in {log.get("state") for log in logs}, seconds=30)
            cluster.faults.remove(fault)
            await eventually(app.leadership.leading.is_set)
            assert (await readyz(app))[0] == 200
    assert [log for log in logs if log.get("state") == state and right in log.get("reason", "")]


async def test_readiness_names_the_policy_that_a_configuration_names_and_that_is_not_there(
    cluster: DevCluster,
) -> None:
    """Handlers were blamed for it."""
    cluster.create(harness.namespace())
    profile = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": "absent-one"}]}}}],
    }
    harness.edit(cluster, {"config.yaml": json.dumps(profile)})
    async with scheduler(cluster, local_port=0, wait=False, from_config_map=True) as app:
        await eventually(lambda: "absent-one" in (app.policies.rollout.waits_for() or ""))
        status, text = await readyz(app)
        assert status == 500
        assert "[+]sched-handler-sync ok" in text
        assert "[-]policies failed: no policies are in force from configmap:" in text
        assert "absent-one" in text
