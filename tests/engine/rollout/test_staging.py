"""The stages between an edit's trial and its coming into force."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from engine.io.binding.event_recorder import Reference
from engine.lib.clock import VirtualClock
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import Evaluator, InProcessEvaluator
from engine.rollout import trial
from engine.rollout.control import Control, NoControl
from engine.rollout.last_good import LastGood
from engine.rollout.measures import FIT_NOWHERE, ArmMeasures, Loss, Losses, ShadowMeasures
from engine.rollout.sources import Offer
from engine.rollout.trial import CandidateStages, LoadedRevision, MakeEvaluator
from engine.telemetry.metrics import Metrics
from tests.engine.rollout.making import rollout_of
from tests.engine.rollout.test_taking_over import Kept, Source, World, revision_of
from tests.waiting import eventually, no_time

STAGES = """
  shadow: {duration: 3s, compared: 10}
  canary:
    steps:
    - {share: 1%, duration: 3s, decisions: 10}
    - {share: 5%, duration: 3s, decisions: 10}
"""


def files(text: str, stages: str = STAGES) -> dict[str, str]:
    runtime = "apiVersion: starsched.dev/v1\nkind: PolicyRuntime\n"
    if stages:
        runtime += f"rollout:{stages}"
    return {"p.star": f'"""{text}"""\n', "runtime.yaml": runtime}


ABOUT = Reference("v1", "ConfigMap", "ns", "policies")
FIRST, EDIT, OTHER = files("First."), files("Edited."), files("Edited again.")
EDIT_REVISION = revision_of(EDIT)


class FakeComparing:
    """Says what a test wants it to have measured; `calls` is what was asked of it.

    In the stage `hold`, and if it is not `is_busy`, there are no decisions.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.twins: list[LoadedRevision | None] = []
        self.is_busy = True
        self.hold = ""
        self.bad: dict[str, int] = {}
        self.bad_canary = 0

    @property
    def now(self) -> str:
        """What is compared at this moment."""
        return self.calls[-1] if self.calls else "end"

    def _many(self) -> int:
        is_held = bool(self.hold) and self.now.startswith(self.hold)
        return 100 * (self.is_busy and not is_held)

    def begin_shadow(
        self, candidate: LoadedRevision, base: LoadedRevision, _stage: object
    ) -> Callable[[], ShadowMeasures]:
        self.calls.append(f"shadow {candidate.bundle.revision} {base.bundle.revision}")
        return self._shadow

    def _shadow(self) -> ShadowMeasures:
        compared = self._many()
        return ShadowMeasures(
            decided=compared,
            compared=compared,
            placed=compared,
            placed_by_class={"no owner": compared},
            counts=self.bad,
            timed=compared,
            seconds=compared * 0.001,
            seconds_before=compared * 0.001,
        )

    def begin_canary(
        self,
        candidate: LoadedRevision,
        twin: LoadedRevision | None,
        _stage: object,
        share: float,
    ) -> tuple[ArmMeasures, ArmMeasures]:
        self.twins.append(twin)
        self.calls.append(f"canary {candidate.bundle.revision} {share:.0%}")
        many = self._many()
        control = ArmMeasures(decisions=many, bound=many, owners=many, bound_owners=many)
        canary = ArmMeasures(decisions=many, bound=many, owners=many, bound_owners=many)
        canary.failed = canary.failed_owners = self.bad_canary
        return canary, control

    def end(self) -> None:
        if self.now != "end":
            self.calls.append("end")


