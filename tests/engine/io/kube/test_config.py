"""Where credentials come from, and when they are read again."""

import asyncio
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from engine.io.kube.client import ApiClient
from engine.io.kube.config import (
    REFRESH_SECONDS,
    REJECTED_REFRESH_SECONDS,
    Credentials,
    Endpoint,
    TlsContext,
    cluster_credentials,
    kubeconfig_credentials,
)
from engine.io.kube.errors import KubeConfigError, Unauthorized
from engine.lib.clock import VirtualClock
from tests.certificates import Authority
from tests.controlplane import ControlPlane, kubernetes_minor
from tests.engine.io.kube.faulty_server import FaultyServer, answer, refuse

PLUGIN = """
import json, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
with (folder / "runs").open("a") as file:
    file.write("x")
while (folder / "hang").exists():
    time.sleep(0.01)
status = {"token": (folder / "secret").read_text()}
expiry = folder / "expiry"
if expiry.exists():
    status["expirationTimestamp"] = expiry.read_text()
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                  "status": status}))
"""


def write_config(path: Path, user: dict[str, Any], **cluster: Any) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1", **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u"}},
            {"name": "nobody", "context": {"cluster": "c", "user": "missing"}},
        ],
        "current-context": "one",
    }
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def plugin_user(folder: Path) -> dict[str, Any]:
    script = folder / "plugin.py"
    script.write_text(PLUGIN, encoding="utf-8")
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(script), str(folder)],
            "interactiveMode": "Never",
        }
    }


def plugin_runs(folder: Path) -> int:
    return len((folder / "runs").read_text())


@pytest.fixture
def service_account(tmp_path: Path, control_plane: ControlPlane) -> Path:
    """The files that a kubelet mounts into a pod."""
    shutil.copy(control_plane.ca_file, tmp_path / "ca.crt")
    (tmp_path / "token").write_text("first\n", encoding="utf-8")
    return tmp_path


async def test_a_token_of_a_kubeconfig_is_sent_without_its_newline(tmp_path: Path) -> None:
    path = write_config(tmp_path / "config", {"token": "secret-1\n"})
    credentials = await kubeconfig_credentials(path)
    assert await credentials.authorization() == "Bearer secret-1"
    assert "secret-1" not in repr(credentials)
    assert "secret-1" not in repr(credentials.endpoint)


async def test_a_token_file_is_preferred_to_a_token(tmp_path: Path) -> None:
    """The token beside it is the one of the day when the kubeconfig was written."""
    token = tmp_path / "token"
    path = write_config(tmp_path / "config", {"tokenFile": "token", "token": "old"})
    assert await (await kubeconfig_credentials(path)).authorization() == "Bearer old"
    token.write_text("first\n", encoding="utf-8")
    clock = VirtualClock()
    credentials = await kubeconfig_credentials(path, clock=clock)
    assert await credentials.authorization() == "Bearer first"
    token.write_text("second\n", encoding="utf-8")
    clock.advance(REFRESH_SECONDS)
    assert await credentials.authorization() == "Bearer second"


async def test_another_context_is_chosen_by_name(tmp_path: Path) -> None:
    path = write_config(tmp_path / "config", {"token": "secret-1"})
    credentials = await kubeconfig_credentials(path, "nobody")
    assert await credentials.authorization() is None


async def test_the_environment_names_the_default_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_config(tmp_path / "config", {"token": "secret-1"})
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'absent'}:{path}")
    assert await (await kubeconfig_credentials()).authorization() == "Bearer secret-1"


