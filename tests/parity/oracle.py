"""The oracle as a child process: scenarios in, the same scenarios with answers out."""

import json
import subprocess
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

from tests.scripts import go_program

Plain = dict[str, Any]


def oracle_of(minor: str | None) -> str:
    """The program with the plugins of a minor version; None: of the newest supported one."""
    return "oracle" if minor is None else f"oracle-{minor}"


class Oracle:
    """kube-scheduler's own plugins, started once and asked often.

    A scenario comes back with `answers`, or with `error` if it could not be answered; with
    `invalid` if an API server would refuse some of its objects.

    Args:
        gates: The feature gates that are on, of those that are off by default.
        minor: The minor version of Kubernetes, such as `1.38`; the newest supported one without it.
    """

    def __init__(self, gates: Iterable[str] = (), minor: str | None = None) -> None:
        said = ",".join(f"{gate}=true" for gate in gates)
        self._process = subprocess.Popen(
            [go_program(oracle_of(minor)), "-validate", f"-gates={said}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> "Oracle":
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

    def ask(self, scenarios: Iterable[Plain]) -> Iterator[Plain]:
        """The answered scenarios, in order, each as soon as it is known."""
        lines = [json.dumps(scenario, separators=(",", ":")) + "\n" for scenario in scenarios]
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
            raise RuntimeError(f"the oracle ended with {self._process.wait()}")
        return line
