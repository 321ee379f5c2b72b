"""What the scheduler relies on for objects of every kind: names, versions, optimistic updates."""

import re

import pytest

from engine.core.manifests import schema
from tests.contract.harness import Api, names, pod, requesting
from tests.controlplane import kubernetes_minor

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def config_map(name: str, **data: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "data": data}


async def test_created_objects_get_identity_version_and_time(api: Api) -> None:
    made = await api.make(api.path("configmaps"), config_map("a", key="value"))
    meta = made["metadata"]
    assert made["kind"] == "ConfigMap"
    assert made["apiVersion"] == "v1"
    assert meta["namespace"] == api.namespace
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", meta["uid"])
    assert int(meta["resourceVersion"]) > 0
    assert TIME.fullmatch(meta["creationTimestamp"])
    assert (await api.get(api.path("configmaps", "a"))).body["data"] == {"key": "value"}


async def test_versions_grow_over_all_kinds(api: Api) -> None:
    first = await api.make(api.path("configmaps"), config_map("a"))
    second = await api.make_pod("p")
    third = await api.make_node(api.unique("node"))
    got = [int(made["metadata"]["resourceVersion"]) for made in (first, second, third)]
    assert got == sorted(set(got))


async def test_a_taken_name_is_already_exists(api: Api) -> None:
    await api.make_pod("a")
    answer = await api.post(api.pods(), pod("a"))
    assert answer.status == 409
    assert answer.reason == "AlreadyExists"
    assert answer.message == 'pods "a" already exists'
    assert answer.body["details"] == {"name": "a", "kind": "pods"}
    assert answer.body["kind"] == "Status"
    assert answer.body["status"] == "Failure"
    assert answer.body["code"] == 409


async def test_a_missing_object_is_not_found(api: Api) -> None:
    answer = await api.get(api.pods("nope"))
    assert (answer.status, answer.reason) == (404, "NotFound")
    assert answer.message == 'pods "nope" not found'
    assert answer.body["details"] == {"name": "nope", "kind": "pods"}


async def test_messages_name_the_group_of_a_resource(api: Api) -> None:
    answer = await api.get(api.path("leases", "nope", group="coordination.k8s.io/v1"))
    assert answer.message == 'leases.coordination.k8s.io "nope" not found'
    want = {"name": "nope", "group": "coordination.k8s.io", "kind": "leases"}
    assert answer.body["details"] == want


async def test_a_missing_namespace_is_not_found(api: Api) -> None:
    answer = await api.post("/api/v1/namespaces/no-such-place/pods", pod("a"))
    assert (answer.status, answer.reason) == (404, "NotFound")
    assert answer.message == 'namespaces "no-such-place" not found'


async def test_listing_a_missing_namespace_is_empty(api: Api) -> None:
    answer = await api.get("/api/v1/namespaces/no-such-place/pods")
    assert names(answer) == []


async def test_generate_name_adds_a_suffix(api: Api) -> None:
    made = [await api.make(api.pods(), {**pod(""), "metadata": {"generateName": "web-"}})]
    made += [await api.make(api.pods(), {**pod(""), "metadata": {"generateName": "web-"}})]
    got = [item["metadata"]["name"] for item in made]
    assert all(re.fullmatch(r"web-[a-z0-9]{5}", name) for name in got)
    assert len(set(got)) == 2


