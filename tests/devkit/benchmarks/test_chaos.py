"""The parts of `make chaos`: its plan, its proxy, its judgement, and a short run."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from devkit.benchmarks.chaos import __main__ as command
from devkit.benchmarks.chaos.history import Audit, Version, judge, read_audit
from devkit.benchmarks.chaos.load import GROUP_LABEL, SIZE_LABEL, pods_of_owners
from devkit.benchmarks.chaos.plan import FAULTS, MOST_HELD_SECONDS, plan_of
from devkit.benchmarks.chaos.proxy import (
    BLACK_HOLE,
    CUT,
    DOWN,
    LATENCY,
    REFUSE,
    STALL,
    TRICKLE,
    UP,
    FaultProxy,
)
from devkit.benchmarks.chaos.run import policies, preemptions
from devkit.faults.invariants import Binding, Group
from engine.policy.bundle import build_bundle
from engine.policy.errors import PolicyErrors
from tests.builders import node_manifest, pod_manifest
from tests.waiting import eventually

# --- the plan --------------------------------------------------------------------------------


def test_a_seed_makes_the_same_faults_again() -> None:
    assert list(plan_of(7, 300, every=2)) == list(plan_of(7, 300, every=2))
    assert list(plan_of(7, 300, every=2)) != list(plan_of(8, 300, every=2))


def test_a_plan_has_all_kinds_of_faults_and_only_those_that_are_asked_for() -> None:
    steps = list(plan_of(1, 4000, every=2))
    assert {step.kind for step in steps} == {*FAULTS}
    assert 0 < steps[0].at < steps[-1].at < 4000
    assert {step.kind for step in plan_of(1, 400, every=2, faults=["cut"])} == {"cut"}


def test_requests_are_held_back_for_less_than_a_lease_can_bear() -> None:
    held = [step for step in plan_of(3, 9000, every=1) if step.kind in (STALL, TRICKLE)]
    assert held
    assert max(step.seconds for step in held) <= MOST_HELD_SECONDS


# --- the proxy -------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def echoing() -> AsyncIterator[FaultProxy]:
    """A proxy before a server that answers with what it gets."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1000):
                writer.write(data)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, FaultProxy(server.sockets[0].getsockname()[1]) as proxy:
        yield proxy


