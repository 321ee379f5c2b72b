"""The facts of the clock: what they hold, and when they change."""

import datetime

import pytest

from engine.core.model.clock_facts import CLOCK_FACTS, beside_sources, clock_facts, next_step
from engine.core.model.fact import Fact
from engine.lib.time_zones import zone_names, zone_of

DAY = 24 * 3600.0
BERLIN = zone_of("Europe/Berlin")


def at(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


def hours(since: str, until: str, zone: str) -> list[int]:
    """The values of `hour` from *since* to *until*, one for each step."""
    now, end, found = at(since), at(until), []
    while now < end:
        found.append(clock_facts(now, zone_of(zone))["hour"].value)
        now = next_step(now, zone_of(zone), ["hour"], until=end)
    return found  # type: ignore[return-value]  # whole numbers


def test_the_facts_are_those_of_the_time_zone() -> None:
    shown = clock_facts(at("2026-12-31T22:59:59Z"), BERLIN)
    assert shown == {
        "hour": Fact(23, "23", 0),
        "minute": Fact(59, "59", 0),
        "weekday": Fact(4, "Thursday", 0),
        "date": Fact(20261231, "2026-12-31", 0),
        "epoch_minute": Fact(29979299, "29979299", 0),
    }
    assert clock_facts(at("2026-12-31T23:00:00Z"), BERLIN)["date"].text == "2027-01-01"


@pytest.mark.parametrize(
    ("since", "zone", "want"),
    [
        pytest.param("2026-03-29T00:00:00Z", "Europe/Berlin", [1, 3, 4], id="an hour left out"),
        pytest.param("2026-10-25T00:00:00Z", "Europe/Berlin", [2, 3], id="an hour twice as long"),
        pytest.param("2026-06-01T00:00:00Z", "Asia/Kolkata", [5, 6, 7, 8], id="half an hour off"),
        # Half past one comes twice; the hour 1 lasts half an hour longer.
        pytest.param("2026-04-04T13:00:00Z", "Australia/Lord_Howe", [0, 1, 2], id="half an hour"),
    ],
)
def test_hours_are_those_that_clocks_show(since: str, zone: str, want: list[int]) -> None:
    until = datetime.datetime.fromisoformat(since) + datetime.timedelta(hours=3)
    assert hours(since, until.isoformat(), zone) == want


def test_a_fact_changes_when_the_one_that_is_read_does() -> None:
    now = at("2026-12-30T10:20:30+01:00")
    for names, want in (
        (["minute"], "2026-12-30T10:21:00+01:00"),
        (["epoch_minute"], "2026-12-30T10:21:00+01:00"),
        (["hour"], "2026-12-30T11:00:00+01:00"),
        (["weekday"], "2026-12-31T00:00:00+01:00"),
        (["date", "hour"], "2026-12-30T11:00:00+01:00"),
    ):
        assert next_step(now, BERLIN, names, until=now + DAY) == at(want), names
    assert next_step(now, BERLIN, ["hour"], until=now + 5) == now + 5


def test_a_step_is_after_the_moment_that_it_is_asked_for() -> None:
    midnight = at("2026-12-31T00:00:00+01:00")
    assert next_step(midnight, BERLIN, ["hour"], until=midnight + DAY) == midnight + 3600


@pytest.mark.parametrize("year", [2026, 2027])
def test_every_time_zone_differs_from_utc_by_whole_minutes(year: int) -> None:
    """`next_step` looks at whole minutes alone."""
    for name in sorted(zone_names()):
        for month in range(1, 13):
            noon = datetime.datetime(year, month, 1, 12, tzinfo=datetime.UTC)
            offset = noon.astimezone(zone_of(name)).utcoffset()
            assert offset is not None
            assert offset.seconds % 60 == 0, name


def test_a_source_goes_before_the_clock_if_it_gives_a_whole_number() -> None:
    clock = clock_facts(0.0, zone_of("UTC"))
    given = {"hour": Fact(23, "23", 40), "weekday": Fact(None, "?"), "price": Fact(2.5, "2.5")}
    shown = beside_sources(given, clock)
    assert shown["hour"].value == 23
    assert shown["weekday"].text == "Thursday"
    assert shown.keys() == {"price", *CLOCK_FACTS}


def test_there_is_no_time_zone_outside_the_data() -> None:
    for name in ("../zones", "Local", ""):
        with pytest.raises(ValueError, match="no time zone"):
            zone_of(name)
