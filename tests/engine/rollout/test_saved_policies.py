"""What a process keeps of the last good policies: what it may write, when, and what it must not."""

import asyncio
from collections.abc import Callable

import pytest
import structlog

from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.lib.clock import SystemClock
from engine.lib.saved_state import SavedStates
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.rollout.last_good import LastGood, Progress
from engine.rollout.saved_policies import SavedPolicies
from engine.rollout.trial import LoadedRevision
from tests.engine.rollout.test_taking_over import Kept
from tests.waiting import no_time

TEXTS = {name: {"p.star": f'"""{name}"""\n'} for name in ("first", "second", "third")}
REVISIONS = {name: build_bundle(files).revision for name, files in TEXTS.items()}
FIRST, SECOND, THIRD = REVISIONS.values()


class Enough(Exception):
    """The test has seen as many rounds as it wants."""


class Late(Kept):
    """A store that may be there only later."""

    def __init__(self) -> None:
        super().__init__()
        self.is_unreadable = self.is_slow = False
        self.is_answering = asyncio.Event()

    async def load(self) -> LastGood | None:
        if self.is_unreadable:
            raise OSError("not mounted yet")
        found = await super().load()
        if self.is_slow:
            await self.is_answering.wait()
        return found


class Leader:
    """A process with one store. Between two looks at it, what the test says happens."""

    def __init__(self, stored: LastGood | None = None, *, save_timeout: float = 9.0) -> None:
        self.store = Late()
        self.store.last_good = stored
        self.leads = True
        self.pauses: list[float] = []
        self.taken: list[LastGood | None] = []
        self.take_over = self._take_over
        self._meanwhile: list[Callable[[], object]] = []
        self.saved = SavedPolicies(
            self.store,
            lambda: self.leads,
            states=SavedStates(SystemClock(), sleep=no_time),
            save_timeout=save_timeout,
            sleep=self._pause,
        )

    @classmethod
    async def started(cls, stored: LastGood | None = None) -> "Leader":
        """One that has read *stored*."""
        made = cls(stored)
        found = await made.saved.load()
        if found is not None:
            made.saved.adopt(found, "", is_fallback=True)
        return made

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if not self._meanwhile:
            raise Enough
        self._meanwhile.pop(0)()

    async def _take_over(self, stored: LastGood | None) -> None:
        self.taken.append(stored)

    async def rounds(self, *meanwhile: Callable[[], object]) -> list[float]:
        """Look at the store once after each of *meanwhile*; the pauses before, and the next."""
        self.pauses.clear()
        self._meanwhile = list(meanwhile)
        with pytest.raises(Enough):
            await self.saved.keep_saving(self.take_over)
        return self.pauses


def loaded(name: str) -> LoadedRevision:
    bundle = build_bundle(TEXTS[name])
    evaluator = InProcessEvaluator(bundle.program)
    return LoadedRevision(bundle, TEXTS[name], evaluator, Scheduler(bundle, evaluator))


def nothing() -> None:
    pass


async def test_a_store_that_refuses_is_asked_less_and_less_often_until_it_takes_it() -> None:
    """The pauses were swapped: a store that was away was asked every 10 s for ever."""
    leader = await Leader.started()
    leader.saved.remember(loaded("first"))
    leader.store.is_away = True
    assert await leader.rounds(*[nothing] * 6) == [10, 20, 40, 80, 160, 300, 300]
    back = lambda: setattr(leader.store, "is_away", False)  # noqa: E731
    assert await leader.rounds(nothing, back, nothing) == [10, 20, 10, 10]
    assert leader.store.last_good == leader.saved.last_good


async def test_a_standby_has_nothing_to_save_and_looks_at_usual_intervals() -> None:
    leader = Leader()
    leader.saved.remember(loaded("first"))
    leader.leads = False
    assert await leader.rounds(*[nothing] * 3) == [10, 10, 10, 10]
    assert (leader.store.loads, leader.store.asked, leader.store.lost) == (0, 0, 0)


