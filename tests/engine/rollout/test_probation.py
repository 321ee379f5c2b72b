"""What an edit is taken back to, and measured by, while the one before it is on probation."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from engine.core.model.pod import Pod
from engine.lib.clock import SystemClock
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator, PolicyFailure
from engine.rollout.last_good import Stores
from engine.rollout.sources import Offer
from engine.rollout.trial import CandidateStages
from engine.telemetry.metrics import Metrics
from tests.builders import make_node, make_pod
from tests.engine.rollout.making import rollout_of
from tests.engine.rollout.test_staging import ABOUT
from tests.engine.rollout.test_staging import bench as staged_bench
from tests.engine.rollout.test_staging import files as staged_files
from tests.engine.rollout.test_taking_over import Kept, Source, World, revision_of
from tests.waiting import eventually, no_time

_RUNTIME = (
    "apiVersion: starsched.dev/v1\nkind: PolicyRuntime\n"
    "fallback: {minDecisions: 5, lostTime: 1s, window: 1m}\n"
)
FAILURE = PolicyFailure("p", "filter", "p.star", 1, 1, "deadline", kind="deadline")


def files(p: str, q: str = "") -> dict[str, str]:
    hook = "def filter(pod, node):\n    return None\n"
    return {
        "p.star": f'"""{p}"""\n\n{hook}',
        "q.star": f'"""{q}"""\n\n{hook}',
        "runtime.yaml": _RUNTIME,
    }


GOOD, BAD, BAD_AND_MORE = files("Good."), files("Bad."), files("Bad.", "More.")


class Bench:
    """A roll-out by itself: what comes into force decides nothing, but is told to have."""

    def __init__(self, first: Mapping[str, str], *more: Kept, **waits: Any) -> None:
        self.source = Source(first)
        self.store = Kept()
        self.reported: list[str] = []
        self.metrics = Metrics(CollectorRegistry())
        self.rollout = rollout_of(
            source=self.source,
            store=Stores(self.store, *more),
            stages=CandidateStages(
                build=lambda texts: build_bundle(dict(texts)),
                make_evaluator=lambda bundle: InProcessEvaluator(bundle.program),
                run_tests=lambda _: [],
            ),
            world=World(),
            on_switch=lambda *_: None,
            write_event=self._record,
            metrics=self.metrics,
            clock=SystemClock(),
            **{"sleep": no_time, **waits},
        )

    def _record(self, _about: object, _kind: str, reason: str, _note: str, revision: str) -> None:
        self.reported.append(f"{reason} {revision}")

    @property
    def revision(self) -> str:
        return self.rollout.active.bundle.revision

    async def edit(self, texts: Mapping[str, str]) -> None:
        self.source.offer(Offer(texts))
        await eventually(self.is_in_force(texts))

    def is_in_force(self, texts: Mapping[str, str]) -> Callable[[], bool]:
        want = revision_of(texts)
        return lambda: self.revision == want

    def decide(self, count: int, *failures: PolicyFailure, seconds: float = 0.0) -> None:
        for _ in range(count):
            self.rollout.counts.count(seconds, bool(failures), failures)

    def describe(self) -> dict[str, Any]:
        return self.rollout.describe()


@contextlib.asynccontextmanager
async def bench(
    first: Mapping[str, str], *more: Kept, is_active: bool = True, **waits: Any
) -> AsyncIterator[Bench]:
    """A roll-out that is under way and saves to `store` and to *more*.

    *waits* are further arguments of `Rollout`; by default it sleeps for next to no time.
    """
    bench = Bench(first, *more, **waits)
    bench.rollout.is_active = is_active
    await bench.rollout.start()
    running = asyncio.ensure_future(bench.rollout.run())
    try:
        yield bench
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_an_edit_on_top_of_one_that_has_shown_nothing_goes_back_behind_both() -> None:
    """The bad edit was what was gone back to, and nobody watched it any more."""
    async with bench(GOOD) as b:
        await b.edit(BAD)
        b.decide(4)
        await b.edit(BAD_AND_MORE)
        b.decide(5, FAILURE)
        await eventually(b.is_in_force(GOOD))
        assert b.describe()["rolled_back"] == [revision_of(BAD_AND_MORE)]


async def test_an_edit_on_top_does_not_excuse_what_a_bad_edit_loses() -> None:
    """The policy was as in the bad edit, which was on probation itself: its time did not count."""
    async with bench(GOOD) as b:
        await b.edit(BAD)
        await b.edit(BAD_AND_MORE)
        b.decide(2, FAILURE, seconds=0.6)
        await eventually(b.is_in_force(GOOD))


async def test_an_edit_on_top_of_one_that_has_decided_well_goes_back_to_that_one() -> None:
    async with bench(GOOD) as b:
        await b.edit(BAD)
        b.decide(5)
        await b.edit(BAD_AND_MORE)
        assert "p" in b.rollout.active.unchanged
        b.decide(5, FAILURE)
        await eventually(b.is_in_force(BAD))


# --- pods that wait -------------------------------------------------------------------------------

LATER = """
def filter(pod, node):
    return "wave" if pod.labels.get("wave") == "2" else None
