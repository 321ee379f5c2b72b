"""The real control plane for tests and benchmarks: etcd and kube-apiserver as child processes.

Owns starting, stopping, breaking and talking to the two servers. Needs no pytest: the fixtures
are in `conftest.py`. The servers listen on free loopback ports with TLS (the API server makes its
own authority), RBAC, a static admin token and ServiceAccount tokens; there are no controllers and
no kubelets, so tests write nodes and pod status themselves. The children die with this process.
"""

import atexit
import base64
import concurrent.futures
import contextlib
import ctypes
import functools
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from tests.scripts import script
from tests.waiting import wait_until

START_SECONDS = 60.0
#: The minor versions of Kubernetes that are supported, oldest first, and the newest of them.
MINORS: list[str] = script("devkit/controlplane/build.py").MINORS
NEWEST: str = MINORS[-1]
#: The version of PodGroup that is served on request, by the first minor version that does.
_GROUP_VERSIONS: Final = {"1.36": "v1alpha2", "1.37": "v1beta1"}
#: The argument that turns groups of pods on, of kube-apiserver and of kube-scheduler.
GROUPS_GATE: Final = "--feature-gates=GenericWorkload=true"

_PR_SET_PDEATHSIG = 1


class ControlPlaneError(Exception):
    """A server did not start, or refused; the message ends with its log."""