@pytest.mark.parametrize(
    ("text", "context", "want"),
    [
        pytest.param(None, None, "no such file", id="absent"),
        pytest.param("", None, "kubeconfig", id="empty"),
        pytest.param("[]", None, "kubeconfig", id="a list"),
        pytest.param("{a: b", None, "kubeconfig", id="no YAML"),
        pytest.param("kind: Config", None, "kubeconfig", id="nothing in it"),
        pytest.param("", None, "want an object with lists of `clusters`", id="no object"),
        pytest.param("a", None, "want an object with lists of `clusters`", id="a text"),
        pytest.param(
            "{clusters: 5, contexts: 4, current-context: a, users: 3}",
            None,
            "want an object with lists of `clusters`",
            id="no lists",
        ),
        pytest.param("a: 1\nb: [\n", None, "not YAML, see line 3", id="not closed"),
        pytest.param("ÿ".encode("latin1"), None, "want UTF-8 text, got other bytes", id="bytes"),
        pytest.param("ok", "other", "other", id="unknown context"),
    ],
)
async def test_a_useless_kubeconfig_is_named(
    text: str | bytes | None, context: str | None, want: str, tmp_path: Path
) -> None:
    path = tmp_path / "config"
    if text == "ok":
        write_config(path, {"token": "t"})
    elif text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(KubeConfigError, match=want) as caught:
        await kubeconfig_credentials(path, context)
    assert str(path) in str(caught.value)


async def test_a_kubeconfig_that_cannot_be_looked_for_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One in a folder that is closed to the user ended the process with a traceback."""
    monkeypatch.setenv("KUBECONFIG", "a" * 300)
    with pytest.raises(KubeConfigError, match=r"kubeconfig.* aaa"):
        await kubeconfig_credentials()


async def test_a_kubeconfig_with_data_says_what_to_do_where_nothing_is_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = base64.b64encode(bytes(tmp_path)).decode()
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority-data": data}
    path = write_config(tmp_path / "config", {}, **cluster)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    with pytest.raises(KubeConfigError, match=r"no directory is writable .*\nhint: mount a /tmp"):
        await kubeconfig_credentials(path)


_HOMELESS = """
import asyncio, os, pwd

def nobody(uid):
    raise KeyError(uid)

pwd.getpwuid = nobody
os.environ.pop("HOME", None)
os.environ.pop("KUBECONFIG", None)
from engine.io.kube.config import cluster_credentials, kubeconfig_credentials
from engine.io.kube.errors import KubeConfigError

try:
    asyncio.run(kubeconfig_credentials())
except KubeConfigError as error:
    print(error)
try:
    cluster_credentials()
except KubeConfigError as error:
    print(error)
