"""Patches and the status subresources, as a scheduler and node agents use them."""

from typing import Any

import pytest

from tests.contract.harness import APPLY, MERGE, STRATEGIC, Answer, Api, Json, condition

WAITING = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}


async def test_status_conditions_merge_by_type(api: Api) -> None:
    await api.make_pod("a")
    other = {"type": "Ready", "status": "False"}
    await api.patch(api.pods("a", "status"), {"status": {"conditions": [other]}})
    answer = await api.patch(api.pods("a", "status"), {"status": {"conditions": [WAITING]}})
    assert answer.status == 200
    assert condition(answer.body, "Ready")["status"] == "False"
    assert condition(answer.body, "PodScheduled")["message"] == "full"
    changed = {**WAITING, "message": "fuller"}
    answer = await api.patch(api.pods("a", "status"), {"status": {"conditions": [changed]}})
    assert condition(answer.body, "PodScheduled")["message"] == "fuller"
    assert len(answer.body["status"]["conditions"]) == 2


async def test_a_condition_can_be_removed_by_directive(api: Api) -> None:
    await api.make_pod("a")
    await api.patch(api.pods("a", "status"), {"status": {"conditions": [WAITING]}})
    gone = {"$patch": "delete", "type": "PodScheduled"}
    answer = await api.patch(api.pods("a", "status"), {"status": {"conditions": [gone]}})
    assert "conditions" not in answer.body["status"]


async def test_set_element_order_is_understood(api: Api) -> None:
    await api.make_pod("a")
    other = {"type": "Ready", "status": "False"}
    await api.patch(api.pods("a", "status"), {"status": {"conditions": [other, WAITING]}})
    sent = {
        "status": {
            "$setElementOrder/conditions": [{"type": "PodScheduled"}, {"type": "Ready"}],
            "conditions": [{"type": "PodScheduled", "reason": "SchedulerError"}],
        }
    }
    answer = await api.patch(api.pods("a", "status"), sent)
    got = [(item["type"], item.get("reason")) for item in answer.body["status"]["conditions"]]
    assert got == [("PodScheduled", "SchedulerError"), ("Ready", None)]


def conditions(types: str, **more: str) -> list[Json]:
    return [{"type": one, "status": "True", **more} for one in types]


def gone(types: str) -> list[Json]:
    return [{"$patch": "delete", "type": one} for one in types]


def order(types: str) -> Json:
    return {"$setElementOrder/conditions": [{"type": one} for one in types]}


@pytest.mark.parametrize(
    ("live", "change", "want"),
    [
        ("AB", {"conditions": conditions("C")}, "CAB"),
        ("AB", {"conditions": conditions("BC")}, "ABC"),
        ("AB", {"conditions": conditions("CB")}, "CAB"),
        ("AB", {"conditions": conditions("CA")}, "CAB"),
        ("ABC", {"conditions": conditions("CA")}, "BCA"),
        ("ABC", {"conditions": conditions("DCEB")}, "DACEB"),
        ("ABC", {"conditions": gone("A") + conditions("D")}, "DBC"),
        ("ABC", {"conditions": [{"$patch": "replace"}, *conditions("DB")]}, "DB"),
        ("ABC", {"conditions": conditions("D"), **order("CDB")}, "ACDB"),
        ("ABC", {"conditions": conditions("D"), **order("D")}, "DABC"),
        ("ABC", {"conditions": conditions("C"), **order("ACB")}, "ACB"),
        ("ABC", {"conditions": gone("B"), **order("CA")}, "CA"),
        ("AB", order("BA"), "BA"),
        ("AB", order("CB"), "AB"),
        ("", {"conditions": conditions("BA"), **order("BA")}, "BA"),
        ("", {"conditions": gone("A") + conditions("B")}, "B"),
        ("AB", {"conditions": conditions("CD"), **order("DC")}, "500"),
        ("AB", {"conditions": conditions("C"), **order("A")}, "500"),
        ("AB", {"conditions": [{"status": "True"}]}, "500"),
        ("AB", {"conditions": [{"type": "A", "$patch": "merge"}]}, "500"),
        ("AB", {"$patch": "merge"}, "500"),
        ("AB", {"$retainKeys": ["phase"], "reason": "x"}, "400"),
        ("AB", {"$retainKeys": ["conditions"], "phase": None}, "AB"),
        ("AB", {"$retainKeys": ["phase"], "phase": "Pending"}, ""),
    ],
    ids=str,
)
async def test_a_merged_list_has_its_order(api: Api, live: str, change: Json, want: str) -> None:
    await api.make_pod("a")
    await api.patch(api.pods("a", "status"), {"status": {"conditions": conditions(live)}}, MERGE)
    answer = await api.patch(api.pods("a", "status"), {"status": change})
    if answer.status != 200:
        assert str(answer.status) == want, answer
        return
    found = answer.body["status"].get("conditions", [])
    assert "".join(one["type"] for one in found) == want


