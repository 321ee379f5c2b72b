"""Replicas of an older version are replaced one by one, and back again, while pods are scheduled.

The older version is an earlier commit. A clone that lacks it replaces replicas of this version by
others of it; what that commit wrote is read in every clone, see
`tests/engine/app/test_states_of_other_versions.py`.
"""

import asyncio
import contextlib
import itertools
import json
import subprocess
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from engine.io.kube.client import ApiClient
from engine.io.kube.resources import CONFIG_MAPS, NAMESPACES, PODS
from tests.controlplane import ControlPlane
from tests.faults.processes import Replica
from tests.faults.test_a_real_server_that_fails import all_placed, create_nodes, create_pods
from tests.faults.test_an_upgrade_of_the_cluster import AUDIT_POLICY, bindings
from tests.waiting import eventually

pytestmark = pytest.mark.slow("starts a control plane and seven schedulers")

ROOT: Final = Path(__file__).parents[2]
#: The first commit of this layout, from before there were trees of queues.
OLDER: Final = "f6be88980a35d2021c7af6905ec7e7f4b4d6204c"
NAMESPACE: Final = "starsched"
BATCH: Final = 8
POLICIES: Final = "starsched-policies"
TEXT: Final = (
    '"""Edit {}."""\n\ndef score(pod, node):\n    return 100 if node.name == "node-1" else 0\n'
)
#: What this version understands, and the older one does not.
TREE: Final = "apiVersion: starsched.dev/v1\nkind: QueueTree\npolicy: q\nqueues: {a: {}}\n"
GOVERNS: Final = '"""Governs queues."""\n\ndef queue_of(pod):\n    return "a"\n'


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the older version; this checkout, where the clone lacks it."""
    git = ["git", "-C", str(ROOT)]
    is_there = subprocess.run(
        [*git, "cat-file", "-e", f"{OLDER}^{{commit}}"], capture_output=True, check=False
    )
    if is_there.returncode != 0:
        return ROOT
    folder = tmp_path_factory.mktemp("older")
    archive = folder / "tree.tar"
    parts = ("engine", "workbench", "policies", "pyproject.toml")
    subprocess.run([*git, "archive", f"--output={archive}", OLDER, *parts], check=True)
    with tarfile.open(archive) as tree:
        tree.extractall(folder, filter="data")
    return folder


class Fleet:
    """The replicas of a Deployment, each of one version."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self._kubeconfig = kubeconfig
        self._folder = folder
        self._ends = contextlib.ExitStack()
        self._running: list[Replica] = []
        self.logs: list[Path] = []

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    async def add(self, tree: Path) -> Replica:
        """Start a replica, which is in sync before anything else happens."""
        number = len(self.logs)
        log = self._folder / f"replica-{number}.log"
        self.logs.append(log)
        state = self._folder / f"state-{number}"
        state.mkdir()
        replica = Replica(
            self._kubeconfig,
            log,
            f"--policies=configmap:{NAMESPACE}/{POLICIES}",
            f"--state-dir={state}",
            "--leader-elect",
            f"--leader-elect-resource-namespace={NAMESPACE}",
            tree=tree,
        )
        self._running.append(self._ends.enter_context(replica))
        await eventually(
            lambda: replica.reported("In sync") or replica.process.poll() is not None,
            seconds=90,
            what=f"replica {number}",
        )
        assert replica.process.poll() is None, log.read_text()[-4000:]
        return replica

    async def remove(self, replica: Replica) -> None:
        """End a replica."""
        self._running.remove(replica)
        assert await asyncio.to_thread(replica.terminate) == 0, replica.log.read_text()[-4000:]

    async def roll(self, tree: Path) -> None:
        """Replace every replica, one at a time: a new one is in sync before an old one goes."""
        for _ in range(len(self._running)):
            await self.add(tree)
            await self.remove(self._running[0])


