"""How far an edit has come on its way into force, as a record, and what to do about it.

Owns the sentences and the commands. The numbers are the roll-out's.
"""

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from engine.rollout.control import AT_ONCE, PAUSED, SUFFIX, Control
from engine.rollout.measures import ShadowMeasures
from engine.rollout.sources import STOP_ANNOTATION
from engine.rollout.status import RUNNING, RolloutStatus
from engine.surfaces.live.answers import Command, Leader, RolloutPage, RolloutStage, StageState
from engine.surfaces.live.moments import at_text

IN_FORCE: Final = "in_force"


@dataclass(frozen=True)
class EditSource:
    """Where edits come from.

    Attributes:
        name: How the operator wrote it.
        config_map: `namespace/name` of what controls their roll-out; "" if nothing does.
        is_stopped: The kill switch is set.
    """

    name: str
    config_map: str
    is_stopped: bool


def rollout_page(
    status: RolloutStatus,
    control: Control,
    source: EditSource,
    *,
    revision: str,
    leader: Leader,
    now: float,
    readable: Collection[str] | None = None,
    decision_log: Path | None = None,
) -> RolloutPage:
    """The answer of `/rollout`; pods only of *readable* namespaces (None: all).

    *decision_log* is where decisions are recorded, if they are.
    """
    shadow, left_out = _readable_part(status.shadow, readable)
    page = RolloutPage(
        revision=revision,
        at=at_text(now),
        leader=leader,
        source=source.name,
        config_map=source.config_map,
        mode=control.mode,
        is_stopped=source.is_stopped,
        problems=tuple(str(problem) for problem in control.problems),
        candidate=status.candidate,
        base=status.base,
        stages=_stages(status),
        since=at_text(status.since) if status.stage is not None and status.since else None,
        elapsed=status.elapsed,
        paused=status.paused,
        result=status.result,
        verdict=status.verdict,
        shadow=shadow,
        canary=status.canary,
        control=status.control,
        left_out=left_out,
    )
    commands = (*_commands(page), *_of_log(page, decision_log))
    return msgspec.structs.replace(
        page, headline=_headline(page), next_step=_next_step(page), commands=commands
    )


def namespaces_of(status: RolloutStatus) -> set[str]:
    """The namespaces whose pods are named."""
    shadow = status.shadow
    if shadow is None:
        return set()
    return {*shadow.by_namespace, *(_namespace(example.pod) for example in shadow.examples)}


def stage_text(stage: RolloutStage) -> str:
    """A stage as people read it, such as `canary 5%`."""
    name = stage.name.replace("_", " ")
    return f"{name} {share_text(stage.share)}" if stage.share else name


def share_text(share: float) -> str:
    """A share as the configuration has it, such as `0.5%`."""
    return f"{share * 100:g}%"


def _namespace(name: str) -> str:
    """The namespace of a pod, or of a class of pods, by its name."""
    return name.partition("/")[0]


def _readable_part(
    shadow: ShadowMeasures | None, readable: Collection[str] | None
) -> tuple[ShadowMeasures | None, int]:
    """*shadow* without what names pods of other namespaces, and how many namespaces these are."""
    if shadow is None or readable is None:
        return shadow, 0
    by_namespace = {name: n for name, n in shadow.by_namespace.items() if name in readable}
    hidden = {_namespace(one.pod) for one in shadow.examples} | shadow.by_namespace.keys()
    left_out = len(hidden - {*readable})
    shown = msgspec.structs.replace(
        shadow,
        by_namespace=by_namespace,
        by_class={name: n for name, n in shadow.by_class.items() if _namespace(name) in readable},
        examples=[one for one in shadow.examples if _namespace(one.pod) in readable],
    )
    return shown, left_out


#: What the stage in which a candidate ended is shown as.
_ENDED: Final[Mapping[str, StageState]] = {
    "promoted": "skipped",
    "superseded": "skipped",
    "failed": "failed",
    "aborted": "failed",
}


