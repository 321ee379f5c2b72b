"""Replicas of the scheduler that are killed, frozen and started again.

Owns the processes. Each is a user of its own to the API server, so that its audit log says which
process did what, and reaches it through the proxy of its replica.
"""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from devkit.benchmarks.chaos.history import LEASE, USER_PREFIX
from devkit.benchmarks.chaos.proxy import FaultProxy
from devkit.benchmarks.objects import NAMESPACE
from devkit.benchmarks.processes import resident_mib_of
from devkit.benchmarks.subjects import free_port
from tests.controlplane import ControlPlane, pause, spawn

POLICIES: Final = "starsched-policies"
#: Processes of one replica that a run can have.
MOST_LIVES: Final = 500
LEASE_FLAGS: Final = (
    "--leader-elect",
    "--leader-elect-lease-duration=5s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=1s",
    f"--leader-elect-resource-name={LEASE}",
    f"--leader-elect-resource-namespace={NAMESPACE}",
)


def users() -> dict[str, str]:
    """Names of users by token, for all processes of both replicas."""
    return {
        secrets.token_hex(16): f"{USER_PREFIX}{name}-{life}"
        for name in ("a", "b")
        for life in range(1, MOST_LIVES + 1)
    }


@dataclass(slots=True)
class Life:
    """One process of a replica.

    Attributes:
        exit_code: None while it runs, and if it was killed.
        was_killed: By us.
    """

    user: str
    log: Path
    port: int
    process: subprocess.Popen[bytes]
    started_at: float
    exit_code: int | None = None
    was_killed: bool = False

    @property
    def url(self) -> str:
        """Of its endpoints."""
        return f"http://127.0.0.1:{self.port}"


@dataclass(slots=True)
class ReplicaProcess:
    """A replica, one process after the other.

    `down --start--> running --kill or exit--> down`; `running --pause--> frozen --resume-->
    running`.

    Attributes:
        name: `a` or `b`.
        proxy: Between it and the API server.
        lives: Its processes, in order.
        memory: MiB of the running process with its children, at each `sample`.
    """

    name: str
    plane: ControlPlane
    proxy: FaultProxy
    directory: Path
    tokens: dict[str, str]
    lives: list[Life] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    is_frozen: bool = False

    def start(self) -> None:
        """Start a process, with the next user."""
        user = f"{USER_PREFIX}{self.name}-{len(self.lives) + 1}"
        port = free_port()
        token = next(token for token, name in self.tokens.items() if name == user)
        kubeconfig = self.plane.kubeconfig(
            self.directory / f"{user}.kubeconfig", token, port=self.proxy.port
        )
        log = self.directory / f"{user}.log"
        command = [
            sys.executable,
            "-m",
            "workbench.cli.main",
            "run",
            f"--kubeconfig={kubeconfig}",
            f"--policies=configmap:{NAMESPACE}/{POLICIES}",
            "--secure-port=0",
            f"--local-port={port}",
            *LEASE_FLAGS,
        ]
        with log.open("wb") as file:
            process = spawn(command, file)
        self.lives.append(Life(user, log, port, process, time.monotonic()))

    @property
    def is_running(self) -> bool:
        """True if there is a process; notes the exit code of one that has ended."""
        if not self.lives:
            return False
        life = self.lives[-1]
        code = life.process.poll()
        if code is not None and not life.was_killed:
            life.exit_code = code
        return code is None

    def kill(self) -> None:
        """SIGKILL to the process; its sandboxes notice by themselves."""
        if self.is_running:
            life = self.lives[-1]
            life.was_killed = True
            life.process.kill()
            life.process.wait()
        self.is_frozen = False

    def pause(self) -> None:
        """Freeze it, its sandboxes excluded."""
        if self.is_running and not self.is_frozen:
            self.is_frozen = True
            pause(self.lives[-1].process.pid)

    def resume(self) -> None:
        """Let it go on."""
        if self.is_frozen and self.is_running:
            os.kill(self.lives[-1].process.pid, signal.SIGCONT)
        self.is_frozen = False

    def sample(self) -> None:
        """Note the memory that it holds."""
        if self.is_running:
            self.memory.append(resident_mib_of(self.lives[-1].process.pid))

    async def read(self, path: str) -> Any:
        """What one of its endpoints says; None while it says nothing."""

        def read() -> Any:
            with (
                contextlib.suppress(OSError, ValueError),
                urllib.request.urlopen(f"{self.lives[-1].url}{path}", timeout=5) as answer,
            ):
                return json.loads(answer.read())

        return await asyncio.to_thread(read)

    def log_lines(self) -> Iterator[tuple[str, str]]:
        """Each line of the logs of all its processes, with the user."""
        for life in self.lives:
            with life.log.open(encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    yield life.user, line
