"""What became of the latest revisions, stage by stage.

Owns the records, which hold the texts too, so that two revisions can be compared. Bounded.

    offered -> checked -> tested -> loaded -> tried -> shadow -> canary -> probation -> in_force
       any --> rejected;  any --> superseded;  probation --> rolled_back;  in_force --> replaced
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.lib.clock import Clock
from engine.policy.errors import Problem

_MOST: Final = 20
#: What the stages that are measured are called once they are over.
PASSED: Final[Mapping[str, str]] = {
    "check": "checked",
    "test": "tested",
    "load": "loaded",
    "trial": "tried",
    "shadow": "shadow",
    "canary": "canary",
}


@dataclass(frozen=True, slots=True)
class StageRecord:
    """A stage, when it ended (seconds since the epoch), and how long it took if it was measured.

    `shadow` and `canary` are there as soon as they begin, with no duration until they have passed.
    """

    stage: str
    at: float
    seconds: float | None = None
    note: str = ""


@dataclass(slots=True, eq=False)
class RevisionRecord:
    """What became of one offer.

    Attributes:
        revision: Its bundle's revision; before its check "".
        compared_with: What was in force when it came; None if nothing was.
        written_by: The field manager that wrote it; "" if that is not known.
    """

    revision: str
    at: float
    files: Mapping[str, str]
    compared_with: "RevisionRecord | None" = None
    written_by: str = ""
    result: str = "offered"
    note: str = ""
    stages: list[StageRecord] = field(default_factory=list)
    problems: Sequence[Problem] = ()


class Timeline:
    """The records of the latest revisions; *clock* dates them."""

    def __init__(self, clock: Clock, most: int = _MOST) -> None:
        self._clock = clock
        self._records: deque[RevisionRecord] = deque(maxlen=most)
        self._in_force: RevisionRecord | None = None
        self._offered: RevisionRecord | None = None

    def __iter__(self) -> Iterator[RevisionRecord]:
        """The newest first."""
        return iter(tuple(reversed(self._records)))

    @property
    def in_force(self) -> RevisionRecord | None:
        """The record of what decides."""
        return self._in_force

    def offered(self, files: Mapping[str, str], written_by: str) -> None:
        """An offer goes through its stages from now on."""
        self._offered = self._new("", files, written_by)

    def began(self, stage: str, note: str) -> None:
        """The offer is in a stage that takes long."""
        if self._offered is not None and not self._is_in(self._offered, stage, note):
            self._stage(self._offered, stage, note=note)

    def passed(self, stage: str, seconds: float) -> None:
        """The offer passed a stage that took so many seconds."""
        record = self._offered
        if record is None or stage not in PASSED:
            return
        note = ""
        if self._is_in(record, stage):
            note = record.stages.pop().note
        self._stage(record, PASSED[stage], seconds=seconds, note=note)

    def named(self, revision: str) -> None:
        """The offer's check gave it its name."""
        if self._offered is not None:
            self._offered.revision = revision

    def dropped(self) -> None:
        """The offer is what is in force already."""
        if self._offered is not None and self._offered in self._records:
            self._records.remove(self._offered)
        self._offered = None

    def superseded(self, why: str) -> None:
        """Something newer took the offer's place before it was in force."""
        record, self._offered = self._offered, None
        if record is not None:
            self._end(record, "superseded", why)

    def rejected(
        self,
        revision: str,
        files: Mapping[str, str],
        written_by: str,
        *,
        stage: str,
        note: str,
        problems: Sequence[Problem],
    ) -> None:
        """The offer failed *stage*; without one, at the start."""
        record = self._offered or self._new(revision, files, written_by)
        self._offered = None
        record.revision, record.problems = revision, problems
        self._end(record, "rejected", f"{stage}: {note}")

    def now_in_force(
        self, revision: str, files: Mapping[str, str], *, on_probation: bool, note: str = ""
    ) -> None:
        """A revision decides from now on: the offer, or one from before."""
        before, record = self._in_force, self._offered
        if record is None or record.revision != revision:
            record = self._known(revision) or self._new(revision, files, "")
        self._offered = None
        if before is not None and before is not record and before.result != "rolled_back":
            self._end(before, "replaced")
        self._in_force = record
        self._end(record, "probation" if on_probation else "in_force", note)

    def kept(self) -> None:
        """The probation of what is in force is over."""
        if self._in_force is not None:
            self._end(self._in_force, "in_force")

    def rolled_back(self, revision: str, reason: str) -> None:
        """*revision* was rolled back; what decides now is said before or after."""
        record = self._known(revision)
        if record is not None:
            if record.result == "replaced":
                del record.stages[-1]
            self._end(record, "rolled_back", reason)

    def _known(self, revision: str) -> RevisionRecord | None:
        return next((record for record in self if record.revision == revision), None)

    def _new(self, revision: str, files: Mapping[str, str], written_by: str) -> RevisionRecord:
        record = RevisionRecord(revision, self._clock.now(), files, self._in_force, written_by)
        self._stage(record, "offered")
        if len(self._records) == self._records.maxlen:
            # Chains of records would keep every text there ever was.
            self._records[0].compared_with = None
        self._records.append(record)
        return record

    def _is_in(self, record: RevisionRecord, stage: str, note: str = "") -> bool:
        """True if *stage* has begun last, with that note if there is one."""
        last = record.stages[-1]
        return last.stage == stage and last.seconds is None and note in ("", last.note)

    def _end(self, record: RevisionRecord, result: str, note: str = "") -> None:
        record.result, record.note = result, note
        self._stage(record, result, note=note)

    def _stage(
        self, record: RevisionRecord, stage: str, *, seconds: float | None = None, note: str = ""
    ) -> None:
        record.stages.append(StageRecord(stage, self._clock.now(), seconds, note))
