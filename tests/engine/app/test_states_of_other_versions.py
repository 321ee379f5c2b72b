"""What another version saved, or has in its configuration, is read, or named; never lost.

With replicas of both versions: `tests/faults/test_an_upgrade_of_the_scheduler.py`.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from devkit.cluster import DevCluster, make_node
from engine.io.facts.learned import LearnedConfigMap
from engine.io.kube.client import ApiClient
from engine.rollout.last_good import ConfigMapStore
from tests.engine.app.harness import NAME, NAMESPACE, config_map, edit, namespace, scheduler
from tests.waiting import eventually

pytestmark = [pytest.mark.slow("runs a whole scheduler"), pytest.mark.usefixtures("no_sandboxes")]

#: What the commit of this name wrote to the ConfigMaps next to the policies, by their suffix.
OLDER: Final[dict[str, dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "data" / "states" / "f6be8898.json").read_text()
)
BROKEN: Final = {"mine.star": "def filter(pod, node:\n"}
#: A document that no version knows yet.
LATER: Final = "apiVersion: starsched.dev/v1\nkind: FromLater\n"


def last_good(client: ApiClient) -> ConfigMapStore:
    return ConfigMapStore(client, NAMESPACE, f"{NAME}-last-good")


def learned(client: ApiClient) -> LearnedConfigMap:
    return LearnedConfigMap(client, NAMESPACE, f"{NAME}-facts")


def saved(suffix: str, annotations: dict[str, str], data: dict[str, str]) -> dict[str, Any]:
    made = config_map(data)
    made["metadata"] |= {"name": f"{NAME}-{suffix}", "annotations": annotations}
    return made


def held(cluster: DevCluster, suffix: str) -> dict[str, Any]:
    found = cluster.get("configmaps", f"{NAME}-{suffix}", NAMESPACE)
    assert found is not None
    return found


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as cluster:
        cluster.create(namespace(), make_node("node-1"))
        yield cluster


async def test_what_an_older_version_saved_is_gone_on_from(cluster: DevCluster) -> None:
    cluster.create(config_map(BROKEN))
    for suffix, state in OLDER.items():
        cluster.create(saved(suffix, state["annotations"], state["data"]))
    async with scheduler(
        cluster, from_config_map=True, store=last_good, learned_store=learned
    ) as app:
        rollout = app.policies.rollout
        assert dict(rollout.active.files) == OLDER["last-good"]["data"]
        assert rollout.active.origin == "last-good"
        known = OLDER["last-good"]["annotations"]["starsched.dev/was-in-force"]
        await eventually(
            lambda: (
                known
                in held(cluster, "last-good")["metadata"]["annotations"][
                    "starsched.dev/was-in-force"
                ]
            )
        )
        learned_before = json.loads(OLDER["facts"]["data"]["pod-demand.json"])
        facts = app.kernel.cache.snapshot().cluster_facts
        await eventually(lambda: facts.get("demand_count"))
        assert facts["demand_count"].value == learned_before["count"]


async def test_what_a_newer_version_saved_beside_stays(cluster: DevCluster) -> None:
    """A replica of before the upgrade, or after going back, neither reads nor deletes it."""
    good = '"""Good."""\n'
    cluster.create(config_map({"mine.star": good}))
    later = {"starsched.dev/from-later": "x"}
    cluster.create(saved("last-good", later, {}), saved("facts", later, {"fromLater.json": "{}"}))
    async with scheduler(
        cluster, from_config_map=True, store=last_good, learned_store=learned
    ) as app:
        await eventually(lambda: held(cluster, "last-good").get("data") == {"mine.star": good})
        assert app.env.saved.waits_for() is None
    assert held(cluster, "last-good")["metadata"]["annotations"].items() >= later.items()
    assert held(cluster, "facts")["data"]["fromLater.json"] == "{}"


async def test_a_configuration_that_only_a_newer_version_knows_is_named(
    cluster: DevCluster,
) -> None:
    """A replica of before is not ready by it, so that a rollout goes no further."""
    files = {"mine.star": '"""Good."""\n', "later.yaml": LATER}
    cluster.create(config_map(files), saved("last-good", {"starsched.dev/revision": "abc"}, files))
    async with scheduler(cluster, from_config_map=True, store=last_good, wait=False) as app:
        why = await eventually(app.policies.rollout.waits_for)
        await eventually(lambda: "FromLater" in str(app.policies.rollout.waits_for()))
        assert why
        # What the newer one saved is there for it.
        assert held(cluster, "last-good")["data"] == files
        # Without it everything is as before.
        edit(cluster, {"mine.star": '"""Good."""\n'})
        await eventually(lambda: app.policies.rollout.waits_for() is None)