class Caller:
    """One connection through a proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, proxy: FaultProxy) -> "Caller":
        return cls(*await asyncio.open_connection("127.0.0.1", proxy.port))

    async def ask(self, data: bytes) -> bytes:
        self.writer.write(data)
        return await self.reader.readexactly(len(data))

    async def is_cut(self) -> bool:
        try:
            return not await self.reader.read(100)
        except OSError:
            return True
        finally:
            self.writer.close()


async def test_a_proxy_passes_everything_on_both_ways_and_the_end_too() -> None:
    async with echoing() as proxy:
        caller = await Caller.to(proxy)
        text = bytes(range(256)) * 2000
        assert await caller.ask(text) == text
        caller.writer.write_eof()
        assert await caller.is_cut()
        assert proxy.connections == 1


@pytest.mark.parametrize("fault", [LATENCY, STALL, TRICKLE])
async def test_what_is_late_arrives_whole(fault: str) -> None:
    async with echoing() as proxy:
        caller = await Caller.to(proxy)
        assert await caller.ask(b"before") == b"before"
        injecting = asyncio.create_task(proxy.inject(fault, frozenset({UP, DOWN}), 0.05))
        await asyncio.sleep(0)
        asking = asyncio.create_task(caller.ask(b"x" * 5000))
        if fault == STALL:
            await injecting
            assert not asking.done()
        assert await asking == b"x" * 5000
        await injecting
        caller.writer.close()


@pytest.mark.parametrize("direction", [UP, DOWN])
async def test_what_a_black_hole_swallows_never_arrives_and_ends_its_connection(
    direction: str,
) -> None:
    async with echoing() as proxy:
        caller = await Caller.to(proxy)
        assert await caller.ask(b"before") == b"before"
        injecting = asyncio.create_task(proxy.inject(BLACK_HOLE, frozenset({direction}), 0.05))
        await asyncio.sleep(0)
        caller.writer.write(b"lost")
        assert await caller.is_cut()
        await injecting
        again = await Caller.to(proxy)
        assert await again.ask(b"after") == b"after"
        again.writer.close()


@pytest.mark.parametrize("fault", [CUT, REFUSE])
async def test_a_cut_ends_all_connections_and_a_refusal_the_new_ones_too(fault: str) -> None:
    async with echoing() as proxy:
        caller = await Caller.to(proxy)
        assert await caller.ask(b"before") == b"before"
        injecting = asyncio.create_task(proxy.inject(fault, frozenset(), 0.2))
        assert await caller.is_cut()
        again = await Caller.to(proxy)
        if fault == REFUSE:
            assert await again.is_cut()
            await injecting
            again = await Caller.to(proxy)
        assert await again.ask(b"after") == b"after"
        again.writer.close()
        await injecting


async def test_a_server_that_is_away_ends_the_connection() -> None:
    async with echoing() as proxy:
        target, proxy.target = proxy.target, 1
        assert await (await Caller.to(proxy)).is_cut()
        proxy.target = target
        await eventually(lambda: proxy.connections == 1)


# --- the load and the policies ---------------------------------------------------------------


def test_groups_of_the_load_are_whole_and_a_seed_makes_the_same_pods_again() -> None:
    owners = list(itertools.islice(pods_of_owners(1), 500))
    assert owners == list(itertools.islice(pods_of_owners(1), 500))
    for pods in owners:
        labels = pods[0]["metadata"]["labels"]
        if GROUP_LABEL in labels:
            assert len(pods) == int(labels[SIZE_LABEL])
    kinds = {pods[0]["metadata"]["labels"]["kind"] for pods in owners}
    assert len(kinds) == 7


def test_good_edits_are_revisions_of_their_own_and_bad_ones_do_not_parse() -> None:
    bundles = [build_bundle(policies(number)) for number in (1, 2, 4)]
    assert len({bundle.revision for bundle in bundles}) == 3
    assert [bundle.warnings for bundle in bundles] == [()] * 3
    with pytest.raises(PolicyErrors, match="never closed"):
        build_bundle(policies(3, is_good=False))


# --- the judgement ---------------------------------------------------------------------------


def audit_event(user: str, subresource: str = "binding", code: int = 201, **more: Any) -> str:
    event = {
        "user": {"username": user},
        "verb": "create",
        "requestReceivedTimestamp": "1970-01-01T00:01:40.500000Z",
        "responseStatus": {"code": code},
        "objectRef": {
            "resource": "pods",
            "namespace": "bench",
            "name": "p",
            "subresource": subresource,
        },
        "requestObject": {"metadata": {"uid": "p-uid"}, "target": {"name": "n"}},
        **more,
    }
    return json.dumps(event)


def test_the_audit_log_says_who_bound_held_the_lease_and_evicted() -> None:
    lease = {"resource": "leases", "namespace": "bench", "name": "starsched"}
    victim = {"resource": "pods", "namespace": "bench", "name": "v"}
    audit = read_audit(
        [
            audit_event("replica-a-1"),
            audit_event("replica-a-1", code=409),
            audit_event("replica-a-1", code=504),
            audit_event("admin"),
            audit_event(
                "replica-b-1", objectRef=lease, requestObject={"spec": {"holderIdentity": "host_1"}}
            ),
            audit_event("replica-b-1", objectRef=victim, verb="delete", code=200),
            '{"cut off',
        ]
    )
    assert audit.bindings == [Binding(100.5, "p-uid", "bench/p", "n", "replica-a-1")]
    assert audit.unclear == audit.bindings
    assert audit.answers == {"201": 1, "409": 1, "504": 1}
    assert audit.holders == {"host_1": "replica-b-1"}
    assert audit.evictions == {"bench/v": "replica-b-1"}


def pod(name: str, **words: Any) -> dict[str, Any]:
    return pod_manifest(name, "bench", uid=f"{name}-uid", **words)


def lease(holder: str, at: str) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 5, "renewTime": at}
    return {"metadata": {"name": "starsched", "namespace": "bench"}, "spec": spec}


def history(*objects: tuple[str, str, dict[str, Any] | None]) -> list[Version]:
    """Versions of a cluster with a node of 4 cores, and the lease with `host_1` from 100 s on."""
    first = (
        ("nodes", "n", node_manifest("n", cpu="4")),
        ("leases", "/registry/leases/bench/starsched", lease("host_1", "1970-01-01T00:01:40Z")),
    )
    return [Version(n, *one) for n, one in enumerate((*first, *objects))]


def bound_at(*times: float, by: str = "replica-a-1") -> Audit:
    """An audit log with bindings of `p` to `n`."""
    audit = Audit(holders={"host_1": "replica-a-1"})
    audit.bindings.extend(Binding(at, "p-uid", "bench/p", "n", by) for at in times)
    return audit


DENIED = {"conditions": [{"type": "PodScheduled", "status": "False"}]}
PLACED = (("pods", "p", pod("p", cpu="3")), ("pods", "p", pod("p", cpu="3", node="n")))


def test_a_run_in_which_all_is_well_has_no_violations() -> None:
    verdict = judge(bound_at(101.0), history(*PLACED), {}, [], [])
    assert verdict.violations == []
    assert (verdict.bound, verdict.unaudited) == (1, 0)
    assert verdict.leaders == ["replica-a-1"]
    assert judge(Audit(), history(*PLACED), {}, [], []).unaudited == 1


@pytest.mark.parametrize(
    ("audit", "objects", "want"),
    [
        pytest.param(bound_at(101.0, 102.0), PLACED, "bound_once", id="twice"),
        pytest.param(bound_at(106.0), PLACED, "bound_by_leader", id="after the lease"),
        pytest.param(bound_at(101.0, by="replica-b-1"), PLACED, "bound_by_leader", id="standby"),
        pytest.param(
            bound_at(101.0),
            (("pods", "q", pod("q", cpu="2", node="n")), *PLACED),
            "overcommitted",
            id="too full",
        ),
        pytest.param(
            bound_at(101.0),
            (*PLACED, ("pods", "p", pod("p", cpu="3", node="m"))),
            "bound_once",
            id="moved",
        ),
        pytest.param(
            bound_at(101.0),
            (*PLACED, ("pods", "p", pod("p", cpu="3", node="n", status=DENIED))),
            "untrue_conditions",
            id="said to be pending",
        ),
    ],
)
def test_what_is_wrong_is_found_in_the_history(
    audit: Audit, objects: tuple[Any, ...], want: str
) -> None:
    verdict = judge(audit, history(*objects), {}, [], [])
    assert [one.rule for one in verdict.violations] == [want]


def test_a_binding_that_the_server_failed_at_counts_if_it_took_effect() -> None:
    audit = bound_at(101.0)
    audit.unclear[:], audit.bindings[:] = audit.bindings, []
    groups = [Group("g", 1, frozenset({"p-uid"}))]
    verdict = judge(audit, history(*PLACED), {}, groups, [])
    assert (verdict.unaudited, verdict.violations) == (0, [])
    late = bound_at(106.0)
    late.unclear[:], late.bindings[:] = late.bindings, []
    wrong = judge(late, history(*PLACED), {}, [], [])
    assert [one.rule for one in wrong.violations] == ["bound_by_leader"]
    assert judge(late, history(), {}, [], []).violations == []


def test_a_group_that_is_bound_in_part_is_found() -> None:
    groups = [Group("g", 2, frozenset({"p-uid", "q-uid"}))]
    verdict = judge(bound_at(101.0), history(*PLACED), {}, groups, [])
    assert [one.rule for one in verdict.violations] == ["partial_groups"]


def test_a_pod_that_is_gone_leaves_its_capacity() -> None:
    earlier = pod("q", cpu="2", node="n")
    objects = (("pods", "q", earlier), ("pods", "q", None), *PLACED)
    assert judge(bound_at(101.0), history(*objects), {}, [], []).violations == []


def test_a_binding_that_a_frozen_server_received_late_was_sent_in_time() -> None:
    late = bound_at(109.0)
    frozen = [(103.0, 108.0)]
    assert judge(late, history(*PLACED), {}, [], frozen).violations == []
    assert judge(late, history(*PLACED), {}, [], [(106.0, 108.0)]).violations != []


def test_a_victim_of_no_lower_priority_is_found() -> None:
    def objects(priority: int) -> tuple[Any, ...]:
        victim = pod("v", node="n", priority=priority)
        return (
            ("pods", "p", pod("p", priority=5)),
            ("pods", "v", victim),
            ("pods", "v", {**victim, "metadata": {**victim["metadata"], "deletionTimestamp": "x"}}),
        )

    audit = Audit(holders={"host_1": "replica-a-1"}, evictions={"bench/v": "replica-a-1"})
    causes = preemptions(
        ["{", '{"message":"Preempted pod","pod":"bench/v","preemptor":"bench/p","node":"n"}']
    )
    fine = judge(audit, history(*objects(4)), causes, [], [])
    assert (fine.preempted, fine.violations) == (1, [])
    wrong = judge(audit, history(*objects(5)), causes, [], [])
    assert [one.rule for one in wrong.violations] == ["violated_budgets"]


# --- a run -----------------------------------------------------------------------------------


@pytest.mark.long("breaks a whole control plane for a minute")
@pytest.mark.timeout(300)
def test_everything_that_must_hold_holds_under_faults(tmp_path: Path) -> None:
    output = tmp_path / "chaos.json"
    result = CliRunner().invoke(
        command.main,
        ["--minutes", "0.8", "--every", "6", "--seed", "3", "--output", "json", str(output)],
    )
    assert result.exit_code == 0, result.output
    found = json.loads(output.read_text())["results"]
    assert found["violations"] == []
    assert found["bound"] > 50
    assert sum(found["faults"].values()) > 3