async def test_what_changes_while_it_is_saved_is_saved_too() -> None:
    """What is on its way is older than what is kept meanwhile, which must not count as saved."""
    leader = await Leader.started()
    saved, save = leader.saved, leader.store.save
    saved.remember(loaded("first"))

    async def slowly(last_good: LastGood) -> bool:
        is_first = not leader.store.asked
        taken = await save(last_good)
        if is_first:
            saved.remember(loaded("second"))
        return taken

    leader.store.save = slowly  # type: ignore[method-assign]
    await saved.save()
    assert leader.store.last_good is not None
    assert leader.store.last_good.revision == FIRST
    await leader.rounds(nothing)
    assert leader.store.last_good == saved.last_good
    assert saved.revision == SECOND


async def test_what_one_of_several_stores_refused_is_saved_again() -> None:
    leader = await Leader.started()
    save = leader.store.save
    answers = [False, True]

    async def partly(last_good: LastGood) -> bool:
        await save(last_good)
        return answers.pop(0)

    leader.store.save = partly  # type: ignore[method-assign]
    leader.saved.remember(loaded("first"))
    assert await leader.rounds(nothing, nothing, nothing) == [10, 20, 10, 10]
    assert leader.store.asked == 2


async def test_what_is_said_twice_is_saved_once() -> None:
    leader = await Leader.started()
    saved = leader.saved
    changes: list[Callable[[], None]] = [
        lambda: saved.remember(loaded("first")),
        lambda: saved.remember_refused("edit", FIRST),
        lambda: saved.remember_progress(Progress("edit", FIRST, 1)),
        lambda: saved.remember_rolled_back("edit", loaded("first")),
        lambda: saved.forgive("edit"),
    ]
    for count, change in enumerate(changes, start=1):
        change()
        await saved.save()
        change()
        await saved.save()
        assert leader.store.asked == count


async def test_two_saves_at_once_write_once() -> None:
    leader = await Leader.started()
    leader.saved.remember(loaded("first"))
    await asyncio.gather(leader.saved.save(), leader.saved.save())
    assert leader.store.asked == 1


async def test_a_start_saves_what_the_store_takes_in_time() -> None:
    leader = await Leader.started()
    leader.saved.remember(loaded("first"))
    await leader.saved.save_in_time()
    assert leader.store.last_good == leader.saved.last_good


async def test_a_start_waits_for_a_store_that_takes_nothing_no_longer_than_it_may() -> None:
    leader = Leader(save_timeout=0.01)
    await leader.saved.load()
    leader.saved.remember(loaded("first"))
    leader.store.hangs_in = "save"
    await asyncio.wait_for(leader.saved.save_in_time(), 20)
    leader.store.hangs_in = ""
    await leader.rounds(nothing)
    assert leader.store.last_good == leader.saved.last_good


# --- what is known of a revision -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda saved: saved.remember_refused("edit", "base"), LastGood(refused=("edit/base",))),
        (
            lambda saved: saved.remember_progress(Progress("edit", "base", 1)),
            LastGood(progress=Progress("edit", "base", 1)),
        ),
        (
            lambda saved: saved.remember_rolled_back("edit", loaded("first")),
            LastGood(FIRST, TEXTS["first"], rolled_back=("edit",)),
        ),
        (lambda saved: saved.remember(loaded("first")), LastGood(FIRST, TEXTS["first"])),
        (lambda saved: saved.forgive("edit"), None),
    ],
)
async def test_the_first_thing_that_is_known_at_all_may_be_any(
    change: Callable[[SavedPolicies], None], expected: LastGood | None
) -> None:
    leader = await Leader.started()
    change(leader.saved)
    await leader.saved.save()
    assert leader.store.last_good == expected


async def test_nothing_is_known_of_any_revision_before_something_is_remembered() -> None:
    saved = Leader().saved
    assert not saved.knows(FIRST)
    assert not saved.has_refused(FIRST, SECOND)
    assert saved.revision is None
    assert saved.rolled_back == ()
    assert saved.progress is None


