"""The API servers that the large-cluster benchmarks run against, filled, behind one interface.

Owns starting and ending them. The real one is etcd and kube-apiserver; the embedded one is
`devkit.cluster` in a process of its own, so that its CPU time is not the scheduler's.
"""

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, Protocol

import yaml

from devkit.benchmarks import full_cluster
from devkit.benchmarks.wire import Wire, WireError
from engine.io.kube.config import Endpoint
from tests.controlplane import ControlPlane

SERVERS: Final = ("real", "embedded")
_START_SECONDS: Final = 60.0
_ROOT: Final = Path(__file__).parents[2]


class Plane(Protocol):
    """An API server with the objects of a cluster in use."""

    @property
    def pids(self) -> tuple[int, ...]:
        """Its processes."""
        ...

    def endpoint(self) -> Endpoint:
        """Where it is."""
        ...

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig to *path* and return that."""
        ...


class _RealPlane(ControlPlane):
    @property
    def pids(self) -> tuple[int, ...]:
        return self.apiserver_pid, self.etcd_pid


class _EmbeddedPlane:
    def __init__(self, process: subprocess.Popen[bytes], kubeconfig: Path) -> None:
        self._process = process
        self._text = kubeconfig.read_text(encoding="utf-8")

    @property
    def pids(self) -> tuple[int, ...]:
        return (self._process.pid,)

    def endpoint(self) -> Endpoint:
        return Endpoint(server=yaml.safe_load(self._text)["clusters"][0]["cluster"]["server"])

    def kubeconfig(self, path: Path) -> Path:
        path.write_text(self._text, encoding="utf-8")
        return path


@contextlib.asynccontextmanager
async def filled_plane(
    server: str,
    nodes: int,
    pods: int,
    progress: full_cluster.Progress,
    holds: str = "nothing",
    queues: int = 0,
) -> AsyncIterator[Plane]:
    """The server named *server* with a cluster in use, until the end of the block.

    What is in it, *holds* and *queues* included, is `full_cluster.fill`'s.

    Raises `WireError` if it does not start.
    """
    async with _plane(server) as plane:
        async with Wire(plane.endpoint()) as wire:
            await full_cluster.fill(wire, nodes, pods, holds, progress, queues)
        yield plane


@contextlib.asynccontextmanager
async def _plane(server: str) -> AsyncIterator[Plane]:
    if server == "real":
        plane = _RealPlane()
        with plane:
            yield plane
        return
    with tempfile.TemporaryDirectory(prefix="starsched-bench-") as scratch:
        kubeconfig = Path(scratch) / "kubeconfig"
        process = _start_embedded(kubeconfig)
        try:
            assert process.stdout is not None
            async with asyncio.timeout(_START_SECONDS):
                line = await asyncio.to_thread(process.stdout.readline)
            if not line.startswith(full_cluster.SERVES.encode()):
                raise WireError(f"the embedded server said `{line.decode()}`, not that it serves")
            yield _EmbeddedPlane(process, kubeconfig)
        finally:
            process.kill()
            process.communicate()  # waits, and closes the pipe


def _start_embedded(kubeconfig: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "devkit.benchmarks.full_cluster", str(kubeconfig)],
        stdout=subprocess.PIPE,
        cwd=_ROOT,
        start_new_session=True,
    )
