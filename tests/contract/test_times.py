"""Times: what the API server reads as one, and how it stores them."""

from typing import Any

import pytest

from tests.contract.harness import APPLY, MERGE, Api, Json, pod

LEASES = "coordination.k8s.io/v1"
SEEN = "2030-01-02T03:04:05"


def lease(renewed: str) -> Json:
    return {"metadata": {"name": "a"}, "spec": {"renewTime": renewed}}


@pytest.mark.parametrize(
    ("sent", "want"),
    [
        pytest.param(f"{SEEN}.000006Z", f"{SEEN}.000006Z", id="as stored"),
        pytest.param(f"{SEEN}.000006+02:00", "2030-01-02T01:04:05.000006Z", id="east"),
        pytest.param("2030-01-31T23:04:05.000006-02:30", "2030-02-01T01:34:05.000006Z", id="west"),
        pytest.param(f"{SEEN},000006Z", f"{SEEN}.000006Z", id="a comma"),
        pytest.param("2028-02-29T00:00:00.000000Z", "2028-02-29T00:00:00.000000Z", id="leap day"),
        pytest.param("0001-01-01T00:00:00.000000Z", None, id="no time"),
    ],
)
async def test_a_time_of_microseconds_is_stored_in_utc(
    api: Api, sent: str, want: str | None
) -> None:
    made = await api.make(api.path("leases", group=LEASES), lease(sent))
    assert made["spec"].get("renewTime") == want


@pytest.mark.parametrize(
    "sent",
    [
        f"{SEEN}Z",
        f"{SEEN}.00006Z",
        f"{SEEN}.0000006Z",
        f"{SEEN}.000000006Z",
        f"{SEEN}.000006",
        f"{SEEN}.000006z",
        "2030-01-02t03:04:05.000006Z",
        "2030-01-02 03:04:05.000006Z",
        "2030-13-02T03:04:05.000006Z",
        "2030-02-29T03:04:05.000006Z",
        "2030-01-02T24:00:00.000000Z",
        f"{SEEN}.000006+2:00",
        f"{SEEN}.000006+0200",
        f"{SEEN}.000006+25:00",
        "",
        "soon",
    ],
)
async def test_what_is_no_time_of_microseconds_is_refused(api: Api, sent: str) -> None:
    answer = await api.post(api.path("leases", group=LEASES), lease(sent))
    assert (answer.status, answer.reason) == (400, "BadRequest"), answer


@pytest.mark.parametrize("field", ["eventTime", "series"])
async def test_what_is_no_time_of_an_event_is_refused(api: Api, field: str) -> None:
    value: Any = f"{SEEN}Z"
    if field == "series":
        value = {"count": 2, "lastObservedTime": value}
    for group in ("v1", "events.k8s.io/v1"):
        answer = await api.post(
            api.path("events", group=group), {"metadata": {"name": "a"}, field: value}
        )
        assert (answer.status, answer.reason) == (400, "BadRequest"), answer


async def test_a_time_is_stored_in_utc_by_every_verb(api: Api) -> None:
    path = api.path("leases", group=LEASES)
    made = await api.make(path, lease(f"{SEEN}.000006Z"))
    made["spec"]["renewTime"] = f"{SEEN}.000007+02:00"
    stored = await api.put(f"{path}/a", made)
    assert stored.body["spec"]["renewTime"] == "2030-01-02T01:04:05.000007Z"
    patch = {"spec": {"renewTime": f"{SEEN}.000008+02:00"}}
    stored = await api.patch(f"{path}/a", patch, MERGE)
    assert stored.body["spec"]["renewTime"] == "2030-01-02T01:04:05.000008Z"
    # In YAML, a time without quotes is text as well.
    text = (
        f"apiVersion: {LEASES}\nkind: Lease\nmetadata: {{name: a}}\n"
        f"spec: {{renewTime: {SEEN}.000009+02:00}}\n"
    )
    stored = await api.patch(f"{path}/a", text.encode(), APPLY, fieldManager="m", force="true")
    assert stored.body["spec"]["renewTime"] == "2030-01-02T01:04:05.000009Z"


@pytest.mark.parametrize(
    ("sent", "want"),
    [
        pytest.param(f"{SEEN}Z", f"{SEEN}Z", id="as stored"),
        pytest.param(f"{SEEN}.999999999Z", f"{SEEN}Z", id="parts of a second"),
        pytest.param("2030-01-02T3:04:05Z", f"{SEEN}Z", id="an hour of one digit"),
        pytest.param(f"{SEEN}+02:00", "2030-01-02T01:04:05Z", id="east"),
        pytest.param("0001-01-01T00:00:00Z", None, id="no time"),
    ],
)
async def test_times_of_pods_nodes_and_events_are_stored_in_utc(
    api: Api, sent: str, want: str | None
) -> None:
    event = {
        "metadata": {"name": "a.1"},
        "involvedObject": {"kind": "Pod", "namespace": api.namespace, "name": "a"},
        "firstTimestamp": sent,
    }
    made = await api.make(api.path("events"), event)
    assert made["firstTimestamp"] == want

    await api.make_pod("a")
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": sent}
    status = {"status": {"conditions": [condition], "startTime": sent}}
    stored = await api.patch(api.pods("a", "status"), status, MERGE)
    assert stored.status == 200, stored
    assert stored.body["status"]["conditions"][0]["lastTransitionTime"] == want
    assert stored.body["status"].get("startTime") == want

    name = api.unique("node")
    await api.make_node(name)
    heartbeat = {**condition, "lastHeartbeatTime": sent}
    status = {"status": {"conditions": [heartbeat]}}
    stored = await api.patch(api.nodes(name, "status"), status, MERGE)
    assert stored.body["status"]["conditions"][0]["lastHeartbeatTime"] == want
    taint = {"key": "a", "effect": "NoExecute", "timeAdded": sent}
    stored = await api.patch(api.nodes(name), {"spec": {"taints": [taint]}}, MERGE)
    assert stored.body["spec"]["taints"][0].get("timeAdded") == want


@pytest.mark.parametrize("sent", ["", "soon", SEEN, "2030-01-02", "2030-01-02T03:04:60Z"])
@pytest.mark.parametrize("field", ["creationTimestamp", "deletionTimestamp"])
async def test_what_is_no_time_is_refused_though_it_would_be_dropped(
    api: Api, field: str, sent: str
) -> None:
    made: dict[str, Any] = pod("a")
    made["metadata"][field] = sent
    answer = await api.post(api.pods(), made)
    assert (answer.status, answer.reason) == (400, "BadRequest"), answer


async def test_times_by_name_are_stored_in_utc(api: Api) -> None:
    path = api.path("poddisruptionbudgets", group="policy/v1")
    await api.make(path, {"metadata": {"name": "a"}, "spec": {"minAvailable": 1}})
    status = {
        "disruptedPods": {"web": f"{SEEN}.5+02:00"},
        "disruptionsAllowed": 0,
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
    }
    stored = await api.patch(f"{path}/a/status", {"status": status}, MERGE)
    assert stored.body["status"]["disruptedPods"] == {"web": "2030-01-02T01:04:05Z"}
