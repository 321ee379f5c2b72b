"""`starsched extender`: mistakes end it at once with a message."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from workbench.cli.main import main


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["extender", "--secure-port=0", *arguments])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param([], "Missing option '--policies'", id="no policies"),
        pytest.param(["--policies=.", "--address=nowhere"], "want HOST:PORT", id="address"),
        pytest.param(["--policies=.", "--address=none"], "want HOST:PORT", id="no address"),
        pytest.param(
            ["--policies=.", f"--tls-cert-file={__file__}"], "or neither", id="half a certificate"
        ),
        pytest.param(
            ["--policies=.", f"--client-ca-file={__file__}"],
            "--client-ca-file needs --tls-cert-file",
            id="client authority alone",
        ),
        pytest.param(
            [
                "--policies=.",
                f"--tls-cert-file={__file__}",
                f"--tls-private-key-file={__file__}",
            ],
            "cannot use the certificate",
            id="no certificate",
        ),
        pytest.param(["--policies=.", "--max-body-mib=0"], "0", id="body"),
        pytest.param(["--policies=.", "--kubeconfig=/nowhere"], "does not exist", id="kubeconfig"),
    ],
)
def test_a_wrong_flag_is_a_usage_error(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_a_config_map_needs_a_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    result = run("--policies=configmap:a/b", "--no-watch")
    assert result.exit_code == 2
    assert "no such file" in result.output


@pytest.mark.slow("starts programs")
@pytest.mark.parametrize("flag", ["--address={}", "--local-port={1}"])
def test_an_address_that_is_taken_is_reported_in_one_line(flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        taken_port = address.rpartition(":")[2]
        arguments = ("--policies=builtin", "--no-watch", "--secure-port=0")
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "workbench.cli.main",
                "extender",
                *arguments,
                flag.format(address, taken_port),
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 2
    assert f"Error: cannot listen on {address}: address already in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_configuration_that_is_none_is_a_usage_error(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("kind: Nonsense\n", encoding="utf-8")
    result = run("--policies=.", "--no-watch", f"--config={config}")
    assert result.exit_code == 2
    assert "want kind" in result.output
