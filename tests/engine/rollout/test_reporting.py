"""What is said of policies that the source goes back to, and by a leader that takes over."""

import asyncio
from collections.abc import Callable

import pytest
import structlog

from engine.io.binding.event_recorder import Reference
from engine.lib.clock import SystemClock
from engine.lib.confinement import Confinement
from engine.lib.saved_state import START, SavedStates
from engine.rollout.last_good import LastGood
from engine.rollout.sources import Offer
from engine.rollout.trial import LoadedRevision
from tests.engine.core.kernel.queue_world import tree_files
from tests.engine.core.kernel.test_reclaims import EVICTING, LENT
from tests.engine.rollout.test_probation import BAD, FAILURE, GOOD, Bench, bench
from tests.engine.rollout.test_taking_over import BROKEN, Kept, revision_of
from tests.waiting import eventually, no_time

MAP = Reference("v1", "ConfigMap", "starsched", "policies")


def offer(b: Bench, texts: dict[str, str] | None) -> None:
    b.source.offer(Offer(texts, reference=MAP))


def is_reported(b: Bench, *want: str) -> Callable[[], bool]:
    return lambda: b.reported[-len(want) :] == list(want)


async def test_a_rejected_edit_that_is_undone_is_reported_as_in_force() -> None:
    """The last event on the ConfigMap went on saying that it was rejected."""
    async with bench(GOOD) as b:
        offer(b, BROKEN)
        await eventually(lambda: b.describe()["last_rejected"])
        offer(b, GOOD)
        await eventually(is_reported(b, f"PolicyAccepted {revision_of(GOOD)}"))
        assert b.describe()["last_rejected"] is None


async def test_an_edit_that_was_rolled_back_and_is_undone_is_the_sources_again() -> None:
    async with bench(GOOD) as b:
        await b.edit(BAD)
        b.decide(5, FAILURE)
        await eventually(b.is_in_force(GOOD))
        assert b.describe()["active"]["origin"] == "rolled-back"
        offer(b, GOOD)
        await eventually(is_reported(b, f"PolicyAccepted {revision_of(GOOD)}"))
        assert b.describe()["active"]["origin"] == b.source.name


async def test_a_configmap_that_is_created_again_gets_an_event_of_what_is_in_force() -> None:
    """The new one has another uid: `kubectl describe` showed no event at all."""
    async with bench(GOOD) as b:
        offer(b, None)
        await eventually(is_reported(b, "PolicySourceGone "))
        offer(b, GOOD)
        await eventually(is_reported(b, f"PolicyAccepted {revision_of(GOOD)}"))
        assert not b.describe()["source"]["gone"]


async def test_a_change_of_labels_alone_is_not_reported() -> None:
    async with bench(GOOD) as b:
        await eventually(lambda: b.describe()["last_good"], what="the trial to end")
        offer(b, GOOD)
        unchanged = b.metrics.policy_reloads.labels("unchanged")
        await eventually(lambda: unchanged._value.get() == 1)
        assert b.reported == []


async def test_a_new_leader_reports_an_edit_that_the_one_before_did_not_see() -> None:
    async with bench(GOOD, is_active=False) as b:
        b.store.last_good = LastGood(revision_of(GOOD), GOOD)
        offer(b, BAD)
        await eventually(b.is_in_force(BAD))
        await b.rollout.lead()
        assert b.reported == [f"PolicyAccepted {revision_of(BAD)}"]
        assert b.store.last_good.revision == revision_of(BAD)


async def test_a_new_leader_does_not_report_again_what_the_one_before_has_saved() -> None:
    async with bench(GOOD, is_active=False) as b:
        offer(b, BAD)
        await eventually(b.is_in_force(BAD))
        b.store.last_good = LastGood(revision_of(BAD), BAD)
        await b.rollout.lead()
        assert b.reported == []


async def test_a_new_leader_says_that_what_the_one_before_rolled_back_is_not_in_force() -> None:
    """It took over the policies and not the verdict: its metric said that all was well."""
    async with bench(GOOD, is_active=False) as b:
        offer(b, BAD)
        await eventually(b.is_in_force(BAD))
        b.store.last_good = LastGood(revision_of(GOOD), GOOD, (revision_of(BAD),))
        await b.rollout.lead()
        await eventually(is_reported(b, f"PolicyRejected {revision_of(BAD)}"))
        assert b.revision == revision_of(GOOD)
        assert b.metrics.last_reload_ok._value.get() == 0


