"""Edits of the policies' ConfigMap are judged before they are written.

On a real API server with the webhook of the chart, asked by the real kubectl.
"""

import asyncio
import base64
import contextlib
import json
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from devkit.cluster import make_node, make_pod
from engine.app import App
from engine.io.endpoints.server import SecureSettings
from engine.io.endpoints.serving_tls import TlsSettings
from engine.io.kube.config import Endpoint
from engine.io.leader_election import LeaseSettings
from engine.lib.own_address import own_address
from engine.rollout.admission_registration import Registration
from tests.certificates import Authority
from tests.controlplane import ControlPlane
from tests.deploy.chart import render_chart
from tests.deploy.rendering import pick
from tests.engine.app.harness import NAME, NAMESPACE, config_map, namespace, scheduler_at
from tests.scripts import go_program
from tests.waiting import eventually

pytestmark = [pytest.mark.slow("starts a control plane"), pytest.mark.usefixtures("helm")]

KEY: Final = "0123456789abcdefghij"
HOOKS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
MAPS: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
SLICES: Final = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
PREFERS: Final = '''"""Prefers one node."""

def score(pod, node):
    return 100 if node.name == "node-1" else 0
'''
REFUSES: Final = '"""Refuses all."""\n\ndef filter(pod, node):\n    return "not today"\n'
MISSPELT: Final = '"""Has a mistake."""\n\ndef score(pod, node):\n    return len(node.naem)\n'


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    # Services are called by their endpoints: no cluster network leads to their addresses.
    with ControlPlane(apiserver_args=["--enable-aggregator-routing=true"]) as plane:
        yield plane


class Operator:
    """Who edits the policies, by the real kubectl."""

    def __init__(self, plane: ControlPlane, folder: Path, authority: Authority) -> None:
        self.plane = plane
        self.authority = authority
        self.folder = folder
        self.kubeconfig = plane.kubeconfig(folder / "kubeconfig")

    async def kubectl(self, *words: str, given: Any = None) -> tuple[int, str]:
        """The exit code of kubectl, and what it shows."""
        return await asyncio.to_thread(self._kubectl, words, given)

    def _kubectl(self, words: tuple[str, ...], given: Any) -> tuple[int, str]:
        ended = subprocess.run(
            [go_program("kubectl"), f"--kubeconfig={self.kubeconfig}", *words],
            input=None if given is None else json.dumps(given),
            capture_output=True,
            text=True,
            check=False,
            env={"HOME": str(self.folder)},
        )
        return ended.returncode, ended.stdout + ended.stderr

    async def apply(self, files: dict[str, str], *words: str, **more: Any) -> tuple[int, str]:
        """`kubectl apply` of the policies."""
        manifest = config_map(files)
        manifest["metadata"] |= more
        return await self.kubectl(
            "apply", "--server-side", "--force-conflicts", *words, "-f-", given=manifest
        )

    def held(self) -> dict[str, str]:
        """The texts in the cluster."""
        found: dict[str, str] = self.plane.request("GET", f"{MAPS}/{NAME}")["data"]
        return found

    async def install(self, *apps: App, failure_policy: str = "Ignore") -> None:
        """Have the API server ask the replicas, by the chart's configuration.

        Each at an address of its own: no cluster network leads to the Service of the chart.
        """
        values = {
            "existingConfigMap": NAME,
            "webhook": {
                "enabled": True,
                "key": KEY,
                "failurePolicy": failure_policy,
            },
        }
        (hook,) = [
            one
            for one in render_chart(values, namespace=NAMESPACE)
            if one["kind"] == "ValidatingWebhookConfiguration"
        ]
        (asked,) = hook["webhooks"]
        path = asked["clientConfig"]["service"]["path"]
        bundle = base64.b64encode(self.authority.file.read_bytes()).decode()
        hook["webhooks"] = [
            asked
            | {
                "name": f"replica-{number}.{asked['name']}",
                "clientConfig": {
                    "url": f"https://127.0.0.1:{app.surfaces.endpoints.secure_port}{path}",
                    "caBundle": bundle,
                },
            }
            for number, app in enumerate(apps)
        ]
        self.plane.request("POST", HOOKS, hook)
        await eventually(self._is_asked)

    async def _is_asked(self) -> bool:
        """The API server has read the configuration of now: it takes a moment."""
        _, shown = await self.apply({"mine.star": MISSPELT}, "--dry-run=server")
        return "denied the request" in shown


@pytest.fixture
async def operator(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Operator]:
    """In a cluster with a node and policies."""
    plane.create_if_missing("/api/v1/namespaces", namespace())
    plane.create_if_missing("/api/v1/nodes", make_node("node-1"))
    plane.create_if_missing(MAPS, config_map({"mine.star": PREFERS}))
    yield Operator(plane, tmp_path, Authority(tmp_path))
    for path in (HOOKS, MAPS, SLICES, "/api/v1/namespaces/default/pods"):
        plane.request("DELETE", path)


