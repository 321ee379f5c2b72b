"""Whatever fails while what was saved is read: it is not overwritten, nor decided without.

Every store is put before every failure, in every life of a process; what must hold is one rule.
"""

import asyncio
import contextlib
import errno
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from devkit.cluster import DevCluster
from engine.io.facts.learned import LearnedConfigMap, LearnedFiles, LearnedSource, LearnedStore
from engine.io.facts.outcomes import OutcomeLearner, decode_watched_pod
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.io.kube.errors import ConnectionLost, TimedOut, error_from_answer
from engine.lib.clock import SystemClock
from engine.lib.saved_state import START, WAIT, SavedStates, WhenUnread
from engine.policy.fact_config import PodOutcomes
from engine.rollout.control import SUFFIX, ConfigMapControl
from engine.rollout.last_good import ConfigMapStore, DirectoryStore, LastGood, Store, Stores
from engine.rollout.rollout import Rollout
from tests.engine.rollout.test_taking_over import (
    EDITED,
    STORED,
    Source,
    World,
    make_rollout,
    revision_of,
)
from tests.waiting import eventually, no_time

NAMESPACE = "starsched"
NAMESPACE_MANIFEST = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
KEPT = LastGood(revision_of(STORED), STORED, (revision_of(EDITED),))
LEARNED = b'{"averages":[["node","n1",0.25]],"until":1.0}'

#: What a read raises; bytes that it gives; or None: it does not answer.
Failure: TypeAlias = Exception | bytes | None


def _status(code: int, text: str, **details: str) -> bytes:
    return msgspec.json.encode({"code": code, "message": text, "details": details})


def _answered(code: int, body: bytes = b"") -> Exception:
    return error_from_answer(code, body or _status(code, f"a fault {code}"))


REQUESTS: dict[str, Failure] = {
    **{str(code): _answered(code) for code in (400, 401, 403, 404, 409, 410, 429, 500, 503, 504)},
    "404 of a proxy": _answered(404, b"<html>not here</html>"),
    "404 of the namespace": _answered(
        404, _status(404, 'namespaces "x" not found', kind="namespaces", name="starsched")
    ),
    "404 of another object": _answered(
        404, _status(404, "not found", kind="configmaps", name="another")
    ),
    "time-out": TimedOut("no answer"),
    "connection lost": ConnectionLost("reset", sent=True),
    "a fault of ours": KeyError("oops"),
    "no answer": None,
    "truncated": b'{"metadata":{"annotations":{"starsched.dev/revi',
    "empty": b"",
    "garbage": b"\xff\xfe\0",
    "another type": b'{"metadata":3,"data":[]}',
}
DISKS: dict[str, Failure] = {
    "broken": OSError(errno.EIO, "broken"),
    "no right": PermissionError(errno.EACCES, "no right"),
    "no directory": NotADirectoryError(errno.ENOTDIR, "a file"),
    "a fault of ours": KeyError("oops"),
    "truncated": b'{"revision":"abc","fi',
    "empty": b"",
    "garbage": b"\xff\xfe\0",
    "another type": b"[1]",
}


class Faulty:
    """What the two kinds of places have in common: reads that fail while `is_failing`."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        self.is_failing = False
        self.reads = 0

    def given(self, found: bytes) -> bytes:
        self.reads += 1
        if not self.is_failing or self.failure is None:
            return found
        if isinstance(self.failure, Exception):
            raise self.failure
        return self.failure


class FaultyClient(ApiClient, Faulty):
    """An API server whose reads of objects fail."""

    def __init__(self, endpoint: Endpoint, failure: Failure) -> None:
        ApiClient.__init__(self, endpoint)
        Faulty.__init__(self, failure)

    async def get(self, *about: Any, **more: Any) -> bytes:
        if self.is_failing and self.failure is None:
            self.reads += 1
            await asyncio.Event().wait()  # for good: its time-out ends it
        if self.is_failing:
            return self.given(b"")
        return self.given(await super().get(*about, **more))


class FaultyFiles(Faulty):
    """A disk whose reads fail."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.files: dict[Path, bytes] = {}

    def read(self, path: Path) -> bytes:
        if path not in self.files and not self.is_failing:
            raise FileNotFoundError(path)
        return self.given(self.files.get(path, b""))

    def replace(self, path: Path, data: bytes) -> None:
        self.files[path] = data


