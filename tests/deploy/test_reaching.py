"""`kubectl starsched` and the page, where there is but the secure port: kubeadm's static pod.

The API server and its reviews of tokens and rights are real, and so is the browser. The scheduler
listens on the loopback device, and has kube-scheduler's credentials and lease; the kubelet's
port-forwarding is ours.
"""

import asyncio
import base64
import contextlib
import datetime
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import pytest_asyncio
import yaml
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils
from playwright.async_api import Browser, expect

from tests.browser import running_browser, visiting
from tests.certificates import Authority
from tests.controlplane import ControlPlane
from tests.deploy.rendering import DEPLOY
from tests.deploy.scheduler_process import node, pod
from tests.engine.surfaces.live.forwarding import kubelet
from tests.waiting import wait_until
from workbench.cli.kubectl_plugin import main as kubectl_starsched

pytestmark = [
    pytest.mark.slow("starts a control plane, a scheduler and a browser"),
    pytest.mark.kubernetes("1.37"),
    pytest.mark.asyncio(loop_scope="module"),
    # A WebSocket in TLS waits for the other side's end of it; a command's loop may end before.
    pytest.mark.filterwarnings("ignore:unclosed resource:ResourceWarning"),
]

TOKEN: Final = "of-the-scheduler"
USER: Final = "of-a-user"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
PODS: Final = "/api/v1/namespaces/default/pods"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
PLUGIN: Final = "from workbench.cli.kubectl_plugin import main; main()"


@dataclass
class World:
    """A control plane with a scheduler that leads, and what stands on its node."""

    plane: ControlPlane
    folder: Path
    clients: Authority
    port: int
    #: Ports of the node that the kubelet forwards to: the secure one alone.
    ports: dict[int, int] = field(default_factory=dict)

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def kubeconfig(self, name: str, user: dict[str, Any]) -> Path:
        """A kubeconfig of *user*."""
        path = self.plane.kubeconfig(self.folder / name)
        document = yaml.safe_load(path.read_text())
        document["users"][0]["user"] = user
        path.write_text(yaml.safe_dump(document))
        return path

    def of_token(self, token: str) -> Path:
        return self.kubeconfig("of-a-token", {"token": token})

    def of_admin(self) -> Path:
        """As kubeadm's `admin.conf`: a client certificate, and no token."""
        certificate, key = self.clients.issue(
            "a@example.com", common_name="kubernetes-admin", organization_name="system:masters"
        )
        user = {"client-certificate": str(certificate), "client-key": str(key)}
        return self.kubeconfig("admin.conf", user)

    def bind(self, role: str, kind: str, subject: dict[str, Any], namespace: str = "") -> None:
        """Bind *subject* to a ClusterRole of `readers.yaml`, or to `LISTER`."""
        roles = yaml.safe_load_all((DEPLOY / "base" / "readers.yaml").read_text())
        for one in (*roles, LISTER):
            self.plane.create_if_missing(f"{RBAC}/clusterroles", one)
        folder = f"{RBAC}/namespaces/{namespace}" if namespace else RBAC
        self.plane.create_if_missing(
            f"{folder}/{kind.lower()}s",
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": f"{role}-{subject['name']}"},
                "subjects": [subject],
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": role,
                },
            },
        )


#: As `view`, whose rules a controller adds up that no test has.
LISTER: Final = {
    "metadata": {"name": "pod-lister"},
    "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
}


def account(name: str) -> dict[str, Any]:
    return {"kind": "ServiceAccount", "namespace": "kube-system", "name": name}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("reaching")
    clients = Authority(folder)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    users = {TOKEN: "system:kube-scheduler", USER: "a-user"}
    arguments = [f"--client-ca-file={clients.file}"]
    with ControlPlane(users=users, apiserver_args=arguments) as plane:
        made = World(plane, folder, clients, port, {port: port})
        plane.request("POST", "/api/v1/nodes", node("n1"))
        plane.request("POST", PODS, pod("never", "default-scheduler", cpu="999"))
        kubeconfig = plane.kubeconfig(folder / "scheduler.conf", TOKEN)
        names = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        command = [sys.executable, "-m", "workbench.cli.main", "run"]
        command += [f"--{name}={kubeconfig}" for name in names]
        command += ["--leader-elect-resource-name=kube-scheduler"]
        command += ["--bind-address=127.0.0.1", f"--secure-port={port}", "--leader-elect=true"]
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(command, stderr=log, env=kept)
        try:
            wait_until(
                lambda: process.poll() is not None or "starsched.dev/page" in lease_text(plane),
                seconds=240,
                what="a leader",
            )
            assert process.poll() is None, (folder / "log").read_text()
            yield made
        finally:
            process.kill()
            process.wait()


