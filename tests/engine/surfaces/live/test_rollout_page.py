"""What `/rollout` says of a candidate, and what it leaves out."""

from pathlib import Path
from typing import Any

import pytest

from engine.comparing.difference import Difference
from engine.policy.errors import Problem
from engine.rollout.control import Control
from engine.rollout.measures import ShadowMeasures
from engine.rollout.status import RolloutStatus, StageStatus, Verdict
from engine.surfaces.live.answers import Leader, RolloutPage
from engine.surfaces.live.rollout_page import EditSource, namespaces_of, rollout_page

OLD, NEW = "3f2a9c41d07b", "b81c00aa7e21"
STAGES = (StageStatus("shadow"), StageStatus("canary", 0.01), StageStatus("canary", 0.05))
CONFIG_MAP = "starsched/policies-rollout"


def status(stage: int | None = 0, result: str = "running", **fields: Any) -> RolloutStatus:
    return RolloutStatus(
        candidate=NEW, base=OLD, stages=STAGES, stage=stage, result=result, **fields
    )


def page(
    of: RolloutStatus,
    control: Control | None = None,
    *,
    stopped: bool = False,
    config_map: str = CONFIG_MAP,
    **words: Any,
) -> RolloutPage:
    return rollout_page(
        of,
        control or Control(),
        EditSource("s", config_map, stopped),
        leader=Leader(),
        **{"revision": OLD, "now": 0.0, **words},
    )


@pytest.mark.parametrize(
    ("of", "states", "headline"),
    [
        pytest.param(
            status(0), "now ahead ahead ahead",
            f"{NEW} is compared with {OLD}, which decides about every pod.", id="shadow",
        ),
        pytest.param(
            status(1), "done now ahead ahead", f"{NEW} decides about 1% of the pods.", id="canary"
        ),
        pytest.param(
            status(2, paused="too few decisions"), "done done paused ahead",
            f"{NEW} stands still in canary 5%: too few decisions.", id="paused",
        ),
        pytest.param(
            status(1, "failed", verdict=Verdict("fail", "3 newly pending, at most 0.")),
            "done failed ahead ahead",
            f"{NEW} failed in canary 1%: 3 newly pending, at most 0.", id="failed",
        ),
        pytest.param(
            status(0, "aborted"), "failed ahead ahead ahead", f"{NEW} was aborted in shadow.",
            id="aborted",
        ),
        pytest.param(
            status(None, "promoted"), "done done done done", f"{NEW} has passed its stages.",
            id="passed",
        ),
        pytest.param(
            status(1, "promoted"), "done skipped skipped done",
            f"{NEW} was promoted before the end of its stages.", id="promoted before the end",
        ),
        pytest.param(
            status(1, "superseded"), "done skipped ahead ahead", f"{NEW} gave way to another edit.",
            id="superseded",
        ),
        pytest.param(
            status(None), "ahead ahead ahead ahead", f"{NEW} is about to begin.", id="not begun"
        ),
        pytest.param(
            RolloutStatus(), "", f"Nothing is being rolled out; {OLD} is in force.", id="nothing"
        ),
    ],
)  # fmt: skip
def test_the_way_of_a_candidate(of: RolloutStatus, states: str, headline: str) -> None:
    got = page(of)
    assert [stage.state for stage in got.stages] == states.split()
    assert got.headline == headline


@pytest.mark.parametrize(
    ("of", "control", "stopped", "commands"),
    [
        pytest.param(status(), Control(), False, ["pause", "promote", "abort"], id="running"),
        pytest.param(
            status(paused="paused"), Control("paused"), False, ["resume", "promote", "abort"],
            id="paused",
        ),
        pytest.param(status(None, "failed"), Control(), False, [], id="failed"),
        pytest.param(RolloutStatus(), Control("at-once"), False, ["resume"], id="at once"),
        pytest.param(RolloutStatus(), Control(), False, [], id="nothing"),
        pytest.param(
            RolloutStatus(), Control(), True,
            ["kubectl -n starsched annotate configmap policies starsched.dev/rollout-"],
            id="stopped",
        ),
    ],
)  # fmt: skip
def test_what_can_be_done(
    of: RolloutStatus, control: Control, stopped: bool, commands: list[str]
) -> None:
    got = [one.command for one in page(of, control, stopped=stopped).commands]
    assert [
        text.removeprefix("starsched rollout ").partition(" --revision")[0] for text in got
    ] == commands
    assert all(text.endswith(NEW) for text in got if "--revision" in text)
    assert page(of, control, stopped=stopped, config_map="").commands == ()


@pytest.mark.parametrize("config_map", [CONFIG_MAP, ""])
def test_an_edit_that_is_recorded_can_be_simulated(config_map: str) -> None:
    words: dict[str, Any] = {"config_map": config_map, "decision_log": Path("/var/my log")}
    last = page(status(0, "failed"), **words).commands[-1]
    assert last.command == "starsched rollout report --log '/var/my log'"
    assert page(RolloutStatus(), **words).commands == ()


def test_problems_of_the_mode_are_said() -> None:
    control = Control(problems=(Problem("x", 0, 0, "want one of a, b, got `c`"),))
    assert page(RolloutStatus(), control).problems == ("x: want one of a, b, got `c`",)


def shadow() -> ShadowMeasures:
    return ShadowMeasures(
        decided=10,
        compared=9,
        counts={"moved": 3},
        by_policy={"p": 3},
        by_namespace={"shop": 2, "secret": 1},
        by_class={"secret/Job/report": 1, "shop/Pod/a": 1, "others": 1},
        examples=[
            Difference("moved", "shop/a", "n1", "n2"),
            Difference("moved", "secret/report-1", "n1", "n2"),
        ],
    )


def test_pods_of_other_namespaces_are_left_out_and_the_sums_stay() -> None:
    of = status(shadow=shadow())
    assert namespaces_of(of) == {"shop", "secret"}
    got = page(of, readable={"shop"})
    assert got.shadow is not None
    assert got.left_out == 1
    assert got.shadow.by_namespace == {"shop": 2}
    assert [one.pod for one in got.shadow.examples] == ["shop/a"]
    assert (got.shadow.by_class, got.shadow.counts) == ({"shop/Pod/a": 1}, {"moved": 3})
    # What the roll-out counts on with is not touched.
    assert of.shadow == shadow()
    assert page(of).shadow == shadow()


def test_a_stage_that_a_gate_refused_before_it_began_has_no_beginning() -> None:
    """It was said to be in its stage since 1970."""
    assert page(status(0, "failed")).since is None
    assert page(status(0, since=1.0)).since == "1970-01-01T00:00:01.000+00:00"