class Place:
    """One place, what saves there, and what is there."""

    def __init__(self, cluster: DevCluster, kind: str, failure: Failure) -> None:
        self.cluster = cluster
        self.kind = kind
        is_disk = kind == "directory"
        self.client = FaultyClient(Endpoint(server=cluster.url), None if is_disk else failure)
        self.disk = FaultyFiles(failure if is_disk else None)
        self.faulty: Faulty = self.disk if is_disk else self.client

    @property
    def policies(self) -> Store:
        directory = DirectoryStore(Path("/state"), self.disk)
        if self.kind == "directory":
            return directory
        config_map = ConfigMapStore(self.client, NAMESPACE, "last-good")
        return config_map if self.kind == "ConfigMap" else Stores(config_map, directory)

    @property
    def learned(self) -> LearnedStore:
        if self.kind == "directory":
            return LearnedFiles(Path("/state"), self.disk)
        return LearnedConfigMap(self.client, NAMESPACE, "facts")

    def contents(self) -> Mapping[str, Any]:
        maps = {
            one["metadata"]["name"]: (one.get("data"), one["metadata"].get("annotations"))
            for one in self.cluster.list("configmaps")
        }
        return maps | {str(path): data for path, data in self.disk.files.items()}


CASES = [
    *(
        pytest.param(kind, failure, id=f"{kind}, {name}")
        for kind, (name, failure) in itertools.product(("ConfigMap", "both"), REQUESTS.items())
    ),
    *(
        pytest.param("directory", failure, id=f"directory, {name}")
        for name, failure in DISKS.items()
    ),
]
OF_FACTS = [case for case in CASES if case.values[0] != "both"]


@contextlib.asynccontextmanager
async def place_of(kind: str, failure: Failure) -> AsyncIterator[Place]:
    async with DevCluster() as cluster:
        cluster.create(NAMESPACE_MANIFEST)
        place = Place(cluster, kind, failure)
        try:
            yield place
        finally:
            await place.client.close()


@contextlib.asynccontextmanager
async def cancelled_at_end(*work: Awaitable[Any]) -> AsyncIterator[Sequence[asyncio.Future[Any]]]:
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def states_of(when_unread: WhenUnread) -> SavedStates:
    return SavedStates(SystemClock(), when_unread, patience=0.02, sleep=no_time)


def is_in_force(rollout: Rollout, files: Mapping[str, str]) -> Callable[[], bool]:
    return lambda: rollout.active.bundle.revision == revision_of(files)


async def failed_for_long(place: Place, states: SavedStates, state: str) -> None:
    """Return when reading has failed several times."""
    reads = place.faulty.reads
    await eventually(lambda: place.faulty.reads > reads + 3, what="further reads")
    assert states.unread()[state] == 1


@pytest.mark.parametrize(("kind", "failure"), CASES)
async def test_a_start_waits_for_the_last_good_policies(kind: str, failure: Failure) -> None:
    """After four errors a rolled back revision decided again, and its roll-back was forgotten."""
    async with place_of(kind, failure) as place:
        await place.policies.save(KEPT)
        before, place.faulty.is_failing = place.contents(), True
        states = states_of(WAIT)
        rollout = make_rollout(
            Source(EDITED), place.policies, World(), states=states, sleep=no_time
        )
        async with cancelled_at_end(rollout.start()) as (starting,):
            await failed_for_long(place, states, "last-good")
            assert not starting.done()
            waits_for = states.waits_for()
            assert waits_for is not None
            assert waits_for.startswith("last-good: cannot be read: ")
            assert place.contents() == before
            place.faulty.is_failing = False
            await starting
            assert is_in_force(rollout, STORED)()
            assert rollout.describe()["last_rejected"]["stage"] == "rolled_back"
            assert states.waits_for() is None
            async with cancelled_at_end(rollout.run()):
                await eventually(lambda: place.policies.is_lost)
        assert await place.policies.load() == KEPT


@pytest.mark.parametrize(("kind", "failure"), CASES)
async def test_a_new_leader_waits_for_what_the_one_before_saved(
    kind: str, failure: Failure
) -> None:
    """It decided by a revision that the leader before had rolled back."""
    async with place_of(kind, failure) as place:
        states = states_of(WAIT)
        rollout = make_rollout(
            Source(EDITED), place.policies, World(), states=states, sleep=no_time
        )
        rollout.is_active = False
        await rollout.start()
        assert is_in_force(rollout, EDITED)()
        await place.policies.save(KEPT)
        before, place.faulty.is_failing = place.contents(), True
        async with cancelled_at_end(rollout.run(), rollout.lead()) as (_, leading):
            await failed_for_long(place, states, "last-good")
            assert not leading.done()
            assert place.contents() == before
            place.faulty.is_failing = False
            await leading
            assert is_in_force(rollout, STORED)()
        assert await place.policies.load() == KEPT