class FakeControl(NoControl):
    """A mode that a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.current = Control()

    def say(self, **changes: Any) -> None:
        self.current = replace(self.current, **changes)


def in_process(bundle: Bundle) -> Evaluator:
    return InProcessEvaluator(bundle.program)


class Trials(CandidateStages):
    """Says when the first policies, or a candidate, went through their trial."""

    def __init__(self, make_evaluator: MakeEvaluator) -> None:
        super().__init__(
            build=lambda texts: build_bundle(dict(texts)),
            make_evaluator=make_evaluator,
            run_tests=lambda _: [],
        )
        self.is_over = asyncio.Event()

    async def try_out(
        self,
        candidate: LoadedRevision,
        world: trial.World,
        base: LoadedRevision | None = None,
    ) -> None:
        try:
            await super().try_out(candidate, world, base)
        finally:
            self.is_over.set()


class Bench:
    """A roll-out by itself; seconds pass with each look at what was measured."""

    def __init__(
        self,
        first: Mapping[str, str],
        store: Kept | None = None,
        control: FakeControl | None = None,
        make_evaluator: MakeEvaluator = in_process,
    ) -> None:
        self.clock = VirtualClock()
        self.source, self.store = Source(first), store or Kept()
        self.comparing, self.control = FakeComparing(), control or FakeControl()
        self.trials, self.world = Trials(make_evaluator), World()
        self.events: list[str] = []
        self.kinds: list[str] = []
        self.jump = 0.0
        self.registry = CollectorRegistry()
        self.rollout = rollout_of(
            source=self.source,
            store=self.store,
            stages=self.trials,
            world=self.world,
            on_switch=lambda *_: None,
            write_event=self._write,
            metrics=Metrics(self.registry),
            clock=self.clock,
            comparing=self.comparing,
            control=self.control,
            sleep=self._sleep,
        )

    def _write(self, _about: Reference, kind: str, reason: str, note: str, _rev: str) -> None:
        self.events.append(f"{reason}: {note}")
        self.kinds.append(kind)

    async def _sleep(self, seconds: float) -> None:
        await no_time(seconds)
        self.clock.advance(min(seconds, 0.5) + self.jump)
        self.jump = 0.0

    @property
    def revision(self) -> str:
        return self.rollout.active.bundle.revision

    def losses(self, kind: str) -> float | None:
        """What the metric says of what was taken away."""
        return self.registry.get_sample_value("starsched_policy_losses", {"kind": kind})

    def offer(self, texts: Mapping[str, str] | None, *, is_stopped: bool = False) -> None:
        self.source.offer(Offer(texts, "", ABOUT, is_stopped=is_stopped))

    async def until(self, what: str) -> None:
        """Wait until the comparison begins with these words."""
        await eventually(lambda: self.comparing.now.startswith(what), what=what)

    async def until_in_force(self, texts: Mapping[str, str]) -> None:
        want = revision_of(texts)
        await eventually(lambda: self.revision == want)

    async def until_event(self, reason: str) -> str:
        def found() -> str:
            return next((one for one in self.events if one.startswith(reason)), "")

        event: str = await eventually(found, what=reason)
        return event

    async def seconds(self, count: float) -> None:
        """Let so many seconds pass."""
        ends_at = self.clock.monotonic() + count
        await eventually(lambda: self.clock.monotonic() >= ends_at)


@contextlib.asynccontextmanager
async def bench(
    first: Mapping[str, str] = FIRST,
    store: Kept | None = None,
    *,
    control: FakeControl | None = None,
    is_active: bool = True,
    make_evaluator: MakeEvaluator = in_process,
) -> AsyncIterator[Bench]:
    """A roll-out that is under way."""
    one = Bench(first, store, control, make_evaluator)
    one.rollout.is_active = is_active
    await one.rollout.start()
    running = asyncio.ensure_future(one.rollout.run())
    try:
        yield one
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


# --- the way through -----------------------------------------------------------------------------


async def test_an_edit_comes_into_force_after_all_its_stages() -> None:
    async with bench() as b:
        b.offer(EDIT)
        await b.until_in_force(EDIT)
        assert b.comparing.calls == [
            f"shadow {EDIT_REVISION} {revision_of(FIRST)}",
            f"canary {EDIT_REVISION} 1%",
            f"canary {EDIT_REVISION} 5%",
            "end",
        ]
        assert b.rollout.status.result == "promoted"
        record = next(iter(b.rollout.timeline))
        names = [stage.stage for stage in record.stages]
        assert names[-4:] == ["shadow", "canary", "canary", "probation"]


async def test_the_control_sample_has_the_policies_in_force_once_more() -> None:
    closed: list[Bundle] = []

    class Closing(InProcessEvaluator):
        def __init__(self, bundle: Bundle) -> None:
            super().__init__(bundle.program)
            self._bundle = bundle

        def close(self) -> None:
            closed.append(self._bundle)

    async with bench(make_evaluator=Closing) as b:
        b.offer(EDIT)
        await b.until_in_force(EDIT)
        twin, again = b.comparing.twins
        assert twin is not None
        assert twin is again
        assert twin.bundle.revision == revision_of(FIRST)
        await eventually(lambda: twin.bundle in closed)


async def test_without_stages_an_edit_is_in_force_at_once() -> None:
    async with bench(files("First.", "")) as b:
        b.offer(EDIT)
        await b.until_in_force(EDIT)
        assert not b.comparing.calls


async def test_an_edit_goes_through_the_stages_in_force_not_through_its_own() -> None:
    loose = files("Edited.", "")
    async with bench() as b:
        b.comparing.bad = {"newly_pending": 1}
        b.offer(loose)
        await b.until_event("PolicyRejected")
        assert b.revision == revision_of(FIRST)


# --- gates ---------------------------------------------------------------------------------------


async def test_a_gate_that_fails_keeps_the_edit_out_while_the_same_is_in_force() -> None:
    async with bench() as b:
        b.comparing.bad = {"newly_pending": 3}
        b.offer(EDIT)
        event = await b.until_event("PolicyRejected")
        for part in ("shadow", "maxNewlyPending", "3 of 100", "at most 0"):
            assert part in event
        assert b.comparing.now == "end"
        assert b.revision == revision_of(FIRST)
        assert b.rollout.status.result == "failed"
        # The same text again is refused, another one is not.
        b.comparing.bad = {}
        before = len(b.comparing.calls)
        b.offer(EDIT)
        await eventually(lambda: sum(one.startswith("PolicyRejected") for one in b.events) == 2)
        assert f"promote --revision {EDIT_REVISION}" in b.events[-1]
        b.offer(OTHER)
        await b.until_in_force(OTHER)
        assert not any(EDIT_REVISION in call for call in b.comparing.calls[before:])


async def test_what_a_gate_refused_is_compared_again_with_others_in_force() -> None:
    """A gate compares two texts, and it may be the one in force that is wrong: with a flipped
    sign in force, the good text moved every pod and was refused until its text changed.
    """
    async with bench() as b:
        b.comparing.bad = {"moved": 100}
        b.offer(EDIT)
        await b.until_event("PolicyRejected")
        b.comparing.bad = {}
        b.offer(OTHER)
        await b.until_in_force(OTHER)
        b.offer(EDIT)
        await b.until_in_force(EDIT)
        assert f"shadow {EDIT_REVISION} {revision_of(OTHER)}" in b.comparing.calls


async def test_what_a_gate_refused_comes_into_force_once_it_is_promoted() -> None:
    async with bench() as b:
        b.comparing.bad = {"moved": 100}
        b.offer(EDIT)
        await b.until_event("PolicyRejected")
        b.control.say(promote=EDIT_REVISION)
        b.control.changed.set()
        await b.until_in_force(EDIT)


# --- what an edit takes away ---------------------------------------------------------------------

LOST = Losses((Loss(FIT_NOWHERE, 48, 60, "`p` accepts 0 of 48 pods"),), 60, 60, 5)


@contextlib.contextmanager
def taking_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    async def count_losses(*_: object) -> Losses:
        return LOST

    with monkeypatch.context() as patch:
        for user in ("rollout", "preparing"):
            patch.setattr(f"engine.rollout.{user}.count_losses", count_losses)
        yield


async def test_an_edit_that_takes_pods_their_nodes_begins_no_stage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench() as b:
        with taking_away(monkeypatch):
            b.offer(EDIT)
            event = await b.until_event("PolicyRejected")
            assert "maxFitNowhere: 48 pods" in event
            assert f"starsched.dev/accept-losses={EDIT_REVISION}" in event
            assert not b.comparing.calls


async def test_what_is_meant_by_its_revision_goes_through_its_stages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench() as b:
        with taking_away(monkeypatch):
            b.offer(EDIT)
            await b.until_event("PolicyRejected")
            # Another revision is not meant by that, nor is this one by any other.
            for means in ("", "yes", revision_of(OTHER)):
                b.events.clear()
                b.source.offer(Offer(EDIT, "", ABOUT, means=frozenset({means} - {""})))
                event = await b.until_event("PolicyRejected")
                assert f"starsched.dev/accept-losses={EDIT_REVISION}" in event
                assert (f"it names {means} now" in event) == (means != "")
            assert not b.comparing.calls
            b.source.offer(Offer(EDIT, "", ABOUT, means=frozenset({EDIT_REVISION})))
            await b.until_in_force(EDIT)
            assert b.comparing.calls[0].startswith("shadow")
            event = await b.until_event(f"PolicyAccepted: revision {EDIT_REVISION}")
            assert "`p` accepts 0 of 48 pods" in event
            assert "looked at 60 of 60 pods" in event


async def test_without_stages_what_an_edit_takes_away_is_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench(files("First.", "")) as b:
        with taking_away(monkeypatch):
            b.offer(EDIT)
            await b.until_in_force(EDIT)
        event = await b.until_event(f"PolicyAccepted: revision {EDIT_REVISION}")
        assert "`p` accepts 0 of 48 pods" in event
        assert b.kinds[b.events.index(event)] == "Warning"
        active = b.rollout.describe()["active"]
        assert active["warnings"][0]["message"] == "`p` accepts 0 of 48 pods"
        assert active["losses"]["found"][0]["count"] == 48


async def test_what_came_while_nothing_ran_says_what_it_takes_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An upgrade writes the policies and restarts the scheduler at once."""
    first, store = files("First.", ""), Kept()

    async def counted(texts: Mapping[str, str]) -> list[Any]:
        async with bench(texts, store) as b:
            want = revision_of(texts)
            await eventually(lambda: store.last_good and store.last_good.revision == want)
            active = b.rollout.describe()["active"]
            assert bool(active["losses"]["found"]) == (
                LOST.found[0].text in str(active["warnings"])
            )
            return list(active["losses"]["found"])

    with taking_away(monkeypatch):
        assert not await counted(first)  # nothing was before
        assert await counted(EDIT)
        assert not await counted(EDIT)


