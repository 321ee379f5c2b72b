"""The tutorial, command by command as it is written, on the clusters that it names."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devkit.cluster import make_node
from tests.controlplane import ControlPlane
from tests.docs.walking import Shell, reader, shows, walk

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
# All that a reader makes, and the labels of nodes.
_STATE = (
    "kubectl get namespaces,pods,configmaps,leases,deployments,replicasets,jobs -A -o name; "
    "kubectl get nodes -o jsonpath='{.items[*].metadata.labels}'"
)
WALK = TUTORIAL.partition("\n## Write it\n")[2]


@contextlib.contextmanager
def _demo() -> Iterator[Path]:
    """The kubeconfig that `starsched demo --keep` prints, until the block ends."""
    command = [sys.executable, "-m", "workbench.cli.main", "demo", "--keep"]
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
    with reader(kubeconfig, home, tmp_path) as one:
        yield one


@pytest.mark.slow("starts programs")
def test_the_tutorial_goes_as_it_is_written(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    for name in ("worker-a", "worker-b", "worker-c"):
        own_control_plane.create_if_missing("/api/v1/nodes", make_node(name))
    with _shell(own_control_plane.kubeconfig(tmp_path / "kubeconfig"), tmp_path) as shell:
        assert walk(WALK, shell, tmp_path / "tutorial") >= 20


@pytest.mark.long("starts programs")
def test_the_commands_of_the_tutorial_work_on_the_cluster_of_the_demo(tmp_path: Path) -> None:
    """That knows no protobuf, and so `kubectl create namespace` failed there.

    What is shown has other nodes, with taints of their own.
    """
    with _demo() as kubeconfig, _shell(kubeconfig, tmp_path) as shell:
        before, _ = shell.run(_STATE)
        assert walk(WALK, shell, tmp_path / "tutorial", is_compared=False) >= 20
        # Cleaned up: what went on counting were the pods of a namespace that nothing emptied.
        shell.run("kubectl wait namespace tutorial --for=delete --timeout=60s")
        after, _ = shell.run(_STATE)
        assert after == before


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
