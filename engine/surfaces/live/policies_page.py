"""The policies in force and what became of the latest revisions, as a record.

Owns comparing revisions, which is done once for each, in a thread: texts may be long.
"""

import asyncio
import difflib
from collections.abc import Collection, Mapping
from typing import Any, Final

from engine.lib.clock import Clock
from engine.rollout.rollout import Rollout
from engine.rollout.timeline import RevisionRecord
from engine.surfaces.live.answers import (
    FileDiff,
    Leader,
    PoliciesPage,
    ProblemAnswer,
    RevisionAnswer,
    Stage,
)
from engine.surfaces.live.moments import at_text

# Lines of the differences of one revision that are shown.
_MOST_LINES: Final = 2_000
# Lines of a text that is compared: the time grows with the square.
_MOST_COMPARED: Final = 5_000


class PoliciesAnswers:
    """Answers about the policies of *rollout*."""

    def __init__(self, rollout: Rollout, clock: Clock) -> None:
        self._rollout = rollout
        self._clock = clock
        self._diffs: dict[RevisionRecord, tuple[RevisionRecord | None, tuple[FileDiff, ...]]] = {}

    async def page(
        self, leader: Leader, pod_groups: Mapping[str, Any], wanted: Collection[str] = ()
    ) -> PoliciesPage:
        """The answer of `/policies`, with the texts of the revisions *wanted*."""
        described = self._rollout.describe()
        records = list(self._rollout.timeline)
        for record in records:
            known = self._diffs.get(record)
            if known is None or known[0] is not record.compared_with:
                before = None if record.compared_with is None else record.compared_with.files
                found = await asyncio.to_thread(differences, before, record.files)
                self._diffs[record] = record.compared_with, found
        self._diffs = {record: self._diffs[record] for record in records}
        in_force = self._rollout.timeline.in_force
        return PoliciesPage(
            leader=leader,
            at=at_text(self._clock.now()),
            source=described["source"],
            active=described["active"],
            last_rejected=described["last_rejected"],
            last_good=described["last_good"],
            rolled_back=tuple(described["rolled_back"]),
            history=tuple(described["history"]),
            revisions=tuple(
                _revision(record, self._diffs[record][1], is_in_force=record is in_force)
                for record in records
            ),
            files={} if in_force is None else in_force.files,
            texts={one.revision: one.files for one in records if one.revision in wanted},
            pod_groups=pod_groups,
        )


def differences(before: Mapping[str, str] | None, after: Mapping[str, str]) -> tuple[FileDiff, ...]:
    """What differs between two sets of texts, file by file; nothing if there was none before."""
    if before is None:
        return ()
    found = []
    left = _MOST_LINES
    for name in sorted({*before, *after}):
        old, new = before.get(name, ""), after.get(name, "")
        if old == new:
            continue
        if max(old.count("\n"), new.count("\n")) > _MOST_COMPARED:
            found.append(FileDiff(name, ("too long to be compared",)))
            continue
        lines = list(
            difflib.unified_diff(
                old.splitlines(),
                new.splitlines(),
                fromfile=name if name in before else "/dev/null",
                tofile=name if name in after else "/dev/null",
                lineterm="",
            )
        )
        shown = lines[: max(left, 0)]
        if len(shown) < len(lines):
            shown.append(f"... {len(lines) - len(shown)} more lines")
        left -= len(shown)
        found.append(FileDiff(name, tuple(shown)))
    return tuple(found)


def _revision(
    record: RevisionRecord, diff: tuple[FileDiff, ...], *, is_in_force: bool
) -> RevisionAnswer:
    return RevisionAnswer(
        revision=record.revision,
        at=at_text(record.at),
        result=record.result,
        written_by=record.written_by,
        stages=tuple(
            Stage(
                stage=one.stage,
                at=at_text(one.at),
                seconds=None if one.seconds is None else round(one.seconds, 4),
                note=one.note,
            )
            for one in record.stages
        ),
        problems=tuple(
            ProblemAnswer(one.file, one.line, one.column, one.message, one.hint)
            for one in record.problems
        ),
        note=record.note,
        compared_with="" if record.compared_with is None else record.compared_with.revision,
        diff=diff,
        is_in_force=is_in_force,
    )
