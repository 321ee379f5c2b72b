"""Policies that are counted and not obeyed, while no edit is on its way."""

from engine.policy.bundle import build_bundle
from engine.policy.shadowed_policies import without_shadowed
from tests.engine.rollout.test_staging import STAGES, FakeControl, bench
from tests.profiles import only
from tests.waiting import eventually

_RUNTIME = "apiVersion: starsched.dev/v1\nkind: PolicyRuntime\n"


def files(text: str, stages: str = "") -> dict[str, str]:
    runtime = f"{_RUNTIME}rollout:{stages}" if stages else _RUNTIME
    return {
        "config.yaml": only("NodeResourcesFit", "picky"),
        "picky.star": f'"""{text}"""\n\n\ndef filter(pod, node):\n    return None\n',
        "runtime.yaml": runtime,
    }


def revision_of(texts: dict[str, str], *shadowed: str) -> str:
    return without_shadowed(build_bundle(texts), shadowed, "").revision


FIRST, EDIT = files("First."), files("Edited.")


async def test_a_policy_is_counted_from_when_it_is_not_obeyed_to_when_it_is_again() -> None:
    async with bench(FIRST) as b:
        assert b.revision == revision_of(FIRST)
        b.control.say(shadow=("picky",))
        b.control.changed.set()
        await b.until(f"standing {revision_of(FIRST)} {revision_of(FIRST, 'picky')}")
        assert b.revision == revision_of(FIRST, "picky")
        standing = b.rollout.status.standing
        assert standing is not None
        assert standing.compared == 100
        b.control.say(shadow=())
        b.control.changed.set()
        await eventually(lambda: b.revision == revision_of(FIRST))
        await b.until("end")
        assert b.rollout.status.standing is None


async def test_to_obey_a_policy_goes_through_the_stages() -> None:
    staged, control = files("First.", STAGES), FakeControl()
    control.say(shadow=("picky",))  # from the start: it never was obeyed
    async with bench(staged, control=control) as b:
        assert b.revision == revision_of(staged, "picky")
        b.control.say(shadow=())
        b.comparing.bad = {"newly_pending": 1}
        b.control.changed.set()
        await eventually(lambda: b.rollout.status.result == "failed")
        assert b.revision == revision_of(staged, "picky")
        await b.until(f"standing {revision_of(staged)} {revision_of(staged, 'picky')}")


async def test_an_edit_takes_the_place_of_what_is_counted() -> None:
    staged, edit = files("First.", STAGES), files("Edited.", STAGES)
    async with bench(staged) as b:
        b.control.say(shadow=("picky",))
        b.control.changed.set()
        await b.until("standing")
        b.comparing.hold = "shadow"
        b.offer(edit)
        await b.until("shadow")
        assert b.rollout.status.standing is None
        b.comparing.hold = ""
        await b.until(f"standing {revision_of(edit)} {revision_of(edit, 'picky')}")


async def test_a_policy_that_is_only_counted_is_so_from_the_start() -> None:
    async with bench(FIRST) as b:
        b.control.say(shadow=("picky",))
        b.control.changed.set()
        await b.until("standing")
        store, control = b.store, b.control
    async with bench(FIRST, store, control=control) as b:
        assert b.revision == revision_of(FIRST, "picky")
        assert b.comparing.now.startswith("standing")


async def test_a_standby_counts_nothing_before_it_leads() -> None:
    async with bench(FIRST, is_active=False) as b:
        b.control.say(shadow=("picky",))
        b.control.changed.set()
        await eventually(lambda: b.revision == revision_of(FIRST, "picky"))
        assert not b.comparing.calls
        await b.rollout.lead()
        await b.until("standing")
