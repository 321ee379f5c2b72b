"""The objects that a scheduler writes beside bindings: events and its leader election lease."""

from typing import Any

import pytest

from tests.contract.harness import MERGE, Api, names

NEW = "events.k8s.io/v1"
LEASES = "coordination.k8s.io/v1"
TIME = "2030-01-02T03:04:05.000006Z"


def event(api: Api, name: str, **fields: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "eventTime": TIME,
        "reportingController": "default-scheduler",
        "reportingInstance": "host-1",
        "action": "Binding",
        "reason": "Scheduled",
        "regarding": {"kind": "Pod", "namespace": api.namespace, "name": "a", "uid": "u"},
        "note": "Successfully assigned default/a to node-1",
        "type": "Normal",
        **fields,
    }


async def test_an_event_has_two_forms(api: Api) -> None:
    made = await api.make(api.path("events", group=NEW), event(api, "a.1"))
    assert (made["apiVersion"], made["note"], made["eventTime"]) == (
        NEW,
        "Successfully assigned default/a to node-1",
        TIME,
    )
    core = (await api.get(api.path("events", "a.1"))).body
    assert core["apiVersion"] == "v1"
    assert core["message"] == made["note"]
    assert core["involvedObject"] == made["regarding"]
    assert core["reportingComponent"] == "default-scheduler"
    assert core["metadata"] == made["metadata"]
    again = (await api.get(api.path("events", "a.1", group=NEW))).body
    assert again == made


async def test_a_core_event_is_shown_in_the_new_form(api: Api) -> None:
    sent = {
        "metadata": {"generateName": "policies."},
        "involvedObject": {"kind": "ConfigMap", "namespace": api.namespace, "name": "policies"},
        "reason": "PoliciesRejected",
        "message": "spread.star:3: want an int",
        "type": "Warning",
        "source": {"component": "starsched"},
        "count": 1,
        "firstTimestamp": "2030-01-02T03:04:05Z",
        "lastTimestamp": "2030-01-02T03:04:05Z",
    }
    made = await api.make(api.path("events"), sent)
    got = (await api.get(api.path("events", made["metadata"]["name"], group=NEW))).body
    assert got["note"] == sent["message"]
    assert got["regarding"] == sent["involvedObject"]
    assert got["deprecatedSource"] == {"component": "starsched"}
    assert got["deprecatedCount"] == 1


async def test_a_repeated_event_becomes_a_series(api: Api) -> None:
    path = api.path("events", group=NEW)
    await api.make(path, event(api, "a.1"))
    series = {"count": 2, "lastObservedTime": "2030-01-02T03:05:05.000006Z"}
    answer = await api.patch(f"{path}/a.1", {"series": series})
    assert (answer.status, answer.body["series"]) == (200, series)
    assert answer.body["note"] == "Successfully assigned default/a to node-1"


async def test_a_series_of_an_event_that_has_gone_is_not_found(api: Api) -> None:
    series = {"series": {"count": 2, "lastObservedTime": TIME}}
    answer = await api.patch(api.path("events", "gone", group=NEW), series)
    assert (answer.status, answer.reason) == (404, "NotFound")
    assert answer.message == 'events.events.k8s.io "gone" not found'


