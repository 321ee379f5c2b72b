"""`starsched rollout`: what is printed, and what is written with whose rights."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner, Result

from devkit.cluster import DevCluster
from engine.app import App
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.io.kube.errors import Conflict, Forbidden, NotFound
from engine.rollout.rollout import Rollout
from engine.rollout.status import RolloutStatus, StageStatus
from engine.surfaces.live.answers import RolloutPage
from tests.engine.app.harness import config_map, namespace, scheduler
from tests.engine.surfaces.live.forwarding import write_kubeconfig
from tests.engine.surfaces.page import answers
from tests.waiting import eventually
from workbench.cli.kubectl_plugin import main as kubectl_starsched
from workbench.cli.main import main
from workbench.cli.rollout_control import abort, promote, set_mode, write_control
from workbench.cli.rollout_text import print_rollout

pytestmark = pytest.mark.usefixtures("no_sandboxes")

CANDIDATE, OTHER = "b81c00aa7e21", "3f2a9c41d07b"
CONTROL = "policies-rollout"
RUNNING = RolloutStatus(
    candidate=CANDIDATE, base=OTHER, stages=(StageStatus("shadow"),), stage=0, result="running"
)


class Bench:
    """A scheduler that can be asked, on a cluster that can be written."""

    def __init__(self, cluster: DevCluster, app: App, kubeconfig: Path) -> None:
        self.cluster = cluster
        self.app = app
        self.where = [f"--kubeconfig={kubeconfig}"]
        self.server = f"--server=http://127.0.0.1:{app.surfaces.endpoints.local_port}"

    async def run(self, *arguments: str, command: Any = main) -> Result:
        words = ["rollout", *arguments, *self.where, self.server]
        return await asyncio.to_thread(CliRunner().invoke, command, words)

    async def says(self, *arguments: str) -> str:
        result = await self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.output

    @property
    def data(self) -> Any:
        found = self.cluster.get("configmaps", CONTROL, "starsched")
        return None if found is None else found.get("data")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with DevCluster() as cluster:
        cluster.create(namespace(), config_map({}))
        async with scheduler(cluster, from_config_map=True, local_port=0) as app:
            yield Bench(cluster, app, write_kubeconfig(tmp_path / "kubeconfig", cluster.url))


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rollout, "status", RUNNING)


# --- what is printed ---------------------------------------------------------------------------


async def test_nothing_is_rolled_out(bench: Bench) -> None:
    said = await bench.says("status")
    revision = bench.app.policies.rollout.active.bundle.revision
    assert said == f"Nothing is being rolled out; {revision} is in force.\n"
    page = msgspec.json.decode(await bench.says("status", "--output=json"), type=RolloutPage)
    assert (page.revision, page.mode) == (revision, "staged")
    by_plugin = await bench.run("status", command=kubectl_starsched)
    assert by_plugin.output == said


def test_everything_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Denominators come before differences, and text of others is no markup."""
    page = answers.rollout(problems=("key `mode`: got `[red]`",), left_out=2)
    print_rollout(page)
    text = capsys.readouterr().out
    for line in (
        "b81c00aa7e21 decides about 1% of the pods.",
        "✓ shadow  ● canary 1%  ○ canary 5%  ○ in force",
        "next: It goes on by itself when every gate has passed.",
        "problem: key `mode`: got `[red]`",
        "Gates inconclusive: 71 s of 2 min",
        "2 namespaces are left out",
        "batch/report-7 newly pending by prefer_disk (prefer_disk.star:12)",
        "starsched rollout pause  # keeps it in its stage",
    ):
        assert line in text
    rows = [" ".join(line.split()) for line in text.splitlines()]
    for row in (
        f"maxMoved {'█' * 2}{'░' * 14} pass 3.4% moved, at most 25%",
        f"maxNewlyPending {'█' * 16} fail 1 newly pending, at most 0",
        "decided 1,300 100%",
        "skipped: busy 90 7%",
        "moved 41 3%",
        "decides node-2 node-4",
        "scores node-2, in force node-4, in force node-2, candidate node-4, candidate",
        "prefer_disk 500 100 500 900",
        "total 580 160 580 960",
        "time to bind 0.4 s 0.3 s",
    ):
        assert row in rows
    assert text.index("skipped: busy") < text.index("newly pending ")


# --- what is written ---------------------------------------------------------------------------


async def test_roll_outs_are_paused_and_go_on(bench: Bench) -> None:
    assert bench.data is None
    assert await bench.says("pause") == (
        "Roll-outs are paused; `starsched rollout resume` lets them go on.\n"
    )
    assert bench.data == {"mode": "paused"}
    await eventually(lambda: bench.app.policies.control.current.mode == "paused")
    assert "paused already" in await bench.says("pause")
    assert "next: Roll-outs are paused" in await bench.says("status")
    assert await bench.says("resume") == (
        "Edits go through their stages again; the mode was `paused`.\n"
    )
    assert bench.data == {"mode": "staged"}
    assert "already" in await bench.says("resume")


@pytest.mark.usefixtures("running")
async def test_the_candidate_is_promoted_or_aborted_by_its_revision(bench: Bench) -> None:
    await bench.says("promote")
    await eventually(lambda: bench.app.policies.control.current.promotes(CANDIDATE))
    # The opposite wish is withdrawn; that of another revision is not.
    await bench.says("abort", f"--revision={CANDIDATE}")
    assert bench.data == {"abort": CANDIDATE}
    result = await bench.run("promote", f"--revision={OTHER}")
    assert result.exit_code == 1
    assert f"`{OTHER}` is not being rolled out: `{CANDIDATE}` is" in result.output
    assert bench.data == {"abort": CANDIDATE}


