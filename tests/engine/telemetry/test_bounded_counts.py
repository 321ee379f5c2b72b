"""Words that users choose make few series, and none for ever."""

from prometheus_client import CollectorRegistry

from engine.lib.clock import VirtualClock
from engine.surfaces.pulled_metrics import show_rejections
from engine.telemetry.bounded_counts import IDLE_SECONDS, MOST_SERIES, OTHER, BoundedCounts
from engine.telemetry.metrics import Metrics


def _scraped(registry: CollectorRegistry) -> dict[str, float]:
    return {
        one.labels["reason"]: one.value
        for family in registry.collect()
        for one in family.samples
        if one.name == "starsched_rejections_total"
    }


def test_tokens_beyond_the_most_are_counted_together() -> None:
    """`token = "T" + pod.labels["team"]` made a series for each team, two with `_created`."""
    counts = BoundedCounts(["TooManyPods"])
    for number in range(MOST_SERIES + 50):
        counts.add(f"Team{number}", 0.0)
    counts.add("TooManyPods", 1.0)
    counts.add("Team0", 1.0)
    found = counts.counts(1.0)
    assert len(found) == MOST_SERIES + 2
    assert found[OTHER] == 50
    assert found["Team0"] == 2
    assert found["TooManyPods"] == 1
    assert sum(found.values()) == MOST_SERIES + 52


def test_a_series_goes_when_its_token_is_not_used_any_more() -> None:
    """They stayed for as long as the process, when all their pods were gone."""
    registry, clock = CollectorRegistry(), VirtualClock()
    metrics = Metrics(registry)
    show_rejections(metrics, clock.monotonic)
    for token in ("TooManyPods", "TeamRed", "TeamBlue"):
        metrics.rejections.add(token, clock.monotonic())
    clock.advance(IDLE_SECONDS - 1)
    metrics.rejections.add("TeamRed", clock.monotonic())
    assert _scraped(registry) == {"TooManyPods": 1, "TeamRed": 2, "TeamBlue": 1}
    clock.advance(2)
    assert _scraped(registry) == {"TooManyPods": 1, "TeamRed": 2}
    clock.advance(IDLE_SECONDS)
    assert _scraped(registry) == {"TooManyPods": 1}


def test_tokens_that_are_not_used_any_more_make_place_for_new_ones() -> None:
    counts = BoundedCounts(most=2)
    counts.add("Old", 0.0)
    counts.add("Used", 0.0)
    counts.add("Used", IDLE_SECONDS - 1)
    counts.add("New", IDLE_SECONDS)
    assert counts.counts(IDLE_SECONDS) == {"Used": 2, "New": 1}
