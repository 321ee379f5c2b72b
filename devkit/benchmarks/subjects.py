"""The schedulers that are measured: kube-scheduler and ours, as processes against an API server.

Owns their command lines, their readiness and their end. Both run with leader election off, and
kube-scheduler with its client's rate limit lifted, so that neither waits for anything but work.
"""

import asyncio
import contextlib
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

import yaml

from devkit.benchmarks.ceiling import READY
from devkit.benchmarks.machine import source_revision
from devkit.benchmarks.processes import Usage, resident_mib_of, usage_of
from devkit.benchmarks.workloads import Workload
from tests.controlplane import ControlPlane, binaries

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05
_ROOT: Final = Path(__file__).parents[2]


class SubjectError(Exception):
    """A scheduler did not start, or exited; the message ends with its log."""


class Subject(ABC):
    """A scheduler program.

    `new --start()--> running --stop()--> new`. Its log is in `<directory>/<name>.log`.
    """

    name: str

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._log_path = Path()
        self._port = 0

    @abstractmethod
    def version(self) -> str:
        """The version that the program reports."""

    @abstractmethod
    def missing_plugins(self, workload: Workload) -> frozenset[str]:
        """Plugins that *workload* is about and that this scheduler does not have."""

    @abstractmethod
    def _command(self, plane: ControlPlane, directory: Path, port: int) -> list[str]:
        """The command line; *port* is free, for health and metrics."""

    @abstractmethod
    def _is_ready(self, port: int) -> bool:
        """True once the program can schedule."""

    @property
    def pid(self) -> int:
        """Process id of the parent process."""
        assert self._process is not None
        return self._process.pid

    def usage(self) -> Usage:
        """CPU and memory since the start, children included."""
        return usage_of(self.pid)

    def resident_mib(self) -> float:
        """Memory held now, children included."""
        return resident_mib_of(self.pid)

    async def start(self, plane: ControlPlane, directory: Path) -> float:
        """Start the program and return the seconds until it said that it is ready.

        Raises `SubjectError` if it exits or is not ready in time.
        """
        self._port = port = free_port()
        started = time.monotonic()
        self._log_path = directory / f"{self.name}.log"
        self._log = self._log_path.open("wb")
        self._process = _spawn(self._command(plane, directory, port), self._log)
        while not await asyncio.to_thread(self._is_ready, port):
            self.check_alive()
            if time.monotonic() - started > START_SECONDS:
                raise SubjectError(
                    f"{self.name} is not ready after {START_SECONDS:.0f} s\n{self.log_tail()}"
                )
            await asyncio.sleep(_POLL_SECONDS)
        return time.monotonic() - started

    def check_alive(self) -> None:
        """Raise `SubjectError` if the program has ended."""
        if self._process is not None and self._process.poll() is not None:
            raise SubjectError(
                f"{self.name} ended with code {self._process.returncode}\n{self.log_tail()}"
            )

    def stop(self) -> int | None:
        """End the program, with SIGTERM at first; its exit code, or None if it had to be killed."""
        process, self._process = self._process, None
        if process is None:
            return None
        try:
            process.send_signal(signal.SIGTERM)
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None
        finally:
            if self._log is not None:
                self._log.close()

    def log_tail(self, lines: int = 25) -> str:
        """The end of what the program wrote."""
        with contextlib.suppress(OSError):
            return "\n".join(self._log_path.read_text("utf-8", "replace").splitlines()[-lines:])
        return "(no log)"