async def test_what_was_in_force_is_known_until_it_is_given_up() -> None:
    saved = (await Leader.started()).saved
    for name in ("first", "second"):
        saved.remember(loaded(name))
    assert [saved.knows(one) for one in REVISIONS.values()] == [True, True, False]
    saved.remember_rolled_back(SECOND, loaded("first"))
    assert [saved.knows(one) for one in REVISIONS.values()] == [True, False, False]
    assert saved.rolled_back == (SECOND,)
    saved.remember(loaded("second"))  # as it may be in force until its successor is loaded
    assert saved.revision == FIRST
    saved.forgive(FIRST)  # never rolled back
    assert saved.rolled_back == (SECOND,)
    saved.forgive(SECOND)
    assert not saved.rolled_back
    assert saved.revision == FIRST
    saved.remember(loaded("second"))
    assert saved.revision == SECOND


async def test_a_refusal_is_about_two_revisions() -> None:
    """Next to another revision the same edit is tried again."""
    saved = (await Leader.started()).saved
    saved.remember_refused(SECOND, FIRST)
    assert saved.has_refused(SECOND, FIRST)
    assert not saved.has_refused(SECOND, THIRD)
    assert not saved.has_refused(FIRST, SECOND)
    saved.remember(loaded("third"))
    saved.remember_rolled_back(THIRD, loaded("first"))
    assert saved.has_refused(SECOND, FIRST)


@pytest.mark.parametrize(
    ("progress", "stays"),
    [
        (Progress(THIRD, FIRST, 2), True),
        (Progress(THIRD, SECOND, 2), False),
        (Progress("bad", FIRST, 2), False),
        (Progress("bad", SECOND, 2), False),
    ],
)
async def test_progress_stays_known_as_long_as_the_base_is_in_force_and_the_edit_may_be_tried(
    progress: Progress, stays: bool
) -> None:
    leader = await Leader.started(LastGood(SECOND, TEXTS["second"], ("bad",), progress))
    leader.saved.remember(loaded("first"))
    assert leader.saved.revision == FIRST
    assert leader.saved.progress == (progress if stays else None)


# --- another leader ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("active", "rolled_back", "is_fallback", "is_replaced"),
    [
        (FIRST, (), False, False),
        (FIRST, (), True, True),
        (FIRST, (FIRST,), False, True),
        (SECOND, (), True, False),
        (SECOND, (FIRST,), False, False),
    ],
)
async def test_another_leaders_policies_replace_ours_if_ours_were_given_up_or_a_fallback(
    active: str, rolled_back: tuple[str, ...], is_fallback: bool, is_replaced: bool
) -> None:
    leader = Leader()
    leader.saved.remember(loaded("first" if active == FIRST else "second"))
    stored = LastGood(
        SECOND, TEXTS["second"], rolled_back, Progress(THIRD, SECOND, 1), ("old",), ("edit/base",)
    )
    leader.store.last_good = stored
    assert leader.saved.adopt(stored, active, is_fallback=is_fallback) is is_replaced
    found = leader.saved.last_good
    assert found is not None
    ours = SECOND if is_replaced else active
    assert found.revision == ours
    assert (found.rolled_back, found.progress) == (rolled_back, stored.progress)
    assert (found.known, found.refused) == (("old",), ("edit/base",))
    # Ours was not saved before: what is saved now is what both know.
    await leader.saved.load()
    await leader.saved.save()
    assert leader.store.last_good == found


async def test_what_another_leader_saved_is_not_written_back_unless_something_changed() -> None:
    leader = await Leader.started(LastGood(FIRST, TEXTS["first"]))
    await leader.rounds(nothing)
    assert leader.store.asked == 0


async def test_a_store_that_is_readable_late_adds_what_this_process_gave_up_meanwhile() -> None:
    """What both gave up keeps its place; nothing is written until the owner has taken it over."""
    leader = Leader(LastGood(FIRST, TEXTS["first"], rolled_back=("a", "b")))
    saved = leader.saved
    saved.remember_rolled_back("a", loaded("second"))
    saved.remember_rolled_back("mine", loaded("second"))
    leader.store.is_unreadable = True
    await leader.rounds(nothing)
    assert (leader.taken, leader.store.asked) == ([], 0)
    leader.store.is_unreadable = False
    await leader.rounds(nothing)
    [taken] = leader.taken
    assert taken == LastGood(FIRST, TEXTS["first"], rolled_back=("a", "b", "mine"))


