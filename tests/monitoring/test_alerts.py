"""Each alert fires when it should, and has a runbook."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from devkit.tools import monitoring
from tests.monitoring.world import ALERTS, ROOT, World, alerts
from tests.scripts import go_program
from workbench.cli.main import COMMANDS
from workbench.cli.rollout_command import rollout_command

SLOW = pytest.mark.slow("runs a scheduler and Prometheus")
RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text("utf-8")
UNIT_TESTS = Path(__file__).with_name("alerts_test.yaml")
NAMES = [one["alert"] for one in alerts()]


@pytest.mark.long("brings each alert about on a running scheduler")
@pytest.mark.parametrize("name", NAMES)
def test_the_alert_fires_on_a_real_scheduler(monitored: World, name: str) -> None:
    assert name in monitored.fired


@SLOW
def test_no_alert_fires_while_all_is_well(monitored: World) -> None:
    assert monitored.when_healthy == set()


@SLOW
def test_labels_of_alerts_say_what_they_are_about(monitored: World) -> None:
    wanted = {
        "StarschedNoLeader": {"name": "starsched"},
        "StarschedLeaderFlapping": {"name": "starsched"},
        "StarschedCriticalPodsWaiting": {
            "pod_namespace": "kube-system",
            "priority_class": "system-cluster-critical",
        },
        "StarschedBindingRefused": {"cause": "Forbidden"},
        "StarschedPolicyFailing": {"policy": "mine", "hook": "filter"},
        "StarschedAttemptsFailing": {"owner": "network", "reason": "BindingFailed"},
        "StarschedPodsThrottled": {"profile": "slow"},
        "StarschedPodsWithoutProfile": {"scheduler_name": "former"},
        "StarschedWatchFailing": {"resource": "nodes"},
        "StarschedQueueStarved": {"queue": "hungry", "resource": "cpu"},
        "StarschedFactsStale": {"source": f"file:{monitored.folder / 'facts.json'}"},
    }
    for name, labels in wanted.items():
        assert any(labels.items() <= one.items() for one in monitored.fired[name])
    # The pods that were an hour old, and not those that came a moment ago.
    (old,) = monitored.fired["StarschedPodsWaitingTooLong"]
    assert (old["reason"], old["profile"]) == ("InsufficientResources", "default-scheduler")


@SLOW
def test_promtool_finds_no_fault() -> None:
    checked = subprocess.run(
        [go_program("promtool"), "check", "rules", "--lint=all", "--lint-fatal", ALERTS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(NAMES)} rules found" in checked.stdout


@SLOW
def test_unit_tests_of_alerts_pass() -> None:
    tested = subprocess.run(
        [go_program("promtool"), "test", "rules", UNIT_TESTS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_each_alert_has_unit_tests_that_it_fires_and_that_it_does_not() -> None:
    document = yaml.safe_load(UNIT_TESTS.read_text("utf-8"))
    expected: dict[str, set[bool]] = {name: set() for name in NAMES}
    for group in document["tests"]:
        for test in group["alert_rule_test"]:
            expected[test["alertname"]].add(bool(test.get("exp_alerts")))
    assert [name for name, both in expected.items() if both != {True, False}] == []


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_an_alert_says_how_bad_it_is_and_what_to_do(alert: dict[str, Any]) -> None:
    name, notes = alert["alert"], alert["annotations"]
    assert alert["labels"].keys() == {"severity"}
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert notes.keys() == {"summary", "description", "runbook_url"}
    assert not notes["summary"].endswith(".")
    assert notes["description"].endswith(".")
    assert notes["runbook_url"].endswith(f"/docs/runbooks.md#{name.lower()}")
    section = RUNBOOKS.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    for part in ("**Means**", "**Look**", "**Do**"):
        assert part in section, part


def test_a_runbook_is_that_of_an_alert() -> None:
    sections = re.findall(r"^## (Starsched\w+)$", RUNBOOKS, re.M)
    assert sections == NAMES


def test_commands_of_runbooks_exist() -> None:
    shell = "\n".join(re.findall(r"```sh\n(.*?)```", RUNBOOKS, re.S))
    found = re.findall(r"(?:^|kubectl |&& )starsched ([a-z]+)(?: ([a-z]+))?", shell, re.M)
    assert len(found) > 10
    by_kubectl = {"explain", "queue", "policies", "rollout", "plan", "apply"}
    for command, part in found:
        assert command in COMMANDS.keys() | by_kubectl, command
        if command == "rollout":
            assert part in rollout_command.commands, part


def test_metrics_of_alerts_are_documented() -> None:
    documented = {
        *re.findall(r"^\| `(\w+)`", (ROOT / "docs" / "operations.md").read_text("utf-8"), re.M)
    }
    used = {
        re.sub(r"_(?:bucket|count)$", "", name)
        for alert in alerts()
        for name in re.findall(
            r"\b(?:starsched|scheduler|rest|leader)_\w+",
            re.sub(r"\bby \([^)]*\)", "", alert["expr"]),
        )
    }
    assert len(used) > 9
    assert used - documented == set()


def test_the_object_for_the_operator_has_the_same_alerts() -> None:
    text = (ROOT / monitoring.FOLDER / "prometheus-rule.yaml").read_text("utf-8")
    made = yaml.safe_load(text)
    assert made["spec"] == yaml.safe_load(ALERTS.read_text("utf-8"))