async def test_a_rejection_that_is_over_says_so() -> None:
    async with bench() as b:
        b.comparing.bad = {"moved": 100}
        b.offer(EDIT)
        await b.until_event("PolicyRejected")
        b.offer(FIRST)
        assert "the text in force is offered again" in await b.until_event("PolicyAccepted: the")


# --- going back ----------------------------------------------------------------------------------


async def test_going_back_to_what_was_in_force_passes_the_gates_at_once() -> None:
    """Every pod would be decided otherwise: that is why one goes back."""
    async with bench() as b:
        b.control.say(mode="at-once")
        b.offer(EDIT)
        await b.until_in_force(EDIT)
        b.control.say(mode="staged")
        b.comparing.bad = {"moved": 100, "newly_pending": 100}
        b.offer(FIRST)
        await b.until_in_force(FIRST)
        assert not b.comparing.calls
        promoted = [one for one in b.events if one.startswith("PolicyPromoted")]
        assert "was in force before" in promoted[-1]


async def test_going_back_passes_the_gates_after_a_restart_too() -> None:
    async with bench() as b:
        b.control.say(mode="at-once")
        for texts in (EDIT, OTHER):
            b.offer(texts)
            await b.until_in_force(texts)
        store = b.store
    async with bench(OTHER, store) as b:
        b.comparing.bad = {"moved": 100}
        b.offer(FIRST)
        await b.until_in_force(FIRST)
        assert not b.comparing.calls
    # Also if it was offered while nothing ran.
    async with bench(EDIT, store) as b:
        await b.until_in_force(EDIT)
        assert not b.comparing.calls