class KubeScheduler(Subject):
    """kube-scheduler with its default configuration and the client's rate limit lifted.

    Args:
        arguments: More flags.
        config: A KubeSchedulerConfiguration instead of the default one.
    """

    name = "kube-scheduler"

    def __init__(self, arguments: Sequence[str] = (), config: Path | None = None) -> None:
        super().__init__()
        self._arguments = arguments
        self._config = config

    def version(self) -> str:
        text = subprocess.run(
            [binaries()["kube-scheduler"], "--version"], capture_output=True, text=True, check=True
        ).stdout
        found = re.search(r"v[\d.]+\S*", text)
        return found[0] if found else text.strip()

    def missing_plugins(self, workload: Workload) -> frozenset[str]:
        return frozenset()

    def _command(self, plane: ControlPlane, directory: Path, port: int) -> list[str]:
        config = directory / "kube-scheduler.yaml"
        own = {} if self._config is None else yaml.safe_load(self._config.read_text("utf-8"))
        config.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "kubescheduler.config.k8s.io/v1",
                    "kind": "KubeSchedulerConfiguration",
                    **own,
                    "leaderElection": {"leaderElect": False},
                    "clientConnection": {
                        "kubeconfig": str(plane.kubeconfig(directory / "kubeconfig")),
                        "qps": 5000,
                        "burst": 5000,
                    },
                }
            ),
            encoding="utf-8",
        )
        return [
            str(binaries()["kube-scheduler"]),
            f"--config={config}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={directory / 'kube-scheduler-certificates'}",
            "--authentication-skip-lookup",
            *self._arguments,
        ]

    def _is_ready(self, port: int) -> bool:
        return _says_ready(f"https://127.0.0.1:{port}/readyz")


class Starsched(Subject):
    """Ours, from this checkout, with the shipped policies and the default profile.

    Args:
        policies: `--policies`: a directory or `configmap:namespace/name`; None for the shipped
            ones alone.
        arguments: More flags of `starsched run`.
        profile: File for cProfile's statistics of the parent process, its start included; written
            when it stops. Slows it down.
    """

    name = "starsched"

    def __init__(
        self,
        policies: str | None = None,
        arguments: tuple[str, ...] = (),
        profile: Path | None = None,
    ) -> None:
        super().__init__()
        self._profile = profile
        self._policies = policies
        self._arguments = arguments

    def version(self) -> str:
        return source_revision()

    def missing_plugins(self, workload: Workload) -> frozenset[str]:
        return workload.plugins - shipped_plugins()

    def _command(self, plane: ControlPlane, directory: Path, port: int) -> list[str]:
        profiler = [] if self._profile is None else ["-m", "cProfile", "-o", str(self._profile)]
        command = [
            sys.executable,
            *profiler,
            "-m",
            "workbench.cli.main",
            "run",
            "--kubeconfig",
            str(plane.kubeconfig(directory / "kubeconfig")),
            "--no-leader-elect",
            "--secure-port=0",
            f"--local-port={port}",
            *self._arguments,
        ]
        if self._policies is not None:
            command += ["--policies", self._policies]
        return command

    def _is_ready(self, port: int) -> bool:
        return _says_ready(f"http://127.0.0.1:{port}/readyz")

    @property
    def url(self) -> str:
        """Where it serves health, metrics and the policies in force."""
        return f"http://127.0.0.1:{self._port}"

    def read(self, page: str) -> bytes:
        """A page of its HTTP endpoints."""
        with urllib.request.urlopen(f"{self.url}/{page}", timeout=10) as answer:
            content: bytes = answer.read()
            return content


class Ceiling(Subject):
    """Binds round robin without deciding anything: what the API server allows at most."""

    name = "ceiling"

    def version(self) -> str:
        return "binds round robin, evicts where a node is full"

    def missing_plugins(self, workload: Workload) -> frozenset[str]:
        return frozenset()

    def _command(self, plane: ControlPlane, directory: Path, port: int) -> list[str]:
        where = (plane.url, str(plane.ca_file), plane.token)
        return [sys.executable, "-m", "devkit.benchmarks.ceiling", *where]

    def _is_ready(self, port: int) -> bool:
        return READY in self.log_tail()


def shipped_plugins() -> frozenset[str]:
    """Names of the plugins that ours has as policies, asked of the bundle that it would run."""
    from engine.policy.bundle import build_bundle

    bundle = build_bundle({}, None)
    return frozenset(
        enabled.policy
        for profile in bundle.profiles
        for points in profile.points.values()
        for enabled in points
    )


SUBJECTS: Final[dict[str, type[Subject]]] = {
    KubeScheduler.name: KubeScheduler,
    Starsched.name: Starsched,
    Ceiling.name: Ceiling,
}


def _spawn(command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        cwd=_ROOT,
    )


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _says_ready(url: str) -> bool:
    # Its certificate is self-signed at start; nothing secret is sent here.
    context = ssl._create_unverified_context() if url.startswith("https") else None
    try:
        with urllib.request.urlopen(url, timeout=2, context=context) as answer:
            return bool(answer.status == 200)
    except OSError:  # not listening yet, or not ready
        return False
