"""Flags are taken as Go programs take them, and those of kube-scheduler that change nothing."""

from typing import Any

import click
import pytest
import structlog
import structlog.testing
from click.testing import CliRunner, Result

from engine.core.framework.behaviors import GATES, behaviors_of
from engine.surfaces.cli.go_flags import (
    POP_EARLY,
    UNUSED,
    FeatureGates,
    GoFlagsCommand,
    chosen_gates,
    given_flags,
    log_gates,
    log_unused,
    shown_flags,
    unused_flags,
)
from tests.docs.test_documented import OPERATIONS


def run(*arguments: str) -> tuple[Result, dict[str, Any]]:
    """Run a command with some flags; what it was given."""
    got: dict[str, Any] = {}

    @click.command("c", cls=GoFlagsCommand)
    @click.option("--leader-elect/--no-leader-elect", default=None)
    @click.option("--switch", is_flag=True)
    @click.option("--log-thing")
    @click.option("--feature-gates", type=FeatureGates(), multiple=True)
    @click.option("-v", "--v", "verbosity", type=int, default=0)
    @click.pass_context
    def command(ctx: click.Context, /, **options: Any) -> None:
        got.update(
            options, unused=unused_flags(ctx), shown=shown_flags(ctx), given=given_flags(ctx)
        )

    return CliRunner().invoke(command, arguments), got


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param(["--leader-elect"], {"leader_elect": True}, id="alone"),
        pytest.param(["--leader-elect=true"], {"leader_elect": True}, id="true"),
        pytest.param(["--leader-elect=F"], {"leader_elect": False}, id="false"),
        pytest.param(["--switch=0"], {"switch": False}, id="a switch without an opposite"),
        pytest.param(["--log_thing=a_b"], {"log_thing": "a_b"}, id="underscores in the name"),
        pytest.param(["--log_thing", "a_b"], {"log_thing": "a_b"}, id="and apart from the value"),
        pytest.param(["-v=2"], {"verbosity": 2}, id="short with ="),
        pytest.param(["-v", "-1"], {"verbosity": -1}, id="negative"),
        pytest.param(["--profiling"], {"unused": {"profiling": "true"}}, id="unused switch"),
        pytest.param(
            ["--vmodule", "a=1", "--kube-api-qps=5"],
            {"unused": {"vmodule": "a=1", "kube-api-qps": "5"}},
            id="unused with values",
        ),
    ],
)
def test_a_flag_is_read_as_go_reads_it(arguments: list[str], want: dict[str, Any]) -> None:
    result, got = run(*arguments)
    assert result.exit_code == 0, result.output
    assert {key: got[key] for key in want} == want


@pytest.mark.parametrize("flag", ["--leader-elect=maybe", "--profiling=maybe"])
def test_a_switch_is_true_or_false(flag: str) -> None:
    result, _ = run(flag)
    assert result.exit_code == 2
    assert "want true or false, got `maybe`" in result.output


@pytest.mark.parametrize(
    ("flag", "value", "level"),
    [
        pytest.param("disabled-metrics", "a,b", "warning", id="metrics that are off"),
        pytest.param("kube-api-qps", "5", "info", id="a number"),
    ],
)
def test_what_was_to_be_switched_off_and_stays_on_is_a_warning(
    flag: str, value: str, level: str
) -> None:
    with structlog.testing.capture_logs() as logs:
        log_unused({flag: value})
    assert [line["log_level"] for line in logs] == [level]


def test_the_given_flags_are_shown_without_passwords() -> None:
    _, got = run("--leader-elect", "--log_thing=http://a:b@c/d@e", "-v", "2", "--profiling")
    assert got["given"] == [
        "--leader-elect=true",
        "--log-thing=http://c/d@e",
        "--profiling=true",
        "--v=2",
    ]


def test_an_unknown_flag_is_wrong() -> None:
    result, _ = run("--secure-prot=1")
    assert result.exit_code == 2
    assert "No such option" in result.output


@pytest.mark.parametrize(
    ("flags", "want"),
    [
        ([], True),
        (["--feature-gates=GenericWorkload=true"], True),
        (["--feature-gates=SchedulerPopFromBackoffQ=false"], False),
        (["--feature-gates", "A=true, SchedulerPopFromBackoffQ=F"], False),
        (["--feature_gates=SchedulerPopFromBackoffQ=false", "--feature-gates=A=1"], False),
        (["--feature-gates=SchedulerPopFromBackoffQ=false,SchedulerPopFromBackoffQ=true"], True),
    ],
)
def test_the_gate_of_early_retries_is_read_as_kube_scheduler_reads_it(
    flags: list[str], want: bool
) -> None:
    result, got = run(*flags)
    assert result.exit_code == 0, result.output
    assert chosen_gates(got["feature_gates"]).get(POP_EARLY, True) is want


@pytest.mark.parametrize("value", ["A", "A=", "A=maybe", "=true"])
def test_a_gate_is_a_name_and_true_or_false(value: str) -> None:
    result, _ = run(f"--feature-gates={value}")
    assert result.exit_code == 2
    assert "want `NAME=true` or `NAME=false`" in result.output


def test_a_gate_that_is_to_be_off_and_stays_on_is_a_warning() -> None:
    with structlog.testing.capture_logs() as lines:
        log_gates({"On": True, "Off": False, POP_EARLY: False, **dict.fromkeys(GATES, True)})
    assert [(one["log_level"], one["gate"]) for one in lines] == [
        ("info", "On"),
        ("warning", "Off"),
    ]


@pytest.mark.parametrize("value", [True, False])
def test_a_gate_that_is_gone_stops_a_start_that_says_1_38(value: bool) -> None:
    """As kube-scheduler 1.38; what the API server is, is not known yet where no flag says it.

    Source: `pkg/features` of kube-scheduler 1.37.2 and 1.38.0-beta.0.
    """
    gates = {"DynamicResourceAllocation": value}
    for emulated in (None, behaviors_of(37)):
        with structlog.testing.capture_logs() as lines:
            log_gates(gates, emulated)
        [line] = lines
        assert line["log_level"] == "warning"
        assert line["event"] == "Feature gate is gone"
    with pytest.raises(
        click.UsageError, match="unrecognized feature gate: DynamicResourceAllocation"
    ):
        log_gates(gates, behaviors_of(38))


def test_every_flag_is_shown_with_its_value() -> None:
    gates = "--feature-gates=A=true,B=false"
    _, got = run("--leader-elect=false", "--profiling=false", "-v=1", gates)
    assert got["shown"] == {
        "feature-gates": "[A=true,B=false]",
        "leader-elect": "false",
        "log-thing": "",
        "profiling": "false",
        "switch": "false",
        "v": "1",
    }


@pytest.mark.parametrize("name", UNUSED)
def test_a_flag_without_effect_is_documented_with_the_reason(name: str) -> None:
    rows = [line for line in OPERATIONS.splitlines() if f"`--{name}`" in line]
    assert any(UNUSED[name].why in row for row in rows)
