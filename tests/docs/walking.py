"""Goes through a document: runs each of its commands as it is written, compares what it shows."""

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

from tests.engine.io.facts.prometheus_server import free_port
from tests.scripts import ROOT, go_program

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
def reader(kubeconfig: Path, directory: Path, home: Path, *programs: Path) -> Iterator[Shell]:
    """A reader's shell in *directory*, with kubectl, starsched and what is in *programs*."""
    path = [*programs, kubectl().parent, Path(sys.executable).parent, "/usr/bin", "/bin"]
    one = Shell(
        directory,
        {
            "PATH": ":".join(map(str, path)),
            "HOME": str(home),
            "KUBECONFIG": str(kubeconfig),
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "80",
        },
    )
    with contextlib.closing(one):
        yield one


def walk(text: str, shell: Shell, files: Path, *, is_compared: bool = True) -> int:
    """Go through *text*, step by step; its files go to *files*. Gives the number of steps."""
    got, steps, port = "", 0, str(free_port())
    for block in _BLOCK.finditer(text):
        text = block["text"]
        if block["file"]:
            path = files / block["file"]
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