def lease_text(plane: ControlPlane) -> str:
    return json.dumps(plane.request("GET", LEASES))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def on_the_node(world: World) -> AsyncIterator[World]:
    """The world with a kubelet, and the mirror pod of the static pod."""
    files = Authority(world.folder).issue("127.0.0.1")
    async with kubelet(*files, world.ports) as port:
        name = socket.gethostname().lower()
        machine = node(name)
        machine["status"] |= {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        mirror = pod(f"kube-scheduler-{name}", "default-scheduler")
        mirror["metadata"]["namespace"] = "kube-system"
        mirror["spec"]["nodeName"] = name
        for path, manifest in (
            ("/api/v1/nodes", machine),
            ("/api/v1/namespaces/kube-system/pods", mirror),
        ):
            await asyncio.to_thread(world.plane.create_if_missing, path, manifest)
        yield world


async def run(kubeconfig: Path, *words: str) -> Result:
    arguments = [*words, f"--kubeconfig={kubeconfig}"]
    return await asyncio.to_thread(CliRunner().invoke, kubectl_starsched, arguments)


async def let(world: World, role: str, kind: str, subject: dict[str, Any], where: str = "") -> None:
    await asyncio.to_thread(world.bind, role, kind, subject, where)


async def token_of(world: World, name: str) -> str:
    return await asyncio.to_thread(world.plane.service_account_token, "kube-system", name)


async def with_account(world: World) -> None:
    """Let the user ask as the ServiceAccount `starsched-page`, as docs/live.md says."""
    await token_of(world, "starsched-page")
    for role in ("starsched-viewer", "pod-lister"):
        await let(world, role, "ClusterRoleBinding", account("starsched-page"))
    user = {"kind": "User", "name": "a-user"}
    await let(world, "starsched-page-user", "RoleBinding", user, "kube-system")


async def until_it_says(kubeconfig: Path, text: str, *words: str) -> Result:
    """The first answer with *text*: a right that was just given is known a little later."""
    result = None
    try:
        async with asyncio.timeout(30):
            while True:
                result = await run(kubeconfig, *words)
                if text in result.output:
                    return result
    except TimeoutError:
        raise AssertionError(result and result.output) from None


async def test_an_administrator_needs_no_option(on_the_node: World) -> None:
    """By the client certificate, through the kubelet, known by the certificate in the Lease."""
    kubeconfig = on_the_node.of_admin()
    result = await run(kubeconfig, "queue", "-A")
    assert result.exit_code == 0, result.output
    assert "never" in result.stdout
    assert "InsufficientResources" in result.stdout
    assert result.stderr == ""
    result = await run(kubeconfig, "explain", "never")
    assert (result.exit_code, "default/never fits nowhere" in result.stdout) == (3, True)
    result = await run(kubeconfig, "whatif", "add-nodes", "2", "--like=n1", "--output=json")
    assert result.exit_code == 3, result.output
    answer = json.loads(result.stdout)
    assert (len(answer["added"]), answer["counts"]["start"]) == (2, 0)
    (waits,) = (one for one in answer["wait"] if one["pod"] == "default/never")
    # Two nodes more than there are, each of which lacks cpu.
    assert "Insufficient cpu" in waits["message"]
    assert waits["token"] == "InsufficientResources"


async def test_rights_that_lack_are_named(on_the_node: World) -> None:
    world = on_the_node
    result = await run(world.of_token(USER), "queue", "-A")
    assert result.exit_code == 1
    assert 'cannot get resource "leases"' in result.output
    await let(
        world,
        "starsched-page-user",
        "RoleBinding",
        {"kind": "User", "name": "a-user"},
        "kube-system",
    )
    result = await until_it_says(world.of_token(USER), "`pods/portforward` in namespace", "queue")
    assert "hint: --server https://HOST:10259" in result.output
    named = await run(world.of_token(USER), "queue", "-A", f"--server={world.server}")
    assert named.exit_code == 1
    assert 'User "a-user" cannot get path "/queue"' in named.output
    assert "hint: the ClusterRole `starsched-viewer` has this right" in named.output


async def test_a_user_asks_as_a_service_account(on_the_node: World) -> None:
    world = on_the_node
    await token_of(world, "other")
    await with_account(world)
    kubeconfig = world.of_token(USER)
    words = ("queue", "-A", f"--server={world.server}")
    page = "--service-account=kube-system/starsched-page"
    result = await until_it_says(kubeconfig, "never", *words, page)
    assert result.stderr == ""
    result = await run(kubeconfig, *words, "--service-account=kube-system/other")
    assert result.exit_code == 1
    assert 'cannot create resource "serviceaccounts/token"' in result.output
    result = await run(kubeconfig, *words, "--service-account=starsched-page")
    assert result.exit_code == 2
    assert "want NAMESPACE/NAME, got `starsched-page`" in result.output


async def test_the_server_has_to_prove_that_it_is_the_schedulers(
    on_the_node: World, tmp_path: Path
) -> None:
    world = on_the_node
    kubeconfig = world.of_admin()
    words = ("queue", "-A", f"--server={world.server}")
    other = Authority(tmp_path).file
    result = await run(kubeconfig, *words, f"--certificate-authority={other}")
    assert result.exit_code == 1
    assert f"the certificate of {world.server} is not trusted" in result.output
    assert "hint: name its authority with --certificate-authority FILE" in result.output
    result = await run(
        kubeconfig, *words, f"--certificate-authority={other}", "--insecure-skip-tls-verify"
    )
    assert result.exit_code == 2
    result = await run(kubeconfig, *words, "--insecure-skip-tls-verify")
    assert result.exit_code == 0
    assert "warning: the certificate of the scheduler is not verified" in result.stderr
    # Its own certificate has the loopback address in it, as one of a cluster's authority would.
    lease = await asyncio.to_thread(world.plane.request, "GET", f"{LEASES}/kube-scheduler")
    pem = lease["metadata"]["annotations"]["starsched.dev/page-certificate"]
    await asyncio.to_thread(
        world.plane.create_if_missing,
        "/api/v1/namespaces/kube-system/configmaps",
        {"metadata": {"name": "starsched-ca"}, "data": {"ca.crt": pem}},
    )
    result = await run(kubeconfig, *words, "--ca-configmap=kube-system/starsched-ca")
    assert result.exit_code == 0, result.output
    result = await run(kubeconfig, *words, "--ca-configmap=kube-system/starsched-ca/tls.crt")
    assert "want the key `tls.crt`, it has `ca.crt`" in result.output
    # Where the Lease leads, another server with a certificate of its own is not believed.
    files = Authority(tmp_path).issue("127.0.0.1", "localhost")
    async with kubelet(*files, world.port) as impostor:
        world.ports[world.port] = impostor
        try:
            result = await run(kubeconfig, "queue", "-A")
        finally:
            world.ports[world.port] = world.port
    assert result.exit_code == 1
    assert "is not trusted" in result.output


async def test_a_token_that_has_run_out_is_said_so(on_the_node: World, tmp_path: Path) -> None:
    world = on_the_node
    token = expired(await token_of(world, "starsched-page"), world.plane)
    result = await run(
        world.of_token(token), "queue", f"--server={world.server}", "--insecure-skip-tls-verify"
    )
    assert result.exit_code == 1
    assert "the secure port answers 401: Unauthorized" in result.output
    assert "or they have run out" in result.output
    assert token not in result.output


def expired(token: str, plane: ControlPlane) -> str:
    """*token*, an hour older, signed by the API server's key."""
    head, body, _ = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    for key in ("iat", "nbf", "exp"):
        claims[key] -= int(datetime.timedelta(hours=2).total_seconds())
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    pem = (plane.directory / "service-account.key").read_bytes()
    signer = serialization.load_pem_private_key(pem, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    numbers = utils.decode_dss_signature(
        signer.sign(f"{head}.{body}".encode(), ec.ECDSA(hashes.SHA256()))
    )
    signature = b"".join(number.to_bytes(32, "big") for number in numbers)
    return f"{head}.{body}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


async def test_without_a_leader_that_is_said(on_the_node: World) -> None:
    world = on_the_node
    kubeconfig = world.of_admin()
    result = await run(kubeconfig, "queue", "--lease=kube-system/none")
    assert result.exit_code == 1
    assert "no Lease `kube-system/none`: no scheduler leads" in result.output
    spec = {"holderIdentity": "", "leaseDurationSeconds": 1}
    await asyncio.to_thread(
        world.plane.create_if_missing, LEASES, {"metadata": {"name": "idle"}, "spec": spec}
    )
    for command in ("queue", "ui"):
        result = await run(kubeconfig, command, "--lease=kube-system/idle")
        assert result.exit_code == 1
        assert "no scheduler leads: the Lease `kube-system/idle` has no holder" in result.output
        assert "hint: see `kubectl get leases -A`" in result.output


# --- the page --------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def page(kubeconfig: Path, *words: str) -> AsyncIterator[str]:
    """The address that `kubectl starsched ui` prints, for as long as it runs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PLUGIN, "ui", f"--kubeconfig={kubeconfig}", *words),
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            line = (await process.stdout.readline()).decode()
        assert line.startswith("The page is at http://127.0.0.1:"), line
        yield line.split()[-1]
    finally:
        process.terminate()
        assert await process.wait() == 0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with running_browser() as browser:
        yield browser


async def test_the_page_is_live_in_a_browser(on_the_node: World, browser: Browser) -> None:
    world = on_the_node
    async with page(world.of_admin()) as address, visiting(browser) as visit:
        await visit.page.goto(address)
        await expect(visit.page.locator("tbody")).to_contain_text("never")
        assert "token" not in visit.page.url
        late = pod("late", "default-scheduler", cpu="888")
        await asyncio.to_thread(world.plane.request, "POST", PODS, late)
        await expect(visit.page.locator("tbody")).to_contain_text("late")
        row = visit.page.locator("tbody").get_by_role("link", name=re.compile("late|never"))
        await row.first.click()
        await expect(visit.page.locator(".verdict")).to_contain_text("unschedulable")
        (cookie,) = await visit.page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert cookie["value"] not in address
        assert visit.complaints == []


async def test_the_page_is_for_the_browser_that_has_its_secret_alone(
    on_the_node: World, browser: Browser
) -> None:
    async with page(on_the_node.of_admin()) as address, aiohttp.ClientSession() as session:
        base, _, query = address.partition("/?")
        host = base.removeprefix("http://")
        async with session.get(address) as answer:
            cookie = answer.headers["Set-Cookie"].partition(";")[0]
        for method, path, headers, want in (
            ("GET", "/queue", {}, 403),
            ("GET", "/queue", {"Cookie": "starsched-ui=x"}, 403),
            ("GET", "/?token=wrong", {}, 403),
            ("GET", "/queue", {"Cookie": cookie}, 200),
            ("HEAD", "/queue", {"Cookie": cookie}, 200),
            ("POST", "/queue", {"Cookie": cookie}, 405),
            ("POST", f"/?{query}", {}, 405),
            ("GET", "/queue", {"Cookie": cookie, "Host": "evil.example"}, 421),
            ("GET", f"/?{query}", {"Host": f"evil.example:{host.split(':')[1]}"}, 421),
            ("GET", "/queue", {"Cookie": cookie, "Origin": "http://evil.example"}, 403),
            ("GET", "/queue", {"Cookie": cookie, "Origin": f"http://{host}"}, 200),
            ("GET", "/queue", {"Cookie": cookie, "Sec-Fetch-Site": "same-site"}, 403),
            ("GET", "/queue", {"Cookie": cookie, "Sec-Fetch-Site": "cross-site"}, 403),
        ):
            async with session.request(method, base + path, headers=headers) as answer:
                text = await answer.text()
                assert answer.status == want, (method, path, headers)
                assert want == 200 or "never" not in text
        reader, writer = await asyncio.open_connection(*host.split(":"))
        writer.write(
            f"GET @evil.example/ HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n".encode()
        )
        assert b" 400 " in await reader.readline()
        writer.close()
        # A page of another origin gets nothing by having the browser ask, cookie or no cookie.
        async with visiting(browser) as visit:
            await visit.page.goto(address)
            await expect(visit.page.locator("tbody")).to_contain_text("never")
            await visit.page.goto("data:text/html,<title>evil</title>")
            await visit.page.set_content(
                f'<img src="{base}/static/0/mark.svg"><iframe src="{base}/queue"></iframe>'
            )
            await expect(visit.page.frame_locator("iframe").locator("body")).not_to_contain_text(
                "never"
            )


async def test_the_page_of_a_service_account(on_the_node: World, browser: Browser) -> None:
    world = on_the_node
    await with_account(world)
    words = (f"--server={world.server}", "--service-account=kube-system/starsched-page")
    kubeconfig = world.of_token(USER)
    await until_it_says(kubeconfig, "never", "queue", "-A", *words)
    async with page(kubeconfig, *words) as address, visiting(browser) as visit:
        await visit.page.goto(address)
        await expect(visit.page.locator("tbody")).to_contain_text("never")
        assert visit.complaints == []