@contextlib.asynccontextmanager
async def load(client: ApiClient) -> AsyncIterator[list[str]]:
    """Batch after batch of pods until the block ends: placed, then deleted; the names of all."""
    done: list[str] = []
    stop = asyncio.Event()

    async def create() -> None:
        for number in itertools.count():
            await create_pods(client, f"batch-{number}", BATCH)
            placed = await all_placed(client, BATCH, seconds=120)
            done.extend(placed)
            for name in placed:
                path = PODS.path("default", name)
                await client.request("DELETE", path, body=b'{"gracePeriodSeconds":0}')
            if stop.is_set():
                return

    creating = asyncio.ensure_future(create())
    try:
        yield done
        stop.set()
        await creating
    finally:
        creating.cancel()


async def read(client: ApiClient, name: str) -> Any:
    return json.loads(await client.get(CONFIG_MAPS, name, NAMESPACE))


async def edit(client: ApiClient, files: dict[str, str]) -> None:
    """Have *files* and no others as policies."""
    held = await read(client, POLICIES)
    body = json.dumps({**held, "data": files}).encode()
    await client.update(CONFIG_MAPS, POLICIES, body, NAMESPACE)


async def is_good(client: ApiClient, text: str) -> bool:
    """True if *text* is in the last good policies."""
    return text in str((await read(client, f"{POLICIES}-last-good")).get("data"))


async def test_replicas_are_upgraded_and_rolled_back_one_by_one_under_load(
    tmp_path: Path, older: Path
) -> None:
    policy, log = tmp_path / "audit.yaml", tmp_path / "audit.log"
    policy.write_text(AUDIT_POLICY, encoding="utf-8")
    plane = ControlPlane(
        apiserver_args=[f"--audit-policy-file={policy}", f"--audit-log-path={log}"]
    )
    await asyncio.to_thread(plane.start)
    try:
        async with plane.client() as client:
            await create_nodes(client)
            metadata = {"name": NAMESPACE}
            await client.create(NAMESPACES, json.dumps({"metadata": metadata}).encode())
            for name in (POLICIES, *(f"{POLICIES}-{one}" for one in ("last-good", "facts"))):
                held = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
                data = {"mine.star": TEXT.format(0)} if name == POLICIES else {}
                body = json.dumps({**held, "data": data}).encode()
                await client.create(CONFIG_MAPS, body, NAMESPACE)
            with Fleet(plane.kubeconfig(tmp_path / "kubeconfig"), tmp_path) as fleet:
                for _ in range(2):
                    await fleet.add(older)
                async with load(client) as names:
                    await eventually(lambda: len(names) > BATCH, seconds=60)
                    # 1. Up. What the older version saved is read, and edits go on.
                    await eventually(lambda: is_good(client, "Edit 0"), seconds=30)
                    await fleet.roll(ROOT)
                    await edit(client, {"mine.star": TEXT.format(1)})
                    await eventually(lambda: is_good(client, "Edit 1"), seconds=60)
                    # 2. What the older one does not know must be gone before it comes back. Where
                    # it is not, its replica is not ready, and the rollout goes no further.
                    if older != ROOT:
                        tree = {"q.star": GOVERNS, "tree.yaml": TREE}
                        await edit(client, {"mine.star": TEXT.format(1), **tree})
                        await eventually(lambda: is_good(client, "QueueTree"), seconds=60)
                        early = await fleet.add(older)
                        assert early.reported("No usable policies"), early.log.read_text()[-4000:]
                        await fleet.remove(early)
                        await edit(client, {"mine.star": TEXT.format("1 again")})
                        await eventually(lambda: is_good(client, "1 again"), seconds=60)
                    # 3. And back. The older version goes on from what the newer one saved.
                    await fleet.roll(older)
                    await edit(client, {"mine.star": TEXT.format(2)})
                    await eventually(lambda: is_good(client, "Edit 2"), seconds=60)
                taken = bindings(log)
                assert set(taken.values()) == {1}, "a pod was bound twice"
                assert taken.keys() == set(names)
                said = "".join(one.read_text("utf-8", "replace") for one in fleet.logs)
                for trouble in ("damaged", "Cannot read", "Traceback", "Lost"):
                    assert trouble not in said, trouble
    finally:
        await asyncio.to_thread(plane.stop)