@pytest.mark.parametrize(
    ("live", "change", "want"),
    [
        ("ab", {"finalizers": ["x.io/c"]}, "cab"),
        ("ab", {"finalizers": ["x.io/b", "x.io/c"]}, "abc"),
        ("abc", {"$deleteFromPrimitiveList/finalizers": ["x.io/b"]}, "ac"),
        (
            "abc",
            {
                "$deleteFromPrimitiveList/finalizers": ["x.io/a"],
                "$setElementOrder/finalizers": ["x.io/c", "x.io/b"],
            },
            "cb",
        ),
    ],
    ids=str,
)
async def test_a_merged_set_has_its_order(api: Api, live: str, change: Json, want: str) -> None:
    path = api.path("configmaps")
    await api.make(path, {"metadata": {"name": "a", "finalizers": [f"x.io/{one}" for one in live]}})
    answer = await api.patch(f"{path}/a", {"metadata": change})
    assert [one.removeprefix("x.io/") for one in answer.body["metadata"]["finalizers"]] == [*want]
    await api.patch(f"{path}/a", {"metadata": {"finalizers": None}}, MERGE)


@pytest.mark.parametrize(
    ("live", "sent", "want"),
    [("AB", "C", "ABC"), ("AB", "CB", "ACB"), ("ABC", "CDA", "BCDA"), ("ABC", "DB", "ADBC")],
)
async def test_an_applied_list_has_its_order(api: Api, live: str, sent: str, want: str) -> None:
    await api.make_pod("a")
    await api.patch(api.pods("a", "status"), {"status": {"conditions": conditions(live)}}, MERGE)
    answer = await api.patch(
        api.pods("a", "status"),
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "a"},
            "status": {"conditions": conditions(sent)},
        },
        APPLY,
        fieldManager="ci",
        force="true",
    )
    assert answer.status == 200, answer
    assert "".join(one["type"] for one in answer.body["status"]["conditions"]) == want


async def test_which_lists_and_objects_merge_is_of_their_place(api: Api) -> None:
    """Conditions of a pod merge; a selector of a budget is replaced, that of a Deployment not."""
    path = api.path("poddisruptionbudgets", group="policy/v1")
    spec: Json = {"selector": {"matchLabels": {"a": "1"}}, "maxUnavailable": 1}
    await api.make(path, {"metadata": {"name": "a"}, "spec": spec})
    change = {"spec": {"selector": {"matchLabels": {"b": "2"}}}}
    answer = await api.patch(f"{path}/a", change)
    assert answer.body["spec"]["selector"] == {"matchLabels": {"b": "2"}}
    drivers = "/apis/storage.k8s.io/v1/csinodes"
    name = api.unique("n")

    def of(*names: str) -> Json:
        return {"spec": {"drivers": [{"name": one, "nodeID": one} for one in names]}}

    await api.make(drivers, {"metadata": {"name": name}, **of("x.io", "y.io")})
    answer = await api.patch(f"{drivers}/{name}", of("z.io"))
    assert [one["name"] for one in answer.body["spec"]["drivers"]] == ["z.io", "x.io", "y.io"]


