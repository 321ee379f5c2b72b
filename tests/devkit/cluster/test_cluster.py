"""The embedded cluster in process: life, direct access, history, deletion by the clock."""

from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from devkit.cluster import DevCluster, example_cluster, make_node, make_pod
from engine.core.manifests.errors import ApiStatus
from engine.lib.clock import VirtualClock
from tests.contract.harness import Api, names, seen

Json = dict[str, Any]


def got(cluster: DevCluster, resource: str, name: str, namespace: str = "") -> Json:
    found = cluster.get(resource, name, namespace)
    assert found is not None
    return found


async def test_starting_twice_and_stopping_twice_is_harmless() -> None:
    cluster = DevCluster()
    await cluster.start()
    url = cluster.url
    await cluster.start()
    assert cluster.url == url
    await cluster.stop()
    await cluster.stop()


def test_there_is_no_address_before_the_start() -> None:
    with pytest.raises(RuntimeError, match="no address before start"):
        _ = DevCluster().url


async def test_a_kubeconfig_leads_to_the_cluster(tmp_path: Path) -> None:
    async with DevCluster(token="secret") as cluster:
        path = cluster.write_kubeconfig(tmp_path / "config")
        config = yaml.safe_load(path.read_text())
        assert config["clusters"][0]["cluster"]["server"] == cluster.url
        assert config["users"][0]["user"] == {"token": "secret"}
        assert config["current-context"] == config["contexts"][0]["name"]


async def test_objects_made_in_process_are_seen_over_http(cluster: DevCluster, api: Api) -> None:
    cluster.create(make_node("n1"), make_pod("a"))
    assert names(await api.get(api.pods())) == ["a"]
    cluster.bind("a", "n1")
    assert (await api.get(api.pods("a"))).body["spec"]["nodeName"] == "n1"
    assert got(cluster, "pods", "a")["spec"]["nodeName"] == "n1"
    cluster.delete("pods", "a", grace=0)
    assert cluster.get("pods", "a") is None
    assert [node["metadata"]["name"] for node in cluster.list("nodes")] == ["n1"]


def test_a_stored_object_is_not_the_one_that_was_sent() -> None:
    cluster, sent = DevCluster(), make_pod("a", labels={"x": "y"})
    (stored,) = cluster.create(sent)
    sent["metadata"]["labels"]["x"] = "z"
    assert stored["metadata"]["labels"] == {"x": "y"}
    assert got(cluster, "pods", "a")["metadata"]["labels"] == {"x": "y"}


def test_an_update_in_process_keeps_the_rules() -> None:
    cluster = DevCluster()
    (pod,) = cluster.create(make_pod("a"))
    status = {**pod, "status": {"phase": "Running"}}
    assert cluster.update("pods", status, subresource="status")["status"]["phase"] == "Running"
    with pytest.raises(ApiStatus, match="the object has been modified"):
        cluster.update("pods", status, subresource="status")


def test_unknown_kinds_are_named() -> None:
    cluster = DevCluster()
    with pytest.raises(ValueError, match="got `v1` `Gadget`"):
        cluster.create({"apiVersion": "v1", "kind": "Gadget"})
    with pytest.raises(ValueError, match="got `gadgets`"):
        cluster.get("gadgets", "a")


def test_a_seed_makes_identities_repeat() -> None:
    def uid(seed: int) -> str:
        (pod,) = DevCluster(seed=seed).create(make_pod("a"))
        return str(pod["metadata"]["uid"])

    assert uid(1) == uid(1) != uid(2)


async def test_kubectl_gets_tables(cluster: DevCluster, api: Api) -> None:
    cluster.create(make_node("n1"), make_pod("a"))
    cluster.bind("a", "n1")
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    table = (await api.call("GET", api.pods(), accept=accept)).body
    titles = [column["name"] for column in table["columnDefinitions"]]
    row = dict(zip(titles, table["rows"][0]["cells"], strict=True))
    assert (row["Name"], row["Ready"], row["Status"], row["Node"]) == ("a", "0/1", "Pending", "n1")
    table = (await api.call("GET", api.nodes("n1"), accept=accept)).body
    assert table["rows"][0]["cells"][:2] == ["n1", "Ready"]


# --- history -------------------------------------------------------------------------------


async def test_the_history_window_moves_with_the_changes() -> None:
    async with aiohttp.ClientSession() as session, DevCluster(history=10) as cluster:
        api = Api(cluster.url, "default", True, session)
        first = await api.revision()
        cluster.create(*(make_pod(f"p{index}") for index in range(10)))
        async with api.watch(api.pods(), resourceVersion=first) as watch:
            assert len(await watch.take(10)) == 10
        cluster.create(make_pod("one-more"))
        async with api.watch(api.pods(), resourceVersion=first) as watch:
            (event,) = await watch.rest()
        assert event["object"]["code"] == 410


async def test_changes_of_one_kind_do_not_push_out_those_of_another() -> None:
    async with aiohttp.ClientSession() as session, DevCluster(history=10) as cluster:
        api = Api(cluster.url, "default", True, session)
        version = await api.revision(api.nodes())
        cluster.create(make_node("n1"))
        cluster.create(*(make_pod(f"p{index}") for index in range(50)))
        async with api.watch(api.nodes(), resourceVersion=version) as watch:
            assert seen(await watch.next()) == ("ADDED", "n1")