@pytest.mark.parametrize(
    ("metadata", "want"),
    [
        pytest.param(
            {}, "metadata.name: Required value: name or generateName is required", id="no name"
        ),
        pytest.param({"name": "Web"}, 'metadata.name: Invalid value: "Web": ', id="capitals"),
        pytest.param(
            {"name": "a", "labels": {"a b": "c"}},
            'metadata.labels: Invalid value: "a b": name part must consist of alphanumeric',
            id="label key",
        ),
        pytest.param(
            {"name": "a", "labels": {"a": "b c"}},
            'metadata.labels: Invalid value: "b c": a valid label must be an empty string',
            id="label value",
        ),
    ],
)
async def test_malformed_metadata_is_invalid(
    api: Api, metadata: dict[str, object], want: str
) -> None:
    answer = await api.post(api.pods(), {**pod(""), "metadata": metadata})
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message.startswith(f'Pod "{metadata.get("name", "")}" is invalid: {want}')
    assert answer.body["details"]["kind"] == "Pod"
    assert answer.body["details"]["causes"][0]["field"] == want.partition(":")[0]


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param(b"{", "the object provided is unrecognized", id="no JSON"),
        pytest.param(b"", "the object provided is unrecognized", id="nothing"),
        pytest.param(b"[]", "the object provided is unrecognized", id="a list"),
        pytest.param(b'{"kind":"Node","apiVersion":"v1"}', "Node in version", id="other kind"),
        pytest.param(b'{"kind":"Foo","apiVersion":"v1"}', "Foo in version", id="unknown kind"),
        pytest.param(b'{"spec":{"containers":"x"}}', "Pod in version", id="text for a list"),
        pytest.param(b'{"metadata":{"labels":{"a":1}}}', "Pod in version", id="number for text"),
    ],
)
async def test_bodies_that_are_no_pod_are_bad_requests(api: Api, body: bytes, want: str) -> None:
    answer = await api.post(api.pods(), body)
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message.startswith(want)


async def test_a_foreign_namespace_in_the_body_is_a_bad_request(api: Api) -> None:
    answer = await api.post(api.pods(), pod("a", namespace="elsewhere"))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "does not match the namespace sent on the request" in answer.message


async def test_an_unknown_resource_is_not_found(api: Api) -> None:
    answer = await api.get(api.path("gadgets"))
    assert answer.status == 404
    assert answer.message == "the server could not find the requested resource"


async def test_a_verb_without_meaning_is_not_allowed(api: Api) -> None:
    answer = await api.put(api.pods(), pod("a"))
    assert (answer.status, answer.reason) == (405, "MethodNotAllowed")


async def test_a_wrong_token_is_unauthorized(api: Api) -> None:
    api.headers = {"Authorization": "Bearer wrong"}
    answer = await api.get(api.pods())
    api.headers = {}
    assert (answer.status, answer.reason) == (401, "Unauthorized")


async def test_a_body_above_three_mebibytes_is_too_large(api: Api) -> None:
    answer = await api.post(api.path("configmaps"), config_map("a", key="x" * 3_200_000))
    assert (answer.status, answer.reason) == (413, "RequestEntityTooLarge")


async def test_a_config_map_above_one_mebibyte_is_invalid(api: Api) -> None:
    answer = await api.post(api.path("configmaps"), config_map("a", key="x" * 1_048_577))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "Too long: may not be more than 1048576 bytes" in answer.message


async def test_config_map_keys_are_checked(api: Api) -> None:
    answer = await api.post(
        api.path("configmaps"), {"metadata": {"name": "a"}, "data": {"a b": ""}}
    )
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert 'data[a b]: Invalid value: "a b"' in answer.message


async def test_an_update_replaces_and_bumps_the_version(api: Api) -> None:
    made = await api.make(api.path("configmaps"), config_map("a", old="1"))
    made["data"] = {"new": "2"}
    answer = await api.put(api.path("configmaps", "a"), made)
    assert answer.status == 200
    assert answer.body["data"] == {"new": "2"}
    got, want = answer.body["metadata"], made["metadata"]
    assert int(got["resourceVersion"]) > int(want["resourceVersion"])
    assert got["uid"] == want["uid"]
    assert got["creationTimestamp"] == want["creationTimestamp"]