"""


def test_a_user_without_a_home_learns_what_is_missing_or_needs_none() -> None:
    """A numeric user without `$HOME` got a traceback, even in a pod, which reads none of it."""
    ended = subprocess.run(
        [sys.executable, "-c", _HOMELESS], capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.stderr == ""
    no_file, not_in_a_cluster = ended.stdout.splitlines()
    assert no_file.startswith("kubeconfig: no such file: ")
    assert not_in_a_cluster.startswith("not in a cluster: ")


@pytest.mark.parametrize(
    "user",
    [
        pytest.param({"token": "s3cret"}, id="token in the wrong place"),
        pytest.param(
            {"user": {"auth-provider": {"name": "oidc", "config": {"refresh-token": "s3cret"}}}},
            id="incomplete provider",
        ),
        pytest.param(
            {"user": {"exec": {"env": [{"name": "PASSWORD", "value": "s3cret"}]}}},
            id="plugin without a command",
        ),
    ],
)
async def test_an_error_in_a_kubeconfig_does_not_quote_its_secrets(
    user: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_config(tmp_path / "config", {})
    config = yaml.safe_load(path.read_text())
    config["users"] = [{"name": "u", **user}]
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    with pytest.raises(KubeConfigError) as caught:
        await kubeconfig_credentials(path)
    text = "".join(traceback.format_exception(caught.value))
    assert "s3cret" not in text + caplog.text


async def test_a_plugin_that_fails_is_a_configuration_error(tmp_path: Path) -> None:
    path = write_config(tmp_path / "config", plugin_user(tmp_path))  # it finds no secret to print
    with pytest.raises(KubeConfigError, match="the exec plugin gave no credential"):
        await kubeconfig_credentials(path)


async def test_a_token_file_is_read_again_when_old(tmp_path: Path) -> None:
    clock = VirtualClock()
    token = tmp_path / "token"
    token.write_text("first\n", encoding="utf-8")
    path = write_config(tmp_path / "config", {"tokenFile": str(token)})
    credentials = await kubeconfig_credentials(path, clock=clock)

    token.write_text("second\n", encoding="utf-8")
    assert await credentials.authorization() == "Bearer first"
    clock.advance(REFRESH_SECONDS)
    assert await credentials.authorization() == "Bearer second"


async def test_a_plugin_runs_again_when_its_token_is_about_to_expire(tmp_path: Path) -> None:
    clock = VirtualClock()
    (tmp_path / "secret").write_text("first")
    (tmp_path / "expiry").write_text("2020-01-01T00:00:00Z")
    path = write_config(tmp_path / "config", plugin_user(tmp_path))
    credentials = await kubeconfig_credentials(path, clock=clock)
    assert await credentials.authorization() == "Bearer first"

    (tmp_path / "secret").write_text("second")
    clock.advance(REFRESH_SECONDS)
    assert await credentials.authorization() == "Bearer second"


@pytest.mark.parametrize("expiry", [None, "2999-01-01T00:00:00Z"], ids=["no expiry", "far expiry"])
async def test_a_plugin_runs_again_once_when_its_token_is_rejected(
    expiry: str | None, tmp_path: Path
) -> None:
    clock = VirtualClock()
    (tmp_path / "secret").write_text("first")
    if expiry:
        (tmp_path / "expiry").write_text(expiry)
    path = write_config(tmp_path / "config", plugin_user(tmp_path))
    credentials = await kubeconfig_credentials(path, clock=clock)
    clock.advance(REFRESH_SECONDS)
    assert await credentials.authorization() == "Bearer first"
    assert plugin_runs(tmp_path) == 1

    (tmp_path / "secret").write_text("second")
    clock.advance(REJECTED_REFRESH_SECONDS)
    got = await asyncio.gather(
        *(credentials.authorization(rejected="Bearer first") for _ in range(10))
    )
    assert set(got) == {"Bearer second"}
    assert plugin_runs(tmp_path) == 2


async def test_a_plugin_that_keeps_being_rejected_does_not_run_for_every_request(
    tmp_path: Path,
) -> None:
    clock = VirtualClock()
    (tmp_path / "secret").write_text("bad")
    path = write_config(tmp_path / "config", plugin_user(tmp_path))
    credentials = await kubeconfig_credentials(path, clock=clock)
    clock.advance(REJECTED_REFRESH_SECONDS)
    for _ in range(5):
        await credentials.authorization(rejected="Bearer bad")
    assert plugin_runs(tmp_path) == 2


async def old_credentials_of_a_plugin_that_hangs(tmp_path: Path, patience: float) -> Credentials:
    """They say `first` and are due; the plugin hangs until the file `hang` is gone."""
    clock = VirtualClock()
    (tmp_path / "secret").write_text("first")
    (tmp_path / "expiry").write_text("2020-01-01T00:00:00Z")
    path = write_config(tmp_path / "config", plugin_user(tmp_path))
    credentials = await kubeconfig_credentials(path, clock=clock, patience=patience)
    (tmp_path / "hang").touch()
    clock.advance(REFRESH_SECONDS)
    return credentials


async def test_a_plugin_that_hangs_keeps_requests_waiting_for_a_while_only(
    tmp_path: Path,
) -> None:
    """The request that found the credential old, and all that were rejected, waited for ever."""
    credentials = await old_credentials_of_a_plugin_that_hangs(tmp_path, patience=0.2)
    (tmp_path / "secret").write_text("second")
    assert await credentials.authorization() == "Bearer first"
    assert not credentials.is_due
    assert await credentials.authorization(rejected="Bearer first") == "Bearer first"
    (tmp_path / "hang").unlink()
    async with asyncio.timeout(20):
        while credentials.header == "Bearer first":
            await credentials.authorization(rejected="Bearer first")
    assert credentials.header == "Bearer second"
    assert plugin_runs(tmp_path) == 2


async def test_a_rejected_request_waits_for_a_hanging_plugin_once(tmp_path: Path) -> None:
    """It waited for the refresh that was under way, and then for the same one again."""
    credentials = await old_credentials_of_a_plugin_that_hangs(tmp_path, patience=1.5)
    await credentials.authorization()
    began = asyncio.get_running_loop().time()
    await credentials.authorization(rejected="Bearer first")
    assert asyncio.get_running_loop().time() - began < 2.8
    (tmp_path / "secret").write_text("second")
    (tmp_path / "hang").unlink()
    async with asyncio.timeout(20):
        while credentials.header == "Bearer first":
            await credentials.authorization(rejected="Bearer first")


async def test_a_rejected_token_is_tried_once_more_if_it_changed(tmp_path: Path) -> None:
    clock = VirtualClock()
    token = tmp_path / "token"
    token.write_text("first", encoding="utf-8")
    steps = [refuse(401, "Unauthorized"), answer(200, b"ok"), refuse(401, "Unauthorized")]
    async with FaultyServer(*steps) as server:
        path = write_config(tmp_path / "config", {"tokenFile": str(token)}, server=server.url)
        credentials = await kubeconfig_credentials(path, clock=clock)
        async with ApiClient(credentials) as client:
            token.write_text("second", encoding="utf-8")
            clock.advance(REJECTED_REFRESH_SECONDS)
            assert await client.request("POST", "/x", body=b"{}") == b"ok"
            clock.advance(REJECTED_REFRESH_SECONDS)
            with pytest.raises(Unauthorized):  # the same token again: not sent twice
                await client.request("GET", "/x")
    sent = [request.headers["Authorization"] for request in server.requests]
    assert sent == ["Bearer first", "Bearer second", "Bearer second"]


@pytest.mark.parametrize("text", ["", "\n", "sec\nond", "\0\0\0\0"])
async def test_what_is_no_token_costs_nothing(tmp_path: Path, text: str) -> None:
    """A blank file took the credential away; zeros, as a lost write leaves them, the process."""
    clock = VirtualClock()
    token = tmp_path / "token"
    token.write_text("first\n", encoding="utf-8")
    path = write_config(tmp_path / "config", {"tokenFile": str(token)})
    credentials = await kubeconfig_credentials(path, clock=clock)

    token.write_text(text, encoding="utf-8")
    clock.advance(REFRESH_SECONDS)
    assert await credentials.authorization() == "Bearer first"
    token.write_text("second\n", encoding="utf-8")
    clock.advance(REFRESH_SECONDS)
    assert await credentials.authorization() == "Bearer second"


async def test_in_cluster_files_are_read_again(service_account: Path) -> None:
    clock = VirtualClock()
    environ = {"KUBERNETES_SERVICE_HOST": "::1", "KUBERNETES_SERVICE_PORT": "443"}
    credentials = cluster_credentials(service_account, environ=environ, clock=clock)
    assert credentials.endpoint.server == "https://[::1]:443"
    assert credentials.endpoint.ca_file == str(service_account / "ca.crt")
    assert await credentials.authorization() == "Bearer first"

    (service_account / "token").write_text("second", encoding="utf-8")
    clock.advance(REFRESH_SECONDS)
    assert await credentials.authorization() == "Bearer second"


async def test_a_token_file_that_vanishes_costs_nothing(service_account: Path) -> None:
    """A kubelet swaps the mounted files; a reader may meet the gap."""
    clock = VirtualClock()
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    credentials = cluster_credentials(service_account, environ=environ, clock=clock)
    for text in (None, ""):
        if text is None:
            (service_account / "token").unlink()
        else:
            (service_account / "token").write_text(text, encoding="utf-8")
        clock.advance(REFRESH_SECONDS)
        with structlog.testing.capture_logs() as logs:
            assert await credentials.authorization() == "Bearer first"
        assert [entry["event"] for entry in logs] == ["Could not refresh credentials"]
        assert "first" not in json.dumps(logs)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda folder, environ: environ.clear(), id="no variables"),
        pytest.param(lambda folder, environ: (folder / "token").unlink(), id="no token"),
        pytest.param(lambda folder, environ: (folder / "token").write_text(""), id="empty token"),
        pytest.param(lambda folder, environ: (folder / "ca.crt").unlink(), id="no authority"),
    ],
)
def test_outside_of_a_cluster_is_named(
    spoil: Callable[[Path, dict[str, str]], object], service_account: Path
) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    spoil(service_account, environ)
    with pytest.raises(KubeConfigError, match="not in a cluster: "):
        cluster_credentials(service_account, environ=environ)


async def test_a_pods_client_works_with_a_minted_token(
    service_account: Path, control_plane: ControlPlane
) -> None:
    token = control_plane.service_account_token("default", "in-cluster")
    (service_account / "token").write_text(token, encoding="utf-8")
    host, port = control_plane.url.removeprefix("https://").split(":")
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    async with ApiClient(cluster_credentials(service_account, environ=environ)) as client:
        answer = await client.request(
            "POST",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            body=b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}',
        )
    user = json.loads(answer)["status"]["userInfo"]["username"]
    assert user == "system:serviceaccount:default:in-cluster"


async def test_a_kubeconfig_of_the_real_server_works(
    tmp_path: Path, control_plane: ControlPlane
) -> None:
    path = control_plane.kubeconfig(tmp_path / "config")
    async with await ApiClient.from_kubeconfig(path) as client:
        version = json.loads(await client.request("GET", "/version"))["gitVersion"]
    assert version.startswith(f"v{kubernetes_minor()}.")


@pytest.mark.parametrize(
    ("endpoint", "want"),
    [
        pytest.param({"ca_file": "/no/such/file"}, "certificate authority", id="no file"),
        pytest.param({"ca_data": "no PEM"}, "certificate authority", id="no PEM"),
        pytest.param({"cert_file": "/no/such/cert"}, "client certificate", id="no certificate"),
    ],
)
def test_tls_files_that_cannot_be_read_are_named(endpoint: dict[str, str], want: str) -> None:
    with pytest.raises(KubeConfigError, match=want):
        TlsContext(Endpoint(server="https://127.0.0.1:6443", **endpoint))  # type: ignore[arg-type]


def test_a_key_that_takes_a_passphrase_is_refused(tmp_path: Path) -> None:
    """OpenSSL asked for it on the terminal, and waited."""
    cert, key = Authority(tmp_path).issue_encrypted("user@example.com")
    endpoint = Endpoint(server="https://host", cert_file=str(cert), key_file=str(key))
    with pytest.raises(KubeConfigError, match=r"client certificate .*the private key is encrypted"):
        TlsContext(endpoint)


def test_a_certificate_that_cannot_be_loaded_is_reported_once(
    tmp_path: Path, control_plane: ControlPlane
) -> None:
    """Files are looked at once a second while there are requests."""
    trusted = Path(shutil.copy(control_plane.ca_file, tmp_path))
    endpoint = Endpoint(server="https://host", ca_file=str(trusted))
    tls = TlsContext(endpoint)
    reported = []
    for number in (1, 2):
        trusted.write_text("half", encoding="utf-8")
        os.utime(trusted, ns=(number, number))
        with structlog.testing.capture_logs() as logs:
            tls.follow(endpoint)
            tls.follow(endpoint)
        reported += [entry["event"] for entry in logs]
    assert reported == ["Could not reload the certificate authority"] * 2


def test_a_client_certificate_is_loaded_again_when_its_file_changes(
    tmp_path: Path, control_plane: ControlPlane
) -> None:
    """The server's own pair serves as one; a half-written renewal keeps the old."""
    folder = control_plane.ca_file.parent
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    shutil.copy(folder / "apiserver.crt", cert)
    shutil.copy(folder / "apiserver.key", key)
    endpoint = Endpoint(server="https://host", cert_file=str(cert), key_file=str(key))
    tls = TlsContext(endpoint)
    cert.write_text("half", encoding="utf-8")
    with structlog.testing.capture_logs() as logs:
        tls.follow(endpoint)
    assert [entry["event"] for entry in logs] == ["Could not reload the client certificate"]
    shutil.copy(folder / "apiserver.crt", cert)
    with structlog.testing.capture_logs() as logs:
        tls.follow(endpoint)
        tls.follow(endpoint)
    assert logs == []
