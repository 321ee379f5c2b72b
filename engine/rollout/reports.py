"""The reports of a roll-out: log lines, events, metrics, and the page `/policies`.

Owns the texts and the history. Whether an outcome is worth a report is `rollout`'s.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
import structlog

from engine.io.binding.event_recorder import NORMAL, WARNING, Reference
from engine.lib.clock import Clock
from engine.lib.confinement import Confinement
from engine.policy.errors import Problem
from engine.rollout.control import Control
from engine.rollout.inbox import CandidateInbox
from engine.rollout.last_resort import BUILTIN
from engine.rollout.measures import LOSS_KINDS, PENDING, Loss
from engine.rollout.revisions import Revisions
from engine.rollout.saved_policies import SavedPolicies
from engine.rollout.sources import NO_FILES, Offer
from engine.rollout.status import Outcome
from engine.rollout.timeline import PASSED, Timeline
from engine.rollout.trial import LoadedRevision, Rejected, digest, first_of
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="rollout")

ACCEPTED_REASON: Final = "PolicyAccepted"
REJECTED_REASON: Final = "PolicyRejected"
ROLLED_BACK_REASON: Final = "PolicyRolledBack"
SOURCE_GONE_REASON: Final = "PolicySourceGone"
CONTROL_REJECTED_REASON: Final = "RolloutControlRejected"
SHADOW_REASON: Final = "PolicyShadow"
CANARY_REASON: Final = "PolicyCanary"
INCONCLUSIVE_REASON: Final = "PolicyInconclusive"
PROMOTED_REASON: Final = "PolicyPromoted"
SUPERSEDED_REASON: Final = "PolicySuperseded"
NO_POLICIES_REASON: Final = "NoPolicies"

_STAGED: Final = {
    "shadow": (SHADOW_REASON, NORMAL),
    "canary": (CANARY_REASON, NORMAL),
    "inconclusive": (INCONCLUSIVE_REASON, WARNING),
    "promoted": (PROMOTED_REASON, NORMAL),
    "superseded": (SUPERSEDED_REASON, NORMAL),
}

#: Stages of a rejection that say something of what is in force, too.
_COMPARED: Final = frozenset({"shadow", "canary", "refused"})

_HISTORY: Final = 50

WriteEvent = Callable[[Reference, str, str, str, str], None]
"""(about, `Normal` or `Warning`, reason, note, revision): writes an event."""


class Reports:
    """Reports outcomes; a standby logs and counts them, and only the leader writes events.

    Args:
        source_name: How the operator wrote the source.
        inbox: For the object that events are about.
        write_event: Writes events.
        is_leader: Whether this process writes events now.
        metrics, clock: Measure.

    Attributes:
        last_rejected: The last outcome if it was a rejection or a roll-back, as in the history.
        is_source_gone: True while the source does not exist.
        unreported: The revision that was accepted without an event, since another process led.
        timeline: What became of the latest revisions, stage by stage.
    """

    def __init__(
        self,
        source_name: str,
        *,
        inbox: CandidateInbox,
        write_event: WriteEvent,
        is_leader: Callable[[], bool],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._source_name = source_name
        self._inbox = inbox
        self._write_event = write_event
        self._is_leader = is_leader
        self._metrics = metrics
        self._clock = clock
        self.timeline = Timeline(clock)
        self._accepted_at = 0.0
        self._is_confinement_logged = False
        self._history: deque[dict[str, Any]] = deque(maxlen=_HISTORY)
        self.last_rejected: dict[str, Any] | None = None
        self.is_source_gone = False
        self.unreported = ""

    @property
    def refused_by_gate(self) -> str:
        """The revision that was rejected last, if it was next to what is in force; else ""."""
        last = self.last_rejected
        return last["revision"] if last is not None and last["stage"] in _COMPARED else ""

    def in_force(self, loaded: LoadedRevision, *, on_probation: bool = False) -> None:
        """*loaded* decides from now on, for whatever reason."""
        self._accepted_at = self._clock.now()
        revision = loaded.bundle.revision
        self.timeline.now_in_force(
            revision, loaded.files, on_probation=on_probation, note=f"from {loaded.origin}"
        )
        self._metrics.set_revision(revision, self._accepted_at)
        self._count_losses(loaded)
        if not loaded.files and loaded.origin == self._source_name != BUILTIN:
            log.warning("The source is empty", source=self._source_name, reason=NO_FILES)
        if warnings := warnings_of(loaded):
            log.warning("Policies have warnings", revision=revision, reason=first_of(warnings))
        confinement = loaded.confinement
        if confinement is not None and confinement.missing and not self._is_confinement_logged:
            # The kernel's doing, so the same for all that follow.
            self._is_confinement_logged = True
            log.warning("Sandbox is not fully confined", missing=", ".join(confinement.missing))

    def accepted(
        self, loaded: LoadedRevision, duration_ms: float, took: Mapping[str, float]
    ) -> None:
        """A candidate passed all stages; *took* has the milliseconds of each."""
        self.last_rejected = None
        self._count("accepted", is_ok=True)
        revision = loaded.bundle.revision
        log.info("Policies in force", revision=revision, duration_ms=duration_ms, **took)
        self._note("accepted", revision, duration_ms=duration_ms)
        self.write_accepted(loaded)

    def write_accepted(self, loaded: LoadedRevision, *, is_again: bool = False) -> None:
        """Write the event that *loaded* is in force; *is_again*: the source offers it again."""
        self.unreported = "" if self._is_leader() else loaded.bundle.revision
        self._count_losses(loaded)  # of the first policies they are known later than these decide
        note = f"revision {loaded.bundle.revision} is in force ({len(loaded.files)} files)"
        if is_again:
            note = f"the text in force is offered again: {note}"
        if warnings := warnings_of(loaded):
            note += f"; warning: {first_of(warnings)}"
        # What an edit takes away is said louder than what is odd about its text.
        kind = WARNING if loaded.losses.problems() else NORMAL
        self._event(self._inbox.reference, kind, ACCEPTED_REASON, note, loaded.bundle.revision)

    def keeps_waiting(self, loaded: LoadedRevision, pending: Loss | None) -> None:
        """*loaded* is on probation, and keeps pods waiting that do not roll it back, or none."""
        is_news = pending is not None and not loaded.losses.has(PENDING)
        loaded.losses = loaded.losses.with_pending(pending)
        self._count_losses(loaded)
        if is_news:
            revision, reason = loaded.bundle.revision, first_of(warnings_of(loaded))
            log.warning("Policies keep pods waiting", revision=revision, reason=reason)
            self.write_accepted(loaded)

    def rejected(
        self, rejection: Rejected, offer: Offer, in_force: str, *, is_again: bool = False
    ) -> None:
        """A candidate failed a stage; the revision *in_force* stays.

        With *is_again* it was only tried again: a reason that is the same is no news.
        """
        note = rejection.note()
        last = self.last_rejected
        is_again = is_again and last is not None and last["note"] == note
        revision = rejection.revision or digest(offer.files or {})
        self._count("rejected", is_ok=False)
        if not is_again:
            log.error(
                "Policies rejected",
                revision=revision,
                stage=rejection.stage,
                reason=note,
                in_force=in_force,
            )
        self.timeline.rejected(
            revision,
            offer.files or {},
            offer.written_by,
            stage=rejection.stage,
            note=note,
            problems=rejection.problems,
        )
        if is_again:
            return
        problems = _plain(rejection.problems)
        self.last_rejected = self._note(
            "rejected", revision, stage=rejection.stage, note=note, problems=problems
        )
        reference = offer.reference or self._inbox.reference
        self._event(reference, WARNING, REJECTED_REASON, note, revision)

    def unchanged(self, active: LoadedRevision, *, is_news: bool) -> None:
        """The source offers what is in force; *is_news* if the last report was different."""
        self.last_rejected = None
        self.timeline.dropped()
        self._count("unchanged", is_ok=True)
        if is_news:
            log.info("The source offers the revision in force", revision=active.bundle.revision)
            self._note("unchanged", active.bundle.revision)
            self.write_accepted(active, is_again=True)

    def source_gone(self, offer: Offer, in_force: str) -> None:
        """The source does not exist; the revision *in_force* stays."""
        self.is_source_gone = True
        log.warning(
            "The policies' source is gone; what is in force stays", source=self._source_name
        )
        self._note("source_gone", in_force)
        note = "the policies' source is gone; what is in force stays"
        self._event(offer.reference, WARNING, SOURCE_GONE_REASON, note, "")

    def waits(self, why: str) -> None:
        """Every pod waits, for *why*: no policies can be used."""
        note = f"{why}; every pod waits until there are some"
        self._event(self._inbox.reference, WARNING, NO_POLICIES_REASON, note, "")

    def rolled_back(self, revision: str, in_force: str, reason: str) -> None:
        """*revision* was rolled back during its probation; *in_force* decides again."""
        self._count("rolled_back", is_ok=False)
        self.timeline.rolled_back(revision, reason)
        log.error("Policies rolled back", revision=revision, in_force=in_force, reason=reason)
        note = f"revision {revision} was rolled back: {reason}; revision {in_force} is in force"
        self.last_rejected = self._note(
            "rolled_back", revision, stage="probation", note=note, problems=[]
        )
        self._event(self._inbox.reference, WARNING, ROLLED_BACK_REASON, note, revision)

    def control_rejected(self, about: Reference, control: Control) -> None:
        """The object *about*, which says how edits are rolled out, says what makes no sense."""
        note = f"{first_of(control.problems, 'the log has them all')}; the mode is `{control.mode}`"
        self._event(about, WARNING, CONTROL_REJECTED_REASON, note, "")

    def judged(self, stage: str, outcome: Outcome, seconds: float) -> None:
        """A stage of a roll-out comes to this, after so many seconds."""
        self._metrics.rollout_verdicts.labels(stage, outcome).inc()
        if outcome == "pass":
            self.timeline.passed(stage, seconds)

    def staged(self, what: str, note: str) -> None:
        """Something happens to the edit that goes through its stages."""
        reason, kind = _STAGED[what]
        if what in PASSED:
            self.timeline.began(what, note)
        log.info("Roll-out", event_reason=reason, note=note)
        self._event(self._inbox.reference, kind, reason, note, "")

    def examined(self, seconds: float) -> None:
        """A candidate took *seconds* through its stages, whatever came of it."""
        self._metrics.reload_seconds.observe(seconds)

    def describe(self, revisions: Revisions, saved: SavedPolicies) -> dict[str, Any]:
        """The state as plain data, for `/policies`."""
        active, counts = revisions.active, revisions.counts
        in_force: dict[str, Any] | None = None
        if active is not None:
            in_force = {
                "revision": active.bundle.revision,
                "origin": active.origin,
                "since": self._accepted_at,
                "files": sorted(active.files),
                "profiles": [profile.scheduler_name for profile in active.bundle.profiles],
                "decisions": counts.decisions,
                "failed_decisions": counts.failed,
                "lost_seconds": round(counts.lost_seconds, 3),
                "on_probation": revisions.previous is not None,
                "warnings": _plain(warnings_of(active)),
                "losses": msgspec.to_builtins(active.losses),
                "sandbox": _described(active.confinement),
            }
        return {
            "source": {"name": self._source_name, "gone": self.is_source_gone},
            "active": in_force,
            "last_rejected": self.last_rejected,
            "last_good": saved.revision,
            "rolled_back": list(saved.rolled_back),
            "history": list(self._history),
        }

    def _count_losses(self, loaded: LoadedRevision) -> None:
        for kind in LOSS_KINDS:
            self._metrics.policy_losses.labels(kind).set(loaded.losses.count(kind))

    def _count(self, result: str, *, is_ok: bool) -> None:
        self._metrics.policy_reloads.labels(result).inc()
        self._metrics.last_reload_ok.set(int(is_ok))

    def _note(self, result: str, revision: str, **more: Any) -> dict[str, Any]:
        entry = {"at": self._clock.now(), "result": result, "revision": revision, **more}
        self._history.append(entry)
        return entry

    def _event(
        self, reference: Reference | None, kind: str, reason: str, note: str, revision: str
    ) -> None:
        if self._is_leader() and reference is not None:
            self._write_event(reference, kind, reason, note, revision)


def warnings_of(loaded: LoadedRevision) -> list[Problem]:
    """What is to be known of *loaded*: what it takes away first."""
    of_queues = [one for one in (loaded.vanishing, loaded.circle) if one is not None]
    return [*loaded.losses.problems(), *of_queues, *loaded.bundle.warnings]


def _described(confinement: Confinement | None) -> dict[str, Any] | None:
    """What the kernel holds the sandbox to, as `/policies` shows it."""
    if confinement is None:
        return None
    return {**msgspec.structs.asdict(confinement), "missing": list(confinement.missing)}


def _plain(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """The problems as `/policies` shows them."""
    return [
        {
            "file": problem.file,
            "line": problem.line,
            "column": problem.column,
            "message": problem.message,
            "hint": problem.hint,
        }
        for problem in problems
    ]