def _stages(status: RolloutStatus) -> tuple[RolloutStage, ...]:
    if not status.candidate:
        return ()
    is_promoted = status.result == "promoted"
    at = status.stage
    if at is None:
        at = len(status.stages) if is_promoted else -1
    found = []
    for index, stage in enumerate(status.stages):
        state: StageState = "done"
        if index == at:
            is_now: StageState = "paused" if status.paused else "now"
            state = _ENDED.get(status.result, is_now)
        elif index > at:
            state = "skipped" if is_promoted else "ahead"
        found.append(RolloutStage(stage.name, stage.share, state))
    return (*found, RolloutStage(IN_FORCE, 0.0, "done" if is_promoted else "ahead"))


def _present(page: RolloutPage) -> RolloutStage | None:
    """The stage that it is in, or in which it ended."""
    states = ("now", "paused", "failed")
    return next((stage for stage in page.stages if stage.state in states), None)


def _headline(page: RolloutPage) -> str:
    candidate, stage = page.candidate, _present(page)
    where = "before its first stage" if stage is None else f"in {stage_text(stage)}"
    why = page.verdict.why.rstrip(".") if page.verdict is not None else ""
    match page.result:
        case "running" if page.paused:
            return f"{candidate} stands still {where}: {page.paused}."
        case "running" if stage is not None and stage.share:
            return f"{candidate} decides about {share_text(stage.share)} of the pods."
        case "running" if stage is not None:
            return f"{candidate} is compared with {page.base}, which decides about every pod."
        case "running":
            return f"{candidate} is about to begin."
        case "promoted" if any(one.state == "skipped" for one in page.stages):
            return f"{candidate} was promoted before the end of its stages."
        case "promoted":
            return f"{candidate} has passed its stages."
        case "failed":
            return f"{candidate} failed {where}" + (f": {why}." if why else ".")
        case "aborted":
            return f"{candidate} was aborted {where}."
        case "superseded":
            return f"{candidate} gave way to another edit."
    in_force = f"{page.revision} is in force" if page.revision else "no policies are in force yet"
    return f"Nothing is being rolled out; {in_force}."


def _next_step(page: RolloutPage) -> str:
    if page.is_stopped:
        return "The kill switch is set: no edit goes on until the annotation is removed."
    if page.mode == PAUSED:
        return "Roll-outs are paused: no edit goes on until they are resumed."
    if page.result == RUNNING and page.paused:
        return "It goes on when enough is measured; promote or abort it to decide without."
    if page.result == RUNNING:
        return "It goes on by itself when every gate has passed, and ends when one fails."
    if page.result in ("failed", "aborted"):
        return f"{page.base} decides about every pod. Change the text to try again."
    if page.mode == AT_ONCE:
        return "Edits skip their stages: the mode is at-once."
    return ""


def _commands(page: RolloutPage) -> tuple[Command, ...]:
    if not page.config_map:
        return ()
    found = []
    namespace, _, name = page.config_map.removesuffix(SUFFIX).partition("/")
    if page.is_stopped:
        found.append(
            Command(
                f"kubectl -n {namespace} annotate configmap {name} {STOP_ANNOTATION}-",
                "removes the kill switch",
            )
        )
    if page.mode != "staged":
        found.append(Command("starsched rollout resume", "lets edits go through their stages"))
    if page.result == RUNNING:
        revision = f"--revision {page.candidate}"
        if page.mode != PAUSED:
            found.append(Command("starsched rollout pause", "keeps it in its stage"))
        found += [
            Command(f"starsched rollout promote {revision}", "puts it in force now"),
            Command(f"starsched rollout abort {revision}", f"goes back to {page.base}"),
        ]
    return tuple(found)


def _of_log(page: RolloutPage, decision_log: Path | None) -> tuple[Command, ...]:
    if decision_log is None or not page.candidate:
        return ()
    command = f"starsched rollout report --log {shlex.quote(str(decision_log))}"
    return (Command(command, "simulates the last hour of the log under both"),)
