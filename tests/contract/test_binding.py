"""The rules of placing a pod on a node."""

import asyncio
from typing import Any

import pytest

from tests.contract.harness import MERGE, Answer, Api, condition, pod


def is_conflict(answer: Answer, why: str) -> bool:
    """True if the binding of pod `a` was refused, in the words of the real server."""
    assert answer.body["details"] == {"name": "a", "kind": "pods/binding"}
    return (
        answer.status == 409
        and answer.reason == "Conflict"
        and answer.message == f'Operation cannot be fulfilled on pods/binding "a": {why}'
    )


async def test_binding_assigns_the_pod(api: Api) -> None:
    before = await api.make_pod("a")
    answer = await api.bind("a", "node-1")
    assert answer.status == 201
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": 201,
    }
    bound = (await api.get(api.pods("a"))).body
    assert bound["spec"]["nodeName"] == "node-1"
    assert bound["status"]["phase"] == "Pending"
    assert bound["metadata"]["generation"] == before["metadata"]["generation"]
    assert int(bound["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])


async def test_binding_says_that_the_pod_is_scheduled(api: Api) -> None:
    await api.make_pod("a")
    await api.bind("a", "node-1")
    got = condition((await api.get(api.pods("a"))).body, "PodScheduled")
    assert got.pop("lastTransitionTime")
    assert got == {"type": "PodScheduled", "status": "True", "lastProbeTime": None}


async def test_binding_replaces_why_the_pod_waited(api: Api) -> None:
    await api.make_pod("a")
    why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}
    status = {"status": {"conditions": [why], "nominatedNodeName": "node-9"}}
    assert (await api.patch(api.pods("a", "status"), status)).status == 200
    await api.bind("a", "node-1")
    bound = (await api.get(api.pods("a"))).body
    got = condition(bound, "PodScheduled")
    assert (got["status"], got.get("reason"), got.get("message")) == ("True", None, None)
    assert "nominatedNodeName" not in bound["status"]


async def test_the_node_need_not_exist(api: Api) -> None:
    await api.make_pod("a")
    assert (await api.bind("a", "nowhere")).status == 201


async def test_annotations_and_labels_of_the_binding_are_added(api: Api) -> None:
    await api.make_pod("a", annotations={"own": "1"}, labels={"own": "1"})
    answer = await api.bind("a", "node-1", annotations={"revision": "r"}, labels={"slot": "s"})
    assert answer.status == 201
    bound = (await api.get(api.pods("a"))).body["metadata"]
    assert bound["annotations"] == {"own": "1", "revision": "r"}
    assert bound["labels"] == {"own": "1", "slot": "s"}


async def test_the_pod_gets_the_topology_labels_of_its_node(api: Api) -> None:
    labels = {"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1"}
    node = api.unique("node")
    await api.make_node(node, labels={**labels, "kubernetes.io/hostname": node})
    count = 0

    async def place() -> Answer:  # the real server sees a new node after a moment
        nonlocal count
        count += 1
        await api.make_pod(f"p{count}")
        await api.bind(f"p{count}", node)
        return await api.get(api.pods(f"p{count}"))

    answer = await api.eventually(place, lambda answer: "labels" in answer.body["metadata"])
    assert answer.body["metadata"]["labels"] == labels


async def test_a_bound_pod_cannot_be_bound_again(api: Api) -> None:
    await api.make_pod("a")
    await api.bind("a", "node-1")
    want = 'pod a is already assigned to node "node-1"'
    assert is_conflict(await api.bind("a", "node-2"), want)
    assert is_conflict(await api.bind("a", "node-1"), want)
    assert (await api.get(api.pods("a"))).body["spec"]["nodeName"] == "node-1"


async def test_of_many_bindings_at_once_one_wins(api: Api) -> None:
    await api.make_pod("a")
    answers = await asyncio.gather(*(api.bind("a", f"node-{index}") for index in range(10)))
    assert sorted(answer.status for answer in answers) == [201] + [409] * 9
    (winner,) = [index for index, answer in enumerate(answers) if answer.status == 201]
    assert (await api.get(api.pods("a"))).body["spec"]["nodeName"] == f"node-{winner}"


async def test_the_uid_is_a_precondition(api: Api) -> None:
    made = await api.make_pod("a")
    answer = await api.bind("a", "node-1", uid="00000000-0000-0000-0000-000000000000")
    assert (answer.status, answer.reason) == (409, "Conflict")
    want = (
        "Precondition failed: UID in precondition: 00000000-0000-0000-0000-000000000000, "
        f"UID in object meta: {made['metadata']['uid']}"
    )
    assert want in answer.message
    assert (await api.bind("a", "node-1", uid=made["metadata"]["uid"])).status == 201


async def test_a_recreated_pod_cannot_be_bound_by_mistake(api: Api) -> None:
    first = await api.make_pod("a")
    await api.delete(api.pods("a"))
    await api.make_pod("a")
    answer = await api.bind("a", "node-1", uid=first["metadata"]["uid"])
    assert answer.status == 409


async def test_the_version_is_a_precondition_if_sent(api: Api) -> None:
    made = await api.make_pod("a")
    await api.patch(api.pods("a"), {"metadata": {"labels": {"a": "b"}}}, MERGE)
    old = made["metadata"]["resourceVersion"]
    answer = await api.bind("a", "node-1", resourceVersion=old)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert f"ResourceVersion in precondition: {old}" in answer.message


async def test_a_gated_pod_cannot_be_bound(api: Api) -> None:
    await api.make_pod("a", spec={"schedulingGates": [{"name": "x"}]})
    answer = await api.bind("a", "node-1")
    assert is_conflict(answer, "pod a has non-empty .spec.schedulingGates")


async def test_a_pod_that_is_being_deleted_cannot_be_bound(api: Api) -> None:
    await api.make_pod("a", finalizers=["example.com/hold"])
    await api.delete(api.pods("a"))
    answer = await api.bind("a", "node-1")
    await api.patch(api.pods("a"), {"metadata": {"finalizers": None}}, MERGE)
    assert is_conflict(answer, "pod a is being deleted, cannot be assigned to a host")


async def test_a_missing_pod_cannot_be_bound(api: Api) -> None:
    answer = await api.bind("a", "node-1")
    assert (answer.status, answer.reason) == (404, "NotFound")
    assert answer.body["details"] == {"name": "a", "kind": "pods"}


async def test_a_binding_without_a_node_is_refused(api: Api) -> None:
    await api.make_pod("a")
    sent: dict[str, Any] = {"metadata": {"name": "a"}, "target": {"kind": "Node"}}
    answer = await api.post(api.pods("a", "binding"), sent)
    assert (answer.status, answer.message) == (500, "target.name: Required value")


@pytest.mark.kubernetes("1.37")
async def test_a_binding_to_a_name_that_no_node_can_have_is_refused(api: Api) -> None:
    await api.make_pod("a")
    answer = await api.bind("a", "No Node")
    assert answer.status == 500
    assert answer.message.startswith('target.name: Invalid value: "No Node": a lowercase RFC 1123')


async def test_a_binding_to_something_else_is_refused(api: Api) -> None:
    await api.make_pod("a")
    sent = {"metadata": {"name": "a"}, "target": {"kind": "Pod", "name": "b"}}
    answer = await api.post(api.pods("a", "binding"), sent)
    assert answer.status == 500
    assert answer.message.startswith('target.kind: Unsupported value: "Pod"')


async def test_a_binding_names_its_pod(api: Api) -> None:
    await api.make_pod("a")
    sent = {"metadata": {"name": "b"}, "target": {"kind": "Node", "name": "node-1"}}
    answer = await api.post(api.pods("a", "binding"), sent)
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == "name in URL does not match name in Binding object"


async def test_the_old_bindings_resource_binds_too(api: Api) -> None:
    await api.make_pod("a")
    sent = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "node-1"}}
    assert (await api.post(api.path("bindings"), sent)).status == 201
    assert (await api.get(api.pods("a"))).body["spec"]["nodeName"] == "node-1"


async def test_a_pod_may_be_created_on_a_node(api: Api) -> None:
    made = await api.make_pod("a", spec={"nodeName": "node-1"})
    assert made["spec"]["nodeName"] == "node-1"
    assert "conditions" not in made["status"]


async def test_a_dry_run_binds_nothing(api: Api) -> None:
    await api.make_pod("a")
    sent = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "node-1"}}
    answer = await api.post(api.pods("a", "binding"), sent, dryRun="All")
    assert answer.status == 201
    assert "nodeName" not in (await api.get(api.pods("a"))).body["spec"]
    assert (await api.post(api.pods(), pod("b"), dryRun="All")).status == 201