def replica(operator: Operator, **more: Any) -> Any:
    """A scheduler that serves the webhook."""
    certificate, key = operator.authority.issue("127.0.0.1")
    secure = SecureSettings(host="127.0.0.1", tls=TlsSettings(certificate, key))
    endpoint: Endpoint = operator.plane.endpoint()
    return scheduler_at(endpoint, from_config_map=True, secure=secure, admission_key=KEY, **more)


async def test_a_bad_edit_is_denied_and_a_good_one_is_written_with_warnings(
    operator: Operator,
) -> None:
    operator.plane.request("POST", "/api/v1/namespaces/default/pods", make_pod("pod-1"))
    async with replica(operator) as app:
        await eventually(lambda: app.kernel.cache.assumed_count == 0 and app.cache.pod_count == 1)
        await operator.install(app)
        # 1. Denied, with the place and the remedy; nothing is written.
        code, shown = await operator.apply({"mine.star": MISSPELT})
        assert (code, shown.strip()) == (
            1,
            'The request is invalid: admission webhook "replica-0.policies.starsched.dev" denied '
            "the request: it would be rejected (check):\n"
            "mine.star:4:21: `node` has no field `naem`\n"
            "hint: did you mean `name`?",
        )
        assert operator.held() == {"mine.star": PREFERS}
        # 2. Written, with what it takes away; a dry run says the same and writes nothing.
        for words, held in (("--dry-run=server",), PREFERS), ((), REFUSES):
            code, shown = await operator.apply({"mine.star": REFUSES}, *words)
            assert code == 0, shown
            assert "Warning: mine.star:4: `mine` accepts 0 of 1 pod that fitted before" in shown
            assert operator.held() == {"mine.star": held}
        # 3. Edits by others of kubectl's verbs are judged alike.
        patch = json.dumps({"data": {"mine.star": MISSPELT}})
        named = (NAME, f"--namespace={NAMESPACE}")
        code, shown = await operator.kubectl("patch", "configmap", *named, f"--patch={patch}")
        assert (code, "mine.star:4:21" in shown) == (1, True), shown
        # 4. Gone, with a warning.
        code, shown = await operator.kubectl("delete", "configmap", *named)
        assert (code, "Warning: the last good policies stay in force" in shown) == (0, True), shown


async def test_no_other_config_map_is_sent(operator: Operator) -> None:
    async with replica(operator) as app:
        await operator.install(app, failure_policy="Fail")
    # Nothing answers any more, so what is written was not sent.
    for name, place in (("another", NAMESPACE), (NAME, "default"), (f"{NAME}-facts", NAMESPACE)):
        manifest = config_map({"mine.star": MISSPELT})
        manifest["metadata"] = {"name": name, "namespace": place}
        code, shown = await operator.kubectl("apply", "--server-side", "-f-", given=manifest)
        assert code == 0, shown
    code, shown = await operator.apply({"mine.star": PREFERS})
    assert (code, "failed calling webhook" in shown) == (1, True), shown


async def test_an_edit_is_written_unasked_or_not_while_no_replica_answers(
    operator: Operator,
) -> None:
    async with replica(operator) as app:
        await operator.install(app)
    code, shown = await operator.apply({"mine.star": MISSPELT})
    assert (code, operator.held()) == (0, {"mine.star": MISSPELT}), shown


async def test_a_standby_judges_as_well_and_goes_on_alone(operator: Operator) -> None:
    """As in an upgrade: the leader goes, and the other replica is asked."""
    lease = LeaseSettings(namespace=NAMESPACE, name="starsched")
    async with contextlib.AsyncExitStack() as leader_life:
        leader = await leader_life.enter_async_context(
            replica(operator, lease=lease, identity="one")
        )
        async with replica(operator, lease=lease, identity="two", wait=False) as standby:
            await eventually(standby.watching.synced.is_set)
            await operator.install(leader, standby)
            code, shown = await operator.apply({"mine.star": MISSPELT}, "--dry-run=server")
            assert (code, "mine.star:4:21" in shown) == (1, True), shown
            edited = PREFERS.replace("node-1", "node-2")
            code, shown = await operator.apply({"mine.star": edited}, "--dry-run=server")
            assert (code, shown.count("checked by a replica that stands by")) == (0, 1), shown
            await leader_life.aclose()
            await eventually(standby.leadership.leading.is_set)
            code, shown = await operator.apply({"mine.star": MISSPELT}, "--dry-run=server")
            assert (code, "mine.star:4:21" in shown) == (1, True), shown
            code, shown = await operator.apply({"mine.star": edited})
            assert (code, "stands by" in shown) == (0, False), shown


# --- replicas that register themselves -----------------------------------------------------------