async def test_going_back_passes_while_edits_are_paused() -> None:
    async with bench() as b:
        b.control.say(mode="at-once")
        b.offer(EDIT)
        await b.until_in_force(EDIT)
        b.control.say(mode="paused")
        b.offer(FIRST)
        await b.until_in_force(FIRST)
        assert not b.comparing.calls


async def test_what_was_rolled_back_is_not_gone_back_to() -> None:
    async with bench() as b:
        b.control.say(mode="at-once")
        b.offer(EDIT)
        await b.until_in_force(EDIT)
        counts = b.rollout.counts
        for _ in range(200):
            counts.count(0.001, failed=True)
        await b.until_event("PolicyRolledBack")
        b.offer(EDIT)
        assert "rolled back before" in await b.until_event("PolicyRejected")
        assert b.revision == revision_of(FIRST)


async def test_a_canary_that_fails_decides_no_more() -> None:
    async with bench() as b:
        b.comparing.bad_canary = 60
        b.offer(EDIT)
        event = await b.until_event("PolicyRejected")
        assert "canary 1%" in event
        assert b.comparing.calls[-2:] == [f"canary {EDIT_REVISION} 1%", "end"]
        assert b.store.last_good is not None
        assert b.store.last_good.refused == (f"{EDIT_REVISION}/{revision_of(FIRST)}",)
        assert b.store.last_good.rolled_back == ()


