"""Schedulers as processes of their own, to be killed."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

STARSCHED = (sys.executable, "-m", "workbench.cli.main", "run")


class Replica:
    """One `starsched run`. `with` starts it; leaving it kills it if it still runs.

    The program is that of the checkout *tree*; by default, of this one.
    """

    def __init__(
        self, kubeconfig: Path, log: Path, *arguments: str, tree: Path | None = None
    ) -> None:
        self._tree = tree
        self._command = (
            *STARSCHED,
            f"--kubeconfig={kubeconfig}",
            "--secure-port=0",
            "--log-format=text",
            "-v=2",  # a line for each binding
            *(arguments or ("--no-leader-elect",)),
        )
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Replica":
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, start_new_session=True, cwd=self._tree
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.kill()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    def kill(self) -> None:
        """SIGKILL, as the kernel does when memory runs out."""
        self.process.kill()
        self.process.wait(10)

    def terminate(self, *, seconds: float = 30) -> int:
        """SIGTERM, as the kubelet does; the exit status."""
        self.process.terminate()
        return self.process.wait(seconds)

    def reported(self, text: str) -> bool:
        """True if the log has *text*."""
        return text in self.log.read_text(encoding="utf-8", errors="replace")


def kill_all(pids: Sequence[int]) -> None:
    """SIGKILL to processes that may be gone already."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def sandboxes() -> list[int]:
    """The sandboxes of this process, those in reserve too."""
    mine = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            command = (folder / "cmdline").read_bytes()
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"sandbox" in command:
                mine.append(int(folder.name))
    return mine
