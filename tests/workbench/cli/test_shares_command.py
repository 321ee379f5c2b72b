"""`starsched shares`: what is printed of a running scheduler, and how it ends."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from devkit.cluster import DevCluster
from engine.app import App
from engine.surfaces.live.share_answers import (
    GivenBack,
    HeldRow,
    ReclaimRow,
    ShareAnswer,
    SharesPage,
)
from tests.engine.app.harness import config_map, namespace, scheduler
from tests.engine.core.kernel.queue_world import tree_files
from tests.engine.surfaces.page import answers
from tests.live import node, pod
from tests.waiting import eventually
from workbench.cli.kubectl_plugin import main as kubectl_starsched
from workbench.cli.main import main
from workbench.cli.shares_text import print_share, print_shares

pytestmark = pytest.mark.usefixtures("no_sandboxes")


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as running:
        running.create(namespace(), node("n", cpu="4"))
        yield running


async def run(app: App, *arguments: str, command: Any = main) -> Result:
    server = f"--server=http://127.0.0.1:{app.surfaces.endpoints.local_port}"
    words = ["shares", *arguments, server]
    return await asyncio.to_thread(CliRunner().invoke, command, words)


async def test_a_running_scheduler_is_asked(cluster: DevCluster) -> None:
    cluster.create(config_map(tree_files(queues={"research": {"weight": 3}, "web": {}})))
    async with scheduler(cluster, from_config_map=True, local_port=0) as app:
        for number in range(4):
            cluster.create(pod(f"w{number}", cpu="1", labels={"queue": "web"}))
        await eventually(lambda: app.cache.pod_count == 4)
        cluster.create(pod("r", cpu="2", labels={"queue": "research"}))

        async def starves() -> bool:
            return "research  web" in (await run(app)).output

        await eventually(starves)
        all_of_it = await run(app)
        assert all_of_it.exit_code == 0
        rows = [" ".join(line.split()) for line in all_of_it.output.splitlines()]
        assert rows[0] == "Of 2 queues, 1 starves and 1 borrows."
        assert "research cpu 0 2 2 lacks 2" in rows
        assert "web cpu 4 2 borrows 2" in rows
        assert (await run(app, command=kubectl_starsched)).output == all_of_it.output
        some = await run(app, "--state=starved", "--output=json")
        page = msgspec.json.decode(some.output, type=SharesPage)
        assert [row.path for row in page.rows] == ["research"]
        one = await run(app, "web", "--output=json")
        answer = msgspec.json.decode(one.output, type=ShareAnswer)
        assert (answer.queue.path, answer.total_pods) == ("web", 4)
        assert "default/w3" in (await run(app, "web")).output
        gone = await run(app, "we b/&?")
        assert (gone.exit_code, "no queue `we b/&?` is known here" in gone.output) == (1, True)
        assert (await run(app, "web", "--state=starved")).exit_code == 2
        assert (await run(app, "--state=calm")).exit_code == 2


async def test_without_a_tree_it_says_what_to_do(cluster: DevCluster) -> None:
    async with scheduler(cluster, local_port=0) as app:
        text, plain = await run(app), await run(app, "--output=json")
        assert (text.exit_code, plain.exit_code) == (1, 1)
        assert "have no QueueTree" in text.output
        assert "docs/queues.md" in text.output
        assert json.loads(plain.output)["policy"] == ""


def test_a_tree_fits_eighty_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_shares(answers.shares(problems_left_out=3, pairs_left_out=4, held_left_out=2))
    print_share(answers.one_share(children=answers.shares().rows[1:4], children_left_out=5))
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    for line in (
        "      vision  cpu          14     40       38  lacks 26",
        "              memory     56Gi  160Gi    152Gi  lacks 104Gi",
        "    web       cpu          56     36        8  borrows 20",
        "  problem: Queue sound: queue `sound` is under `audio`, which is not there",
        "  3 more problems",
        "  4 smaller pairs",
        "  in no queue: 12 pods",
        "  web       7  QuotaReached  4 cpu at web  queue is at its limit",
        "  sound    12  QueueMissing                there is no queue of this name",
        "  2 more that are held",
        "Took               from             Pods  Stage     Ago  For",
        "  research/vision  web                 2         12 min  research/train-7",
        "                   web                 1      1",
        "  web took back    research/vision     1         27 min  (not yours to see)",
        "  next: shop/checkout-1 (held)",
        "  without a line: pods; --resource shows one",
        "  borrowed for 40 min in all",
        "  weight=3, limit=cpu=64 (tree.yaml:7)",
        "  5 more queues",
        "  3 pods left out: of namespaces whose pods are not yours to see",
    ):
        assert line in text.splitlines()


def test_what_was_used_has_a_column_if_it_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    one = answers.one_share()
    used = {
        name: msgspec.structs.replace(standing, usage=437 if name == "cpu" else None)
        for name, standing in one.queue.resources.items()
    }
    row = msgspec.structs.replace(one.queue, resources=used)
    print_share(answers.one_share())
    assert "Past" not in capsys.readouterr().out
    print_share(answers.one_share(queue=row))
    title, cpu, memory, *_ = capsys.readouterr().out.partition("Resource")[2].splitlines()
    assert title.split() == ["Used", "Share", "Waiting", "Past"]
    assert "44%" in cpu.split()
    assert "%" not in memory
    print_shares(answers.shares(row, queues=4))
    assert "44%" in capsys.readouterr().out


def test_of_a_part_of_a_tree_paths_are_whole(capsys: pytest.CaptureFixture[str]) -> None:
    page = answers.shares(*answers.shares().rows[3:4], queues=4, total=9)
    print_shares(page)
    text = capsys.readouterr().out
    assert "  research/vision  cpu" in text
    assert "1 of 9 queues; --limit prints more" in text


def test_text_of_others_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    row = answers.share("[red]", answers.standing(1), source="[b]", attributes={"[i]": "\x1b[2J"})
    held = HeldRow(queue="[q]", token="[t]", reason="[r]", resource="[c]", at="[a]", pods=1)
    took = ReclaimRow(
        at=answers.AT, queue="[k]", taker="[n]", victims=(GivenBack(queue="[g]", stage=0, count=1),)
    )
    turns = {"held": (held,), "reclaims": (took,)}
    print_shares(answers.shares(row, problems=("[bold]\x1b",), headline="[dim]", **turns))
    print_share(answers.one_share(queue=row))
    text = capsys.readouterr().out
    for kept in ("[q]", "[t]", "[r]", "[c]", "[a]", "[k]", "[n]", "[g]"):
        assert kept in text
    for kept in ("[red]", "[b]", "[i]", "[bold]", "[dim]", r"\x1b"):
        assert kept in text
    assert "\x1b" not in text
