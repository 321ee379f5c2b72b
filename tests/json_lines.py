"""A program that answers lines of JSON, as a child process: asked often, started once."""

import json
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Plain = dict[str, Any]


class JsonLines:
    """A running program that writes one line of JSON for each that it reads, in their order.

    Args:
        command: The program and its arguments.
    """

    def __init__(self, command: Sequence[str | Path]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def ask(self, questions: Iterable[Plain]) -> Iterator[Plain]:
        """The answers, in order, each as soon as it is known."""
        lines = [json.dumps(question, separators=(",", ":")) + "\n" for question in questions]
        # Beside reading: with both pipes full, neither side would go on.
        writer = threading.Thread(target=self._write, args=("".join(lines).encode(),))
        writer.start()
        try:
            for _ in lines:
                yield json.loads(self._read())
        finally:
            writer.join()

    def _write(self, text: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def _read(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the program ended with {self._process.wait()}")
        return line
