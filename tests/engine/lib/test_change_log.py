"""A log of changes beside a list of all of them."""

from hypothesis import given
from hypothesis import strategies as st

from engine.lib.change_log import ChangeLog

LEAST = 4

steps = st.lists(
    st.one_of(
        st.integers(),
        st.lists(st.integers(), max_size=12),
        st.just("restart"),
        st.just("copy"),
    ),
    max_size=60,
)


@given(steps)
def test_a_reader_gets_every_change_or_has_to_start_over(
    steps: list[int | list[int] | str],
) -> None:
    log: ChangeLog[int] = ChangeLog(LEAST)
    changes: list[int | None] = []  # None: anything may have changed
    for step in steps:
        if isinstance(step, int):
            log.note(step)
            changes.append(step)
        elif isinstance(step, list):
            log.extend(step)
            changes += step
        elif step == "restart":
            log.restart()
            changes.append(None)
        else:
            log = log.copy()
        log.check_invariants()
        assert log.end == len(changes)
        for end in range(len(changes) + 1):
            missed = changes[end:]
            seen = log.since(end)
            if seen is None:
                assert None in missed or len(missed) > LEAST
            else:
                assert seen == missed


def test_a_copy_goes_its_own_way() -> None:
    log: ChangeLog[str] = ChangeLog(LEAST)
    log.note("a")
    copy = log.copy()
    log.note("b")
    copy.note("c")
    assert log.since(0) == ["a", "b"]
    assert copy.since(0) == ["a", "c"]


def test_few_more_than_needed_are_kept() -> None:
    log: ChangeLog[int] = ChangeLog(LEAST)
    for i in range(1000):
        log.note(i)
    assert len(log._changes) <= 2 * LEAST
    assert log.since(1000 - LEAST) == list(range(1000 - LEAST, 1000))
