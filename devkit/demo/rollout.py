"""The story of a rollout: edits go through stages, under a stream of pods. One that rejects pods is
stopped as a canary, a good one is promoted, and one that moves too many is stopped in the shadow.
"""

import asyncio
import contextlib
import difflib
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from devkit.cluster import make_node, make_pod
from devkit.demo.stage import Scenario, Stage, StoryFailed
from engine.comparing.difference import MOVED
from engine.rollout.status import CANARY, RUNNING, SHADOW, RolloutStatus

#: Pods a second, and which of them are batch work.
_RATE: Final = 40.0
_BATCH_ONE_IN: Final = 10

_POLICY: Final = '''\
"""Prefers nodes with one kind of disk.

Hooks: score. Reads: node.labels["example.com/disk"].
"""

def score(pod, node):
    wanted = "ssd"
    return 100 if node.labels.get("example.com/disk") == wanted else 0
'''
_GOOD: Final = _POLICY.replace(
    '"ssd"\n', '"hdd" if pod.labels.get("example.com/tier") == "batch" else "ssd"\n'
)
_TOO_DIFFERENT: Final = _POLICY.replace('"ssd"', '"hdd"')
_TOO_STRICT: Final = f"""{_POLICY}
def filter(pod, node):
    return None if pod.labels.get("example.com/team") else "pod(s) had no team"
"""

# A demo is over in seconds, so its stages are. The times of a machine that does other things, too,
# say nothing within seconds: their gates are wide. What an edit takes away is known before
# its stages, and this story is of stages.
_CANARY_ALONE: Final = """\
apiVersion: starsched.dev/v1
kind: PolicyRuntime
rollout:
  canary:
    steps:
    - {share: 20%, duration: 1s, decisions: 8}
    - {share: 50%, duration: 1s, decisions: 16}
  gates: {latency: 1000, timeToBind: 1000, maxFitNowhere: 1000000, maxNodesLost: 100%}
"""
_SHADOW_TOO: Final = _CANARY_ALONE.replace(
    "rollout:\n", "rollout:\n  shadow: {duration: 1s, compared: 20, cores: 50%}\n"
)
_PROFILE: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - plugins:
      multiPoint: {enabled: [{name: prefer_disk, weight: 100}]}
"""


def _files(policy: str, runtime: str) -> dict[str, str]:
    return {"prefer_disk.star": policy, "profile.yaml": _PROFILE, "runtime.yaml": runtime}


_FIRST: Final = _files(_POLICY, _CANARY_ALONE)
_REJECTING: Final = _files(_TOO_STRICT, _CANARY_ALONE)
_IN_FORCE: Final = _files(_GOOD, _SHADOW_TOO)
_MOVING: Final = _files(_TOO_DIFFERENT, _SHADOW_TOO)


def _nodes() -> list[dict[str, Any]]:
    return [
        make_node(f"node-{disk}-{i + 1}", cpu="64", pods=5000, labels={"example.com/disk": disk})
        for disk in ("ssd", "hdd")
        for i in range(3)
    ]


class _Step(msgspec.Struct, frozen=True):
    """A stage that an edit came to.

    Attributes:
        stage: As in `/rollout`, with its share.
        pods: How many pods it decided for.
        measured: What there is to judge by, in words.
        verdict, why: What it came to.
    """

    stage: str
    pods: int
    measured: str
    verdict: str
    why: str


class _Edit(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an edit.

    Attributes:
        revision: Of its text.
        result: As in `/rollout`.
        headline: The same in a sentence.
        steps: The stages.
        pods: How many pods came while it was in them.
    """

    revision: str
    result: str
    headline: str
    steps: list[_Step]
    pods: int


@dataclass
class _Stream:
    """Pods that come one after the other; `made` are their names."""

    stage: Stage
    made: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Make pods until cancelled."""
        for number in itertools.count():
            tier = "web" if number % _BATCH_ONE_IN else "batch"
            name = f"{tier}-{number}"
            labels = {"example.com/tier": tier}
            self.stage.cluster.create(make_pod(name, cpu="10m", memory="16Mi", labels=labels))
            self.made.append(name)
            await asyncio.sleep(1 / _RATE)

    @contextlib.asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Pods come until the block ends."""
        running = asyncio.ensure_future(self.run())
        try:
            yield
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