async def test_a_stale_update_is_a_conflict(api: Api) -> None:
    made = await api.make(api.path("configmaps"), config_map("a"))
    fresh = {**made, "data": {"winner": "first"}}
    assert (await api.put(api.path("configmaps", "a"), fresh)).status == 200
    answer = await api.put(api.path("configmaps", "a"), {**made, "data": {"winner": "second"}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; please '
        "apply your changes to the latest version and try again"
    )
    assert answer.body["details"] == {"name": "a", "kind": "configmaps"}


async def test_an_update_without_a_version_is_unconditional(api: Api) -> None:
    await api.make(api.path("configmaps"), config_map("a"))
    answer = await api.put(api.path("configmaps", "a"), config_map("a", key="value"))
    assert answer.status == 200


async def test_an_update_with_another_uid_is_a_conflict(api: Api) -> None:
    made = await api.make_pod("a")
    made["metadata"] |= {"uid": "00000000-0000-0000-0000-000000000000"}
    answer = await api.put(api.pods("a"), made)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: 00000000" in answer.message


async def test_an_update_that_changes_nothing_keeps_the_version(api: Api) -> None:
    made = await api.make(api.path("configmaps"), config_map("a", key="value"))
    answer = await api.put(api.path("configmaps", "a"), made)
    assert answer.status == 200
    assert answer.body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_an_update_of_a_missing_object_is_not_found(api: Api) -> None:
    answer = await api.put(api.path("configmaps", "a"), config_map("a"))
    assert (answer.status, answer.reason) == (404, "NotFound")


async def test_an_update_under_another_name_is_a_bad_request(api: Api) -> None:
    await api.make(api.path("configmaps"), config_map("a"))
    answer = await api.put(api.path("configmaps", "a"), config_map("b"))
    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_a_dry_run_answers_and_stores_nothing(api: Api) -> None:
    answer = await api.post(api.pods(), pod("a"), dryRun="All")
    assert answer.status == 201
    assert answer.body["spec"]["schedulerName"] == "default-scheduler"
    assert (await api.get(api.pods("a"))).status == 404


async def test_unknown_fields_are_dropped_or_refused(api: Api) -> None:
    wrong = pod("a")
    wrong["spec"] |= {"nodeselector": {"a": "b"}}
    answer = await api.post(api.pods(), wrong, fieldValidation="Strict")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert 'strict decoding error: unknown field "spec.nodeselector"' in answer.message
    answer = await api.post(api.pods(), wrong, fieldValidation="Ignore")
    assert answer.status == 201
    assert "nodeselector" not in answer.body["spec"]


async def test_yaml_bodies_are_understood(api: Api) -> None:
    body = b"metadata: {name: a}\ndata: {policy.star: 'def filter(pod, node): pass'}\n"
    answer = await api.call("POST", api.path("configmaps"), body, content_type="application/yaml")
    assert answer.status == 201
    assert answer.body["data"] == {"policy.star": "def filter(pod, node): pass"}


@pytest.mark.parametrize(
    ("sent", "want"),
    [
        pytest.param("0.5", "500m", id="fraction"),
        pytest.param("1000m", "1", id="thousandths"),
        pytest.param("1500m", "1500m", id="no shorter form"),
        pytest.param("1024Mi", "1Gi", id="binary"),
        pytest.param("1.5Gi", "1536Mi", id="binary fraction"),
        pytest.param("0.1Gi", "107374182400m", id="binary that is not whole"),
        pytest.param("1000M", "1G", id="decimal"),
        pytest.param("1e3", "1e3", id="exponent"),
        pytest.param("0.0005", "1m", id="rounded up to thousandths"),
        pytest.param("12345678901234567890", "12345678901234567890", id="beyond 64 bits"),
        pytest.param(2, "2", id="a number"),
        pytest.param(0.25, "250m", id="a fractional number"),
        pytest.param("1000", "1k", id="a thousand"),
        pytest.param("1e10", "10e9", id="exponents in steps of three"),
        pytest.param(".5", "500m", id="no whole part"),
        pytest.param(" 1 ", "1", id="spaces around it"),
        pytest.param("Ki", "0", id="no digits"),
    ],
)
async def test_quantities_are_returned_in_canonical_form(
    api: Api, sent: str | float, want: str
) -> None:
    made = await api.make_pod("a", spec=requesting(requests={"memory": sent}))
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"memory": want}


@pytest.mark.parametrize("sent", ["abc", "", "1 Gi", "0x1", "1.2.3", "1_000"])
async def test_malformed_quantities_are_bad_requests(api: Api, sent: str) -> None:
    answer = await api.post(api.pods(), pod("a", spec=requesting(requests={"cpu": sent})))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "quantities must match the regular expression" in answer.message


