import pytest

from engine.core.framework.behaviors import (
    CHANGES,
    NEWEST,
    OLDEST,
    RELEASED,
    behaviors_of,
    minor_of,
)
from tests import controlplane


def test_a_version_has_what_came_with_it_or_before() -> None:
    for name, change in CHANGES.items():
        assert getattr(behaviors_of(change.since), name) is True, name
        assert getattr(behaviors_of(change.since - 1), name) is False, name


def test_versions_that_are_not_known_answer_as_the_nearest_one() -> None:
    assert behaviors_of(99) is behaviors_of(NEWEST)
    assert behaviors_of(1) is behaviors_of(OLDEST)


def test_the_table_is_within_the_versions_that_are_known() -> None:
    assert all(OLDEST < change.since <= NEWEST for change in CHANGES.values())
    assert OLDEST <= RELEASED <= NEWEST


def test_the_newest_release_is_answered_like_where_no_version_is_known() -> None:
    assert minor_of(controlplane.NEWEST) == RELEASED
    assert minor_of(controlplane.MINORS[0]) == OLDEST


@pytest.mark.parametrize(
    ("text", "minor"),
    [
        *(("1.38", 38), ("v1.38.0-beta.0", 38), ("v1.37.2+k3s1", 37), ("1.38+", 38), ("v1.9", 9)),
        *((text, None) for text in ("", "2.0", "v1", "1.x", "38", "1.38 or so")),
    ],
)
def test_the_minor_of_a_version(text: str, minor: int | None) -> None:
    assert minor_of(text) == minor
