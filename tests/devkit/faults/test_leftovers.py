"""Names of what is gone are found wherever a program keeps them."""

from collections import deque
from functools import partial
from typing import Any

import pytest

from devkit.faults.leftovers import leftovers


class Part:
    """What a program is made of."""

    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)

    def method(self) -> None:
        """Nothing."""


class Slotted:
    """The same, without a dict."""

    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held


def found(root: object, *bounded: str) -> list[tuple[str, str]]:
    return list(
        leftovers(
            root, {"gone"}, is_followed=lambda one: isinstance(one, Part | Slotted), bounded=bounded
        )
    )


@pytest.mark.parametrize(
    ("root", "place"),
    [
        pytest.param(Part(held={"gone": 1}), "Part.held", id="key"),
        pytest.param(Part(held={("gone", 1): 1}), "Part.held", id="part of a key"),
        pytest.param(Part(held={"gone"}), "Part.held", id="member of a set"),
        pytest.param(Slotted({"gone"}), "Slotted.held", id="slots"),
        pytest.param(Part(held=deque([({"gone"},)])), "Part.held", id="in lists"),
        pytest.param(Part(held={"a": Slotted({"gone"})}), "Slotted.held", id="in a value"),
        pytest.param(Part(call=Part(held={"gone"}).method), "Part.held", id="behind a method"),
        pytest.param(Part(call=partial(print, {"gone"})), "Part.call", id="in a partial"),
    ],
)
def test_a_name_that_is_kept_is_found(root: object, place: str) -> None:
    assert found(root) == [(place, "gone")]


@pytest.mark.parametrize(
    "root",
    [
        pytest.param(Part(held={"there": "gone"}), id="value"),
        pytest.param(Part(held=["gone"]), id="list"),
        pytest.param(Part(held=object()), id="of others"),
    ],
)
def test_what_is_no_leftover_is_passed_over(root: object) -> None:
    assert found(root) == []


def test_places_that_are_bounded_are_passed_over_and_circles_end() -> None:
    root = Part(held={"gone"})
    root.root = root  # type: ignore[attr-defined]
    assert found(root, "Part.held") == []