async def test_what_nothing_is_known_of_is_not_promoted() -> None:
    async with bench() as b:
        b.comparing.is_busy = False
        b.offer(EDIT)
        assert "compared" in await b.until_event("PolicyInconclusive")
        await b.seconds(60)
        assert b.comparing.calls == [f"shadow {EDIT_REVISION} {revision_of(FIRST)}"]
        assert sum(one.startswith("PolicyInconclusive") for one in b.events) == 1
        b.comparing.is_busy = True
        await b.until_in_force(EDIT)


async def test_a_clock_that_jumps_promotes_nothing() -> None:
    """A laptop that slept for an hour has measured nothing in that time."""
    slow = files("First.", "\n  shadow: {duration: 10m, compared: 10}\n")
    async with bench(slow) as b:
        b.offer(EDIT)
        await b.until("shadow")
        b.jump = 3600.0
        await b.seconds(3600)
        await b.seconds(5)
        assert b.rollout.status.elapsed < 60
        assert b.revision == revision_of(slow)


# --- what happens meanwhile ----------------------------------------------------------------------


async def test_an_edit_in_the_middle_of_a_stage_begins_anew() -> None:
    async with bench() as b:
        b.comparing.hold = "canary"
        b.offer(EDIT)
        await b.until("canary")
        b.comparing.hold = "shadow"
        b.offer(OTHER)
        await b.until(f"shadow {revision_of(OTHER)} {revision_of(FIRST)}")
        b.comparing.hold = ""
        await b.until_event("PolicySuperseded")
        await b.until_in_force(OTHER)


async def test_a_revert_ends_the_stages() -> None:
    async with bench() as b:
        b.comparing.hold = "canary"
        b.offer(EDIT)
        await b.until("canary")
        b.offer(FIRST)
        await b.until("end")
        await b.seconds(30)
        assert b.revision == revision_of(FIRST)


async def test_a_source_that_goes_ends_the_stages() -> None:
    async with bench() as b:
        b.comparing.hold = "canary"
        b.offer(EDIT)
        await b.until("canary")
        b.offer(None)
        await b.until("end")
        await b.until_event("PolicySourceGone")
        await b.seconds(30)
        assert b.revision == revision_of(FIRST)
        b.comparing.hold = ""
        b.offer(EDIT)
        await b.until_in_force(EDIT)


