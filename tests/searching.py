"""How far tests search, and a pytest plug-in that runs those that search alone.

`make test` tries a quarter of the examples that a property asks for, the same ones each time, and
of the questions of a long recording. `make test-long` tries all of them:
`HYPOTHESIS_PROFILE=thorough`, with `-p tests.searching`, which leaves out what does not search.
"""

import os
from collections.abc import Sequence
from typing import Final, TypeVar

import pytest

#: Which profile of Hypothesis is in force; `conftest` says what each is.
PROFILE: Final = os.environ.get("HYPOTHESIS_PROFILE", "check")
#: One in so many examples is tried in the profile `check`.
_SHARE: Final = 4

T = TypeVar("T")


def examples(count: int) -> int:
    """How many of *count* examples to try: all but in the profile `check`, at least one."""
    return max(1, count // _SHARE) if PROFILE == "check" else count


def part_of(questions: Sequence[T]) -> Sequence[T]:
    """Every fourth of *questions*, beginning with the first; all but in the profile `check`."""
    return questions[::_SHARE] if PROFILE == "check" else questions


def _searches(item: pytest.Item) -> bool:
    """True if Hypothesis makes the examples of a test, or its module tries a part of something."""
    names = vars(getattr(item, "module", None) or object).keys()
    is_property = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    return is_property or not names.isdisjoint({part_of.__name__, "run_state_machine_as_test"})


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if not _searches(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _searches(item)]