class ControlPlane:
    """One etcd and one kube-apiserver with their own data.

    `new --start()--> running --kill_apiserver()--> broken --restart_apiserver()--> running`;
    `stop()` from anywhere ends it and deletes the data.

    Args:
        minor: The minor version of Kubernetes; None for that of the environment, `KUBERNETES`, and
            the newest without it.
        apiserver_args: More flags for kube-apiserver, after ours, so they win.
        etcd_args: More flags for etcd.
        directory: Where data, certificates and logs go; None for a temporary folder, which `stop`
            deletes.
        users: Names of users, by their tokens.

    Attributes:
        token: Of a user in `system:masters`.
        directory: See above; `etcd.log` and `apiserver.log` are in it.
    """

    def __init__(
        self,
        *,
        minor: str | None = None,
        apiserver_args: Sequence[str] = (),
        etcd_args: Sequence[str] = (),
        directory: Path | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        self._is_temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="starsched-controlplane-"))
        self.token = secrets.token_hex(16)
        self._programs = functools.partial(binaries, minor)
        self._apiserver_args = list(apiserver_args)
        self._etcd_args = list(etcd_args)
        self._users = dict(users or {})
        self._etcd: subprocess.Popen[bytes] | None = None
        self._apiserver: subprocess.Popen[bytes] | None = None
        self._port, self._etcd_port, self._peer_port = _free_ports(3)

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> "ControlPlane":
        """Start both servers and wait until the API server is ready.

        Builds the programs if they are missing, which takes minutes. Blocks, like all methods
        here; in a test whose event loop must go on, use `asyncio.to_thread`.
        """
        self._programs()
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = [f'{self.token},admin,admin,"system:masters"']
        lines += (f"{token},{name},{name}" for token, name in self._users.items())
        (self.directory / "tokens.csv").write_text("\n".join([*lines, ""]), encoding="utf-8")
        key = self.directory / "service-account.key"
        if not key.exists():
            key.write_text(_new_signing_key(), encoding="ascii")
        atexit.register(self.stop)
        try:
            self.restart_etcd()
            self.restart_apiserver()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill both servers and delete their data."""
        atexit.unregister(self.stop)
        for process in (self._apiserver, self._etcd):
            if process is not None:
                _kill(process)
        self._apiserver = self._etcd = None
        if self._is_temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> "ControlPlane":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kill_apiserver(self) -> None:
        """End the API server with SIGKILL, as a crash of its machine would."""
        if self._apiserver is not None:
            _kill(self._apiserver)
            self._apiserver = None

    def restart_apiserver(self, *, minor: str | None = None, wait: bool = True) -> None:
        """Start the API server on the same port and data (killing it first if it runs).

        It is of another minor version from now on if *minor* says so; etcd stays.
        """
        self.kill_apiserver()
        if minor is not None:
            self._programs = functools.partial(binaries, minor)
        with (self.directory / "apiserver.log").open("ab") as log:
            self._apiserver = spawn([self._programs()["kube-apiserver"], *self._flags()], log)
        if wait:
            self.wait_ready()

    def kill_etcd(self) -> None:
        """End etcd with SIGKILL; its data stays."""
        if self._etcd is not None:
            _kill(self._etcd)
            self._etcd = None

    def restart_etcd(self) -> None:
        """Start etcd on the same ports and data (killing it first if it runs)."""
        self.kill_etcd()
        self._start_etcd(self._programs()["etcd"])

    def pause_apiserver(self) -> None:
        """Freeze the API server: connections stay open, nothing answers (a hang, not a crash)."""
        pause(self.apiserver_pid)

    def resume_apiserver(self) -> None:
        """Let a frozen API server go on."""
        os.kill(self.apiserver_pid, signal.SIGCONT)

    def wait_ready(self, timeout: float = START_SECONDS) -> None:
        """Return when `/readyz` says ok. Raises `ControlPlaneError` if it does not in time."""

        def is_ready() -> bool:
            if self._apiserver is None or self._apiserver.poll() is not None:
                raise AssertionError("it ended")
            # Refused until it listens, no certificate until it has made one, 500 until ready.
            with contextlib.suppress(OSError, http.client.HTTPException, ControlPlaneError):
                self.request("GET", "/readyz", decode=False)
                return True
            return False

        self._wait("kube-apiserver", is_ready, timeout, "apiserver.log")

    def _wait(self, name: str, is_ready: Callable[[], bool], seconds: float, log: str) -> None:
        try:
            wait_until(is_ready, seconds=seconds)
        except AssertionError as error:
            raise ControlPlaneError(f"{name} is not ready\n{self._tail(log)}") from error

    @property
    def etcd_port(self) -> int:
        """Where etcd listens for clients, on 127.0.0.1."""
        return self._etcd_port

    @property
    def port(self) -> int:
        """Where the API server listens, on 127.0.0.1."""
        return self._port

    @property
    def etcd_pid(self) -> int:
        """Process id of etcd."""
        assert self._etcd is not None
        return self._etcd.pid

    @property
    def apiserver_pid(self) -> int:
        """Process id of kube-apiserver."""
        assert self._apiserver is not None
        return self._apiserver.pid

    # --- access -------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """`https://127.0.0.1:<port>`."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca_file(self) -> Path:
        """PEM file with the authority of the API server's certificate."""
        return self.directory / "certificates" / "apiserver.crt"

    def endpoint(self, token: str | None = None) -> Endpoint:
        """How to reach the server, as admin or with *token*."""
        return Endpoint(server=self.url, token=token or self.token, ca_file=str(self.ca_file))

    def client(self, token: str | None = None) -> ApiClient:
        """A client as admin or with *token*; the caller closes it."""
        return ApiClient(self.endpoint(token))

    def kubeconfig(self, path: Path, token: str | None = None, *, port: int | None = None) -> Path:
        """Write a kubeconfig for admin or *token* to *path*, and return *path*.

        *port* is that of a proxy in front of the server.
        """
        authority = base64.b64encode(self.ca_file.read_bytes()).decode()
        server = self.url if port is None else f"https://127.0.0.1:{port}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": server, "certificate-authority-data": authority},
                }
            ],
            "users": [{"name": "test", "user": {"token": token or self.token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        path.chmod(0o600)
        return path

    def service_account_token(self, namespace: str, name: str, seconds: int = 3600) -> str:
        """A token for a ServiceAccount, which is created (with its namespace) if missing."""
        self.create_if_missing(
            "/api/v1/namespaces",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        )
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self.create_if_missing(
            path, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        )
        answer = self.request(
            "POST",
            f"{path}/{name}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": seconds},
            },
        )
        return str(answer["status"]["token"])

    def create_if_missing(self, path: str, manifest: dict[str, Any]) -> None:
        """Create an object as admin; nothing happens if its name is taken."""
        with contextlib.suppress(AlreadyThere):
            self.request("POST", path, manifest)

    def request(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, decode: bool = True
    ) -> Any:
        """One blocking request as admin, for set-up code; tests use `client`.

        Raises `AlreadyThere` for 409 and `ControlPlaneError` for every other refusal.
        """
        connection = http.client.HTTPSConnection(
            "127.0.0.1",
            self._port,
            timeout=10,
            context=ssl.create_default_context(cafile=str(self.ca_file)),
        )
        try:
            connection.request(
                method,
                path,
                body=None if body is None else json.dumps(body),
                headers={
                    "Authorization": f"Bearer {self.token}",
                    "Content-Type": "application/json",
                },
            )
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status == 409:
            raise AlreadyThere(f"{method} {path}: {text.decode('utf-8', 'replace')}")
        if answer.status >= 400:
            raise ControlPlaneError(
                f"{method} {path}: {answer.status} {text.decode('utf-8', 'replace')}"
            )
        return json.loads(text) if decode else text

    def compact_etcd(self) -> int:
        """Forget etcd's whole history and return the revision it now begins at.

        The API server serves a recent window of events from memory, whatever etcd has forgotten:
        `restart_apiserver` empties that.
        """
        status = self._etcd_call("/v3/maintenance/status", {})
        revision = int(status["header"]["revision"])
        self._etcd_call("/v3/kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    def _etcd_call(self, path: str, body: dict[str, Any]) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._etcd_port, timeout=10)
        try:
            connection.request("POST", path, body=json.dumps(body))
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise ControlPlaneError(f"etcd {path}: {answer.status} {text!r}")
        return json.loads(text)

    # --- processes ----------------------------------------------------------------------------

    def _start_etcd(self, program: Path) -> None:
        client = f"http://127.0.0.1:{self._etcd_port}"
        peer = f"http://127.0.0.1:{self._peer_port}"
        with (self.directory / "etcd.log").open("ab") as log:
            self._etcd = spawn(
                [
                    program,
                    f"--data-dir={self.directory / 'etcd'}",
                    "--unsafe-no-fsync",
                    f"--listen-client-urls={client}",
                    f"--advertise-client-urls={client}",
                    f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}",
                    f"--initial-cluster=default={peer}",
                    "--log-level=warn",
                    *self._etcd_args,
                ],
                log,
            )

        def is_ready() -> bool:
            if self._etcd is None or self._etcd.poll() is not None:
                raise AssertionError("it ended")
            with contextlib.suppress(OSError, http.client.HTTPException, ControlPlaneError):
                self._etcd_call("/v3/maintenance/status", {})
                return True
            return False

        self._wait("etcd", is_ready, START_SECONDS, "etcd.log")

    def _flags(self) -> list[str]:
        key = self.directory / "service-account.key"
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            # Nobody is told of this address (no endpoints are written), but without one the
            # server looks for a network interface, which a sandboxed machine may not have.
            "--advertise-address=192.0.2.1",
            "--endpoint-reconciler-type=none",
            f"--cert-dir={self.directory / 'certificates'}",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            # No controller makes the default ServiceAccount or takes the not-ready taint away.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            "--profiling=false",
            *self._apiserver_args,
        ]

    def _tail(self, name: str) -> str:
        with contextlib.suppress(OSError):
            return "\n".join(
                (self.directory / name).read_text("utf-8", "replace").splitlines()[-25:]
            )
        return "(no log)"


