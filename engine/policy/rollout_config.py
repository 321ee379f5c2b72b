"""The `rollout` of a PolicyRuntime: the stages of an edit, and what each demands.

Owns their fields, defaults and rules. Going through the stages, and judging what is measured in
them, is `engine.rollout`'s.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from engine.core.model.objects import LabelSelector, LabelSelectorRequirement
from engine.core.model.selectors import SelectorError, check_label_selector, requirement_problem
from engine.policy.documents import (
    Entry,
    Field,
    Object,
    Reader,
    Report,
    Table,
    checked,
    did_you_mean,
    entry,
    integer,
    listed,
    record,
    table_of,
)
from engine.policy.errors import Problem

_LARGEST_SHARE: Final = 0.5
_LEAST_CORES: Final = 0.001
_MOST_DECISIONS: Final = 1_000_000
_LONGEST: Final = timedelta(days=7)
_PERCENT: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})%")


def _percent(share: float) -> str:
    return f"{100 * share:g}%"


def _is_plain(found: Field) -> bool:
    return found.node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


def _any_share(found: Field) -> float | None:
    """Reads a percentage or a plain number, of any size."""
    if _is_plain(found):
        return found.number()
    if (match := _PERCENT.fullmatch(found.shown().strip('"'))) is not None:
        return float(match[1]) / 100
    found.refuse("want a share such as `1%` or 0.01")
    return None


def _refuse_share(found: Field, want: str, value: float) -> None:
    is_percentage = _is_plain(found) and 1 <= value <= 100
    hint = f"did you mean `{value:g}%`?" if is_percentage else ""
    found.wrong(f"{want}, got {found.shown()}", hint)


def _share(low: float = 0.0) -> Reader:
    """Reads a share in *low*..1."""

    def read(found: Field) -> float | None:
        value = _any_share(found)
        if value is not None and not low <= value <= 1:
            _refuse_share(found, f"want a share in {_percent(low)}..100%", value)
            return None
        return value

    return read


_DURATION: Final = checked(
    Field.duration,
    lambda time: timedelta(0) < time <= _LONGEST,
    want=f"want a duration above 0 and at most {_LONGEST // timedelta(hours=1)}h",
)
_MULTIPLE: Final = checked(
    Field.number, lambda number: number >= 1, want="want a multiple of at least 1"
)


@dataclass(frozen=True, slots=True)
class ShadowStage:
    """The candidate decides beside the policies in force, and nothing is carried out.

    Attributes:
        duration: At least so long.
        compared: At least so many compared decisions.
        cores: The share of a core that it may use.
    """

    duration: timedelta = entry(_DURATION, timedelta(minutes=1))
    compared: int = entry(integer(1, _MOST_DECISIONS), 500)
    cores: float = entry(_share(_LEAST_CORES), 0.05)


@dataclass(frozen=True, slots=True)
class CanaryStep:
    """The candidate decides for a share of the pods.

    Attributes:
        share: Of the pods, above 0 and at most 0.5: as many are the control sample.
        duration: At least so long.
        decisions: At least so many decisions by the candidate.
    """

    share: float = entry(_any_share)
    duration: timedelta = entry(_DURATION, timedelta(minutes=2))
    decisions: int = entry(integer(1, _MOST_DECISIONS), 50)


def _steps(found: Field) -> tuple[CanaryStep, ...]:
    steps: tuple[CanaryStep, ...] = ()
    before = 0.0
    for item in found.items():
        members = item.object()
        values = members.values(table_of(CanaryStep))
        share, place = values.get("share"), members.get("share")
        if place is None:
            item.wrong("share: required value")
        elif share is not None and not before < share <= _LARGEST_SHARE:
            want = f"want a share above {_percent(before)} and at most {_percent(_LARGEST_SHARE)}"
            if share > _LARGEST_SHARE:
                want += " (the control sample is as large)"
            elif before:
                want += " (steps must grow)"
            _refuse_share(place, want, share)
        elif share is not None:
            before = share
        steps += (CanaryStep(**{"share": before, **values}),)
    if not steps:
        found.wrong("want at least one step")
    return steps


def _labels(found: Field) -> dict[str, str]:
    labels = {}
    members = found.object()
    for key in members.names:
        labels[key] = value = members[key].text()
        try:
            check_label_selector(LabelSelector({key: value}))
        except SelectorError as error:
            members[key].wrong(str(error))
    return labels


def _check_requirement(made: LabelSelectorRequirement, members: Object) -> None:
    if (problem := requirement_problem(made)) is not None:
        members.owner.wrong(problem)


#: How a requirement of a selector is read, of labels or of nodes.
REQUIREMENT: Final[Table] = {
    "key": Entry(Field.text),
    "operator": Entry(Field.text),
    "values": Entry(listed(Field.text)),
}
_SELECTOR: Final[Table] = {
    "match_labels": Entry(_labels),
    "match_expressions": Entry(
        listed(record(LabelSelectorRequirement, REQUIREMENT, _check_requirement))
    ),
}


@dataclass(frozen=True, slots=True)
class CanaryStage:
    """The steps, and which pods may be chosen.

    Attributes:
        steps: With growing shares.
        namespaces: Only pods of namespaces that it selects; empty: all.
        profile: Only pods of this profile; "": all.
        profile_place: Where that is written.
    """

    steps: tuple[CanaryStep, ...] = entry(_steps, (CanaryStep(0.01), CanaryStep(0.05)))
    namespaces: LabelSelector = entry(
        record(LabelSelector, _SELECTOR), factory=LabelSelector, name="namespaceSelector"
    )
    profile: str = entry(Field.text, "")
    profile_place: Field | None = field(default=None, repr=False, compare=False)


def _canary(found: Field) -> CanaryStage:
    canary = record(CanaryStage)(found)
    return replace(canary, profile_place=found.at("profile")) if canary.profile else canary


@dataclass(frozen=True, slots=True)
class Gates:
    """The bounds of what is measured.

    Attributes:
        max_moved: Share of compared decisions that choose another node.
        max_newly_pending: Decisions without a node, where there was one before.
        max_evictions: Additional pods evicted.
        error_rate: Share of decisions that fail, and did not before.
        latency: Mean time of a decision, as a multiple of what it is with the policies in force.
        time_to_bind: Mean time to a binding, as a multiple of the control sample's.
        max_moved_of_class: As `max_moved`, of the decisions about the pods of any one class; by
            default as large.
        max_without_profile: Pods that have a profile and would have none.
        max_fit_nowhere: Pods that fit on some node and would fit on none.
        max_nodes_lost: Share of the nodes that take pods and would take none.
        max_reordered: Share of the pairs of pods that would be tried the other way round.
    """

    max_moved: float = entry(_share(), 0.25)
    max_newly_pending: int = entry(integer(0), 0)
    max_evictions: int = entry(integer(0), 0)
    error_rate: float = entry(_share(), 0.0)
    latency: float = entry(_MULTIPLE, 2.0)
    time_to_bind: float = entry(_MULTIPLE, 2.0)
    max_moved_of_class: float = entry(_share(), 0.25)
    max_without_profile: int = entry(integer(0), 0)
    max_fit_nowhere: int = entry(integer(0), 0)
    max_nodes_lost: float = entry(_share(), 0.1)
    max_reordered: float = entry(_share(), 0.25)


def _gates(found: Field) -> Gates:
    values = found.object().values(table_of(Gates))
    if "max_moved" in values:
        values.setdefault("max_moved_of_class", values["max_moved"])
    return Gates(**values)


@dataclass(frozen=True, slots=True)
class RolloutConfig:
    """The stages of an edit; without any it is in force as soon as its trial is over."""

    shadow: ShadowStage | None = entry(record(ShadowStage), None)
    canary: CanaryStage | None = entry(_canary, None)
    gates: Gates = entry(_gates, factory=Gates)

    @property
    def is_staged(self) -> bool:
        """True if an edit goes through any stage."""
        return self.shadow is not None or self.canary is not None


def check_rollout(made: RolloutConfig, members: Object) -> None:
    """Report what is wrong with the stages and gates together."""
    for name in ("shadow", "canary"):
        # Null could mean either.
        if name in members.names and members.get(name) is None:
            want = "want an object: `{}` for the defaults, or no such field for no stage"
            members[name].refuse(want)
    for name, measured_in in _MEASURED_IN.items():
        gate = members.owner.at("gates", name)
        if gate is not None and not any(getattr(made, stage) for stage in measured_in):
            want = " or ".join(f"`rollout.{stage}`" for stage in measured_in)
            gate.warn(f"no stage measures it: want {want}")


def check_error_rate(rollout: RolloutConfig, place: Field | None, most: float) -> None:
    """Report an error rate at *place* above *most*, from which an edit is rolled back."""
    if place is not None and rollout.is_staged and rollout.gates.error_rate > most:
        place.refuse(
            f"want at most `fallback.errorRate` ({_percent(most)}): "
            "an edit that passes would be rolled back at once"
        )


def profile_problems(rollout: RolloutConfig, profiles: Iterable[str]) -> list[Problem]:
    """What is wrong with the profile of a canary if *profiles* are those that there are."""
    canary = rollout.canary
    if canary is None or canary.profile_place is None or canary.profile in (known := set(profiles)):
        return []
    report = Report(canary.profile_place.report.file)
    listed = ", ".join(f"`{name}`" for name in sorted(known))
    canary.profile_place.reporting_to(report).wrong(
        f'want the schedulerName of a profile ({listed}), got "{canary.profile}"',
        did_you_mean(canary.profile, known),
    )
    return report.problems


#: Gates, and the stages that have what they are about.
_MEASURED_IN: Final[Mapping[str, tuple[str, ...]]] = {
    "maxMoved": ("shadow",),
    "maxMovedOfClass": ("shadow",),
    "maxNewlyPending": ("shadow", "canary"),
    "maxEvictions": ("shadow", "canary"),
    "errorRate": ("shadow", "canary"),
    "latency": ("shadow", "canary"),
    "timeToBind": ("canary",),
    "maxWithoutProfile": ("shadow", "canary"),
    "maxFitNowhere": ("shadow", "canary"),
    "maxNodesLost": ("shadow", "canary"),
    "maxReordered": ("shadow", "canary"),
}
