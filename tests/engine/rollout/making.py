"""A roll-out of parts that are named one by one."""

from collections.abc import Mapping
from typing import Any, Final

from engine.rollout.last_good import Store
from engine.rollout.rollout import Inputs, OnSwitch, Rollout, Saving, Surroundings
from engine.rollout.sources import PolicySource
from engine.rollout.trial import CandidateStages, World

_INPUTS: Final = ("control", "last_resort")
_SURROUNDINGS: Final = ("write_event", "metrics", "clock", "sleep")
_SAVING: Final = ("states", "may_save", "timeout")


def rollout_of(
    *,
    source: PolicySource,
    store: Store,
    stages: CandidateStages,
    world: World,
    on_switch: OnSwitch,
    comparing: Any = None,
    **words: Any,
) -> Rollout:
    """A roll-out; *words* are members of `Inputs`, `Surroundings` and `Saving`."""
    assert words.keys() <= {*_INPUTS, *_SURROUNDINGS, *_SAVING}, words
    return Rollout(
        Inputs(source, store, **_of(words, _INPUTS)),
        stages,
        world,
        on_switch,
        Surroundings(**_of(words, _SURROUNDINGS)),
        comparing,
        Saving(**_of(words, _SAVING)),
    )


def _of(words: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: words[name] for name in names if name in words}
