"""`starsched demo` tells its story, on a machine with nothing but this command."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from devkit.demo.edit import AFTER, BEFORE, BROKEN
from devkit.demo.scenarios import SCENARIOS
from engine.policy.bundle import build_bundle
from engine.policy.errors import PolicyErrors
from tests.waiting import wait_until
from workbench.cli.main import main

PAGE: Final = r"http://127\.0\.0\.1:\d+/"


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "workbench.cli.main", "demo", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow("starts programs")
def test_the_story_ends_well_and_is_readable_in_a_pipe() -> None:
    result = demo()
    assert result.returncode == 0, result.stdout + result.stderr
    assert "before the edit" in result.stdout
    assert "PolicyRejected" in result.stdout
    assert "did you mean `labels`?" in result.stdout
    assert "\x1b" not in result.stdout, "colours are for terminals"
    assert result.stderr == ""


@pytest.mark.budget(8, "the main job from end to end, in one process of its own")
def test_the_story_for_programs() -> None:
    result = demo("--output", "json")
    assert result.returncode == 0, result.stderr
    story = json.loads(result.stdout)
    placements = story["placements"]
    assert len(placements["before"]) == len(placements["after"]) == 9
    assert not set(placements["before"].values()) & set(placements["after"].values())
    assert story["revisions"]["before"] != story["revisions"]["after"]
    assert "prefer_disk.star:9" in story["rejection"]


@pytest.mark.slow("starts programs")
@pytest.mark.parametrize(
    "sent",
    [
        *(pytest.param(one, marks=pytest.mark.long("as SIGTERM does")) for one in (1, 2)),
        signal.SIGTERM,
    ],
)
def test_what_was_kept_is_gone_when_it_is_ended(sent: signal.Signals, tmp_path: Path) -> None:
    """SIGTERM ended it on the spot: the log and a kubeconfig were left in the directory of /tmp."""
    with subprocess.Popen(
        [sys.executable, "-m", "workbench.cli.main", "demo", "--keep"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip().startswith("tail -f"):
                break
        assert len(list(tmp_path.iterdir())) == 1
        process.send_signal(sent)
        assert process.stdout.read() == "stopped\n"
        assert process.wait(60) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow("starts programs")
def test_the_page_that_is_kept_has_something_to_see() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "workbench.cli.main", "demo", "--keep"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            page = _page_of(process.stdout)
            explain = next(line for line in process.stdout if "starsched explain" in line)
            wanted = {"unschedulable": 4, "gated": 3}
            queue = wait_until(lambda: _queue_with(page, wanted, rows=3))
            reasons = {row["example"].partition("/")[2]: row["reason"] for row in queue["rows"]}
            policies = _json(page + "policies")
            words = explain.replace("NAMESPACE/POD", "default/too-large").split()[1:]
            explained = CliRunner().invoke(main, words).output
        finally:
            process.terminate()
            process.stdout.read()
    assert reasons == {
        "train-1": "GroupIncomplete",
        "too-large": "InsufficientResources",
        "no-such-disk-1": "AffinityMismatch",
    }
    assert "default/too-large fits nowhere" in explained
    rejected, in_force, *_ = policies["revisions"]
    assert rejected["result"] == "rejected"
    assert rejected["problems"][0]["file"] == "prefer_disk.star"
    assert in_force["is_in_force"]


def _page_of(lines: Iterable[str]) -> str:
    """The address of the page, of what `demo --keep` prints."""
    return next(line.strip() for line in lines if re.fullmatch(PAGE, line.strip()))


def _json(address: str) -> Any:
    with urllib.request.urlopen(address) as response:
        return json.load(response)


def _queue_with(page: str, counts: dict[str, int], rows: int) -> Any:
    """The queue of the page if it has these counts, and no pod is about to be tried; or None."""
    queue = _json(page + "queue")
    is_at_rest = queue["counts"].items() >= counts.items() and len(queue["rows"]) == rows
    return queue if is_at_rest else None


@pytest.mark.slow("starts programs")
def test_pods_that_are_spread_leave_no_capacity_for_a_large_one_and_packed_ones_do(
    tmp_path: Path,
) -> None:
    story = told(
        "gpu", tmp_path, lambda page: page["totals"]["alibabacloud.com/gpu-count"]["free"] == 6
    )
    before, after = story["before"], story["after"]
    assert before["free_in_all"] == after["free_in_all"] == 48 - sum(story["load"])
    assert before["largest_free"] < 8 <= before["free_in_all"]
    assert after["largest_free"] == 8
    assert story["waits"]["reason"] == "InsufficientResources"
    assert "Insufficient alibabacloud.com/gpu-count" in story["waits"]["message"]
    assert after["free"][story["placed"]["train-8"]] == 8


@pytest.mark.slow("starts programs")
def test_a_group_that_does_not_fit_takes_nothing_and_is_placed_whole_later(tmp_path: Path) -> None:
    story = told(
        "gangs", tmp_path, lambda page: _waits(page, "default/third-1", "InsufficientResources")
    )
    waits, placements = story["waits"], story["placements"]
    assert (waits["pods"], waits["would_fit"], waits["placed"]) == (4, 2, 0)
    assert waits["reason"] == "GroupDoesNotFit"
    assert placements["errand"] not in placements["first"].values()
    assert len(set(placements["second"].values())) == 4


@pytest.mark.slow("starts programs")
def test_queues_take_turns_and_a_share_holds_back_as_the_plan_has_said(tmp_path: Path) -> None:
    story = told("queues", tmp_path, lambda page: page["queues"] == 2 and page["outside"] >= 2)
    assert (story["flood"]["web"], story["turns"]) == (16, {"vision": 4, "web_waiting": 8})
    assert story["held"]["reason"] == "QuotaReached"
    assert "short of 8 nvidia.com/gpu at `web`" in story["held"]["message"]
    assert story["newly_gated"] == 8
    shares = {
        name: {
            one["queue"]: (one["share_before"] or {}).get("nvidia.com/gpu")
            for one in plan["changes"]
        }
        | {
            f"{one['queue']}, edited": one["share_after"]["nvidia.com/gpu"]
            for one in plan["changes"]
        }
        for name, plan in story["plans"].items()
    }
    assert shares == {
        "pack": {"web": None, "vision": None, "web, edited": 5, "vision, edited": 10},
        "weights": {"web": 5, "vision": 10, "web, edited": 12, "vision, edited": 4},
    }
    assert story["running"] == {"web": 12, "vision": 4}, "what the plan gave each"


@pytest.mark.slow("starts programs")
def test_groups_are_tried_by_their_priority_and_small_ones_are_held(tmp_path: Path) -> None:
    story = told("riya", tmp_path, lambda page: _waits(page, "default/too-few-01", "GatedByPolicy"))
    kinds = [name.rpartition("-")[0] for name in story["order"]]
    assert kinds[:20] == ["red"] * 10 + ["yellow"] * 10
    assert set(kinds[20:35]) == {"green", "white-pusheen"}
    assert kinds[35:] == ["gray-pusheen"] * 5 + ["black-pusheen"] * 5
    assert story["held"]["message"].endswith("pods in group (2) < minAvailable (3)")
    assert {"nginx-01", "nginx-02", "nginx-03"} <= story["placements"].keys()


@pytest.mark.slow("starts programs")
def test_bad_edits_are_stopped_by_their_gates_and_a_good_one_comes_into_force(
    tmp_path: Path,
) -> None:
    story = told(
        "rollout",
        tmp_path,
        lambda page: (page["result"], page["verdict"]["outcome"]) == ("failed", "fail"),
    )
    rejecting, good, moving = story["edits"]
    placed_by = story["placed_by"]
    ends = [(edit["result"], edit["steps"][-1]["stage"]) for edit in story["edits"]]
    assert ends == [("failed", "canary 20%"), ("promoted", "canary 50%"), ("failed", "shadow")]
    assert "maxNewlyPending" in rejecting["headline"]
    assert "maxMoved" in moving["headline"]
    assert 0 < rejecting["steps"][-1]["pods"] < rejecting["pods"]
    assert placed_by[rejecting["revision"]] == placed_by[moving["revision"]] == 0
    assert placed_by[good["revision"]] > 0
    assert sum(placed_by.values()) == story["pods"]
    assert story["revisions"]["after"] == good["revision"]


def told(scenario: str, directory: Path, is_shown: Callable[[Any], bool]) -> Any:
    """The facts of a scenario, whose kept page must come to show what *is_shown* wants."""
    command = [sys.executable, "-m", "workbench.cli.main", "demo", "--scenario", scenario]
    text = directory / "told"
    with (
        text.open("wb") as file,
        subprocess.Popen(
            [*command, "--keep", "--output", "json"],
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            lines = list(_until_line("}\n", process.stdout))
            assert lines, text.read_text()
            page = wait_until(lambda: re.search(PAGE + r"\S*", text.read_text()))
            wait_until(lambda: is_shown(_json(page[0])))
        finally:
            process.terminate()
            process.stdout.read()
    story = json.loads("".join(lines))
    assert story["scenario"] == scenario
    return story


def _until_line(last: str, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield line
        if line == last:
            return


def _waits(page: Any, pod: str, reason: str) -> bool:
    """True if *pod* is the example of a row of the queue, and waits for *reason*."""
    return any((row["example"], row["reason"]) == (pod, reason) for row in page["rows"])


@pytest.mark.slow("starts programs")
@pytest.mark.long("a whole story, for the end that none of them has")
def test_a_story_that_does_not_come_true_fails() -> None:
    """Without the policy that orders the queue, pods are tried as they arrived."""
    changed = """if True:
        from dataclasses import replace
        from devkit.demo import riya, scenarios
        from devkit.demo.command import demo_command
        profile = riya.SCENARIO.policies["profile.yaml"].partition("    plugins:")[0]
        scenarios.SCENARIOS["riya"] = replace(riya.SCENARIO, policies={"profile.yaml": profile})
        demo_command(["--scenario", "riya", "--output", "json"])
    """
    result = subprocess.run(
        [sys.executable, "-c", changed], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 1
    assert "demo failed: want pods tried by priority" in result.stderr
    assert "Bound pod" in result.stderr, "the log of the scheduler is shown"
    assert result.stdout == ""


def test_an_unknown_scenario_is_named() -> None:
    result = CliRunner().invoke(main, ["demo", "--scenario", "gpus"])
    assert result.exit_code == 2
    assert "'gpus' is not one of 'edit', 'gpu', 'gangs'" in result.output


def test_the_help_has_a_line_for_each_scenario() -> None:
    shown = " ".join(CliRunner().invoke(main, ["demo", "--help"]).output.split())
    for name, scenario in SCENARIOS.items():
        assert f" {name} {scenario.summary} " in shown


def test_its_policies_are_what_it_says() -> None:
    assert build_bundle(BEFORE).revision != build_bundle(AFTER).revision
    with pytest.raises(PolicyErrors, match="lables"):
        build_bundle(BROKEN)
