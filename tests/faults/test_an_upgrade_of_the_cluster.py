"""The API server of one minor version is replaced by the next one's while pods are scheduled."""

import asyncio
import itertools
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.controlplane import MINORS, ControlPlane
from tests.faults.processes import Replica
from tests.faults.test_a_real_server_that_fails import (
    BATCH,
    all_placed,
    create_nodes,
    create_pods,
    nodes_of,
)

pytestmark = pytest.mark.slow("starts the control planes of two versions")

AUDIT_POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    resources: [{group: "", resources: [pods/binding]}]
  - level: None
"""


def bindings(audit_log: Path) -> Counter[str]:
    """How often each pod was bound: of the requests, those that the API server took."""
    events = map(json.loads, audit_log.read_text("utf-8").splitlines())
    taken = (event for event in events if event["responseStatus"]["code"] < 300)
    return Counter(event["objectRef"]["name"] for event in taken)


@pytest.mark.several_minors
@pytest.mark.parametrize(("old", "new"), [*itertools.pairwise(MINORS)])
async def test_no_pod_is_lost_or_bound_twice(old: str, new: str, tmp_path: Path) -> None:
    policy, log = tmp_path / "audit.yaml", tmp_path / "audit.log"
    policy.write_text(AUDIT_POLICY, encoding="utf-8")
    audit = [f"--audit-policy-file={policy}", f"--audit-log-path={log}"]
    plane = ControlPlane(minor=old, apiserver_args=audit)
    await asyncio.to_thread(plane.start)
    try:
        kubeconfig = plane.kubeconfig(tmp_path / "kubeconfig")
        async with plane.client() as client:
            assert f"v{old}." in (await client.request("GET", "/version")).decode()
            await create_nodes(client)
            with Replica(kubeconfig, tmp_path / "log") as replica:
                await create_pods(client, "settled")
                settled = await all_placed(client, BATCH)
                # Replaced while bindings are under way.
                await create_pods(client, "meanwhile")
                before = await nodes_of(client)
                await asyncio.to_thread(plane.restart_apiserver, minor=new)
                assert f"v{new}." in (await client.request("GET", "/version")).decode()
                await create_pods(client, "after")
                placed = await all_placed(client, 3 * BATCH)
                bound = {name: node for name, node in before.items() if node}
                assert (settled | bound).items() <= placed.items(), "a bound pod moved"
                # What was taken at the very end may be missing: the server was killed.
                assert set(bindings(log).values()) == {1}
                assert settled.keys() <= bindings(log).keys() <= placed.keys()
                assert replica.process.poll() is None, "the scheduler ended"
                assert await asyncio.to_thread(replica.terminate) == 0
    finally:
        await asyncio.to_thread(plane.stop)