async def test_an_empty_store_that_is_readable_late_is_filled() -> None:
    leader = Leader()
    leader.saved.remember(loaded("first"))
    await leader.rounds(nothing)
    assert leader.taken == [None]
    assert leader.store.last_good == leader.saved.last_good


# --- deleted by another --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kept",
    [LastGood(FIRST, TEXTS["first"]), LastGood(rolled_back=("bad",))],
    ids=["policies", "only what was rolled back"],
)
async def test_what_someone_deletes_is_saved_again(kept: LastGood) -> None:
    """A restart would try again what was rolled back, though no policies were ever accepted."""
    leader = await Leader.started(kept)
    with structlog.testing.capture_logs() as logs:
        await leader.rounds(nothing, lambda: setattr(leader.store, "last_good", None), nothing)
    assert leader.store.last_good == kept
    assert leader.store.asked == 1
    assert ["deleted" in line["event"] for line in logs] == [True]


async def test_what_a_new_place_never_had_is_not_said_to_be_deleted() -> None:
    leader = await Leader.started(LastGood(FIRST, TEXTS["first"]))
    leader.store.last_good = None
    with structlog.testing.capture_logs() as logs:
        await leader.rounds(nothing)
    assert leader.store.last_good == leader.saved.last_good
    assert ["deleted" in line["event"] for line in logs] == [False]


async def test_what_is_deleted_as_soon_as_it_is_saved_is_said_to_be_deleted() -> None:
    """The store was not looked at in between; that it took it is enough."""
    leader = await Leader.started()
    leader.saved.remember(loaded("first"))
    await leader.saved.save()
    leader.store.last_good = None
    with structlog.testing.capture_logs() as logs:
        await leader.rounds(nothing)
    assert leader.store.last_good == leader.saved.last_good
    assert ["deleted" in line["event"] for line in logs] == [True]


async def test_each_read_finds_out_afresh_what_the_store_has() -> None:
    """A process that leads once more knows nothing of what was deleted while another led."""
    leader = await Leader.started(LastGood(FIRST, TEXTS["first"]))
    await leader.rounds(nothing)
    leader.store.last_good = None
    assert await leader.saved.load() is None
    with structlog.testing.capture_logs() as logs:
        await leader.rounds(nothing)
    assert ["deleted" in line["event"] for line in logs] == [False]


async def test_what_is_lost_while_it_is_taken_over_late_is_saved_again() -> None:
    leader = Leader(LastGood(FIRST, TEXTS["first"]))

    async def take_over(stored: LastGood | None) -> None:
        assert stored is not None
        leader.saved.adopt(stored, "", is_fallback=True)
        leader.store.last_good = None

    leader.take_over = take_over
    with structlog.testing.capture_logs() as logs:
        await leader.rounds(nothing)
    assert not any("deleted" in line["event"] for line in logs)  # it was never seen there
    assert leader.store.last_good == leader.saved.last_good
    assert leader.saved.revision == FIRST


async def test_a_store_that_is_being_read_is_not_read_a_second_time() -> None:
    """The policies of the leader before would be taken over twice."""
    leader = Leader(LastGood(FIRST, TEXTS["first"]))
    leader.store.is_slow = True
    reading = asyncio.ensure_future(leader.saved.load())
    await asyncio.sleep(0)
    await leader.rounds(nothing)
    assert (leader.store.loads, leader.taken) == (1, [])
    leader.store.is_answering.set()
    await reading


async def test_an_empty_state_is_not_saved_for_being_absent() -> None:
    leader = await Leader.started()
    leader.saved.adopt(LastGood(), "", is_fallback=True)
    await leader.rounds(nothing)
    assert (leader.store.asked, leader.store.lost) == (0, 0)


async def test_a_standby_restores_nothing() -> None:
    leader = await Leader.started(LastGood(FIRST, TEXTS["first"]))
    leader.store.last_good, leader.leads = None, False
    await leader.rounds(nothing)
    assert (leader.store.asked, leader.store.lost) == (0, 0)