async def test_null_in_a_list_is_an_empty_element(api: Api) -> None:
    container = {"name": "main", "image": "i", "args": ["x", None]}
    made = await api.make_pod("a", spec={"containers": [container]})
    assert made["spec"]["containers"][0]["args"] == ["x", ""]
    answer = await api.patch(api.pods("a"), {"spec": {"tolerations": [None]}}, MERGE)
    assert (answer.status, answer.reason) == (422, "Invalid")


async def test_times_of_a_condition_may_be_left_out(api: Api) -> None:
    await api.make_pod("a")
    answer = await api.patch(api.pods("a", "status"), {"status": {"conditions": [WAITING]}})
    got = condition(answer.body, "PodScheduled")
    assert (got["lastProbeTime"], got["lastTransitionTime"]) == (None, None)


async def test_a_nomination_is_set_and_cleared_in_the_status(api: Api) -> None:
    await api.make_pod("a")
    sent: dict[str, Any] = {"status": {"nominatedNodeName": "node-1"}}
    answer = await api.patch(api.pods("a", "status"), sent)
    assert answer.body["status"]["nominatedNodeName"] == "node-1"
    sent = {"status": {"nominatedNodeName": None}}
    answer = await api.patch(api.pods("a", "status"), sent)
    assert "nominatedNodeName" not in answer.body["status"]


async def test_a_status_patch_leaves_the_specification_alone(api: Api) -> None:
    await api.make_pod("a")
    sent = {"spec": {"nodeName": "node-1"}, "status": {"phase": "Running"}}
    answer = await api.patch(api.pods("a", "status"), sent)
    assert answer.status == 200
    assert "nodeName" not in answer.body["spec"]
    assert answer.body["status"]["phase"] == "Running"


async def test_a_patch_leaves_the_status_alone(api: Api) -> None:
    await api.make_pod("a")
    sent = {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}}
    answer = await api.patch(api.pods("a"), sent)
    assert answer.body["status"]["phase"] == "Pending"
    assert answer.body["metadata"]["labels"] == {"a": "b"}


async def test_a_patch_that_changes_nothing_keeps_the_version(api: Api) -> None:
    await api.make_pod("a")
    first = await api.patch(api.pods("a", "status"), {"status": {"conditions": [WAITING]}})
    again = await api.patch(api.pods("a", "status"), {"status": {"conditions": [WAITING]}})
    assert again.status == 200
    got, want = again.body["metadata"], first.body["metadata"]
    assert got["resourceVersion"] == want["resourceVersion"]


async def test_the_status_can_be_put(api: Api) -> None:
    made = await api.make_pod("a")
    made["status"] |= {"phase": "Running", "podIP": "10.1.2.3"}
    made["spec"]["nodeName"] = "ignored"
    answer = await api.put(api.pods("a", "status"), made)
    assert answer.status == 200
    assert answer.body["status"]["phase"] == "Running"
    assert "nodeName" not in answer.body["spec"]
    got = await api.get(api.pods("a", "status"))
    assert got.body["status"]["podIP"] == "10.1.2.3"


async def test_a_stale_status_put_is_a_conflict(api: Api) -> None:
    made = await api.make_pod("a")
    await api.patch(api.pods("a"), {"metadata": {"labels": {"a": "b"}}}, MERGE)
    answer = await api.put(api.pods("a", "status"), made)
    assert (answer.status, answer.reason) == (409, "Conflict")


async def test_a_status_patch_with_a_stale_version_is_a_conflict(api: Api) -> None:
    made = await api.make_pod("a")
    await api.patch(api.pods("a"), {"metadata": {"labels": {"a": "b"}}}, MERGE)
    version = {"resourceVersion": made["metadata"]["resourceVersion"]}
    sent = {"metadata": version, "status": {"phase": "Running"}}
    answer = await api.patch(api.pods("a", "status"), sent)
    assert (answer.status, answer.reason) == (409, "Conflict")


