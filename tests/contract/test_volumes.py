"""Writes of volumes and claims: what the scheduler changes in them, and what keeps it from more."""

from tests.contract.harness import MERGE, Api, Json

CLAIM: Json = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
    "storageClassName": "local",
}
VOLUMES = "/api/v1/persistentvolumes"
SELECTED_NODE = "volume.kubernetes.io/selected-node"


async def _volume(api: Api, **spec: object) -> Json:
    plain = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/data"},
        "storageClassName": "local",
        **spec,
    }
    return await api.make(VOLUMES, {"metadata": {"name": api.unique("disk")}, "spec": plain})


async def _claim(api: Api) -> Json:
    path = api.path("persistentvolumeclaims")
    return await api.make(path, {"metadata": {"name": "data"}, "spec": CLAIM})


async def _forget(api: Api, volume: Json) -> None:
    """Let the volume go with the test."""
    path = f"{VOLUMES}/{volume['metadata']['name']}"
    await api.patch(path, {"metadata": {"finalizers": None}}, MERGE)


def _reference(claim: Json) -> Json:
    meta = claim["metadata"]
    return {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
        "resourceVersion": meta["resourceVersion"],
    }


async def test_a_volume_takes_the_reference_of_its_claim(api: Api) -> None:
    volume, claim = await _volume(api), await _claim(api)
    change = {
        "metadata": {
            "resourceVersion": volume["metadata"]["resourceVersion"],
            "uid": volume["metadata"]["uid"],
            "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
        },
        "spec": {"claimRef": _reference(claim)},
    }
    answer = await api.patch(f"{VOLUMES}/{volume['metadata']['name']}", change, MERGE)
    assert answer.status == 200, answer
    assert answer.body["spec"]["claimRef"] == _reference(claim)
    assert answer.body["spec"]["hostPath"] == volume["spec"]["hostPath"]
    assert int(answer.body["metadata"]["resourceVersion"]) > int(
        volume["metadata"]["resourceVersion"]
    )
    await _forget(api, volume)


async def test_a_reference_by_name_is_completed(api: Api) -> None:
    claim = await _claim(api)
    by_name = {"namespace": api.namespace, "name": "data"}
    volume = await _volume(api, claimRef=by_name)
    change = {"spec": {"claimRef": _reference(claim)}}
    answer = await api.patch(f"{VOLUMES}/{volume['metadata']['name']}", change, MERGE)
    assert answer.body["spec"]["claimRef"] == _reference(claim)
    await _forget(api, volume)


async def test_a_write_to_an_old_version_is_a_conflict(api: Api) -> None:
    volume, claim = await _volume(api), await _claim(api)
    claims = api.path("persistentvolumeclaims", "data")
    for path, found in ((f"{VOLUMES}/{volume['metadata']['name']}", volume), (claims, claim)):
        await api.patch(path, {"metadata": {"labels": {"a": "b"}}}, MERGE)
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        change = {"metadata": {**version, "annotations": {SELECTED_NODE: "n"}}}
        answer = await api.patch(path, change, MERGE)
        assert (answer.status, answer.reason) == (409, "Conflict")
        assert "the object has been modified" in answer.message
        now = await api.get(path)
        assert SELECTED_NODE not in now.body["metadata"].get("annotations", {})
    await _forget(api, volume)


async def test_a_write_to_a_namesake_is_refused(api: Api) -> None:
    await _claim(api)
    path = api.path("persistentvolumeclaims", "data")
    change = {"metadata": {"uid": "other", "annotations": {SELECTED_NODE: "n"}}}
    answer = await api.patch(path, change, MERGE)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert SELECTED_NODE not in (await api.get(path)).body["metadata"].get("annotations", {})


async def test_a_claim_takes_its_node_and_then_its_volume(api: Api) -> None:
    await _claim(api)
    path = api.path("persistentvolumeclaims", "data")
    selected = {"metadata": {"annotations": {SELECTED_NODE: "n"}}}
    answer = await api.patch(path, selected, MERGE)
    assert answer.body["metadata"]["annotations"] == {SELECTED_NODE: "n"}
    bound = {
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "disk"},
    }
    answer = await api.patch(path, bound, MERGE)
    assert answer.body["spec"]["volumeName"] == "disk"
    assert answer.body["metadata"]["annotations"][SELECTED_NODE] == "n"
    answer = await api.patch(f"{path}/status", {"status": {"phase": "Bound"}}, MERGE)
    assert answer.body["status"]["phase"] == "Bound"
    gone = {"metadata": {"annotations": {SELECTED_NODE: None}}}
    answer = await api.patch(path, gone, MERGE)
    assert SELECTED_NODE not in answer.body["metadata"]["annotations"]
