"""How edits are rolled out, as operators write it; and the kill switch of the policies."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from devkit.cluster import DevCluster
from engine.core.model.objects import ConfigMap, from_plain
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.io.leader_election import LeaseSettings
from engine.rollout.control import ConfigMapControl, Control, Mode, NoControl, read_control
from engine.rollout.inbox import CandidateInbox
from engine.rollout.sources import STOP_ANNOTATION, BuiltinSource, ConfigMapSource, Offer
from tests.engine.app.harness import events, scheduler
from tests.waiting import eventually, no_time

NAME = "starsched/policies-rollout"
REVISION, OTHER = "3f2a9c41d07b", "b81c00aa7e21"


def read(data: dict[str, str], before: Mode = "staged") -> Control:
    return read_control(from_plain(ConfigMap, {"data": data}), NAME, before)


def test_an_empty_one_is_the_default() -> None:
    assert read({}) == Control()


@pytest.mark.parametrize("mode", ["staged", "at-once", "paused"])
def test_a_mode_is_read_with_the_line_end_that_an_editor_adds(mode: str) -> None:
    assert (read({"mode": f"{mode}\n"}).mode, read({"mode": mode}).problems) == (mode, ())


@pytest.mark.parametrize(
    ("before", "want"), [("staged", "staged"), ("paused", "paused"), ("at-once", "staged")]
)
def test_a_mode_that_makes_no_sense_never_skips_stages(before: Mode, want: str) -> None:
    got = read({"mode": "At-once"}, before)
    assert got.mode == want
    (problem,) = got.problems
    assert str(problem) == (
        f"ConfigMap `{NAME}`, key `mode`: want one of staged, at-once, paused, got `At-once`\n"
        "hint: did you mean `at-once`?"
    )


def test_only_the_revision_that_is_named_is_promoted() -> None:
    got = read({"promote": REVISION})
    assert got.promotes(REVISION)
    assert not got.promotes(OTHER)
    assert not Control().promotes("")
    assert not Control().aborts("")
    assert read({"abort": REVISION}).aborts(REVISION)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            {"moed": "paused"},
            "want only the keys mode, promote, abort, got `moed`\nhint: did you",
        ),
        ({"promote": "yes"}, "key `promote`: want a revision of 12 hexadecimal digits"),
        ({"abort": "3F2A9C41D07B"}, "key `abort`: want a revision of 12 hexadecimal digits"),
        ({"abort": REVISION}, f"`{REVISION}` is to be promoted and aborted: it is aborted"),
    ],
)
def test_nothing_is_promoted_while_something_makes_no_sense(
    data: dict[str, str], said: str
) -> None:
    got = read({"promote": REVISION, **data})
    assert said in "\n".join(map(str, got.problems))
    assert not got.promotes(REVISION)


def test_what_is_aborted_is_aborted_whatever_else_is_wrong() -> None:
    assert read({"abort": REVISION, "mode": "?", "promote": REVISION}).aborts(REVISION)


def test_bytes_that_are_no_text_are_a_problem() -> None:
    raw = from_plain(ConfigMap, {"binaryData": {"mode": "/w=="}})
    assert "binaryData" in str(read_control(raw, NAME, "staged").problems[0])


# --- from the API server -----------------------------------------------------------------------


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as running:
        running.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "starsched"}})
        yield running


@pytest.fixture
async def client(cluster: DevCluster) -> AsyncIterator[ApiClient]:
    async with ApiClient(Endpoint(server=cluster.url)) as client:
        yield client


def manifest(name: str, data: dict[str, str], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "starsched", **metadata},
        "data": data,
    }


@contextlib.asynccontextmanager
async def running(awaited: Any) -> AsyncIterator[None]:
    task = asyncio.ensure_future(awaited)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_config_map_is_followed(cluster: DevCluster, client: ApiClient) -> None:
    control = ConfigMapControl(client, "starsched", "policies-rollout")
    reports: list[str] = []

    def report() -> None:
        reports.extend(problem.file for problem in control.current.problems)

    def write(**data: str) -> None:
        found = cluster.get("configmaps", "policies-rollout", "starsched")
        assert found is not None
        cluster.update("configmaps", {**found, "data": data})

    assert not control.is_known
    async with running(control.run(report)):
        # 1. There is none.
        await asyncio.wait_for(control.changed.wait(), 10)
        assert (control.is_known, control.current, control.reference) == (True, Control(), None)
        control.changed.clear()
        # 2. It is made, and changed.
        cluster.create(manifest("policies-rollout", {"mode": "paused"}))
        await asyncio.wait_for(control.changed.wait(), 10)
        assert control.current.mode == "paused"
        assert control.reference is not None
        assert control.reference.uid
        # 3. What makes no sense is reported, once.
        write(mode="pasued")
        await eventually(lambda: control.current.problems)
        write(mode="pasued", abort=REVISION)
        await eventually(lambda: control.current.abort == REVISION)
        assert control.current.mode == "paused"
        assert reports == [f"ConfigMap `{NAME}`, key `mode`"]
        # 4. It is deleted.
        cluster.delete("configmaps", "policies-rollout", "starsched")
        await eventually(lambda: control.current == Control())
        assert control.reference is None


async def test_policies_that_come_from_no_config_map_have_the_default() -> None:
    control = NoControl()
    async with running(control.run(lambda: None)):
        assert (control.name, control.current, control.is_known) == ("", Control(), True)


# --- the kill switch ---------------------------------------------------------------------------


async def test_the_annotation_is_a_switch_and_no_edit(
    cluster: DevCluster, client: ApiClient
) -> None:
    offers = CandidateInbox(ConfigMapSource(client, "starsched", "policies"), no_time)
    cluster.create(manifest("policies", {"a.star": "1"}))

    def write(data: dict[str, str], *stop: str) -> None:
        found = cluster.get("configmaps", "policies", "starsched")
        assert found is not None
        notes = {STOP_ANNOTATION: stop[0]} if stop else {}
        metadata = {**found["metadata"], "annotations": notes}
        cluster.update("configmaps", {**found, "metadata": metadata, "data": data})

    async with running(offers.follow()):
        await asyncio.wait_for(offers.arrived(), 10)
        assert offers.take() is not None
        assert not offers.is_stopped
        # 1. Set: any value, no edit.
        write({"a.star": "1"}, "stopp")
        await asyncio.wait_for(offers.stop_changed.wait(), 10)
        offers.stop_changed.clear()
        assert offers.is_stopped
        assert offers.take() is None
        # 2. Removed together with an edit.
        write({"a.star": "2"})
        await asyncio.wait_for(offers.stop_changed.wait(), 10)
        assert not offers.is_stopped
        taken = offers.take()
        assert taken is not None
        assert taken.files == {"a.star": "2"}


def test_an_edit_that_was_not_taken_is_not_lost_when_the_switch_is_set() -> None:
    offers = CandidateInbox(BuiltinSource(), no_time)
    offers.add(Offer({"a": "1"}))
    offers.add(Offer({"a": "1"}, is_stopped=True))
    taken = offers.take()
    assert taken is not None
    assert taken.is_stopped


@pytest.mark.slow("runs two schedulers")
async def test_what_makes_no_sense_is_an_event_of_the_leader(cluster: DevCluster) -> None:
    """Also of one that begins to lead later: a standby reports nothing."""
    lease = LeaseSettings(name="starsched", namespace="kube-system")
    cluster.create(manifest("policies", {}))
    cluster.create(manifest("policies-rollout", {"mode": "stop"}))

    def reports() -> list[str]:
        return [one["note"] for one in events(cluster, "RolloutControlRejected")]

    async with scheduler(cluster, lease=lease, from_config_map=True) as leader:
        await eventually(lambda: len(reports()) == 1)
        assert reports()[0].startswith(f"ConfigMap `{NAME}`, key `mode`: want one of")
        async with scheduler(cluster, lease=lease, from_config_map=True, wait=False) as standby:
            await eventually(lambda: standby.policies.control.current.problems)
            assert len(reports()) == 1
            for event in events(cluster, "RolloutControlRejected"):
                metadata = event["metadata"]
                cluster.delete("events", metadata["name"], metadata["namespace"])
            leader.request_stop()
            await eventually(lambda: standby.leadership.leading.is_set() and len(reports()) == 1)