async def test_a_patch_with_another_uid_is_invalid(api: Api) -> None:
    await api.make_pod("a")
    sent = {"metadata": {"uid": "nope"}, "status": {"phase": "Running"}}
    answer = await api.patch(api.pods("a", "status"), sent)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert 'metadata.uid: Invalid value: "nope": field is immutable' in answer.message


async def test_a_patch_of_a_missing_pod_is_not_found(api: Api) -> None:
    answer = await api.patch(api.pods("a", "status"), {"status": {"phase": "Running"}})
    assert (answer.status, answer.reason) == (404, "NotFound")


async def test_a_merge_patch_replaces_lists_and_drops_nulls(api: Api) -> None:
    await api.make_pod("a", labels={"a": "1", "b": "2"})
    answer = await api.patch(api.pods("a"), {"metadata": {"labels": {"a": None}}}, MERGE)
    assert answer.body["metadata"]["labels"] == {"b": "2"}
    await api.patch(api.pods("a", "status"), {"status": {"conditions": [WAITING]}})
    other = {"type": "Ready", "status": "True"}
    answer = await api.patch(api.pods("a", "status"), {"status": {"conditions": [other]}}, MERGE)
    assert [item["type"] for item in answer.body["status"]["conditions"]] == ["Ready"]


async def test_other_content_types_are_no_patch(api: Api) -> None:
    await api.make_pod("a")
    answer = await api.patch(api.pods("a"), {"metadata": {}}, "application/json")
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")


async def test_lists_without_a_merge_key_are_replaced(api: Api) -> None:
    node = api.unique("node")
    await api.make(
        api.nodes(),
        {
            "metadata": {"name": node},
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        },
    )
    taints = [{"key": "b", "effect": "NoExecute"}]
    answer = await api.patch(api.nodes(node), {"spec": {"taints": taints}}, STRATEGIC)
    assert [taint["key"] for taint in answer.body["spec"]["taints"]] == ["b"]


async def test_a_node_keeps_the_status_it_is_created_with(api: Api) -> None:
    status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110", "example.com/gpu": 2}}
    made = await api.make(api.nodes(), {"metadata": {"name": api.unique("n")}, "status": status})
    want = {"cpu": "4", "memory": "8Gi", "pods": "110", "example.com/gpu": "2"}
    assert made["status"]["allocatable"] == want


async def test_allocatable_defaults_to_capacity(api: Api) -> None:
    sent = {"metadata": {"name": api.unique("n")}, "status": {"capacity": {"cpu": "4"}}}
    made = await api.make(api.nodes(), sent)
    assert made["status"]["allocatable"] == {"cpu": "4"}


async def test_a_node_status_is_written_through_its_subresource(api: Api) -> None:
    node = api.unique("node")
    await api.make(
        api.nodes(), {"metadata": {"name": node}, "status": {"allocatable": {"cpu": "4"}}}
    )
    ignored = await api.patch(api.nodes(node), {"status": {"allocatable": {"cpu": "8"}}})
    assert ignored.body["status"]["allocatable"] == {"cpu": "4"}
    ready = {"type": "Ready", "status": "True"}
    sent = {"status": {"allocatable": {"cpu": "8"}, "conditions": [ready]}}
    answer = await api.patch(api.nodes(node, "status"), sent)
    assert answer.body["status"]["allocatable"] == {"cpu": "8"}
    assert condition(answer.body, "Ready")["status"] == "True"


async def test_a_node_can_be_cordoned(api: Api) -> None:
    node = api.unique("node")
    await api.make_node(node)
    answer = await api.patch(api.nodes(node), {"spec": {"unschedulable": True}}, MERGE)
    assert answer.body["spec"]["unschedulable"] is True


async def test_negative_amounts_of_a_node_are_invalid(api: Api) -> None:
    sent = {"metadata": {"name": api.unique("n")}, "status": {"allocatable": {"cpu": "-1"}}}
    answer = await api.post(api.nodes(), sent)
    assert (answer.status, answer.reason) == (422, "Invalid")
    want = 'status.allocatable.cpu: Invalid value: "-1": must be greater than or equal to 0'
    assert want in answer.message