async def test_events_are_selected_by_their_object(api: Api) -> None:
    path = api.path("events", group=NEW)
    await api.make(path, event(api, "a.1"))
    await api.make(path, event(api, "a.2", reason="FailedScheduling", type="Warning"))
    got = await api.get(api.path("events"), fieldSelector="involvedObject.name=a,type=Warning")
    assert names(got) == ["a.2"]
    got = await api.get(path, fieldSelector="regarding.name=a,reason=Scheduled")
    assert names(got) == ["a.1"]


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param({"note": "x" * 1025}, "can have at most 1024 characters", id="long note"),
        pytest.param({"eventTime": None}, "eventTime: Required value", id="no time"),
        pytest.param({"action": ""}, "action: Required value", id="no action"),
        pytest.param({"reason": ""}, "reason: Required value", id="no reason"),
        pytest.param(
            {"reportingController": ""}, "reportingController: Required value", id="no controller"
        ),
        pytest.param(
            {"reportingInstance": ""}, "reportingInstance: Required value", id="no instance"
        ),
        pytest.param({"type": "Notice"}, "type: Invalid value", id="unknown type"),
        pytest.param({"note": "\u00e9" * 513}, "can have at most 1024 char", id="bytes of a note"),
        pytest.param({"action": "x" * 129}, "can have at most 128 characters", id="long action"),
        pytest.param(
            {"reportingController": "a b"}, "reportingController: Invalid", id="bad controller"
        ),
        pytest.param(
            {"series": {"count": 1, "lastObservedTime": TIME}},
            "series.count: Invalid value",
            id="a series of one",
        ),
        pytest.param(
            {"series": {"count": 2, "lastObservedTime": None}},
            "series.lastObservedTime: Required value",
            id="a series without time",
        ),
        pytest.param(
            {"regarding": {"kind": "Node", "name": "n"}},
            "involvedObject.namespace: Invalid value",
            id="a node's elsewhere than in default",
        ),
        pytest.param(
            {"deprecatedFirstTimestamp": "2030-01-02T03:04:05Z"},
            "firstTimestamp: Invalid",
            id="old 1",
        ),
        pytest.param(
            {"deprecatedLastTimestamp": "2030-01-02T03:04:05Z"},
            "lastTimestamp: Invalid",
            id="old 2",
        ),
        pytest.param({"deprecatedCount": 1}, "count: Invalid value", id="old 3"),
        pytest.param(
            {"deprecatedSource": {"component": "a"}}, "source: Invalid value", id="old source"
        ),
    ],
)
async def test_an_event_that_breaks_a_rule_is_invalid(
    api: Api, fields: dict[str, Any], want: str
) -> None:
    answer = await api.post(api.path("events", group=NEW), event(api, "a.1", **fields))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert want in answer.message


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param({"series": {"count": 1, "lastObservedTime": TIME}}, "series.count", id="one"),
        pytest.param({"series": {"count": 2}}, "series.lastObservedTime", id="no time"),
        pytest.param({"note": "other"}, "message", id="note"),
        pytest.param(
            {"reason": "Other"},
            "reason",
            id="reason",
            marks=pytest.mark.kubernetes("1.37"),  # older minors name it twice
        ),
        pytest.param({"type": "Warning"}, "type", id="type"),
        pytest.param({"action": "Other"}, "action", id="action"),
        pytest.param({"eventTime": "2030-01-02T03:04:05.000007Z"}, "eventTime", id="time"),
        pytest.param({"regarding": {"name": "b"}}, "involvedObject", id="object"),
        pytest.param({"related": {"kind": "Pod", "name": "b"}}, "related", id="related"),
        pytest.param({"reportingController": "b"}, "reportingController", id="controller"),
        pytest.param({"reportingInstance": "b"}, "reportingInstance", id="instance"),
        pytest.param({"deprecatedCount": 1}, "count", id="count"),
        pytest.param({"deprecatedSource": {"component": "b"}}, "source", id="source"),
        pytest.param(
            {"deprecatedFirstTimestamp": "2030-01-02T03:04:05Z"}, "firstTimestamp", id="first"
        ),
        pytest.param(
            {"deprecatedLastTimestamp": "2030-01-02T03:04:05Z"}, "lastTimestamp", id="last"
        ),
    ],
)
async def test_only_the_series_of_an_event_changes(
    api: Api, change: dict[str, Any], want: str
) -> None:
    path = api.path("events", group=NEW)
    await api.make(path, event(api, "a.1"))
    answer = await api.patch(f"{path}/a.1", change, MERGE)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert [cause["field"] for cause in answer.body["details"]["causes"]] == [want]


async def test_the_reason_of_an_event_does_not_change(api: Api) -> None:
    path = api.path("events", group=NEW)
    await api.make(path, event(api, "a.1"))
    answer = await api.patch(f"{path}/a.1", {"reason": "Other"}, MERGE)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert {cause["field"] for cause in answer.body["details"]["causes"]} == {"reason"}
    assert (await api.get(f"{path}/a.1")).body["reason"] == event(api, "a.1")["reason"]


async def test_the_core_resource_has_few_rules_for_events(api: Api) -> None:
    sent = {
        "metadata": {"name": "a.1"},
        "eventTime": TIME,
        "reportingComponent": "default-scheduler",
        "reportingInstance": "host-1",
        "action": "Binding",
        "reason": "Scheduled",
        "involvedObject": {"kind": "Pod", "namespace": api.namespace, "name": "a"},
        "type": "Notice",
        "count": 3,
        "series": {"count": 1},
    }
    await api.make(api.path("events"), sent)
    change = {"message": "other", "reason": "Other", "series": {"count": 0}}
    answer = await api.patch(api.path("events", "a.1"), change, MERGE)
    assert (answer.status, answer.body["message"]) == (200, "other")
    answer = await api.patch(api.path("events", "a.1"), {"reportingComponent": None}, MERGE)
    assert (answer.status, answer.reason) == (422, "Invalid")
    fields = {cause["field"] for cause in answer.body["details"]["causes"]}
    assert fields == {"reportingComponent"}


