"""The metrics of a roll-out, as a scrape has them."""

from typing import Any

from prometheus_client import CollectorRegistry

from engine.rollout.measures import ShadowMeasures
from engine.rollout.status import RolloutStatus, StageStatus
from engine.surfaces.pulled_metrics import show_rollout
from engine.telemetry.metrics import Metrics


def _scraped(status: RolloutStatus) -> dict[str, Any]:
    registry = CollectorRegistry()
    show_rollout(Metrics(registry), lambda: status)
    return {
        " ".join((one.name.removeprefix("starsched_rollout_"), *one.labels.values())): one.value
        for family in registry.collect()
        for one in family.samples
        if one.name.startswith("starsched_rollout_") and not one.name.endswith("_created")
    }


def _status(stage: int | None, **fields: Any) -> RolloutStatus:
    stages = (StageStatus("shadow"), StageStatus("canary", 0.01), StageStatus("canary", 0.05))
    return RolloutStatus(
        candidate="b81c00aa7e21", stages=stages, stage=stage, **{"result": "running", **fields}
    )


def test_without_a_candidate_everything_is_nothing() -> None:
    found = _scraped(RolloutStatus())
    assert {*found.values()} == {0.0}
    assert {"stage shadow", "stage canary", "paused", "compared_total"} <= found.keys()


def test_the_stage_of_a_candidate_is_known() -> None:
    found = _scraped(_status(2))
    assert (found["stage shadow"], found["stage canary"], found["paused"]) == (0, 1, 0)
    assert _scraped(_status(0, paused="too few decisions"))["paused"] == 1


def test_one_that_has_ended_is_in_no_stage() -> None:
    found = _scraped(_status(1, result="failed", paused="?"))
    assert (found["stage canary"], found["paused"]) == (0, 0)


def test_what_the_shadow_has_compared_is_counted_by_kind_and_reason() -> None:
    shadow = ShadowMeasures(compared=9, counts={"moved": 3}, skipped={"busy": 2})
    found = _scraped(_status(0, shadow=shadow))
    assert found["compared_total"] == 9
    assert (found["differences_total moved"], found["differences_total failed"]) == (3, 0)
    assert found["skipped_total busy"] == 2
