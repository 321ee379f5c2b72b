"""The edits of `make bench-rollout`, what it checks, and a run at a small size."""

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from devkit.benchmarks import bench_rollout
from devkit.benchmarks.churn import Ledger, pods_of_owners
from devkit.benchmarks.edits import (
    BAD,
    GOOD,
    GROUP_LABEL,
    SIZE_LABEL,
    Edit,
    Policies,
    make_edit,
    plan_of,
)
from devkit.benchmarks.rolling import IN_FORCE, REFUSED, Fate, Roller, Settings, attempts
from devkit.benchmarks.shadowed import percentile_of
from engine.policy.bundle import build_bundle

SHIPPED = Settings().as_shipped()
STAGES = SHIPPED.stages()


def test_three_of_ten_edits_are_bad_and_each_maker_makes_as_many() -> None:
    counts = Counter(plan_of(1000, 0.3, 1))
    assert sum(counts[maker] for maker in BAD) == 300
    assert {counts[maker] for maker in BAD} == {50}
    assert {counts[maker] // 10 for maker in GOOD} == {8}


def test_edits_follow_each_other_and_every_one_is_a_revision_without_a_warning() -> None:
    policies, revisions = Policies(), set()
    plan = plan_of(60, 0.3, 7)
    assert set(plan) == {*GOOD, *BAD}
    for number, maker in enumerate(plan, 1):
        edit = make_edit(number, maker, policies, 7)
        bundle = build_bundle(edit.policies.files(STAGES))
        assert bundle.warnings == (), maker
        revisions.add(bundle.revision)
        if not edit.is_bad:
            policies = edit.policies
    assert len(revisions) == 60
    assert policies.fault == ""


@pytest.mark.parametrize("maker", [*GOOD, *BAD])
def test_an_edit_changes_the_text_that_it_says_it_changes(maker: str) -> None:
    before = Policies()
    edit = make_edit(1, maker, before, 3)
    changed = set(edit.policies.files(STAGES).items()) ^ set(before.files(STAGES).items())
    assert edit.policies.touched in {name for name, _ in changed}


def test_the_stages_are_the_shipped_ones_but_for_their_time() -> None:
    assert SHIPPED.departures() == ["stages last 1 s at least, not 1 and 2 minutes"]
    fewer = Settings(seconds=120.0, compared=100, cores=0.5, decisions=5).departures()
    assert fewer == [
        "100 compared decisions instead of 500",
        "0.5 of a core for the shadow instead of 0.05",
        "5 decisions a step instead of 50",
    ]
    rollout = build_bundle(Policies().files(STAGES)).runtime.rollout
    shipped = build_bundle(Policies().files({"shadow": {}, "canary": {}})).runtime.rollout
    assert rollout.shadow is not None
    assert shipped.shadow is not None
    assert rollout.canary is not None
    assert shipped.canary is not None
    assert (rollout.shadow.compared, rollout.shadow.cores) == (
        shipped.shadow.compared,
        shipped.shadow.cores,
    )
    assert [(step.share, step.decisions) for step in rollout.canary.steps] == [
        (step.share, step.decisions) for step in shipped.canary.steps
    ]
    assert rollout.gates == shipped.gates


def test_groups_of_the_load_are_whole_and_owners_are_several() -> None:
    pods = list(itertools.islice(pods_of_owners(1), 2_000))
    labels = [pod["metadata"]["labels"] for pod in pods]
    sizes = Counter(one[GROUP_LABEL] for one in labels if GROUP_LABEL in one)
    last = labels[-1].get(GROUP_LABEL)
    assert {
        one[GROUP_LABEL]: int(one[SIZE_LABEL])
        for one in labels
        if GROUP_LABEL in one and one[GROUP_LABEL] != last
    } == {name: size for name, size in sizes.items() if name != last}
    owners = {pod["metadata"]["ownerReferences"][0]["uid"] for pod in pods if "ownerReferences" in
              pod["metadata"]}  # fmt: skip
    assert len(owners) > 200


def ledger(**nodes: str) -> Ledger:
    found = Ledger(created=list(nodes))
    for name, seen in nodes.items():
        if seen:
            found.sightings.nodes[name] = set(seen.split("+"))
            found.sightings.bound_at[name] = 0.0
    return found


def test_pods_that_were_bound_once_are_fine_whether_they_are_deleted_or_there() -> None:
    found = ledger(a="n1", b="n2")
    found.deleted.add("b")
    assert found.problems({"a": "n1"}, {"201": 2}) == []


def test_lost_unbound_and_twice_bound_pods_are_reported() -> None:
    found = ledger(a="n1+n2", b="n1", c="", d="n1")
    assert found.problems({"a": "n2", "c": "", "d": "n3"}, {"201": 4, "409": 1}) == [
        "pod `c` was never bound",
        "pod `b` is gone",
        "pod `a` was seen on `n1` and `n2`",
        "pod `d` was seen on `n1`",
        "the API server accepted 4 bindings, want 3, one per pod",
        "1 bindings were for pods that were bound already",
    ]


@pytest.mark.parametrize(
    ("words", "want"),
    [
        pytest.param({"is_bad": True, "outcome": REFUSED, "decided": 5}, "", id="bad, refused"),
        pytest.param(
            {"is_bad": True, "outcome": REFUSED, "decided": 6},
            "edit 3 (comment, revision r) is bad and made 6 of 100 decisions",
            id="bad, for too many",
        ),
        pytest.param(
            {"is_bad": True, "outcome": IN_FORCE},
            "edit 3 (comment, revision r) is bad and came into force: why",
            id="bad, in force",
        ),
        pytest.param({"is_bad": False, "outcome": IN_FORCE, "decided": 90}, "", id="good"),
        pytest.param(
            {"is_bad": False, "outcome": REFUSED, "stage": "shadow"},
            "edit 3 (comment, revision r) is good and was refused at shadow: why",
            id="good, refused",
        ),
        pytest.param(
            {"is_bad": False},
            "edit 3 (comment, revision r) was not decided about: why",
            id="stuck",
        ),
    ],
)
def test_what_must_not_become_of_an_edit(words: dict[str, Any], want: str) -> None:
    fate = Fate(number=3, maker="comment", revision="r", decisions=100, why="why", **words)
    assert fate.problem() == want


class Refusing(Roller):
    """Refuses what is offered first."""

    def __init__(self) -> None:
        self.offered: list[dict[str, str]] = []

    async def roll_out(self, edit: Edit) -> Fate:
        self.offered.append(edit.policies.files({}))
        outcome = REFUSED if len(self.offered) == 1 else IN_FORCE
        return Fate(edit.number, edit.maker, edit.is_bad, "r", outcome, why="by chance")


async def test_a_good_edit_that_is_refused_is_written_again_as_another_revision() -> None:
    roller = Refusing()
    edit, fate = await roller.settle(make_edit(1, "comment", Policies(), seed=1))
    assert (fate.outcome, fate.refused_before) == (IN_FORCE, "by chance")
    assert roller.offered[0] != roller.offered[1] == edit.policies.files({})


async def test_a_bad_edit_is_written_once() -> None:
    roller = Refusing()
    _, fate = await roller.settle(make_edit(1, "wrong sign", Policies(), seed=1))
    assert (fate.outcome, len(roller.offered)) == (REFUSED, 1)


def test_decisions_are_counted_from_the_metrics() -> None:
    name = "scheduler_schedule_attempts_total"
    text = f'{name}{{profile="a",result="scheduled"}} 7.0\n{name}{{profile="a",result="error"}} 2.0'
    assert attempts(text) == 9


def test_a_percentile_lies_within_its_bucket() -> None:
    name = "scheduler_scheduling_algorithm_duration_seconds_bucket"
    counts = {"0.001": 90, "0.002": 100, "+Inf": 100}
    text = "\n".join(f'{name}{{le="{bound}"}} {count}.0' for bound, count in counts.items())
    assert percentile_of(text, 0.95) == pytest.approx(0.0015)
    assert percentile_of("", 0.99) == 0.0


@pytest.mark.alone("schedules under load")
@pytest.mark.long("runs a bench")
@pytest.mark.timeout(300)
def test_edits_are_rolled_out_under_load(tmp_path: Path) -> None:
    output = tmp_path / "rollout.json"
    result = CliRunner().invoke(
        bench_rollout.main,
        ["--groups", "edits", "--edits", "2", "--bad", "0.5", "--nodes", "20", "--rate", "40",
         "--compared", "30", "--decisions", "1", "--output", "json", str(output)],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    edits = json.loads(output.read_text())["results"]["edits"]
    assert (edits["edits"], edits["bad"]) == (2, 1)
    assert edits["bound"] == edits["pods"] > 0
    assert edits["problems"] == []


@pytest.mark.long("runs a bench")
@pytest.mark.timeout(240)
def test_the_cost_of_a_shadow_and_equivalence_are_measured(tmp_path: Path) -> None:
    output = tmp_path / "rollout.json"
    result = CliRunner().invoke(
        bench_rollout.main,
        ["--groups", "cost,equivalence", "--cost-nodes", "20", "--cost-pods", "60", "--repeat", "1",
         "--equivalent", "60", "--odd", "100", "--output", "json", str(output)],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    results = json.loads(output.read_text())["results"]
    assert results["cost"]["compared"] > 0
    assert results["equivalence"]["equivalent"]["counts"] == {}
    assert results["equivalence"]["odd"]["counts"] == {"moved": 1}
