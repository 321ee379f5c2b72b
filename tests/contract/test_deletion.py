"""Deletion: grace periods, preconditions, finalizers, namespaces."""

from datetime import datetime

import pytest

from tests.contract.harness import MERGE, Api, Json, pod, seen


def seconds_between(earlier: str, later: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


async def test_a_pod_that_waits_goes_at_once(api: Api) -> None:
    await api.make_pod("a")
    answer = await api.delete(api.pods("a"))
    assert (answer.status, answer.body["kind"]) == (200, "Pod")
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await api.get(api.pods("a"))).status == 404


async def test_a_pod_on_a_node_gets_its_grace_period(api: Api) -> None:
    await api.make_pod("a", spec={"nodeName": "n", "terminationGracePeriodSeconds": 40})
    answer = await api.delete(api.pods("a"))
    meta = answer.body["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 40
    assert 35 <= seconds_between(meta["creationTimestamp"], meta["deletionTimestamp"]) <= 45
    assert meta["generation"] == 2
    assert (await api.get(api.pods("a"))).body["metadata"] == meta


async def test_the_grace_period_can_be_chosen(api: Api) -> None:
    await api.make_pod("a", spec={"nodeName": "n"})
    answer = await api.delete(api.pods("a"), {"gracePeriodSeconds": 5})
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 5


async def test_the_grace_period_can_only_become_shorter(api: Api) -> None:
    await api.make_pod("a", spec={"nodeName": "n"})
    first = (await api.delete(api.pods("a"), gracePeriodSeconds=20)).body["metadata"]
    longer = (await api.delete(api.pods("a"), gracePeriodSeconds=60)).body["metadata"]
    assert longer == first
    shorter = (await api.delete(api.pods("a"), gracePeriodSeconds=10)).body["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 10
    got = seconds_between(shorter["deletionTimestamp"], first["deletionTimestamp"])
    assert got == 10


async def test_grace_zero_removes_a_pod_from_its_node(api: Api) -> None:
    await api.make_pod("a", spec={"nodeName": "n"})
    await api.delete(api.pods("a"))
    assert (await api.delete(api.pods("a"), gracePeriodSeconds=0)).status == 200
    assert (await api.get(api.pods("a"))).status == 404


async def test_a_finished_pod_goes_at_once(api: Api) -> None:
    await api.make_pod("a", spec={"nodeName": "n"})
    await api.patch(api.pods("a", "status"), {"status": {"phase": "Succeeded"}}, MERGE)
    await api.delete(api.pods("a"))
    assert (await api.get(api.pods("a"))).status == 404


async def test_a_watch_sees_the_beginning_and_the_end(api: Api) -> None:
    await api.make_pod("a", spec={"nodeName": "n"})
    async with api.watch(api.pods(), resourceVersion=await api.revision()) as watch:
        await api.delete(api.pods("a"))
        await api.delete(api.pods("a"), gracePeriodSeconds=0)
        events = await watch.take(3)
    assert [event["type"] for event in events] == ["MODIFIED", "MODIFIED", "DELETED"]
    graces = [event["object"]["metadata"]["deletionGracePeriodSeconds"] for event in events]
    assert graces == [30, 0, 0]


async def test_the_uid_is_a_precondition(api: Api) -> None:
    made = await api.make_pod("a")
    wrong = {"preconditions": {"uid": "not-it"}}
    answer = await api.delete(api.pods("a"), wrong)
    assert (answer.status, answer.reason) == (409, "Conflict")
    uid = made["metadata"]["uid"]
    assert answer.message == (
        'Operation cannot be fulfilled on Pod "a": the UID in the precondition (not-it) does not '
        f"match the UID in record ({uid}). The object might have been deleted and then recreated"
    )
    assert (await api.delete(api.pods("a"), {"preconditions": {"uid": uid}})).status == 200


async def test_the_version_is_a_precondition(api: Api) -> None:
    made = await api.make_pod("a")
    await api.patch(api.pods("a"), {"metadata": {"labels": {"a": "b"}}}, MERGE)
    version = made["metadata"]["resourceVersion"]
    answer = await api.delete(api.pods("a"), {"preconditions": {"resourceVersion": version}})
    assert (answer.status, answer.reason) == (409, "Conflict")


async def test_a_missing_pod_cannot_be_deleted(api: Api) -> None:
    answer = await api.delete(api.pods("a"))
    assert (answer.status, answer.reason) == (404, "NotFound")


async def test_finalizers_hold_a_pod(api: Api) -> None:
    await api.make_pod("a", finalizers=["example.com/hold"])
    answer = await api.delete(api.pods("a"))
    assert answer.body["metadata"]["deletionTimestamp"]
    assert (await api.get(api.pods("a"))).status == 200
    async with api.watch(api.pods(), resourceVersion=await api.revision()) as watch:
        answer = await api.patch(api.pods("a"), {"metadata": {"finalizers": None}}, MERGE)
        assert answer.status == 200
        assert seen(await watch.next()) == ("DELETED", "a")
    assert (await api.get(api.pods("a"))).status == 404


async def test_finalizers_hold_a_node(api: Api) -> None:
    node = api.unique("node")
    await api.make_node(node, finalizers=["example.com/hold"])
    answer = await api.delete(api.nodes(node))
    assert answer.body["metadata"]["deletionTimestamp"]
    await api.patch(api.nodes(node), {"metadata": {"finalizers": None}}, MERGE)
    assert (await api.get(api.nodes(node))).status == 404


async def test_other_objects_go_at_once_and_leave_a_status(api: Api) -> None:
    made = await api.make(api.path("configmaps"), {"metadata": {"name": "a"}})
    answer = await api.delete(api.path("configmaps", "a"))
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]},
    }
    assert (await api.get(api.path("configmaps", "a"))).status == 404


