"""The life of an edit as a state machine: where it can be, what happens to it, and what is done.

Owns the table that every step of `Rollout` goes by: a state and an event give the next state, and
the actions to be carried out in their order. It decides and does nothing; what an action does is
`rollout`'s. What happens to an edit that is not in the table does not happen.

Each edit has a state of its own: while one is on probation, the next one may be examined.
"""

import enum
from collections.abc import Mapping
from typing import Final, TypeAlias


class State(enum.Enum):
    """Where an edit is."""

    #: Chosen at the start, before there was anything to try it on; it decides.
    CHOSEN = "chosen"
    #: Checked, tested, loaded and tried.
    EXAMINED = "examined"
    #: Goes through its stages, if there are any.
    STAGED = "staged"
    #: Decides, and can be rolled back.
    PROBATION = "probation"
    #: Decides, and there is nothing that a roll-back would go back to.
    IN_FORCE = "in force"
    #: Decides nothing, or never has.
    OVER = "over"


class Event(enum.Enum):
    """What happens to an edit."""

    SOURCE_GONE = "the source does not exist any more"
    #: A comment in another key, or a revert.
    UNCHANGED = "it is what is in force"
    REJECTED = "it fails"
    #: It fails for want of memory or of a live sandbox: the same text may pass later.
    NOT_LOADED = "it does not load"
    TRIED = "it has passed its trial"
    #: The leader before may have saved something else, which must not be overwritten.
    TRIED_EARLY = "it has passed its trial before it is known what was saved"
    REPLACED = "something else decides by now"
    SUPERSEDED = "something newer takes its place"
    ABORTED = "who may skip stages gives it up"
    REFUSED = "a gate refuses it next to what is in force"
    CANCELLED = "the process ends"
    PASSED = "it has passed its stages"
    #: Where every pod waited, there is nothing that a roll-back could go back to.
    PASSED_ALONE = "it has passed its stages, and nothing decided before"
    OUT_OF_BOUNDS = "its failures, latency or pending pods are out of bounds"
    KEPT = "its probation is over"


class Action(enum.Enum):
    """What is done; `rollout` has a method for each."""

    REPORT_GONE = enum.auto()
    REPORT_UNCHANGED = enum.auto()
    REPORT_REJECTED = enum.auto()
    REPORT_SUPERSEDED = enum.auto()
    REPORT_ACCEPTED = enum.auto()
    REPORT_FIRST = enum.auto()
    REPORT_FIRST_LATER = enum.auto()
    REPORT_ROLLED_BACK = enum.auto()
    REPORT_KEPT = enum.auto()
    OFFER_LATER = enum.auto()
    #: What was compared with an edit that decides nothing any more.
    OFFER_REFUSED = enum.auto()
    REMEMBER = enum.auto()
    REMEMBER_ROLLED_BACK = enum.auto()
    REMEMBER_REFUSED = enum.auto()
    SAVE = enum.auto()
    PUT_IN_FORCE = enum.auto()
    PUT_ON_PROBATION = enum.auto()
    PUT_BACK = enum.auto()
    REPLACE_FIRST = enum.auto()
    CLOSE = enum.auto()
    CLOSE_PREVIOUS = enum.auto()


Step: TypeAlias = tuple[State, tuple[Action, ...]]
_Row: TypeAlias = tuple[State, Event, State, tuple[Action, ...]]


def _rows(s: type[State], e: type[Event], a: type[Action]) -> tuple[_Row, ...]:
    accepted = (a.REPORT_ACCEPTED, a.REMEMBER, a.SAVE)
    failed = (a.REPORT_REJECTED, a.SAVE, a.CLOSE)
    # fmt: off
    return (
        # examined
        (s.EXAMINED,  e.SOURCE_GONE,     s.OVER,      (a.REPORT_GONE,)),
        (s.EXAMINED,  e.UNCHANGED,       s.OVER,      (a.REPORT_UNCHANGED, a.SAVE)),
        (s.EXAMINED,  e.REJECTED,        s.OVER,      (a.CLOSE, a.REPORT_REJECTED)),
        (s.EXAMINED,  e.NOT_LOADED,      s.OVER,      (a.CLOSE, a.REPORT_REJECTED, a.OFFER_LATER)),
        (s.EXAMINED,  e.TRIED,           s.STAGED,    ()),
        # in its stages: what is not to be tried again after a restart, or by the next leader
        (s.STAGED,    e.SUPERSEDED,      s.OVER,      (a.REPORT_SUPERSEDED, a.CLOSE)),
        (s.STAGED,    e.ABORTED,         s.OVER,      (a.REMEMBER_ROLLED_BACK, *failed)),
        (s.STAGED,    e.REFUSED,         s.OVER,      (a.REMEMBER_REFUSED, *failed)),
        (s.STAGED,    e.REJECTED,        s.OVER,      failed),
        (s.STAGED,    e.CANCELLED,       s.OVER,      (a.CLOSE,)),
        (s.STAGED,    e.PASSED,          s.PROBATION, (a.PUT_ON_PROBATION, *accepted)),
        (s.STAGED,    e.PASSED_ALONE,    s.IN_FORCE,  (a.PUT_IN_FORCE, *accepted)),
        # on probation
        (s.PROBATION, e.KEPT,            s.IN_FORCE,  (a.REPORT_KEPT, a.CLOSE_PREVIOUS)),
        (s.PROBATION, e.OUT_OF_BOUNDS,   s.OVER,      (a.PUT_BACK, a.REPORT_ROLLED_BACK,
                                                        a.REMEMBER_ROLLED_BACK, a.SAVE,
                                                        a.OFFER_REFUSED)),
        # chosen at the start
        (s.CHOSEN,    e.TRIED,           s.IN_FORCE,  (a.REPORT_FIRST, a.REMEMBER, a.SAVE)),
        (s.CHOSEN,    e.TRIED_EARLY,     s.IN_FORCE,  (a.REPORT_FIRST_LATER,)),
        (s.CHOSEN,    e.REPLACED,        s.OVER,      ()),
        (s.CHOSEN,    e.REJECTED,        s.OVER,      (a.REPORT_REJECTED, a.REPLACE_FIRST)),
    )
    # fmt: on


TRANSITIONS: Final[Mapping[tuple[State, Event], Step]] = {
    (state, event): (after, actions) for state, event, after, actions in _rows(State, Event, Action)
}


def step(state: State, event: Event) -> Step:
    """Where an edit goes from *state* on *event*, and what is done. Raises `KeyError`."""
    return TRANSITIONS[state, event]
