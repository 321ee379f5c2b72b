"""The last good policies are found again: by a restart, and by a pod on another node."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from devkit.cluster import DevCluster
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.rollout.last_good import (
    ConfigMapStore,
    DirectoryStore,
    LastGood,
    Store,
    StoreError,
    Stores,
)

GOOD = LastGood("abc123", {"a.star": "# é\n", "profile.yaml": "x: 1\n"}, ("bad1", "bad2"))
MORE = replace(GOOD, known=("abc123", "def456"), refused=("c0ffee/abc123",))


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: DevCluster) -> AsyncIterator[ApiClient]:
    async with ApiClient(Endpoint(server=cluster.url)) as client:
        yield client


@pytest.fixture(params=["directory", "configmap", "both"])
def store(request: pytest.FixtureRequest, client: ApiClient, tmp_path: Path) -> Store:
    directory = DirectoryStore(tmp_path / "state")
    config_map = ConfigMapStore(client, "default", "policies-last-good")
    stores: dict[str, Store] = {
        "directory": directory,
        "configmap": config_map,
        "both": Stores(config_map, directory),
    }
    return stores[request.param]


async def test_nothing_was_saved_yet(store: Store) -> None:
    assert await store.load() is None


@pytest.mark.parametrize("one", [GOOD, MORE], ids=["policies", "what is known of others, too"])
async def test_what_was_saved_is_loaded(store: Store, one: LastGood) -> None:
    await store.save(one)
    assert await store.load() == one


async def test_the_newest_replaces_all_of_the_one_before(store: Store) -> None:
    await store.save(GOOD)
    newer = LastGood("def456", {"b.star": "x"}, ())
    await store.save(newer)
    assert await store.load() == newer


async def test_the_builtin_policies_can_be_the_last_good_ones(store: Store) -> None:
    await store.save(GOOD)
    await store.save(LastGood("000000", {}, ()))
    assert await store.load() == LastGood("000000", {}, ())


async def test_what_was_deleted_is_lost(cluster: DevCluster, store: Store, tmp_path: Path) -> None:
    await store.save(GOOD)
    assert not await store.is_lost()
    if isinstance(store, DirectoryStore):
        (tmp_path / "state" / "last-good.json").unlink()
    else:
        cluster.delete("configmaps", "policies-last-good")
    assert await store.is_lost()
    await store.save(GOOD)
    assert not await store.is_lost()


async def test_an_outage_loses_nothing(cluster: DevCluster, client: ApiClient) -> None:
    store = ConfigMapStore(client, "default", "policies-last-good")
    await store.save(GOOD)
    cluster.faults.fail(503, times=None)
    with pytest.raises(StoreError, match="503"):
        await store.is_lost()
    assert not await Stores(store).is_lost()


async def test_an_outage_is_an_error_not_an_empty_store(
    cluster: DevCluster, client: ApiClient
) -> None:
    store = ConfigMapStore(client, "default", "policies-last-good")
    await store.save(GOOD)
    cluster.faults.fail(503, times=None)
    with pytest.raises(StoreError, match="503"):
        await store.load()
    with pytest.raises(StoreError, match="503"):
        await store.save(GOOD)


async def test_labels_of_a_configmap_from_a_manifest_survive(
    cluster: DevCluster, client: ApiClient
) -> None:
    labels = {"app": "mine"}
    cluster.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "lg", "namespace": "default", "labels": labels},
        }
    )
    store = ConfigMapStore(client, "default", "lg")
    assert await store.load() is None
    await store.save(GOOD)
    found = cluster.get("configmaps", "lg")
    assert found is not None
    assert found["metadata"]["labels"] == labels


async def test_one_store_is_enough(cluster: DevCluster, client: ApiClient, tmp_path: Path) -> None:
    """A scheduler that may not write ConfigMaps still survives a crash of its container."""
    directory = DirectoryStore(tmp_path)
    store = Stores(ConfigMapStore(client, "default", "lg"), directory)
    cluster.faults.fail(403, verb="create", resource="configmaps", times=None)
    await store.save(GOOD)
    assert await store.load() == GOOD


async def test_a_store_behind_one_that_cannot_be_read_is_not_believed(
    cluster: DevCluster, client: ApiClient, tmp_path: Path
) -> None:
    """The ConfigMap may know that another leader rolled back what this directory holds."""
    store = Stores(ConfigMapStore(client, "default", "lg"), DirectoryStore(tmp_path))
    cluster.faults.fail(403, resource="configmaps", times=None)
    await store.save(GOOD)
    with pytest.raises(StoreError, match="403") as caught:
        await store.load()
    assert caught.value.otherwise == GOOD


async def test_a_broken_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "last-good.json").write_text("{oops")
    with pytest.raises(StoreError, match=r"last-good\.json"):
        await DirectoryStore(tmp_path).load()


async def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        await DirectoryStore(tmp_path / "file").save(GOOD)


def test_only_so_many_rolled_back_revisions_are_kept() -> None:
    last_good = LastGood("a", {}, tuple(str(i) for i in range(16)))
    got = last_good.without("new")
    assert len(got) == 16
    assert got[-1] == "new"
    assert last_good.without("3")[-1] == "3"
    assert last_good.without("3").count("3") == 1