@pytest.mark.parametrize("sent", ["1K", "1ki", "1e", "1mm"])
async def test_unknown_suffixes_are_bad_requests(api: Api, sent: str) -> None:
    answer = await api.post(api.pods(), pod("a", spec=requesting(requests={"cpu": sent})))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "unable to parse quantity's suffix" in answer.message


async def test_health_endpoints_say_ok(api: Api) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        answer = await api.get(path)
        assert (answer.status, answer.body) == (200, "ok")


async def test_the_version_is_reported(api: Api) -> None:
    answer = await api.get("/version")
    want = schema.VERSION if api.is_embedded else kubernetes_minor()
    assert f"{answer.body['major']}.{answer.body['minor']}" == want


async def test_discovery_lists_groups_and_resources(api: Api) -> None:
    assert "v1" in (await api.get("/api")).body["versions"]
    groups = {group["name"] for group in (await api.get("/apis")).body["groups"]}
    want = {"apps", "coordination.k8s.io", "events.k8s.io", "policy", "storage.k8s.io"}
    assert want | {"scheduling.k8s.io", "resource.k8s.io", "node.k8s.io"} <= groups
    resources = {item["name"]: item for item in (await api.get("/api/v1")).body["resources"]}
    assert resources["pods"]["namespaced"] is True
    assert resources["pods"]["kind"] == "Pod"
    assert resources["nodes"]["namespaced"] is False
    assert resources["pods/binding"]["verbs"] == ["create"]
    found = (await api.get("/apis/scheduling.k8s.io/v1")).body["resources"]
    assert "priorityclasses" in {item["name"] for item in found}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/api/v1/pods", "PodList"),
        ("/api/v1/nodes", "NodeList"),
        ("/api/v1/namespaces", "NamespaceList"),
        ("/api/v1/services", "ServiceList"),
        ("/api/v1/configmaps", "ConfigMapList"),
        ("/api/v1/replicationcontrollers", "ReplicationControllerList"),
        ("/api/v1/persistentvolumes", "PersistentVolumeList"),
        ("/api/v1/persistentvolumeclaims", "PersistentVolumeClaimList"),
        ("/api/v1/events", "EventList"),
        ("/apis/events.k8s.io/v1/events", "EventList"),
        ("/apis/apps/v1/replicasets", "ReplicaSetList"),
        ("/apis/apps/v1/statefulsets", "StatefulSetList"),
        ("/apis/policy/v1/poddisruptionbudgets", "PodDisruptionBudgetList"),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", "PriorityClassList"),
        ("/apis/node.k8s.io/v1/runtimeclasses", "RuntimeClassList"),
        ("/apis/coordination.k8s.io/v1/leases", "LeaseList"),
        ("/apis/storage.k8s.io/v1/storageclasses", "StorageClassList"),
        ("/apis/storage.k8s.io/v1/csinodes", "CSINodeList"),
        ("/apis/storage.k8s.io/v1/csidrivers", "CSIDriverList"),
        ("/apis/storage.k8s.io/v1/csistoragecapacities", "CSIStorageCapacityList"),
        ("/apis/storage.k8s.io/v1/volumeattachments", "VolumeAttachmentList"),
        ("/apis/resource.k8s.io/v1/resourceclaims", "ResourceClaimList"),
        ("/apis/resource.k8s.io/v1/resourceslices", "ResourceSliceList"),
        ("/apis/resource.k8s.io/v1/deviceclasses", "DeviceClassList"),
        pytest.param(
            "/apis/resource.k8s.io/v1/devicetaintrules",
            "DeviceTaintRuleList",
            marks=pytest.mark.kubernetes("1.37"),
        ),
    ],
)
async def test_every_resource_that_a_scheduler_watches_is_served(
    api: Api, path: str, kind: str
) -> None:
    answer = await api.get(path, limit=1)
    assert (answer.status, answer.body["kind"]) == (200, kind)
    assert int(answer.body["metadata"]["resourceVersion"]) > 0