async def test_an_open_watch_outlives_a_compaction(cluster: DevCluster, api: Api) -> None:
    async with api.watch(api.pods(), resourceVersion=await api.revision()) as watch:
        cluster.create(make_pod("a"))
        cluster.compact()
        cluster.create(make_pod("b"))
        events = await watch.take(2)
    assert [seen(event) for event in events] == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_compaction_can_spare_the_newest(cluster: DevCluster, api: Api) -> None:
    cluster.create(make_pod("a"))
    middle = cluster.store.revision
    cluster.create(make_pod("b"))
    assert cluster.compact(middle) == middle
    async with api.watch(api.pods(), resourceVersion=middle) as watch:
        assert seen(await watch.next()) == ("ADDED", "b")
    async with api.watch(api.pods(), resourceVersion=middle - 1) as watch:
        assert (await watch.next())["type"] == "ERROR"


def test_a_history_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="history: want an int of at least 1, got `0`"):
        DevCluster(history=0)


# --- time ----------------------------------------------------------------------------------


def test_timestamps_come_from_the_clock() -> None:
    clock = VirtualClock(start=0.0)
    cluster = DevCluster(clock=clock)
    cluster.create(make_pod("a", nodeName="n", terminationGracePeriodSeconds=30))
    assert got(cluster, "pods", "a")["metadata"]["creationTimestamp"] == "1970-01-01T00:00:00Z"
    clock.advance(60)
    cluster.delete("pods", "a")
    meta = got(cluster, "pods", "a")["metadata"]
    assert meta["deletionTimestamp"] == "1970-01-01T00:01:30Z"
    clock.advance(20)
    # Ten seconds counted from the first deletion, not from now.
    cluster.delete("pods", "a", grace=10)
    meta = got(cluster, "pods", "a")["metadata"]
    assert meta["deletionTimestamp"] == "1970-01-01T00:01:10Z"
    assert meta["deletionGracePeriodSeconds"] == 10
    cluster.delete("pods", "a", grace=25)
    assert got(cluster, "pods", "a")["metadata"] == meta


def test_a_pod_stays_after_its_grace_until_another_client_removes_it() -> None:
    clock = VirtualClock()
    cluster = DevCluster(clock=clock)
    cluster.create(make_pod("a", nodeName="n"))
    cluster.delete("pods", "a")
    clock.advance(3600)
    assert got(cluster, "pods", "a")["metadata"]["deletionTimestamp"]
    cluster.delete("pods", "a", grace=0)
    assert cluster.get("pods", "a") is None


def test_binding_times_come_from_the_clock() -> None:
    clock = VirtualClock(start=0.0)
    cluster = DevCluster(clock=clock)
    cluster.create(make_pod("a"))
    clock.advance(5)
    bound = cluster.bind("a", "n")
    (condition,) = bound["status"]["conditions"]
    assert condition["lastTransitionTime"] == "1970-01-01T00:00:05Z"


# --- makers --------------------------------------------------------------------------------


def test_the_example_cluster_is_mixed_and_accepted() -> None:
    cluster = DevCluster()
    nodes = cluster.create(*example_cluster())
    assert len(nodes) == 12
    zones = {node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in nodes}
    assert zones == {"zone-a", "zone-b", "zone-c"}
    assert sum("nvidia.com/gpu" in node["status"]["allocatable"] for node in nodes) == 3
    assert any(node["spec"].get("taints") for node in nodes)
    assert any(node["status"].get("images") for node in nodes)
    sizes = {node["status"]["allocatable"]["cpu"] for node in nodes}
    assert sizes == {"8", "16"}


def test_made_pods_are_accepted() -> None:
    cluster = DevCluster()
    (pod,) = cluster.create(
        make_pod(
            "a",
            cpu="2",
            labels={"app": "web"},
            scheduler_name="starsched",
            resources={"nvidia.com/gpu": "1"},
            nodeSelector={"disk": "ssd"},
        )
    )
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"cpu": "2", "memory": "128Mi", "nvidia.com/gpu": "1"}
    assert pod["spec"]["schedulerName"] == "starsched"
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}


async def test_kubectl_finds_what_it_asks_for_before_an_apply(
    cluster: DevCluster, api: Api
) -> None:
    index = (await api.get("/openapi/v3")).body["paths"]
    assert index["apis/apps/v1"] == {"serverRelativeURL": "/openapi/v3/apis/apps/v1"}
    document = (await api.get("/openapi/v3/api/v1")).body
    patch = document["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"]["kind"] == "ConfigMap"
    assert patch["parameters"][0]["name"] == "fieldValidation"
    assert (await api.get("/openapi/v3/apis/nothing.example/v1")).status == 404


async def test_protobuf_is_refused_with_what_will_do(cluster: DevCluster, api: Api) -> None:
    """`kubectl create namespace` sends it, and heard that it was an accepted media type."""
    sent = "application/vnd.kubernetes.protobuf"
    answer = await api.call("POST", "/api/v1/namespaces", b"k8s\0", content_type=sent)
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")
    assert sent not in answer.body["message"]
    assert "`--dry-run=client -o yaml | kubectl create -f -`" in answer.body["message"]


async def test_access_rules_are_kept_under_names_of_their_own(
    cluster: DevCluster, api: Api
) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    sent = {"metadata": {"name": "system:kube-scheduler"}, "rules": []}
    await api.make(path, sent)
    assert (await api.get(f"{path}/system:kube-scheduler")).body["rules"] == []