async def test_a_taint_needs_a_known_effect(api: Api) -> None:
    sent = {"metadata": {"name": api.unique("n")}, "spec": {"taints": [{"key": "a"}]}}
    answer = await api.post(api.nodes(), sent)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "metadata.taints[0].effect: Required value" in answer.message


async def test_a_running_pod_can_be_resized(api: Api) -> None:
    node = api.unique("node")
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "10"}
    sent = {"metadata": {"name": node}, "status": {"allocatable": amounts, "capacity": amounts}}
    await api.make(api.nodes(), sent)
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    main = {"name": "main", "image": "i", "resources": resources}
    await api.make_pod("a", spec={"containers": [main], "nodeName": node})
    wanted = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}}

    async def resize() -> Answer:  # the real server sees a new node after a moment
        return await api.patch(api.pods("a", "resize"), wanted)

    answer = await api.eventually(resize, lambda answer: answer.status == 200)
    got = answer.body["spec"]["containers"][0]["resources"]["requests"]
    assert got == {"cpu": "2", "memory": "1Gi"}
    assert answer.body["metadata"]["generation"] == 2


async def test_server_side_apply_creates_updates_and_removes(api: Api) -> None:
    path = api.path("configmaps", "policies")

    async def apply(data: dict[str, str], manager: str = "ci", **params: Any) -> Answer:
        sent = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "policies"},
            "data": data,
        }
        return await api.patch(path, sent, APPLY, fieldManager=manager, **params)

    assert (await apply({"a": "1", "b": "2"})).status == 201
    answer = await apply({"b": "3"})
    assert (answer.status, answer.body["data"]) == (200, {"b": "3"})
    # Another manager may add fields of its own, and those stay.
    answer = await apply({"c": "4"}, "other")
    assert answer.body["data"] == {"b": "3", "c": "4"}
    answer = await apply({"b": "5"}, "other")
    assert (answer.status, answer.reason) == (409, "Conflict")
    want = 'Apply failed with 1 conflict: conflict with "ci": .data.b'
    assert answer.message == want
    answer = await apply({"b": "5"}, "other", force="true")
    assert answer.body["data"] == {"b": "5"}


async def test_server_side_apply_needs_a_field_manager(api: Api) -> None:
    sent = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    answer = await api.patch(api.path("configmaps", "a"), sent, APPLY)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "fieldManager: Required value: is required for apply patch" in answer.message


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"activeDeadlineSeconds": "5"}, id="another type"),
        pytest.param({"overhead": {"cpu": "much"}}, id="no quantity"),
        pytest.param({"tolerations": {"key": "a"}}, id="no list"),
    ],
)
async def test_what_a_patch_makes_of_an_object_has_to_be_one(
    api: Api, content_type: str, spec: dict[str, Any]
) -> None:
    await api.make_pod("a")
    answer = await api.patch(api.pods("a"), {"spec": spec}, content_type)
    assert (answer.status, answer.reason) == (422, "Invalid"), answer
    assert [one["field"] for one in answer.body["details"]["causes"]] == ["patch"]


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
async def test_a_patch_of_a_time_that_is_none_is_invalid(api: Api, content_type: str) -> None:
    path = api.path("leases", group="coordination.k8s.io/v1")
    await api.make(path, {"metadata": {"name": "a"}})
    for wrong in ("2030-01-02T03:04:05Z", "soon"):
        answer = await api.patch(f"{path}/a", {"spec": {"renewTime": wrong}}, content_type)
        assert (answer.status, answer.reason) == (422, "Invalid"), answer
        assert [one["field"] for one in answer.body["details"]["causes"]] == ["patch"]


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
async def test_a_strict_patch_refuses_unknown_fields(api: Api, content_type: str) -> None:
    await api.make_pod("a")
    change = {"spec": {"nodeselector": {"a": "b"}}}
    answer = await api.patch(api.pods("a"), change, content_type, fieldValidation="Strict")
    assert (answer.status, answer.reason) == (422, "Invalid"), answer
    assert 'unknown field "spec.nodeselector"' in answer.message
