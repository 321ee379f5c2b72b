"""`starsched rollout report`: what is known of an edit, and the recorded hour under both texts."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from devkit.cluster import DevCluster
from engine.app import App
from engine.lib.clock import VirtualClock
from engine.rollout.rollout import Rollout
from engine.rollout.status import RolloutStatus, StageStatus
from tests.engine.app.harness import config_map, edit, namespace, scheduler
from tests.engine.app.test_recording import make_recorder
from tests.waiting import eventually
from tests.workbench.cli.test_diff_command import policies
from tests.workbench.cli.test_recorded_workloads import BEGAN, record
from workbench.cli import kubectl_plugin
from workbench.cli.main import main

pytestmark = pytest.mark.usefixtures("no_sandboxes", "policies_load_in_process")

STAGES = (StageStatus("shadow"),)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two nodes of four cores, and six pods of one core, one every 10 s."""
    directory = tmp_path / "log"
    wants = [f"p{number}" for number in range(6)]
    record(directory, VirtualClock(BEGAN), ["n1", "n2"], {}, wants)
    return directory


def report(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["rollout", "report", *map(str, arguments)])


# --- the simulation ----------------------------------------------------------------------------


def test_two_texts_are_simulated_without_a_scheduler(log: Path, tmp_path: Path) -> None:
    one, both = policies(tmp_path / "one", "n1"), policies(tmp_path / "both", "n1", "n2")
    wanted = ("--log", log, "--policies", both, one)
    answer = json.loads(report(*wanted, "--output=json").stdout)
    assert answer["rollout"] is None
    found = answer["simulation"]
    # The node that is left has four cores.
    assert {name: found["metrics"][name]["after"] for name in ("placed", "pending")} == {
        "placed": 4.0,
        "pending": 2.0,
    }
    assert (found["pods"], found["pending_more"]) == (6, 2)
    assert found["before"] != found["after"]
    said = report(*wanted).stdout
    for line in (
        "A simulation of the recorded 50s",
        f"  from 2027-01-15T08:00:00.000+00:00 to 2027-01-15T08:00:50.000+00:00, in virtual time, "
        f"by {found['before']} and by {found['after']}",
        *(f"  {one}" for one in found["assumptions"]),
    ):
        assert f"{line}\n" in said
    assert "is not known" in found["assumptions"][0]
    assert "2 now pending" in said
    assert "\ncpu used on average " in said
    assert "\nthe same with both: " in said


def test_only_the_last_part_is_simulated(log: Path) -> None:
    result = report("--log", log, "--policies", "builtin", "builtin", "--last=25s")
    assert "A simulation of the recorded 25s\n" in result.stdout
    assert "from 2027-01-15T08:00:25.000+00:00 to 2027-01-15T08:00:50.000+00:00" in result.stdout
    assert "\n3 pods: no change\n" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--last=0s"], "want a duration above 0, such as `1h`"),
        (["--last=soon"], "want a duration such as `1m30s` or `250ms`, got `soon`"),
        (["--policies", "builtin"], "requires 2 arguments"),
        (["--policies", "builtin", "nowhere"], "nowhere: "),
    ],
)
def test_wrong_usage(log: Path, arguments: list[str], said: str) -> None:
    result = report("--log", log, *arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_what_is_no_log_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    other = tmp_path / "cluster.json"
    other.write_text("{}")
    for path in (other, tmp_path):
        result = report("--log", path)
        assert (result.exit_code, result.stderr) == (
            2, f"Error: {path}: want a decision log of `run --record`, found none\n",
        )  # fmt: skip


# --- the texts of the scheduler that leads -----------------------------------------------------


def texts(*nodes: str) -> dict[str, str]:
    rule = f"def filter(pod, node):\n    return None if node.name in {nodes} else 'not here'\n"
    return {"only.star": rule}


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    """A scheduler that records, with an edit that may use only one of two nodes, and failed."""
    recorder = make_recorder(tmp_path / "record")
    async with DevCluster() as cluster:
        cluster.create(namespace(), config_map(texts("n1", "n2")))
        async with scheduler(
            cluster, from_config_map=True, local_port=0, decision_log=recorder
        ) as app:
            base = app.policies.rollout.active.bundle.revision
            edit(cluster, texts("n1", ""))
            await eventually(lambda: app.policies.rollout.active.bundle.revision != base)
            candidate = app.policies.rollout.active.bundle.revision
            status = RolloutStatus(
                candidate=candidate, base=base, stages=STAGES, stage=0, result="failed"
            )
            monkeypatch.setattr(Rollout, "status", status)
            yield app


async def asked(app: App, *arguments: object) -> Result:
    server = f"--server=http://127.0.0.1:{app.surfaces.endpoints.local_port}"
    return await asyncio.to_thread(report, server, *arguments)


async def test_the_edit_and_its_simulated_hour_are_one_report(app: App, log: Path) -> None:
    status = app.policies.rollout.status
    result = await asked(app, "--log", log)
    assert result.exit_code == 0, result.output
    said = result.stdout
    assert said.startswith(f"{status.candidate} failed in shadow.\n")
    assert f"in virtual time, by {status.base} and by {status.candidate}\n" in said
    assert "\n6 pods: 2 moved, 2 now pending\n" in said
    header = next(line for line in said.splitlines() if "measure" in line)
    assert header.index("in force") < header.index("candidate")
    # Which log it is, the scheduler says.
    assert app.env.decision_log is not None
    assert f"\n  starsched rollout report --log {app.env.decision_log.directory}" in said
    answer = json.loads((await asked(app, "--log", log, "--output=json")).stdout)
    assert answer["rollout"]["candidate"] == answer["simulation"]["after"] == status.candidate
    assert answer["simulation"]["before"] == status.base
    assert answer["simulation"]["pending_more"] == 2


async def test_a_scheduler_with_another_configuration_is_noted(
    app: App, log: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    )
    result = await asked(app, "--log", log, f"--config={config}")
    assert result.exit_code == 0, result.output
    assert f"note: `{app.policies.rollout.status.base}` is `" in result.stderr


async def test_texts_that_the_scheduler_lacks_are_named(
    app: App, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = RolloutStatus(candidate=app.policies.rollout.status.candidate, base="3f2a9c41d07b")
    for status, why in (
        (gone, "the scheduler does not have the text of `3f2a9c41d07b` any more"),
        (RolloutStatus(), "there is no edit to simulate"),
    ):
        monkeypatch.setattr(Rollout, "status", status)
        result = await asked(app, "--log", log)
        assert result.exit_code == 1
        hint = "hint: --policies A B says which texts are simulated without asking"
        assert result.stderr.endswith(f"Error: {why}\n{hint}\n")


def test_a_scheduler_that_cannot_be_asked_is_told_with_the_way_round(log: Path) -> None:
    result = report("--log", log, "--server=http://127.0.0.1:1")
    assert result.exit_code == 1
    assert "the scheduler could not be asked" in result.stderr
    assert "hint: --policies A B" in result.stderr


def test_the_plugin_becomes_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Policies are run in a process of their own, which is forked before there are threads.

    `-P`: nothing of the current directory is taken for our code.
    """
    became: list[Any] = []
    monkeypatch.setattr("os.execv", lambda _path, words: became.append(words[1:]))
    words = ["rollout", "report", "--log", "x", "--help"]
    CliRunner().invoke(kubectl_plugin.main, words)
    assert became == [["-P", "-m", "workbench.cli.main", *words]]