"""


def with_filter(text: str, fallback: str = "") -> dict[str, str]:
    texts = staged_files("First.", "")
    texts["runtime.yaml"] += f"fallback: {{window: 1h{fallback}}}\n"
    return texts | {"p.star": f'"""Filters."""\n{text}', "config.yaml": PROFILE}


PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: p}]}}
"""
ANY = "\ndef filter(pod, node):\n    return None\n"


def wave(number: int, count: int = 6) -> list[Pod]:
    return [
        make_pod(f"w{number}-{n}", cpu="100m", labels={"wave": str(number)}) for n in range(count)
    ]


async def test_pods_that_wait_and_would_not_have_roll_an_edit_back() -> None:
    """A filter that turns wrong with a label that comes later left 140 pods pending for ever."""
    async with staged_bench(with_filter(ANY)) as b:
        b.world.cache.add_node(make_node("n", cpu=8))
        b.offer(with_filter(LATER))
        await b.until_in_force(with_filter(LATER))
        await b.seconds(20)
        assert b.revision == revision_of(with_filter(LATER))
        b.world.rejected = wave(2)
        event = await b.until_event("PolicyRolledBack")
        assert f"6 pods wait that revision {revision_of(with_filter(ANY))} would place" in event
        assert f"starsched.dev/accept-losses={revision_of(with_filter(LATER))}" in event
        assert b.revision == revision_of(with_filter(ANY))


@pytest.mark.parametrize(
    "waiting",
    [wave(1), wave(2, 4), [make_pod(f"huge-{n}", cpu=99) for n in range(9)]],
    ids=["they would be placed", "few", "they fit nowhere either way"],
)
async def test_other_pods_that_wait_roll_nothing_back(waiting: list[Pod]) -> None:
    async with staged_bench(with_filter(ANY)) as b:
        b.world.cache.add_node(make_node("n", cpu=8))
        b.offer(with_filter(LATER))
        await b.until_in_force(with_filter(LATER))
        b.world.rejected = waiting
        await b.seconds(90)
        assert b.revision == revision_of(with_filter(LATER))


def elsewhere(*namespaces: str) -> list[Pod]:
    """Pods that have a node."""
    return [
        make_pod(f"placed-{n}", cpu="10m", node="n", namespace=namespace)
        for n, namespace in enumerate(namespaces)
    ]