class AlreadyThere(ControlPlaneError):
    """409: the object already exists."""


@functools.cache
def binaries(minor: str | None = None) -> dict[str, Path]:
    """Paths of `etcd`, `kube-apiserver` and `kube-scheduler`; builds them if they are missing.

    Of the minor version that is given, of that in the environment's `KUBERNETES`, or the newest.
    """
    build = script("devkit/controlplane/build.py")
    programs: dict[str, Path] = build.binaries(minor or kubernetes_minor())
    return programs


def controllers(minor: str | None = None) -> Path:
    """Path of the program that makes and deletes the claims of pods; see `binaries`."""
    build = script("devkit/controlplane/build.py")
    path: Path = build.controllers(minor or kubernetes_minor())
    return path


def kubernetes_minor() -> str:
    """The minor version that tests run on: `KUBERNETES` in the environment, or the newest."""
    return os.environ.get("KUBERNETES") or NEWEST


def group_version() -> str | None:
    """The version of PodGroup that the minor version serves on request; None where it has none."""
    known = as_numbers(kubernetes_minor())
    versions = [v for since, v in _GROUP_VERSIONS.items() if as_numbers(since) <= known]
    return versions[-1] if versions else None


def serving_groups() -> list[str]:
    """Arguments with which kube-apiserver serves PodGroups; none where it has no such kind."""
    version = group_version()
    if version is None:
        return []
    return [GROUPS_GATE, f"--runtime-config=scheduling.k8s.io/{version}=true"]


def as_numbers(minor: str) -> tuple[int, ...]:
    """A minor version to compare with others: `1.9` is older than `1.10`."""
    return tuple(int(part) for part in minor.split("."))


# The kernel counts the *thread* that forked as the parent, so one thread, which lives as long as
# this process, forks all servers: they survive the worker threads of event loops.
_forker = concurrent.futures.ThreadPoolExecutor(1, "control-plane-forker")


def spawn(command: Sequence[str | Path], log: Any) -> subprocess.Popen[bytes]:
    """Start a program that dies with this process and writes to *log*."""
    return _forker.submit(
        subprocess.Popen,
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # an interrupt in the terminal is for the tests
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    ).result()


# Loaded before any fork: between fork and exec only plain system calls are safe.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _die_with_parent() -> None:
    assert _libc is not None
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == 1:  # the parent died before the call above
        os._exit(1)


def pause(pid: int) -> None:
    """Freeze a child process with SIGSTOP; on return none of its threads runs any more."""
    os.kill(pid, signal.SIGSTOP)
    # The signal reaches its threads one by one; until the last, a request may be answered.
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]


def _new_signing_key() -> str:
    """A P-256 private key in PEM, made by hand: the one piece of DER that no library is for.

    Its public half is left out, as the format allows; the server computes it.
    """
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    scalar = (1 + secrets.randbelow(order - 1)).to_bytes(32, "big")
    prime256v1 = bytes.fromhex("06082a8648ce3d030107")
    content = b"\x02\x01\x01" + b"\x04\x20" + scalar + b"\xa0\x0a" + prime256v1
    encoded = base64.encodebytes(b"\x30" + bytes([len(content)]) + content).decode()
    return f"-----BEGIN EC PRIVATE KEY-----\n{encoded}-----END EC PRIVATE KEY-----\n"