async def test_what_a_gate_has_refused_is_promoted_by_its_revision(bench: Bench) -> None:
    """It is not being rolled out any more; the one in force may be what is wrong."""
    await bench.says("promote", f"--revision={OTHER}")
    assert bench.data == {"promote": OTHER}
    await eventually(lambda: bench.app.policies.control.current.promotes(OTHER))


async def test_without_a_candidate_there_is_nothing_to_promote(bench: Bench) -> None:
    for command in ("promote", "abort"):
        result = await bench.run(command)
        assert result.exit_code == 1
        assert "nothing is being rolled out" in result.output
    assert bench.data is None


async def test_who_names_everything_needs_no_scheduler(bench: Bench) -> None:
    bench.server = "--server=http://127.0.0.1:1"
    result = await bench.run("pause")
    assert result.exit_code == 1
    assert "the scheduler could not be asked" in result.output
    assert "hint: --configmap and --revision" in result.output
    place = "--configmap=configmap:starsched/policies"
    await bench.says("abort", place, f"--revision={OTHER}")
    await bench.says("pause", place)
    assert bench.data == {"abort": OTHER, "mode": "paused"}


async def test_the_kill_switch_is_not_undone_by_resuming(bench: Bench) -> None:
    found = bench.cluster.get("configmaps", "policies", "starsched")
    assert found is not None
    metadata = {**found["metadata"], "annotations": {"starsched.dev/rollout": "stop"}}
    bench.cluster.update("configmaps", {**found, "metadata": metadata})
    await eventually(lambda: bench.app.policies.rollout.inbox.is_stopped)
    assert (
        "kubectl -n starsched annotate configmap policies starsched.dev/rollout-"
        in await bench.says("resume")
    )


async def test_policies_of_no_config_map_have_no_mode(tmp_path: Path) -> None:
    async with DevCluster() as cluster, scheduler(cluster, local_port=0) as app:
        bench = Bench(cluster, app, write_kubeconfig(tmp_path / "kubeconfig", cluster.url))
        result = await bench.run("pause")
        assert result.exit_code == 1
        assert "the policies come from `builtin`: only for those of a ConfigMap" in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pause", "--configmap=policies"], "want NAMESPACE/NAME, got `policies`"),
        (["pause", "--configmap=a/b/c"], "want NAMESPACE/NAME, got `a/b/c`"),
        (["promote", "--revision=HEAD"], "want 12 hexadecimal digits, as `status` has it"),
    ],
)
def test_wrong_usage(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(main, ["rollout", *arguments])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


# --- requests ----------------------------------------------------------------------------------


async def test_what_others_write_meanwhile_is_kept() -> None:
    """Between the reading and the writing: the resourceVersion is a precondition."""
    async with DevCluster() as cluster:
        cluster.create(namespace(), {**config_map({"mode": "paused"})})

        class Raced(ApiClient):
            races = 3

            async def patch(self, *args: Any, **kwargs: Any) -> bytes:
                if self.races:
                    self.races -= 1
                    found = cluster.get("configmaps", "policies", "starsched")
                    assert found is not None
                    data = {**found["data"], "other": str(self.races)}
                    cluster.update("configmaps", {**found, "data": data})
                return await super().patch(*args, **kwargs)

        client = Raced(Endpoint(server=cluster.url))
        async with client:
            await write_control(client, "starsched/policies", promote(CANDIDATE))
            found = cluster.get("configmaps", "policies", "starsched")
            assert found is not None
            assert found["data"] == {"mode": "paused", "other": "0", "promote": CANDIDATE}
            client.races = 100
            with pytest.raises(click.ClickException, match="others change it all the time"):
                await write_control(client, "starsched/policies", abort(CANDIDATE))


class Refusing:
    """An API server that refuses; without a ConfigMap, also to create one."""

    def __init__(self, *, is_there: bool) -> None:
        self.is_there = is_there
        self.created = 0

    async def get(self, *_: Any) -> bytes:
        if not self.is_there:
            raise NotFound("no such ConfigMap")
        return json.dumps({"metadata": {"resourceVersion": "1"}}).encode()

    async def create(self, *_: Any, **__: Any) -> bytes:
        raise Forbidden("configmaps is forbidden: User `ann` cannot create")

    async def patch(self, *_: Any, **__: Any) -> bytes:
        raise Forbidden("configmaps is forbidden: User `ann` cannot patch")


@pytest.mark.parametrize(("is_there", "verb"), [(True, "patch"), (False, "create")])
async def test_a_refusal_names_the_role_that_is_missing(is_there: bool, verb: str) -> None:
    client: Any = Refusing(is_there=is_there)
    with pytest.raises(click.ClickException) as raised:
        await write_control(client, "starsched/p-rollout", set_mode("paused"))
    assert f"User `ann` cannot {verb}" in raised.value.message
    assert "the Role `starsched-rollout-operator` in namespace `starsched`" in raised.value.message


async def test_a_config_map_that_is_made_meanwhile_is_changed() -> None:
    class Late(Refusing):
        async def create(self, *_: Any, **__: Any) -> bytes:
            self.is_there = True
            raise Conflict("it is there by now")

        async def patch(self, *_: Any, **__: Any) -> bytes:
            self.created += 1
            return b"{}"

    client: Any = Late(is_there=False)
    await write_control(client, "starsched/p-rollout", set_mode("paused"))
    assert client.created == 1