async def test_pods_of_one_namespace_do_not_roll_back_what_others_are_placed_by() -> None:
    """A user who may create pods in a namespace could undo what an operator had just forbidden."""
    later = with_filter(LATER)
    async with staged_bench(with_filter(ANY)) as b:
        b.world.cache.add_node(make_node("n", cpu=8))
        for one in elsewhere("default", "other", "another"):
            b.world.cache.add_pod(one)
        b.world.rejected = wave(2)
        b.offer(later)
        await b.until_in_force(later)
        await eventually(lambda: "of namespace `default` alone" in b.events[-1], seconds=60)
        assert b.events[-1].startswith(f"PolicyAccepted: revision {b.revision} is in force")
        assert f"6 pods wait that revision {revision_of(with_filter(ANY))}" in b.events[-1]
        assert b.kinds[-1] == "Warning"
        active = b.rollout.describe()["active"]
        assert "default/w2-0" in active["warnings"][0]["message"]
        assert active["losses"]["found"][0]["count"] == 6
        assert b.losses("pending") == 6
        before = len(b.events)
        await b.seconds(20)
        b.world.rejected = []
        await eventually(lambda: b.losses("pending") == 0, seconds=60)
        await b.seconds(60)
        assert len(b.events) == before
        assert b.revision == revision_of(later)


@pytest.mark.parametrize(
    ("placed", "waiting"),
    [
        pytest.param(
            elsewhere("default", "default", "other", "another"),
            wave(2),
            id="a namespace that has half of the pods",
        ),
        pytest.param(
            elsewhere("other", "another"),
            [
                *(make_pod(f"p{n}-of-another-name", labels={"wave": "2"}) for n in range(30)),
                make_pod("late", labels={"wave": "2"}, namespace="other"),
            ],
            id="two namespaces, however many pods one of them has",
        ),
        pytest.param(
            [make_pod("system", node="n", namespace="kube-system", scheduler_name="another")],
            wave(2),
            id="the only namespace with pods of ours",
        ),
    ],
)
async def test_what_an_edit_takes_from_more_than_one_tenant_rolls_it_back(
    placed: list[Pod], waiting: list[Pod]
) -> None:
    async with staged_bench(with_filter(ANY)) as b:
        b.world.cache.add_node(make_node("n", cpu=8))
        for one in placed:
            b.world.cache.add_pod(one)
        b.world.rejected = waiting
        b.offer(with_filter(LATER))
        await b.until_event("PolicyRolledBack")


async def test_pods_that_are_meant_to_wait_roll_nothing_back() -> None:
    """Also after a roll-back for them: the annotation says that it is meant."""
    later = with_filter(LATER)
    async with staged_bench(with_filter(ANY)) as b:
        b.world.cache.add_node(make_node("n", cpu=8))
        b.world.rejected = wave(2)
        b.offer(later)
        await b.until_event("PolicyRolledBack")
        b.source.offer(Offer(later, "", ABOUT, means=frozenset({"yes"})))
        event = await b.until_event("PolicyRejected")
        assert f"accept-losses={revision_of(later)} (it names yes now)" in event
        b.source.offer(Offer(later, "", ABOUT, means=frozenset({revision_of(later)})))
        await b.until_in_force(later)
        await b.seconds(90)
        assert b.revision == revision_of(later)
        assert b.store.last_good is not None
        assert (b.store.last_good.revision, b.store.last_good.rolled_back) == (b.revision, ())


async def test_going_back_to_stricter_policies_is_not_rolled_back() -> None:
    strict = with_filter(LATER)
    async with staged_bench(strict) as b:
        b.world.cache.add_node(make_node("n", cpu=8))
        b.offer(with_filter(ANY))
        await b.until_in_force(with_filter(ANY))
        b.world.rejected = wave(2)
        b.offer(strict)
        await b.until_in_force(strict)
        await b.seconds(90)
        assert b.revision == revision_of(strict)


async def test_pods_that_wait_are_not_watched_if_the_policies_say_so() -> None:
    later = with_filter(LATER, ", pending: 0")
    async with staged_bench(with_filter(ANY)) as b:
        b.world.cache.add_node(make_node("n", cpu=8))
        b.world.rejected = wave(2)
        b.offer(later)
        await b.until_in_force(later)
        await b.seconds(90)
        assert b.revision == revision_of(later)