async def test_deleting_a_node_leaves_its_pods(api: Api) -> None:
    node = api.unique("node")
    await api.make_node(node)
    await api.make_pod("a", spec={"nodeName": node})
    assert (await api.delete(api.nodes(node))).status == 200
    assert (await api.get(api.pods("a"))).body["spec"]["nodeName"] == node


async def test_a_name_is_free_again_with_another_uid(api: Api) -> None:
    first = await api.make_pod("a")
    await api.delete(api.pods("a"))
    second = await api.make_pod("a")
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


async def test_a_terminating_namespace_takes_nothing_new(api: Api) -> None:
    name = api.unique("leaving")
    path = f"/api/v1/namespaces/{name}"
    made = await api.make("/api/v1/namespaces", {"metadata": {"name": name}})
    assert made["status"] == {"phase": "Active"}
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": name}
    answer = await api.delete(path)
    assert answer.body["status"]["phase"] == "Terminating"
    answer = await api.eventually(
        lambda: api.post(f"{path}/pods", pod("a")), lambda answer: answer.status == 403
    )
    assert answer.reason == "Forbidden"
    want = f"unable to create new content in namespace {name} because it is being terminated"
    assert want in answer.message
    assert answer.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    answer = await api.put(f"{path}/finalize", {"metadata": {"name": name}, "spec": {}})
    assert answer.status == 200
    assert (await api.get(path)).status == 404


async def test_the_default_namespace_stays(api: Api) -> None:
    answer = await api.delete("/api/v1/namespaces/default")
    assert (answer.status, answer.reason) == (403, "Forbidden")


@pytest.mark.parametrize(
    ("plural", "sent", "want"),
    [
        pytest.param("replicasets", {}, None, id="a ReplicaSet goes"),
        pytest.param("replicasets", {"propagationPolicy": "Background"}, None, id="background"),
        pytest.param("replicasets", {"propagationPolicy": "Orphan"}, ["orphan"], id="orphan"),
        pytest.param(
            "replicasets",
            {"propagationPolicy": "Foreground"},
            ["foregroundDeletion"],
            id="foreground",
        ),
        pytest.param("jobs", {}, ["orphan"], id="a Job orphans its pods"),
        pytest.param("jobs", {"propagationPolicy": "Background"}, None, id="a Job goes"),
    ],
)
@pytest.mark.parametrize("by_query", [False, True])
async def test_a_finalizer_says_what_becomes_of_dependents(
    api: Api, plural: str, sent: Json, want: list[str] | None, by_query: bool
) -> None:
    """Whether there is a garbage collector that removes it or not."""
    inner: Json = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec: Json = {"template": inner}
    if plural == "jobs":
        inner["spec"]["restartPolicy"] = "Never"
    else:
        inner["metadata"] = {"labels": {"app": "web"}}
        spec["selector"] = {"matchLabels": {"app": "web"}}
    group = "batch/v1" if plural == "jobs" else "apps/v1"
    await api.make(api.path(plural, group=group), {"metadata": {"name": "a"}, "spec": spec})
    path = api.path(plural, "a", group=group)
    answer = await (api.delete(path, **sent) if by_query else api.delete(path, sent))
    assert answer.status == 200
    left = await api.get(path)
    if want is None:
        assert left.status == 404
        return
    assert left.body["metadata"]["finalizers"] == want
    assert "deletionTimestamp" in left.body["metadata"]
    await api.patch(path, {"metadata": {"finalizers": None}}, MERGE)
    assert (await api.get(path)).status == 404
