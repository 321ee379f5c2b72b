"""Runs the scheduler as its Deployment would: the image's files, its arguments, its account."""

import os
import signal
import socket
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.controlplane import ControlPlane
from tests.deploy.image import Image
from tests.deploy.rendering import Manifest, object_path

#: Flags of the Deployment that hold for a pod's network and file system, not for ours.
_OF_THE_POD = ("--secure-port", "--local-port", "--state-dir")


def as_user(image: Image) -> Callable[[], None] | None:
    """What makes a child process the image's user; None where we are not root and cannot."""
    if os.geteuid() != 0:
        return None

    def become() -> None:
        os.setgroups([])
        os.setgid(image.group)
        os.setuid(image.user)

    return become


def create_all(plane: ControlPlane, objects: list[Manifest]) -> None:
    """Create *objects* as admin, in their order."""
    for manifest in objects:
        plane.create_if_missing(object_path(manifest).rpartition("/")[0], manifest)


class SchedulerProcess:
    """One replica, from the files of *image*, with the *arguments* of a pod.

    As the account of the Deployment, or who else has *token*. `with` starts it; leaving ends it
    with SIGTERM and keeps its exit code in `status`.
    """

    def __init__(
        self, plane: ControlPlane, image: Image, arguments: list[str], token: str = ""
    ) -> None:
        self._plane = plane
        self._image = image
        self.port = _free_port()
        # A folder that the image's user can read; the token in it is of a throw-away cluster.
        self._folder = Path(tempfile.mkdtemp(prefix="starsched-account-"))
        self._folder.chmod(0o755)
        # What the Deployment mounts an empty volume for.
        state = self._folder / "state"
        state.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(state, image.user, image.group)
        token = token or plane.service_account_token("starsched", "starsched")
        kubeconfig = plane.kubeconfig(self._folder / "kubeconfig", token)
        kubeconfig.chmod(0o644)
        kept = [one for one in arguments if one.partition("=")[0] not in _OF_THE_POD]
        self._command = image.command(
            *kept,
            f"--kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--state-dir={state}",
        )
        self._log = self._folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self.status: int | None = None

    def __enter__(self) -> "SchedulerProcess":
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._image.environment,
                cwd="/",
                preexec_fn=as_user(self._image),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self.status = self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self.status = self._process.wait()
        if kind is not None:
            print(self.log()[-10_000:])

    def log(self) -> str:
        """What it has written so far."""
        return self._log.read_text("utf-8", "replace")

    def is_running(self) -> bool:
        """True until the process has ended."""
        return self._process is not None and self._process.poll() is None

    def get(self, path: str, token: str = "", accept: str = "*/*") -> tuple[int, str]:
        """Status and body of one of its endpoints; status 0 if nobody answers."""
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}{path}", headers={"Accept": accept}
        )
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        tls = ssl.create_default_context()  # as kubelet, which verifies no certificate of a probe
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        try:
            with urllib.request.urlopen(request, timeout=5, context=tls) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


def node(name: str, cpu: str = "4") -> dict[str, Any]:
    """A node that a kubelet would have registered."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}},
    }


def pod(
    name: str, scheduler: str | None, cpu: str = "100m", *, port: str = "", priority: str = ""
) -> dict[str, Any]:
    """A pending pod for *scheduler*; None for one that names none.

    *port* is an address and a port of the host, *priority* the name of a class.
    """
    container: dict[str, Any] = {
        "name": "c",
        "image": "app",
        "resources": {"requests": {"cpu": cpu}},
    }
    if port:
        address, _, number = port.partition(":")
        container["ports"] = [
            {"containerPort": int(number), "hostPort": int(number), "hostIP": address}
        ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "containers": [container],
            **({"schedulerName": scheduler} if scheduler else {}),
            **({"priorityClassName": priority} if priority else {}),
        },
    }
