"""PodGroups: what the scheduler reads of them and writes into their status."""

import pytest

from tests.contract.harness import MERGE, Api, Json, pod, seen

# The API server of 1.36 has an older form of them, that of 1.35 none.
pytestmark = pytest.mark.kubernetes("1.37")

VERSION = "scheduling.k8s.io/v1beta1"
GANG: Json = {"schedulingPolicy": {"gang": {"minCount": 3}}}


def groups(api: Api, name: str = "", sub: str = "") -> str:
    return api.path("podgroups", name, sub, group=VERSION)


async def make_group(api: Api, name: str = "train", **spec: object) -> Json:
    body = {
        "apiVersion": VERSION,
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {**GANG, **spec},
    }
    return await api.make(groups(api), body)


def condition(status: str, reason: str, kind: str = "PodGroupInitiallyScheduled") -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


async def test_a_group_is_created_with_defaults_listed_and_read(served: Api) -> None:
    made = await make_group(served)
    want = {**GANG, "disruptionMode": {"single": {}}, "priority": 0}
    assert {name: made["spec"].get(name) for name in want} == want
    assert (await served.get(groups(served, "train"))).body == made
    listed = (await served.get(groups(served))).body
    assert (listed["kind"], listed["apiVersion"]) == ("PodGroupList", VERSION)
    assert [one["metadata"]["uid"] for one in listed["items"]] == [made["metadata"]["uid"]]
    assert (await served.get(groups(served, "other"))).status == 404


async def test_a_watch_shows_what_becomes_of_a_group(served: Api) -> None:
    since = await served.revision(groups(served))
    async with served.watch(groups(served), resourceVersion=since) as watch:
        await make_group(served)
        more = {"spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}}
        assert (await served.patch(groups(served, "train"), more, MERGE)).status == 200
        status = {"status": {"conditions": [condition("True", "Scheduled")]}}
        assert (await served.patch(groups(served, "train", "status"), status)).status == 200
        shown = await watch.take(3)
        # A group stays as long as it has pods; only a real control plane says when that ends.
        await served.patch(groups(served, "train"), {"metadata": {"finalizers": None}}, MERGE)
        await served.delete(groups(served, "train"))
        while seen(last := await watch.next())[0] != "DELETED":
            pass
    assert [seen(event) for event in (*shown, last)] == [
        (kind, "train") for kind in ("ADDED", "MODIFIED", "MODIFIED", "DELETED")
    ]
    bodies = [event["object"] for event in shown]
    assert [one["spec"]["schedulingPolicy"]["gang"]["minCount"] for one in bodies[:2]] == [3, 4]
    assert [len(one.get("status", {}).get("conditions", [])) for one in bodies] == [0, 0, 1]


async def test_a_group_that_is_deleted_stays_until_its_finalizer_goes(served: Api) -> None:
    """Whether there is a controller that removes it or not."""
    finalizer = "scheduling.k8s.io/podgroup-protection"
    made = await make_group(served)
    assert made["metadata"]["finalizers"] == [finalizer]
    path = groups(served, "train")
    answer = await served.delete(path)
    assert (answer.status, answer.body["kind"]) == (200, "PodGroup")
    left = (await served.get(path)).body
    assert left["metadata"]["deletionTimestamp"]
    assert left["metadata"]["finalizers"] == [finalizer]
    await served.patch(path, {"metadata": {"finalizers": None}}, MERGE)
    assert (await served.get(path)).status == 404


async def test_a_group_has_its_finalizer_once(served: Api) -> None:
    finalizers = ["scheduling.k8s.io/podgroup-protection", "example.com/own"]
    body = {"metadata": {"name": "train", "finalizers": finalizers}, "spec": GANG}
    made = await served.make(groups(served), body)
    assert made["metadata"]["finalizers"] == finalizers
    patch = {"metadata": {"finalizers": ["example.com/own"]}}
    changed = await served.patch(groups(served, "train"), patch, MERGE)
    assert changed.body["metadata"]["finalizers"] == ["example.com/own"]


async def test_conditions_are_merged_by_type(served: Api) -> None:
    await make_group(served)
    path = groups(served, "train", "status")
    for one in (
        condition("False", "Unschedulable"),
        condition("True", "PreemptionByScheduler", "DisruptionTarget"),
        condition("True", "Scheduled"),
    ):
        answer = await served.patch(path, {"status": {"conditions": [one]}})
        assert answer.status == 200, answer
    found = answer.body["status"]["conditions"]
    assert {one["type"]: one["reason"] for one in found} == {
        "PodGroupInitiallyScheduled": "Scheduled",
        "DisruptionTarget": "PreemptionByScheduler",
    }


async def test_a_patch_of_the_status_changes_nothing_else_and_no_other_group(served: Api) -> None:
    made = await make_group(served)
    path = groups(served, "train", "status")
    change = {
        "spec": {"schedulingPolicy": {"gang": {"minCount": 9}}},
        "status": {"conditions": [condition("True", "Scheduled")]},
    }
    assert (await served.patch(path, change)).body["spec"] == made["spec"]
    # The uid is a precondition: a group of that name may have taken the place of another.
    of_another = {"metadata": {"uid": "another"}, "status": {"conditions": []}}
    answer = await served.patch(path, of_another)
    assert (answer.status, answer.reason) == (422, "Invalid")
    unknown = await served.patch(groups(served, "other", "status"), change)
    assert (unknown.status, unknown.reason) == (404, "NotFound")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"disruptionMode": {"all": {}}}, "spec.disruptionMode"),
        ({"priority": 7}, "spec.priority"),
        ({"schedulingPolicy": {"gang": {"minCount": 0}}}, "spec.schedulingPolicy.gang.minCount"),
        ({"schedulingPolicy": {"gang": {"minCount": -1}}}, "spec.schedulingPolicy.gang.minCount"),
        ({"schedulingPolicy": {"gang": None, "basic": {}}}, "spec.schedulingPolicy"),
    ],
    ids=["mode", "priority", "no pods", "less than no pods", "policy"],
)
async def test_a_change_that_makes_no_sense_is_refused(served: Api, spec: Json, field: str) -> None:
    await make_group(served)
    answer = await served.patch(groups(served, "train"), {"spec": spec}, MERGE)
    assert (answer.status, answer.reason) == (422, "Invalid"), answer
    causes = answer.body["details"]["causes"]
    assert any(cause["field"].startswith(field) for cause in causes), causes


async def test_a_pod_does_not_change_its_group(served: Api) -> None:
    await served.make(served.pods(), pod("a", spec={"schedulingGroup": {"podGroupName": "train"}}))
    change = {"spec": {"schedulingGroup": {"podGroupName": "other"}}}
    answer = await served.patch(served.pods("a"), change)
    assert (answer.status, answer.reason) == (422, "Invalid"), answer


async def test_a_workload_without_groups_is_refused(served: Api) -> None:
    body = {"apiVersion": VERSION, "kind": "Workload", "metadata": {"name": "w"}, "spec": {}}
    answer = await served.post(served.path("workloads", group=VERSION), body)
    assert (answer.status, answer.reason) == (422, "Invalid"), answer
