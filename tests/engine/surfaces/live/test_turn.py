"""What is said of a pod that waits for its turn."""

import pytest

from engine.surfaces.live.turn import turn_headline
from engine.surfaces.live.turn_answers import LevelAnswer, TurnAnswer


def _level(queue: str, place: int | None, first: str = "") -> LevelAnswer:
    return LevelAnswer(queue=queue, place=place, rivals=3, first=first or queue)


@pytest.mark.parametrize(
    ("place", "levels", "said"),
    [
        (1, [_level("a/x", 1), _level("a", 1)], ""),
        (None, [], ""),
        (3, [_level("a/x", 1), _level("a", 1)], "it is number 3 of 1,200 in queue `a/x`"),
        (
            1,
            [_level("a/x", 2, "a/y"), _level("a", 3, "b")],
            "it is number 1 of 1,200 in queue `a/x`, and `b` goes before `a`, "
            "and `a/y` goes before `a/x`",
        ),
    ],
)
def test_who_goes_before_is_said_from_the_root_down(
    place: int | None, levels: list[LevelAnswer], said: str
) -> None:
    turn = TurnAnswer(policy="p", queue="a/x", place=place, pods=1200, levels=tuple(levels))
    assert turn_headline("n/p", turn) == (f"n/p waits for its turn: {said}" if said else "")