@pytest.mark.parametrize(("kind", "failure"), CASES)
async def test_who_starts_without_overwrites_nothing_and_goes_back_later(
    kind: str, failure: Failure
) -> None:
    async with place_of(kind, failure) as place:
        await place.policies.save(KEPT)
        before, place.faulty.is_failing = place.contents(), True
        states = states_of(START)
        rollout = make_rollout(
            Source(EDITED), place.policies, World(), states=states, sleep=no_time
        )
        await rollout.start()
        assert states.waits_for() is None
        async with cancelled_at_end(rollout.run(), rollout.lead()) as (_, leading):
            await leading
            await failed_for_long(place, states, "last-good")
            assert place.contents() == before
            place.faulty.is_failing = False
            await eventually(is_in_force(rollout, STORED))
            await eventually(lambda: states.unread()["last-good"] == 0)
        assert await place.policies.load() == KEPT


@pytest.mark.parametrize("kind", ["ConfigMap", "both", "directory"])
async def test_nothing_was_saved_is_known_from_an_answer(kind: str) -> None:
    """The first start of all: it waits for nothing, and saves."""
    async with place_of(kind, None) as place:
        states = states_of(WAIT)
        rollout = make_rollout(
            Source(EDITED), place.policies, World(), states=states, sleep=no_time
        )
        await rollout.start()
        async with cancelled_at_end(rollout.run()):
            want = LastGood(revision_of(EDITED), EDITED)
            await eventually(lambda: place.contents(), what="something to be saved")
        assert await place.policies.load() == want


@pytest.mark.parametrize("when_unread", [WAIT, START])
@pytest.mark.parametrize(("kind", "failure"), OF_FACTS)
async def test_what_was_learned_is_not_overwritten_before_it_is_read(
    kind: str, failure: Failure, when_unread: WhenUnread
) -> None:
    """A damaged text was taken for nothing, and overwritten with what was learned since."""
    async with place_of(kind, failure) as place:
        learner = OutcomeLearner(PodOutcomes(), ())
        await place.learned.save(learner.name, LEARNED)
        before, place.faulty.is_failing = place.contents(), True
        states = states_of(when_unread)
        source = LearnedSource(
            learner,
            decode_watched_pod,
            client=place.client,
            store=place.learned,
            may_save=lambda: True,
            clock=SystemClock(),
            states=states,
        )
        reported: list[Any] = []
        async with cancelled_at_end(source.run(reported.append), states.settled()) as tasks:
            await failed_for_long(place, states, source.name)
            assert not reported
            assert place.contents() == before
            settled = tasks[1]
            if when_unread == START:
                await settled
            assert settled.done() == (when_unread == START)
            place.faulty.is_failing = False
            await eventually(lambda: reported)
            assert reported[0] == {("node", "n1"): reported[0]["node", "n1"]}
            assert source.failures > 0


@pytest.mark.parametrize("code", [401, 403, 404, 409, 500, 503])
async def test_a_start_waits_for_the_mode_of_roll_outs(code: int) -> None:
    """With a mode that was not known, the default counted: what was paused came into force."""
    async with DevCluster() as cluster, ApiClient(Endpoint(server=cluster.url)) as client:
        name = f"policies{SUFFIX}"
        cluster.create(NAMESPACE_MANIFEST)
        cluster.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "data": {"mode": "paused"},
            }
        )
        cluster.faults.fail(code, verb="list", resource="configmaps", times=None)
        control = ConfigMapControl(client, NAMESPACE, name)
        states = states_of(WAIT)
        store = DirectoryStore(Path("/state"), FaultyFiles(None))
        rollout = make_rollout(
            Source(EDITED), store, World(), states=states, control=control, sleep=no_time
        )
        async with cancelled_at_end(control.run(lambda: None), rollout.start()) as (_, starting):
            await eventually(lambda: (states.waits_for() or "").startswith("rollout-mode: "))
            assert not starting.done()
            cluster.faults.clear()
            await starting
            assert control.current.mode == "paused"