async def test_a_new_leader_says_that_the_source_is_gone() -> None:
    async with bench(GOOD, is_active=False) as b:
        offer(b, None)
        await eventually(lambda: b.describe()["source"]["gone"])
        assert b.reported == []
        await b.rollout.lead()
        await eventually(is_reported(b, "PolicySourceGone "))


@pytest.mark.parametrize("more", [(), (Kept(),)], ids=["the only one", "one of two"])
async def test_what_could_not_be_saved_is_saved_when_the_store_answers_again(
    more: tuple[Kept, ...],
) -> None:
    """After a restart an edit was in force again that had been taken back, without probation."""
    async with bench(GOOD, *more) as b:
        await b.edit(BAD)
        b.store.is_away = True
        b.decide(5, FAILURE)
        await eventually(b.is_in_force(GOOD))
        b.store.is_away = False
        await eventually(
            lambda: b.store.last_good == LastGood(revision_of(GOOD), GOOD, (revision_of(BAD),))
        )


@pytest.mark.parametrize("more", [(), (Kept(),)], ids=["the only one", "one of two"])
async def test_what_was_saved_and_deleted_is_saved_again(
    more: tuple[Kept, ...],
) -> None:
    """A ConfigMap that somebody deletes came back with the next edit: no restart found it."""
    async with bench(GOOD, *more) as b:
        await eventually(lambda: b.store.last_good)
        b.store.last_good = None
        await eventually(lambda: b.store.last_good == LastGood(revision_of(GOOD), GOOD, ()))


async def test_a_place_that_lost_it_and_takes_nothing_is_asked_less_and_less() -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await no_time(seconds)

    async with bench(GOOD, sleep=sleep) as b:
        await eventually(lambda: b.store.last_good)
        b.store.is_away, b.store.last_good, b.store.asked = True, None, 0
        await eventually(lambda: b.store.asked > 6)
    grown = [pause for pause in pauses if pause > 10.0]
    assert grown[:6] == [20.0, 40.0, 80.0, 160.0, 300.0, 300.0]


@pytest.mark.parametrize("what", ["load", "save"])
async def test_a_store_that_hangs_does_not_keep_a_new_leader_from_deciding(what: str) -> None:
    """It held the lease and decided nothing: two minutes for a read, half a one for a write.

    A read keeps it, unless the operator wants to go on without.
    """
    states = SavedStates(SystemClock(), START, patience=0.1, sleep=no_time)
    async with bench(GOOD, is_active=False, states=states, timeout=0.1) as b:
        b.store.hangs_in = what
        await asyncio.wait_for(b.rollout.lead(), 5)
        assert b.is_in_force(GOOD)()
        b.store.hangs_in = ""
        b.store.gives_up.set()
        await eventually(lambda: b.store.last_good == LastGood(revision_of(GOOD), GOOD, ()))


@pytest.mark.parametrize(
    ("confinement", "missing"),
    [
        pytest.param(Confinement(system_calls=True, landlock=7), [], id="nothing"),
        pytest.param(Confinement(system_calls=True, landlock=0), ["landlock"], id="landlock"),
        pytest.param(
            Confinement(system_calls=False, landlock=0), ["system_calls", "landlock"], id="all"
        ),
    ],
)
async def test_what_the_kernel_lacks_for_the_sandbox_is_logged_once_and_shown(
    monkeypatch: pytest.MonkeyPatch, confinement: Confinement, missing: list[str]
) -> None:
    monkeypatch.setattr(LoadedRevision, "confinement", confinement)
    with structlog.testing.capture_logs() as logs:
        async with bench(GOOD) as b:
            offer(b, BAD)
            await eventually(b.is_in_force(BAD))
            shown = b.describe()["active"]["sandbox"]
    assert shown == {
        "system_calls": confinement.system_calls,
        "landlock": confinement.landlock,
        "missing": missing,
    }
    logged = [one["missing"] for one in logs if one["event"] == "Sandbox is not fully confined"]
    assert logged == ([", ".join(missing)] if missing else [])


async def test_queues_that_could_take_from_each_other_in_turn_are_a_warning() -> None:
    queues: dict[str, dict[str, str]] = {"top/a": {}, "top/b": {}}

    def warnings(b: Bench) -> list[dict[str, str]]:
        return [w for w in b.describe()["active"]["warnings"] if "in turn" in w["message"]]

    async with bench(GOOD) as b:
        await b.edit({**GOOD, **tree_files(LENT, queues=queues)})
        assert warnings(b) == []
        await b.edit({**GOOD, **tree_files(EVICTING, queues=queues)})
        (warning,) = warnings(b)
        assert warning["file"] == "fair.star"
        assert "check --deep" in warning["hint"]
