"""What each command prints at 80 columns, as a file that is read in a review.

`GOLDEN=write` writes the files again.
"""

import asyncio
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Final

import pytest
import yaml
from click.testing import CliRunner
from rich.cells import cell_len

from devkit.cluster import DevCluster
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.lib.clock import VirtualClock
from tests.engine.surfaces.live.forwarding import write_kubeconfig
from tests.engine.surfaces.page import answers
from tests.recorded import RecordedKernel
from workbench.cli.main import main
from workbench.cli.rollout_text import print_rollout

GOLDEN: Final = Path(__file__).parent / "golden"
INPUTS: Final = GOLDEN / "inputs"
WIDTH: Final = 80
BEGAN: Final = 1_790_000_000.0
#: Each command by the name of its file; `plan` and `snapshot` have the cluster live.
COMMANDS: Final = {
    "check": "check broken",
    "check-reads": "check --reads after",
    "compare": "compare before after --on cluster.yaml",
    "diff": "diff before after --on cluster.yaml",
    "diff-placed": "diff before after --on cluster.yaml --placed --max-moved 2%",
    "explain-nowhere": "explain render-0 --snapshot cluster.yaml --policies before",
    "explain-placed": "explain web-7d4b8c6f5-b9h2m --snapshot cluster.yaml --policies after "
    "--top 3",
    "new-list": "new --list",
    "plan": "plan after --kubeconfig kubeconfig",
    "plan-new-pods": "plan -f replicas.yaml --kubeconfig kubeconfig",
    "plan-wide": "plan after --kubeconfig kubeconfig --wide",
    "replay": "replay log",
    "replay-others": "replay log --policies after",
    "simulate": "simulate cluster.yaml --policies before",
    "simulate-placements": "simulate cluster.yaml --policies before --placements",
    "simulate-csv": "simulate cluster.yaml --policies before --output csv",
    "snapshot": "snapshot copy.json --kubeconfig kubeconfig",
    "sweep": "sweep cluster.yaml --to out --jobs 1 "
    "--set NodeResourcesFit.scoringStrategy.type=LeastAllocated,MostAllocated",
    "test": "test after",
    "test-fails": "test broken",
}
_MARKS: Final = {"sweep": pytest.mark.slow("starts a process")}
#: Times, sizes, versions of the API server, and revisions, which any shipped policy changes.
_VARYING: Final = {
    r"(?<= in )\d+\.\d\d(?= s$)": "0.01",
    r"[\d,]+(?= bytes$)": "1,000",
    r"\b[0-9a-f]{12}\b": "0123456789ab",
    r"(?<=--index )\S+|(?<=^index      )\S+": "...",
}

pytestmark = [
    pytest.mark.budget(4, "a whole command"),
    pytest.mark.usefixtures("policies_load_in_process"),
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The inputs, in the working directory of a terminal that is `WIDTH` columns wide."""
    shutil.copytree(INPUTS, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    return tmp_path


def compare(name: str, got: str) -> None:
    """Compare *got* with the file *name*."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("GOLDEN") == "write":
        path.write_text(got, encoding="utf-8")
    assert got == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [pytest.param(n, marks=_MARKS.get(n, ())) for n in COMMANDS])
async def test_a_command_prints_what_its_file_shows(name: str, place: Path) -> None:
    command = COMMANDS[name]
    words = shlex.split(command)
    if "kubeconfig" in words:
        async with DevCluster(clock=VirtualClock(BEGAN), seed=1) as cluster:
            cluster.create(*_manifests(place))
            write_kubeconfig(place / "kubeconfig", cluster.url)
            result = await asyncio.to_thread(CliRunner().invoke, main, words)
    else:
        if "log" in words:
            _record(place)
        result = CliRunner().invoke(main, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    shown = result.output
    for pattern, instead in _VARYING.items():
        shown = re.sub(pattern, instead, shown, flags=re.MULTILINE)
    compare(name, f"$ starsched {command}\n{shown}# exit code {result.exit_code}\n")


def test_rollout_status_prints_what_its_file_shows(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_rollout(answers.rollout(left_out=2))
    compare("rollout-status", capsys.readouterr().out)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.txt")), ids=lambda path: path.stem)
def test_no_line_is_wider_than_the_terminal(path: Path) -> None:
    """Commands to copy are whole, and so is what `--wide` and CSV are for."""
    if path.stem in ("plan-wide", "simulate-csv"):
        return
    wide = [
        line
        for line in path.read_text(encoding="utf-8").splitlines()
        if cell_len(line) > WIDTH and not line.startswith(("$ ", "next "))
    ]
    assert wide == []


def _manifests(place: Path) -> list[dict[str, object]]:
    return list(yaml.safe_load_all((place / "cluster.yaml").read_text()))


def _record(place: Path) -> None:
    """Record how the pods that wait were decided, by the built-in policies, one each 10 s."""
    clock = VirtualClock(BEGAN)
    run = RecordedKernel(place / "log", clock)
    pods = []
    for one in _manifests(place):
        if one["kind"] == "Node":
            run.node(Node.from_plain(one))
        else:
            pods.append(Pod.from_plain(one))
    for pod in pods:
        if pod.node_name:
            run.pod(None, pod)
    for pod in pods:
        if not pod.node_name:
            decision = run.decide(pod)
            if decision.node is not None:
                run.pod(pod, pod.with_node(decision.node))
            clock.advance(10.0)
    run.close()
