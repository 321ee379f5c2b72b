"""The tutorial, command by command as it is written, on the clusters that it names."""

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.devcluster import make_node
from tests.controlplane import ControlPlane
from tests.facts.prometheus_server import free_port
from tests.scripts import go_program

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
STEP_SECONDS = 90.0
# What a reader's port is; a test takes a free one, since others run at the same time.
PORT = "10260"

# A file with its name before it, or a block of commands, or what they show.
_BLOCK = re.compile(
    r"(?:^`(?P<file>[\w./]+)`:\n\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_END = "--- end of the step"


class Shell:
    """One bash that runs step after step, as a reader's terminal would."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._bash = subprocess.Popen(
            ["bash"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, commands: str) -> tuple[str, int]:
        """What *commands* print and the exit code of the last one."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{commands}\ncode=$?; echo; echo '{_END}' $code\n".encode())
        self._bash.stdin.flush()
        deadline = time.monotonic() + STEP_SECONDS
        shown = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._bash.stdout, selectors.EVENT_READ)
            while not (found := re.search(rf"\n{_END} (\d+)\n".encode(), shown)):
                assert selector.select(deadline - time.monotonic()), shown.decode()
                chunk = os.read(self._bash.stdout.fileno(), 65536)
                assert chunk, shown.decode()
                shown += chunk
        return shown[: found.start()].decode(), int(found[1])

    def close(self) -> None:
        """End it, and whatever it left running."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)
        for stream in (self._bash.stdin, self._bash.stdout):
            assert stream is not None
            stream.close()
        self._bash.wait()


def kubectl() -> Path:
    """The pinned kubectl; builds it if it is missing."""
    return go_program("kubectl")


def shows(want: str, got: str) -> bool:
    """Whether *got* is what the tutorial shows: `...` is anything, alone in its line any lines."""
    pattern = ""
    for line in want.rstrip("\n").split("\n"):
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += re.escape(line.rstrip()).replace(r"\.\.\.", ".*") + r"[ \t]*\n"
    return re.fullmatch(pattern, got.strip("\n") + "\n") is not None


@contextlib.contextmanager
def _demo() -> Iterator[Path]:
    """The kubeconfig that `starsched demo --keep` prints, until the block ends."""
    command = [sys.executable, "-m", "engine.cli.main", "demo", "--keep"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as demo:
        assert demo.stdout is not None
        try:
            exports = (line.partition("export KUBECONFIG=")[2] for line in demo.stdout)
            yield Path(next(path for path in exports if path).strip())
        finally:
            demo.send_signal(signal.SIGINT)
            demo.communicate()


@contextlib.contextmanager
def _shell(kubeconfig: Path, tmp_path: Path) -> Iterator[Shell]:
    home = tmp_path / "tutorial"
    home.mkdir()
    one = Shell(
        home,
        {
            "PATH": f"{kubectl().parent}:{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(tmp_path),
            "KUBECONFIG": str(kubeconfig),
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "160",
        },
    )
    with contextlib.closing(one):
        yield one


@pytest.mark.slow("starts programs")
def test_the_tutorial_goes_as_it_is_written(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    for name in ("worker-a", "worker-b", "worker-c"):
        own_control_plane.create_if_missing("/api/v1/nodes", make_node(name))
    with _shell(own_control_plane.kubeconfig(tmp_path / "kubeconfig"), tmp_path) as shell:
        assert _walk(shell, tmp_path, is_compared=True) >= 20


@pytest.mark.slow("starts programs")
def test_the_commands_of_the_tutorial_work_on_the_cluster_of_the_demo(tmp_path: Path) -> None:
    """That knows no protobuf, and so `kubectl create namespace` failed there.

    What is shown has other nodes, with taints of their own.
    """
    with _demo() as kubeconfig, _shell(kubeconfig, tmp_path) as shell:
        assert _walk(shell, tmp_path, is_compared=False) >= 20


def _walk(shell: Shell, tmp_path: Path, *, is_compared: bool) -> int:
    """Go through the tutorial, step by step; gives the number of steps."""
    got, steps, port = "", 0, str(free_port())
    for block in _BLOCK.finditer(TUTORIAL.partition("\n## Write it\n")[2]):
        text = block["text"]
        if block["file"]:
            path = tmp_path / "tutorial" / block["file"]
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif block["language"] == "sh":
            got, code = shell.run(text.replace(PORT, port))
            answer = re.search(r"# exit code (\d+)", text)
            assert code == (int(answer[1]) if answer else 0), f"{text}\n{got}"
            steps += 1
        else:
            assert block["language"] == "text"
            assert not is_compared or shows(text, got), f"want\n{text}\ngot\n{got}"
    return steps


@pytest.mark.parametrize(
    ("want", "got", "is_shown"),
    [
        ("a\n", "a\n", True),
        ("a\n", "b\n", False),
        ("a ... c\n", "a b c\n", True),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a\n...\n", "b\na\n", False),
    ],
)
def test_what_is_shown_is_compared(want: str, got: str, is_shown: bool) -> None:
    assert shows(want, got) == is_shown