async def test_other_policies_in_force_are_compared_with_anew() -> None:
    """Those of the edit before are rolled back while the next one goes through its stages."""
    async with bench() as b:
        b.offer(EDIT)
        await b.until_in_force(EDIT)
        b.comparing.hold = "shadow"
        b.offer(OTHER)
        await b.until(f"shadow {revision_of(OTHER)} {EDIT_REVISION}")
        for _ in range(40):
            b.rollout.counts.count(0.0, True)
        await b.until(f"shadow {revision_of(OTHER)} {revision_of(FIRST)}")


# --- control -------------------------------------------------------------------------------------


async def test_time_stands_still_while_it_is_paused() -> None:
    async with bench() as b:
        b.control.say(mode="paused")
        b.offer(EDIT)
        await b.until("shadow")
        await b.seconds(60)
        assert b.rollout.status.paused
        assert b.rollout.status.elapsed == 0
        assert len(b.comparing.calls) == 1
        b.control.say(mode="staged")
        await b.until_in_force(EDIT)


async def test_a_gate_fails_while_it_is_paused_too() -> None:
    async with bench() as b:
        b.control.say(mode="paused")
        b.comparing.bad = {"newly_pending": 3}
        b.offer(EDIT)
        await b.until_event("PolicyRejected")


async def test_who_may_skips_stages() -> None:
    async with bench() as b:
        b.comparing.is_busy = False
        b.offer(EDIT)
        await b.until("shadow")
        b.control.say(promote="0123456789ab", written_by="jane")
        await b.seconds(10)
        assert b.revision == revision_of(FIRST)
        b.control.say(promote=EDIT_REVISION)
        await b.until_in_force(EDIT)
        assert "jane" in await b.until_event("PolicyPromoted")


async def test_the_mode_at_once_skips_all_stages() -> None:
    async with bench() as b:
        b.control.say(mode="at-once")
        b.offer(EDIT)
        await b.until_in_force(EDIT)
        assert not b.comparing.calls


async def test_what_is_aborted_is_refused_until_it_changes() -> None:
    async with bench() as b:
        b.comparing.is_busy = False
        b.offer(EDIT)
        await b.until("shadow")
        b.control.say(abort=EDIT_REVISION, written_by="jane")
        assert "aborted by jane" in await b.until_event("PolicyRejected")
        assert b.rollout.status.result == "aborted"
        assert b.revision == revision_of(FIRST)


async def test_the_kill_switch_stops_every_stage() -> None:
    async with bench() as b:
        b.comparing.hold = "canary"
        b.offer(EDIT)
        await b.until("canary")
        b.offer(EDIT, is_stopped=True)
        await b.until("end")
        await b.seconds(60)
        assert b.revision == revision_of(FIRST)
        assert "annotation" in b.rollout.status.paused
        # The stage begins anew, not the whole.
        b.comparing.hold = ""
        before = len(b.comparing.calls)
        b.offer(EDIT)
        await b.until_in_force(EDIT)
        assert not any(call.startswith("shadow") for call in b.comparing.calls[before:])


@pytest.mark.parametrize("said", [{"mode": "at-once"}, {"promote": EDIT_REVISION}], ids=str)
async def test_the_kill_switch_takes_precedence_over_skipped_stages(said: dict[str, Any]) -> None:
    async with bench() as b:
        b.control.say(**said)
        b.offer(EDIT, is_stopped=True)
        await b.seconds(60)
        assert b.revision == revision_of(FIRST)
        b.offer(EDIT)
        await b.until_in_force(EDIT)


async def test_the_kill_switch_keeps_what_is_in_force_without_stages_too() -> None:
    first = files("First.", "")
    async with bench(first) as b:
        b.offer(EDIT, is_stopped=True)
        await b.seconds(60)
        assert b.revision == revision_of(first)
        b.offer(EDIT)
        await b.until_in_force(EDIT)


# --- restarts, and other leaders -----------------------------------------------------------------


