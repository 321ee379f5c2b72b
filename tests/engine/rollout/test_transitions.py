"""The table of what happens to an edit."""

import pytest

from engine.rollout.transitions import TRANSITIONS, Action, Event, State, step

ENDS = {State.IN_FORCE, State.OVER}


def test_every_state_but_an_end_is_left() -> None:
    assert {state for state, _ in TRANSITIONS} == {*State} - ENDS


def test_every_event_and_action_is_in_the_table() -> None:
    assert {event for _, event in TRANSITIONS} == {*Event}
    assert {action for _, actions in TRANSITIONS.values() for action in actions} == {*Action}


def test_what_is_not_in_the_table_does_not_happen() -> None:
    with pytest.raises(KeyError):
        step(State.OVER, Event.PASSED)


@pytest.mark.parametrize(("at", "step"), TRANSITIONS.items(), ids=str)
def test_what_is_remembered_is_saved(
    at: tuple[State, Event], step: tuple[State, tuple[Action, ...]]
) -> None:
    remembered = {Action.REMEMBER, Action.REMEMBER_REFUSED, Action.REMEMBER_ROLLED_BACK}
    actions = step[1]
    if remembered & {*actions}:
        assert Action.SAVE in actions[max(actions.index(one) for one in remembered & {*actions}) :]


def test_an_edit_that_ends_in_its_stages_ends_its_sandbox() -> None:
    for (state, _), (after, actions) in TRANSITIONS.items():
        if state is State.STAGED and after is State.OVER:
            assert actions[-1] is Action.CLOSE


def test_only_what_passes_its_stages_comes_into_force() -> None:
    puts = {Action.PUT_IN_FORCE, Action.PUT_ON_PROBATION}
    found = {at for at, (_, actions) in TRANSITIONS.items() if puts & {*actions}}
    assert found == {(State.STAGED, Event.PASSED), (State.STAGED, Event.PASSED_ALONE)}
