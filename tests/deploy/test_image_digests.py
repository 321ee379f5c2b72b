"""The digest of the base image is read from its registry, on a registry of our own."""

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.deploy.rendering import ROOT


class Registry(BaseHTTPRequestHandler):
    """One image, `python:3.13.16`, for those who bring the token that anybody gets."""

    index = b""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/token":
            assert query == "service=hub&scope=repository%3Alibrary%2Fpython%3Apull"
            self._answer(200, b'{"token": "secret"}')
        elif path != "/v2/library/python/manifests/3.13.16":
            self._answer(404, b"{}")
        elif self.headers["Authorization"] != "Bearer secret":
            host = f"http://{self.headers['Host']}/token"
            scope = "repository:library/python:pull"
            challenge = f'Bearer realm="{host}",service="hub",scope="{scope}"'
            self._answer(401, b"{}", {"WWW-Authenticate": challenge})
        else:
            assert "application/vnd.oci.image.index.v1+json" in self.headers["Accept"]
            self._answer(200, self.index)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def registry() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def index(*platforms: str) -> bytes:
    """A list of *platforms*, as `os/architecture`."""
    manifests = [
        {"platform": dict(zip(("os", "architecture"), one.split("/"), strict=True))}
        for one in platforms
    ]
    return json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()


def ask(tmp_path: Path, image: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output, and the Dockerfile afterwards."""
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(f"ARG PYTHON_IMAGE={image}\nARG PYTHON_DIGEST=sha256:old\nFROM scratch\n")
    script = [sys.executable, str(ROOT / "devkit/tools/image_digests.py")]
    result = subprocess.run(
        [*script, "--dockerfile", str(dockerfile), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return result.returncode, result.stdout + result.stderr, dockerfile.read_text()


def test_the_digest_of_the_list_of_platforms_is_written(
    tmp_path: Path, registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = index("linux/amd64", "linux/arm64", "linux/s390x")
    monkeypatch.setattr(Registry, "index", body)
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    image = f"{registry}/library/python:3.13.16"
    code, said, text = ask(tmp_path, image)
    assert code == 0, said
    assert text == f"ARG PYTHON_IMAGE={image}\nARG PYTHON_DIGEST={digest}\nFROM scratch\n"


def test_to_check_writes_nothing(
    tmp_path: Path, registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Registry, "index", index("linux/amd64", "linux/arm64"))
    code, said, text = ask(tmp_path, f"{registry}/library/python:3.13.16", "--check")
    assert (code, "sha256:old" in text) == (1, True), said


@pytest.mark.parametrize(
    ("tag", "platforms", "want"),
    [
        pytest.param("3.13.16", ["linux/amd64"], "no linux/arm64 among its", id="one platform"),
        pytest.param("3.13.16", [], "no linux/amd64, linux/arm64", id="an image, no list"),
        pytest.param("3.99", ["linux/amd64"], "404", id="no such tag"),
    ],
)
def test_what_cannot_be_the_base_is_refused(
    tmp_path: Path,
    registry: str,
    monkeypatch: pytest.MonkeyPatch,
    tag: str,
    platforms: list[str],
    want: str,
) -> None:
    monkeypatch.setattr(Registry, "index", index(*platforms))
    code, said, text = ask(tmp_path, f"{registry}/library/python:{tag}")
    assert (code, want in said, "sha256:old" in text) == (2, True, True), said