async def begun(stage: str) -> Kept:
    """What is saved of an edit that is in *stage*."""
    async with bench() as b:
        b.comparing.hold = stage
        b.offer(EDIT)
        await b.until(stage)
        saved = b.store.last_good
    store = Kept()
    store.last_good = saved
    return store


async def test_a_restart_goes_on_with_the_stage_that_was_begun() -> None:
    store = await begun("canary")
    async with bench(EDIT, store) as b:
        await b.until_in_force(EDIT)
        assert b.rollout.status.base == revision_of(FIRST)
        assert not any(call.startswith("shadow") for call in b.comparing.calls)


async def test_a_restart_with_another_edit_begins_with_the_first_stage() -> None:
    store = await begun("canary")
    async with bench(OTHER, store) as b:
        assert b.revision == revision_of(FIRST)
        await b.until_in_force(OTHER)
        assert b.comparing.calls[0].startswith("shadow")


async def test_a_restart_does_not_try_again_what_failed() -> None:
    async with bench() as b:
        b.comparing.bad = {"newly_pending": 3}
        b.offer(EDIT)
        await b.until_event("PolicyRejected")
        store = b.store
    async with bench(EDIT, store) as b:
        assert b.revision == revision_of(FIRST)
        await b.seconds(30)
        assert not b.comparing.calls


async def test_a_standby_measures_nothing_and_goes_on_where_the_leader_was() -> None:
    store = await begun("canary")
    async with bench(EDIT, store, is_active=False) as b:
        await b.seconds(30)
        assert not b.comparing.calls
        assert b.revision == revision_of(FIRST)
        await b.rollout.lead()
        await b.until_in_force(EDIT)
        assert b.comparing.calls[0].startswith("canary")
        assert not any(call.startswith("shadow") for call in b.comparing.calls)


async def test_a_standby_that_was_there_before_the_edit_goes_on_where_the_leader_was() -> None:
    """It knew of no stage when it started, and forgot what it read when it began to lead."""
    saved = (await begun("canary")).last_good
    store = Kept()
    async with bench(FIRST, store, is_active=False) as b:
        b.offer(EDIT)
        await b.seconds(10)
        store.last_good = saved
        await b.rollout.lead()
        await b.until_in_force(EDIT)
        assert b.comparing.calls[0] == f"canary {EDIT_REVISION} 1%"
        await eventually(lambda: store.last_good and store.last_good.revision == EDIT_REVISION)
        assert store.last_good is not None
        assert store.last_good.progress is None


async def test_a_standby_takes_over_what_the_leader_promoted() -> None:
    store = Kept()
    async with bench(FIRST, store, is_active=False) as b:
        b.offer(EDIT)
        await b.seconds(10)
        assert b.revision == revision_of(FIRST)
        store.last_good = LastGood(EDIT_REVISION, EDIT)
        await b.rollout.lead()
        await b.until_in_force(EDIT)
        await b.seconds(30)
        assert not b.comparing.calls
        assert store.last_good.revision == EDIT_REVISION


async def test_a_trial_that_ends_during_a_take_over_does_not_undo_it() -> None:
    store = Kept()
    async with bench(FIRST, store, is_active=False) as b:
        b.world.is_idle.clear()  # the trial of the first policies has not begun
        b.world.slow = EDIT_REVISION
        store.last_good = LastGood(EDIT_REVISION, EDIT)
        leading = asyncio.ensure_future(b.rollout.lead())
        await b.world.is_preparing.wait()
        b.world.is_idle.set()
        await b.trials.is_over.wait()
        await no_time(0)
        b.world.is_prepared.set()
        await leading
        assert b.revision == store.last_good.revision == EDIT_REVISION


async def test_a_standby_does_not_try_what_the_leader_gave_up() -> None:
    store = Kept()
    async with bench(FIRST, store, is_active=False) as b:
        b.offer(EDIT)
        await b.seconds(10)
        store.last_good = LastGood(revision_of(FIRST), FIRST, (EDIT_REVISION,))
        await b.rollout.lead()
        await b.seconds(30)
        assert not b.comparing.calls
        assert b.revision == revision_of(FIRST)