async def test_a_core_event_without_a_time_is_counted_in_the_new_form(api: Api) -> None:
    sent = {
        "metadata": {"name": "a.1"},
        "involvedObject": {"kind": "Pod", "namespace": api.namespace, "name": "a"},
        "count": 1,
    }
    await api.make(api.path("events"), sent)
    series = {"count": 2, "lastObservedTime": TIME}
    answer = await api.patch(api.path("events", "a.1", group=NEW), {"series": series}, MERGE)
    assert (answer.status, answer.body["series"]) == (200, series)


async def test_an_event_may_be_about_an_object_elsewhere(api: Api) -> None:
    regarding = {"kind": "Pod", "name": "a", "namespace": "elsewhere"}
    made = await api.make(api.path("events", group=NEW), event(api, "a.1", regarding=regarding))
    assert made["regarding"] == regarding
    old = {"metadata": {"name": "a.2"}, "involvedObject": regarding, "reason": "Old"}
    answer = await api.post(api.path("events"), old)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "does not match event.namespace" in answer.message


async def test_a_note_of_1024_characters_is_accepted(api: Api) -> None:
    made = await api.make(api.path("events", group=NEW), event(api, "a.1", note="x" * 1024))
    assert made["note"] == "x" * 1024


def lease(name: str, **fields: Any) -> dict[str, Any]:
    spec = {
        "holderIdentity": "host-1_0",
        "leaseDurationSeconds": 15,
        "acquireTime": TIME,
        "renewTime": TIME,
        "leaseTransitions": 0,
    }
    return {"metadata": {"name": name}, "spec": {**spec, **fields}}


async def test_a_lease_is_taken_and_renewed(api: Api) -> None:
    path = api.path("leases", group=LEASES)
    made = await api.make(path, lease("leader"))
    assert made["spec"] == lease("leader")["spec"]
    made["spec"]["renewTime"] = "2030-01-02T03:04:07.000006Z"
    answer = await api.put(f"{path}/leader", made)
    assert answer.status == 200
    assert answer.body["spec"]["renewTime"] == made["spec"]["renewTime"]


async def test_of_two_that_renew_one_loses(api: Api) -> None:
    path = api.path("leases", group=LEASES)
    made = await api.make(path, lease("leader"))
    first = {**made, "spec": {**made["spec"], "holderIdentity": "host-2_0"}}
    assert (await api.put(f"{path}/leader", first)).status == 200
    answer = await api.put(f"{path}/leader", made)
    assert (answer.status, answer.reason) == (409, "Conflict")
    want = 'Operation cannot be fulfilled on leases.coordination.k8s.io "leader"'
    assert answer.message.startswith(want)


async def test_a_lease_is_never_updated_without_a_version(api: Api) -> None:
    path = api.path("leases", group=LEASES)
    await api.make(path, lease("leader"))
    answer = await api.put(f"{path}/leader", lease("leader", holderIdentity="host-2_0"))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "metadata.resourceVersion: Invalid value: 0: must be specified" in answer.message


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param({"leaseDurationSeconds": 0}, "must be greater than 0", id="no duration"),
        pytest.param(
            {"leaseTransitions": -1}, "must be greater than or equal to 0", id="transitions"
        ),
    ],
)
async def test_a_lease_that_breaks_a_rule_is_invalid(
    api: Api, fields: dict[str, Any], want: str
) -> None:
    answer = await api.post(api.path("leases", group=LEASES), lease("leader", **fields))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert want in answer.message


async def test_a_lease_can_be_given_up(api: Api) -> None:
    path = api.path("leases", group=LEASES)
    made = await api.make(path, lease("leader"))
    made["spec"] = {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 0}
    answer = await api.put(f"{path}/leader", made)
    assert answer.status == 200
    assert not answer.body["spec"].get("holderIdentity")


async def test_a_lease_is_watched(api: Api) -> None:
    path = api.path("leases", group=LEASES)
    version = await api.revision(path)
    async with api.watch(path, resourceVersion=version) as watch:
        await api.make(path, lease("leader"))
        event = await watch.next()
    assert event["type"] == "ADDED"
    assert event["object"]["kind"] == "Lease"
