"""The `rollout` of a PolicyRuntime: the stages of an edit, and what each demands.

Owns their fields, defaults and rules. Going through the stages, and judging what is measured in
them, is `engine.rollout`'s.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from engine.core.model.objects import LabelSelector, LabelSelectorRequirement
from engine.core.model.selectors import SelectorError, check_label_selector, requirement_problem
from engine.policy.documents import Field, Object, Report, did_you_mean
from engine.policy.errors import Problem

_LARGEST_SHARE: Final = 0.5
_LEAST_CORES: Final = 0.001
_MOST_DECISIONS: Final = 1_000_000
_LONGEST: Final = timedelta(days=7)
_PERCENT: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})%")


@dataclass(frozen=True, slots=True)
class ShadowStage:
    """The candidate decides beside the policies in force, and nothing is carried out.

    Attributes:
        duration: At least so long.
        compared: At least so many compared decisions.
        cores: The share of a core that it may use.
    """

    duration: timedelta = timedelta(minutes=1)
    compared: int = 500
    cores: float = 0.05


@dataclass(frozen=True, slots=True)
class CanaryStep:
    """The candidate decides for a share of the pods.

    Attributes:
        share: Of the pods, above 0 and at most 0.5: as many are the control sample.
        duration: At least so long.
        decisions: At least so many decisions by the candidate.
    """

    share: float
    duration: timedelta = timedelta(minutes=2)
    decisions: int = 50


@dataclass(frozen=True, slots=True)
class CanaryStage:
    """The steps, and which pods may be chosen.

    Attributes:
        steps: With growing shares.
        namespaces: Only pods of namespaces that it selects; empty: all.
        profile: Only pods of this profile; "": all.
        profile_place: Where that is written.
    """

    steps: tuple[CanaryStep, ...] = (CanaryStep(0.01), CanaryStep(0.05))
    namespaces: LabelSelector = field(default_factory=LabelSelector)
    profile: str = ""
    profile_place: Field | None = field(default=None, repr=False, compare=False)


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

    max_moved: float = 0.25
    max_newly_pending: int = 0
    max_evictions: int = 0
    error_rate: float = 0.0
    latency: float = 2.0
    time_to_bind: float = 2.0
    max_moved_of_class: float = 0.25
    max_without_profile: int = 0
    max_fit_nowhere: int = 0
    max_nodes_lost: float = 0.1
    max_reordered: float = 0.25


@dataclass(frozen=True, slots=True)
class RolloutConfig:
    """The stages of an edit; without any it is in force as soon as its trial is over."""

    shadow: ShadowStage | None = None
    canary: CanaryStage | None = None
    gates: Gates = field(default_factory=Gates)

    @property
    def is_staged(self) -> bool:
        """True if an edit goes through any stage."""
        return self.shadow is not None or self.canary is not None


# --- reading ---------------------------------------------------------------------------------


def read_rollout(members: Object, most_errors: float = 1.0) -> RolloutConfig:
    """The `rollout` of a document; problems go to its report.

    *most_errors* is the share of decisions above which an edit is rolled back in its probation.
    """
    shadow = _stage(members, "shadow")
    canary = _stage(members, "canary")
    gates = members.object("gates")
    found = RolloutConfig(
        None if shadow is None else _shadow(shadow),
        None if canary is None else _canary(canary),
        _gates(gates),
    )
    if found.is_staged and found.gates.error_rate > most_errors:
        gates["errorRate"].refuse(
            f"want at most `fallback.errorRate` ({_percent(most_errors)}): "
            "an edit that passes would be rolled back at once"
        )
    stages = {"shadow": found.shadow, "canary": found.canary}
    for name, measured_in in _MEASURED_IN.items():
        gate = gates.get(name)
        if gate is not None and not any(stages[stage] for stage in measured_in):
            want = " or ".join(f"`rollout.{stage}`" for stage in measured_in)
            gate.warn(f"no stage measures it: want {want}")
    members.finish()
    return found


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


def _stage(members: Object, name: str) -> Object | None:
    """The fields of a stage; None if it is absent. Null could mean either, and is refused."""
    found = members.get(name)
    if found is None and name in members.names:
        members[name].refuse("want an object: `{}` for the defaults, or no such field for no stage")
    return None if found is None else found.object()


def _shadow(members: Object) -> ShadowStage:
    default = ShadowStage()
    found = ShadowStage(
        _duration(members, default.duration),
        members.integer("compared", default.compared, 1, _MOST_DECISIONS),
        _share(members, "cores", default.cores, _LEAST_CORES),
    )
    members.finish()
    return found


def _canary(members: Object) -> CanaryStage:
    default = CanaryStage()
    steps = default.steps
    if (found := members.get("steps")) is not None:
        steps, before = (), 0.0
        for entry in found.items():
            steps += (_step(entry, before),)
            before = steps[-1].share
        if not steps:
            found.wrong("want at least one step")
    place = members.get("profile")
    canary = CanaryStage(
        steps,
        _selector(members.object("namespaceSelector")),
        "" if place is None else place.text(),
        place if members.text("profile") else None,
    )
    members.finish()
    return canary


def _step(entry: Field, before: float) -> CanaryStep:
    members = entry.object()
    default = CanaryStep(before)
    share = _read_share(members["share"]) if members.get("share") is not None else None
    if members.get("share") is None:
        entry.wrong("share: required value")
    elif share is not None and not before < share <= _LARGEST_SHARE:
        want = f"want a share above {_percent(before)} and at most {_percent(_LARGEST_SHARE)}"
        if share > _LARGEST_SHARE:
            want += " (the control sample is as large)"
        elif before:
            want += " (steps must grow)"
        _refuse_share(members["share"], want, share)
        share = None
    step = CanaryStep(
        default.share if share is None else share,
        _duration(members, default.duration),
        members.integer("decisions", default.decisions, 1, _MOST_DECISIONS),
    )
    members.finish()
    return step


def _gates(members: Object) -> Gates:
    default = Gates()
    max_moved = _share(members, "maxMoved", default.max_moved)
    gates = Gates(
        max_moved=max_moved,
        max_newly_pending=members.integer("maxNewlyPending", default.max_newly_pending, 0),
        max_evictions=members.integer("maxEvictions", default.max_evictions, 0),
        error_rate=_share(members, "errorRate", default.error_rate),
        latency=_multiple(members, "latency", default.latency),
        time_to_bind=_multiple(members, "timeToBind", default.time_to_bind),
        max_moved_of_class=_share(members, "maxMovedOfClass", max_moved),
        max_without_profile=members.integer("maxWithoutProfile", default.max_without_profile, 0),
        max_fit_nowhere=members.integer("maxFitNowhere", default.max_fit_nowhere, 0),
        max_nodes_lost=_share(members, "maxNodesLost", default.max_nodes_lost),
        max_reordered=_share(members, "maxReordered", default.max_reordered),
    )
    members.finish()
    return gates


def _selector(members: Object) -> LabelSelector:
    labels: dict[str, str] = {}
    if (found := members.get("matchLabels")) is not None:
        inner = found.object()
        for key in inner.names:
            value = inner[key].text()
            try:
                check_label_selector(LabelSelector({key: value}))
            except SelectorError as error:
                inner[key].wrong(str(error))
            labels[key] = value
    requirements = []
    for entry in members.items("matchExpressions"):
        fields = entry.object()
        requirement = LabelSelectorRequirement(
            fields.text("key"), fields.text("operator"), tuple(fields.texts("values"))
        )
        fields.finish()
        if (problem := requirement_problem(requirement)) is not None:
            entry.wrong(problem)
        requirements.append(requirement)
    members.finish()
    return LabelSelector(labels, tuple(requirements))


# --- values ----------------------------------------------------------------------------------


def _duration(members: Object, default: timedelta) -> timedelta:
    value = members.duration("duration", default)
    if not timedelta(0) < value <= _LONGEST:
        longest = _LONGEST // timedelta(hours=1)
        members["duration"].refuse(f"want a duration above 0 and at most {longest}h")
        return default
    return value


def _share(members: Object, name: str, default: float, low: float = 0.0) -> float:
    """A field in *low*..1; the default also after a report."""
    found = members.get(name)
    value = None if found is None else _read_share(found)
    if found is None or value is None:
        return default
    if not low <= value <= 1:
        _refuse_share(found, f"want a share in {_percent(low)}..100%", value)
        return default
    return value


def _read_share(found: Field) -> float | None:
    """A percentage or a plain number, of any size; None after a report if it is neither."""
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


def _percent(share: float) -> str:
    return f"{100 * share:g}%"


def _is_plain(found: Field) -> bool:
    return found.node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


def _multiple(members: Object, name: str, default: float) -> float:
    value = members.number(name, default)
    if value < 1:
        members[name].refuse("want a multiple of at least 1")
        return default
    return value