async def run(stage: Stage) -> dict[str, Any]:
    """Make three edits, of which one should come into force."""
    stage.say("Its policies ask for stages: an edit decides for a few pods before it does for all.")
    stage.show_text("runtime.yaml", _CANARY_ALONE, "yaml")
    first = stage.revision
    stream = _Stream(stage)
    async with stream.flowing():
        stage.say(f"About {_RATE:g} pods a second arrive; one in {_BATCH_ONE_IN} is batch work.")
        # 1. One that shows what it does once it decides.
        stage.say("\nA bad edit: it wants a label that no pod has.")
        rejecting = await _make(stage, stream, _FIRST, _REJECTING)
        _want(rejecting, "failed", CANARY, "maxNewlyPending")
        stage.say(
            f"It decided for {rejecting.steps[-1].pods} of {rejecting.pods} pods that came "
            "meanwhile; the policies in force decide for them now."
        )
        # 2. A good edit.
        stage.say("\nA good edit: batch work goes to slower disks, and edits go through a shadow.")
        good = await _make(stage, stream, _FIRST, _IN_FORCE)
        _want(good, "promoted", CANARY)
        # 3. One that is stopped before it decides anything.
        stage.say("\nAnother bad edit: the condition is lost, and everything goes to slower disks.")
        moving = await _make(stage, stream, _IN_FORCE, _MOVING)
        _want(moving, "failed", SHADOW, "maxMoved")
    # 4. Who decided.
    await stage.until_placed(stream.made)
    made = set(stream.made)
    await stage.until(lambda: made <= stage.schedulers().keys(), "the events of all pods")
    schedulers = stage.schedulers()
    placed_by = Counter(schedulers[name] for name in made)
    policies = {
        first: "at first",
        rejecting.revision: "the edit that rejected pods",
        good.revision: "the good edit",
        moving.revision: "the edit that moved too many",
    }
    stage.show(
        f"Which policies placed the {len(made)} pods",
        ("revision", "policies", "pods", ""),
        [
            (revision, name, placed_by[revision], "in force" * (revision == stage.revision))
            for revision, name in policies.items()
        ],
    )
    _check(stage.revision, good, placed_by[rejecting.revision] + placed_by[moving.revision])
    return {
        "edits": [msgspec.to_builtins(edit) for edit in (rejecting, good, moving)],
        "pods": len(made),
        "placed_by": {revision: placed_by[revision] for revision in policies},
        "revisions": {"before": first, "after": stage.revision},
    }


def _check(in_force: str, good: _Edit, placed_by_bad: int) -> None:
    if in_force != good.revision:
        raise StoryFailed(f"want {good.revision} in force, got {in_force}")
    if placed_by_bad:
        raise StoryFailed(f"want no pod placed by a bad edit, got {placed_by_bad}")


async def _make(
    stage: Stage, stream: _Stream, before: dict[str, str], after: dict[str, str]
) -> _Edit:
    """Make an edit and follow it through its stages, which are shown at the end."""
    stage.show_text("the edit", _diff(before, after), "diff")
    last, pods = stage.app.policies.rollout.status.candidate, len(stream.made)
    steps: dict[str, _Step] = {}
    stage.edit(after)

    def follow() -> RolloutStatus | None:
        status = stage.app.policies.rollout.status
        if status.candidate in ("", last):
            return None
        if (step := _step(status)) is not None:
            steps[step.stage] = step
        return status if status.result != RUNNING else None

    status = await stage.until(follow, "an edit to be promoted or rejected")
    if status.result == "promoted":
        await stage.until(lambda: stage.revision == status.candidate, "the edit to be in force")
    ended = _ended(steps, status)
    rows = [(step.stage, step.measured, step.verdict) for step in ended]
    stage.show(f"The stages of {status.candidate}", ("stage", "measured", "verdict"), rows)
    headline = str((await stage.ask("rollout"))["headline"])
    stage.say(headline)
    return _Edit(
        revision=status.candidate,
        result=status.result,
        headline=headline,
        steps=ended,
        pods=len(stream.made) - pods,
    )


def _step(status: RolloutStatus) -> _Step | None:
    """The present stage; None if it is in none."""
    if status.stage is None:
        return None
    stage, verdict = status.stages[status.stage], status.verdict
    name, pods, measured = stage.name, 0, ""
    if stage.name == SHADOW and status.shadow is not None:
        moved = status.shadow.counts.get(MOVED, 0)
        measured = f"{status.shadow.compared} decisions compared, {moved} moved"
    if stage.name == CANARY and status.canary is not None:
        name = f"{stage.name} {stage.share:.0%}"
        pods = status.canary.owners  # each pod is its own
        measured = f"decided for {pods} pods, placed {status.canary.bound}"
    outcome, why = ("", "") if verdict is None else (verdict.outcome, verdict.why)
    return _Step(name, pods, measured, outcome, why)


def _ended(steps: dict[str, _Step], status: RolloutStatus) -> list[_Step]:
    """*steps* with verdicts: a further stage begins when the one before has passed."""
    *passed, last = steps.values()
    end = "fail" if status.result == "failed" else "pass"
    return [
        *(msgspec.structs.replace(step, verdict="pass", why="") for step in passed),
        msgspec.structs.replace(last, verdict=end, why=last.why if end == "fail" else ""),
    ]


def _diff(before: dict[str, str], after: dict[str, str]) -> str:
    """The changed lines of all files."""
    return "\n".join(
        line
        for file in after
        for line in difflib.unified_diff(
            before[file].splitlines(), after[file].splitlines(), lineterm="", n=0
        )
        if not line.startswith(("---", "+++", "@@"))
    )


def _want(edit: _Edit, result: str, stage: str, gate: str = "") -> None:
    """The edit must have ended so: a failed one in *stage*, at *gate*."""
    last = edit.steps[-1]
    is_so = edit.result == result and last.stage.startswith(stage) and gate in last.why
    if not is_so:
        where = f" in {stage} at {gate}" if gate else ""
        raise StoryFailed(f"want the edit {result}{where}, got: {edit.headline}")


SCENARIO: Final = Scenario(
    name="rollout",
    summary="edits go through shadow and canary; bad ones are stopped by their gates",
    policies=_FIRST,
    objects=_nodes,
    run=run,
    page="rollout",
    shows="the edit that failed in the shadow, with its gates as bars and its differences",
)