def registering(operator: Operator, identity: str, **more: Any) -> Any:
    """A replica that makes its own certificate, as in a pod of the chart."""
    hosts = TlsSettings(hosts=(f"*.{NAMESPACE}.svc",))
    return scheduler_at(
        operator.plane.endpoint(),
        from_config_map=True,
        secure=SecureSettings(host="0.0.0.0", tls=hosts),
        lease=LeaseSettings(namespace=NAMESPACE, name="starsched"),
        identity=identity,
        wait=False,
        **more,
    )


def installed(operator: Operator) -> str:
    """Make the Service and the webhook of the chart; the webhook's name."""
    values = {
        "existingConfigMap": NAME,
        "webhook": {"enabled": True, "selfMade": True, "failurePolicy": "Fail"},
    }
    objects = render_chart(values, namespace=NAMESPACE)
    hook = pick(objects, "ValidatingWebhookConfiguration")
    operator.plane.create_if_missing(
        f"/api/v1/namespaces/{NAMESPACE}/services", pick(objects, "Service", SERVICE)
    )
    operator.plane.request("POST", HOOKS, hook)
    return str(hook["metadata"]["name"])


SERVICE: Final = "starsched-webhook"


async def serve(operator: Operator, identity: str, app: App) -> None:
    """Make the endpoint of a replica, as a controller would once it is ready."""
    await eventually(app.watching.synced.is_set)
    address = own_address("https://192.0.2.1")
    assert address, "want a network interface: the API server calls no loopback address"
    port = {"name": "https", "port": app.surfaces.endpoints.secure_port, "protocol": "TCP"}
    labels = {"kubernetes.io/service-name": SERVICE}
    manifest = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": identity, "labels": labels},
        "addressType": "IPv4",
        "ports": [port],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
    }
    operator.plane.request("POST", SLICES, manifest)


def registered(operator: Operator, name: str) -> tuple[list[str], str]:
    """The certificates that the API server trusts, and the path that it asks at."""
    (hook,) = operator.plane.request("GET", f"{HOOKS}/{name}")["webhooks"]
    called = hook["clientConfig"]
    text = base64.b64decode(called.get("caBundle", "")).decode()
    certificates = re.findall(r"-----BEGIN.+?END CERTIFICATE-----\n", text, re.DOTALL)
    return certificates, called["service"].get("path", "")


@pytest.mark.parametrize("key", ["", KEY], ids=["a key of their own", "a key that was given"])
async def test_replicas_register_themselves_and_each_is_asked(operator: Operator, key: str) -> None:
    """With certificates of their own, by the Service; the Lease names the same certificate."""
    name = installed(operator)
    more = {"admission_webhook": name, "admission_key": key}

    async def all_deny() -> bool:
        """Whichever replica is asked: the API server chooses one by chance."""
        for _ in range(8):
            _, shown = await operator.apply({"mine.star": MISSPELT}, "--dry-run=server")
            if "mine.star:4:21" not in shown:
                return False
        return True

    async with contextlib.AsyncExitStack() as leader_life:
        leader = await leader_life.enter_async_context(registering(operator, "one", **more))
        await eventually(leader.leadership.leading.is_set)
        async with registering(operator, "two", **more) as standby:
            for identity, app in (("one", leader), ("two", standby)):
                await serve(operator, identity, app)
            await eventually(lambda: len(registered(operator, name)[0]) == 2)
            await eventually(all_deny, seconds=60)
            certificates, path = registered(operator, name)
            shown = {app.surfaces.endpoints.certificate for app in (leader, standby)}
            assert set(certificates) == shown
            assert re.fullmatch(f"/admission/{key or '[0-9a-f]{40}'}", path)
            lease = operator.plane.request(
                "GET", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/starsched"
            )
            pinned = lease["metadata"]["annotations"]["starsched.dev/page-certificate"]
            assert pinned == leader.surfaces.endpoints.certificate
            # An upgrade: another replica comes, the leader goes; the key stays.
            async with registering(operator, "three", **more) as newer:
                await serve(operator, "three", newer)
                await eventually(lambda: len(registered(operator, name)[0]) == 3)
                operator.plane.request("DELETE", f"{SLICES}/one")
                await leader_life.aclose()
                await eventually(all_deny, seconds=60)
                assert registered(operator, name)[1] == path


async def test_what_an_upgrade_of_the_manifests_takes_away_is_written_again(
    operator: Operator,
) -> None:
    name = installed(operator)
    certificate, _ = operator.authority.issue("127.0.0.1")
    async with operator.plane.client() as client:
        registration = Registration(client, name, certificate.read_text)
        await registration.ensure()
        before = registered(operator, name)
        hook = operator.plane.request("GET", f"{HOOKS}/{name}")
        hook["webhooks"][0]["clientConfig"].pop("caBundle")
        operator.plane.request("PUT", f"{HOOKS}/{name}", hook)
        await registration.ensure()
        assert registered(operator, name) == before
        assert before[1] == f"/admission/{registration.key}"
