"""How values are written."""

import pytest

from engine.surfaces.page import words


@pytest.mark.parametrize(
    ("seconds", "want"),
    [(-3, "0 s"), (59.9, "59 s"), (60, "1 min"), (3599, "59 min"), (11_520, "3 h 12 min"),
     (90_000, "1 d 1 h")],
)  # fmt: skip
def test_ages(seconds: float, want: str) -> None:
    assert words.age(seconds) == want


@pytest.mark.parametrize(
    ("value", "resource", "want"),
    [
        (3500, "cpu", "3.5"),
        (4000, "cpu", "4"),
        (1_234_500, "cpu", "1,234.5"),
        (0, "memory", "0"),
        (16 * 1024**3, "memory", "16Gi"),
        (1536 * 1024**2, "memory", "1.5Gi"),
        (1023, "ephemeral-storage", "1023"),
        (2048, "hugepages-2Mi", "2Ki"),
        (8, "nvidia.com/gpu", "8"),
    ],
)
def test_amounts(value: int, resource: str, want: str) -> None:
    assert words.amount(value, resource) == want


@pytest.mark.parametrize(
    ("share", "want"),
    [
        (0, "0%"),
        (0.0001, "<0.1%"),
        (0.0049, "0.5%"),
        (0.994, "99%"),
        (0.9999, "99%"),
        (1, "100%"),
        (1.2, "120%"),
    ],
)  # fmt: skip
def test_only_what_is_full_or_nothing_reads_as_such(share: float, want: str) -> None:
    assert words.percent(share) == want


def test_an_id_has_no_character_that_ends_an_attribute() -> None:
    assert words.key('a" onclick="') != words.key("a")
    assert words.key('a" onclick="\ud800').isalnum()


def test_an_address_keeps_the_slash_and_nothing_else() -> None:
    assert words.path("ns/a b?c#d") == "ns/a%20b%3Fc%23d"


@pytest.mark.parametrize("address", ["javascript:alert(1)", "data:text/html,x", "//evil", ""])
def test_only_addresses_of_the_web_are_linked(address: str) -> None:
    assert not words.is_web(address)


def test_a_time_that_is_none_is_shown_as_it_is() -> None:
    assert words.clock("soon") == "soon"
    assert words.seconds_between("soon", "2026-11-25T19:30:00Z") == 0
    assert words.seconds_between("2026-11-25T19:30:00Z", "2026-11-25T20:30:00+00:00") == 3600
