"""A real Prometheus that scrapes one target of the test's own."""

import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from tests.scripts import go_program
from tests.waiting import wait_until

ROOT = Path(__file__).parents[4]


def binary() -> Path:
    """The server's binary, built if it is missing."""
    return go_program("prometheus")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class Prometheus:
    """One server process; `stop` and `start` again for what happens without it."""

    def __init__(
        self,
        folder: Path,
        target: str,
        token_file: Path | None = None,
        *,
        job: str = "test",
        rules: Mapping[str, Any] | None = None,
    ) -> None:
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        config = folder / "prometheus.yml"
        scrape: dict[str, Any] = {"job_name": job, "static_configs": [{"targets": [target]}]}
        if token_file is not None:
            scrape |= {
                "scheme": "https",
                "tls_config": {"insecure_skip_verify": True},
                "authorization": {"credentials_file": str(token_file)},
                "scrape_timeout": "5s",
                "scrape_interval": "5s",
            }
        times = {"scrape_interval": "200ms", "scrape_timeout": "200ms"}
        given: dict[str, Any] = {"global": times, "scrape_configs": [scrape]}
        if rules is not None:
            # A scrape is larger than those of other tests, and its target is busy.
            given["global"] = dict.fromkeys((*times, "evaluation_interval"), "1s")
            given["rule_files"] = [str(folder / "rules.yml")]
            (folder / "rules.yml").write_text(yaml.safe_dump(rules))
        config.write_text(yaml.safe_dump(given))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start, and return once it answers."""
        command = [
            str(binary()),
            f"--config.file={self._folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self._answers, seconds=60, what="Prometheus to answer")

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            text = (self._folder / "log").read_text()
            raise AssertionError(f"Prometheus did not start:\n{text[-2000:]}")
        with (
            contextlib.suppress(URLError, OSError),
            urlopen(f"{self.url}/-/ready", timeout=1),
        ):
            return True
        return False

    def query(self, expression: str, at: float | None = None) -> list[dict[str, Any]]:
        """The series of an instant query, each with `metric` and `value`, now or at a time.

        Raises `AssertionError` with what the server says if it does not understand.
        """
        words = {"query": expression} | ({} if at is None else {"time": str(at)})
        try:
            with urlopen(f"{self.url}/api/v1/query?{urlencode(words)}", timeout=10) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except HTTPError as error:
            with error:
                raise AssertionError(f"{expression}: {error.read().decode()}") from None
        return found

    def stop(self) -> None:
        """Stop, and wait until it has ended."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None


@contextlib.contextmanager
def prometheus(folder: Path, target: str, token_file: Path | None = None) -> Iterator[Prometheus]:
    """A server that scrapes *target* (host:port) five times a second.

    With a *token_file* it does so over HTTPS, showing the token, every five seconds.
    """
    server = Prometheus(folder, target, token_file)
    server.start()
    try:
        yield server
    finally:
        server.stop()
