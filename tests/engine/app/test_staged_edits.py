"""Edits go through shadow and canary on a running scheduler, under a stream of pods.

The stages are short and want few decisions; what counts is how they begin and end, what the API
server holds afterwards, and what people are told.
"""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from devkit.cluster import DevCluster
from engine.app import App
from engine.io.binding.event_recorder import REVISION_ANNOTATION
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.io.kube.errors import AlreadyExists, Conflict, NotFound
from engine.io.leader_election import LeaseSettings
from engine.policy.bundle import Bundle
from engine.policy.evaluator import Evaluator
from engine.policy.sandbox.process import SandboxEvaluator
from engine.rollout import control, last_good
from engine.rollout.assembly import make_stages
from engine.rollout.last_good import ConfigMapStore, Store
from engine.rollout.trial import CandidateStages
from tests.controlplane import ControlPlane
from tests.engine.app import harness
from tests.engine.app.harness import metric
from tests.faults.processes import kill_all
from tests.live import Json, LiveCluster, node, pod
from tests.waiting import eventually, pace

MAPS = f"/api/v1/namespaces/{harness.NAMESPACE}/configmaps"
EVENTS = f"/api/v1/namespaces/{harness.NAMESPACE}/events"
PODS = "/api/v1/namespaces/default/pods"

#: So many pods are made each second, so many of each owner.
RATE, OF_EACH = 60.0, 3

CONFIG = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled: [{name: mine, weight: 1000}]
"""
SHADOW = {"duration": "1s", "compared": 20, "cores": "50%"}
STEPS = [
    {"share": "20%", "duration": "1s", "decisions": 10},
    {"share": "40%", "duration": "1s", "decisions": 20},
]
#: Cores are shared with other tests, and the candidate begins with nothing evaluated.
#: What an edit takes away is known before its stages, which are the subject here.
GATES = {
    "maxMoved": "100%",
    "latency": 1000,
    "timeToBind": 1000,
    "maxFitNowhere": 1_000_000,
    "maxNodesLost": "100%",
    "maxMovedOfClass": "100%",
}

#: Where pods of `owners` other than "" go, and the node that every policy here likes next.
OLD, NEW = "node-old", "node-new"


def prefer(name: str, rule: str = "") -> str:
    """A policy that prefers a node, with something else in it."""
    return (
        f'"""Prefers {name}."""\n\n{rule}\n\ndef score(pod, node):\n'
        f'    return 100 if node.name == "{name}" else 0\n'
    )


def files(text: str, **rollout: Any) -> dict[str, str]:
    runtime: Json = {"apiVersion": "starsched.dev/v1", "kind": "PolicyRuntime"}
    if rollout:
        runtime["rollout"] = {"gates": GATES, **rollout}
    return {"mine.star": text, "config.yaml": CONFIG, "runtime.yaml": yaml.safe_dump(runtime)}


STAGES: dict[str, Any] = {"shadow": SHADOW, "canary": {"steps": STEPS}}
ONLY_CANARY: dict[str, Any] = {"canary": {"steps": STEPS[1:]}}
ONLY_SHADOW: dict[str, Any] = {"shadow": SHADOW}

#: Whatever is rejected by this one is of one class of pods.
STRICT = """
def filter(pod, node):
    return "not this class" if pod.labels.get("class") == "b" else None
"""


@dataclass
class World:
    """A cluster, and what its people do."""

    endpoint: Endpoint
    cluster: LiveCluster

    async def edit(self, texts: Mapping[str, str]) -> None:
        """Change the policies' ConfigMap, or create it."""
        data: dict[str, str | None] = dict(texts)
        try:
            found = await self.cluster.request("GET", f"{MAPS}/{harness.NAME}")
        except NotFound:
            await self.cluster.request("POST", MAPS, harness.config_map(texts))
            return
        gone: dict[str, str | None] = dict.fromkeys(found.get("data", ()))
        await self.cluster.request("PATCH", f"{MAPS}/{harness.NAME}", {"data": gone | data})

    async def stop_stages(self, is_stopped: bool) -> None:
        """Set or take away the kill switch."""
        notes = {"starsched.dev/rollout": "stop" if is_stopped else None}
        change = {"metadata": {"annotations": notes}}
        await self.cluster.request("PATCH", f"{MAPS}/{harness.NAME}", change)

    async def mean(self, revision: str) -> None:
        """Say that what *revision* takes away is meant."""
        change = {"metadata": {"annotations": {"starsched.dev/accept-losses": revision}}}
        await self.cluster.request("PATCH", f"{MAPS}/{harness.NAME}", change)

    async def say(self, **data: str) -> None:
        """Write the ConfigMap with the mode."""
        name = harness.NAME + control.SUFFIX
        with contextlib.suppress(NotFound):
            await self.cluster.request("DELETE", f"{MAPS}/{name}")
        made = harness.config_map(data)
        made["metadata"]["name"] = name
        await self.cluster.request("POST", MAPS, made)

    async def told(self, reason: str) -> list[str]:
        """The notes of the events about the policies that have this reason."""
        found = (await self.cluster.request("GET", EVENTS))["items"]
        return [one.get("message", "") for one in found if one["reason"] == reason]

    async def until_told(self, reason: str, seconds: float = 60.0) -> str:
        notes: list[str] = []

        async def is_there() -> bool:
            notes[:] = await self.told(reason)
            return bool(notes)

        await eventually(is_there, seconds=seconds, what=f"an event {reason}")
        return notes[0]

    async def schedulers(self) -> dict[str, str]:
        """The revision that decided each pod, by its events."""
        return {
            event["regarding"]["name"]: event["metadata"]["annotations"][REVISION_ANNOTATION]
            for event in await self.cluster.events("Scheduled")
        }


@dataclass
class Stream:
    """Pods that come one after the other, as ReplicaSets make them.

    Attributes:
        made: The uid of each, by its name.
        owner: Which ReplicaSet each is of, by its name.
        labels: Of the next ones.
    """

    cluster: LiveCluster
    made: dict[str, str] = field(default_factory=dict)
    owner: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    owners: Iterator[int] = field(default_factory=itertools.count)

    async def run(self, is_over: asyncio.Event) -> None:
        """Make pods until *is_over*: not until cancelled, which loses what a request made."""
        while not is_over.is_set():
            await self.make(next(self.owners))

    async def make(self, number: int) -> None:
        """The pods of one owner."""
        name = f"web-{number}"
        labels = {"class": "abc"[number % 3], **self.labels}
        for index in range(OF_EACH):
            made = pod(f"{name}-{index}", cpu="1m", labels=labels)
            reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name}
            made["metadata"]["ownerReferences"] = [
                {**reference, "uid": f"rs-{name}", "controller": True}
            ]
            created = await self.cluster.request("POST", PODS, made)
            self.made[f"{name}-{index}"] = created["metadata"]["uid"]
            self.owner[f"{name}-{index}"] = name
            await pace(RATE)

    @contextlib.asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """The stream runs until the block ends."""
        is_over = asyncio.Event()
        running = asyncio.ensure_future(self.run(is_over))
        try:
            yield
        finally:
            is_over.set()
            await running

    async def until_placed(self, seconds: float = 30.0) -> dict[str, str]:
        """Wait until every pod has a node; these."""
        nodes: dict[str, str] = {}

        async def all_placed() -> bool:
            found = await self.cluster.items("Pod")
            nodes.clear()
            nodes.update({p["metadata"]["name"]: p["spec"].get("nodeName", "") for p in found})
            return all(nodes.get(name) for name in self.made)

        await eventually(all_placed, seconds=seconds, what="all pods to be placed")
        return nodes


async def check(world: World, stream: Stream) -> None:
    """No pod is lost, or bound twice: as the API server has them, and as it was told."""
    nodes = await stream.until_placed()
    pods = {p["metadata"]["name"]: p for p in await world.cluster.items("Pod")}
    assert {name: p["metadata"]["uid"] for name, p in pods.items()} == stream.made
    times: Counter[str] = Counter()
    for event in await world.cluster.events("Scheduled"):
        name = event["regarding"]["name"]
        times[name] += (event.get("series") or {}).get("count", 1)
        assert event["note"].endswith(f" to {nodes[name]}"), event["note"]
    assert set(times.values()) <= {1}
    assert not await world.cluster.events("FailedBinding")


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane() as plane:
        yield plane


EMBEDDED = pytest.param("embedded", marks=pytest.mark.slow("runs a whole scheduler"))
REAL = pytest.param("real", marks=pytest.mark.long("the same on the real control plane"))
ON_BOTH = pytest.mark.parametrize("world", [EMBEDDED, REAL], indirect=True)
HERE = pytest.mark.parametrize("world", [EMBEDDED], indirect=True)
_LONG = pytest.mark.long("another way into an end that other tests reach")
LATER = pytest.mark.parametrize("world", [pytest.param("embedded", marks=_LONG)], indirect=True)


@pytest.fixture
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as stack:
        if request.param == "real":
            endpoint = request.getfixturevalue("plane").endpoint()
        else:
            server = await stack.enter_async_context(DevCluster())
            endpoint = Endpoint(server=server.url)
        client = await stack.enter_async_context(ApiClient(endpoint))
        cluster = LiveCluster(client)
        await cluster.prepare()
        with contextlib.suppress(Exception):
            await cluster.request("POST", "/api/v1/namespaces", harness.namespace())
        for name in (OLD, NEW):
            await cluster.create(node(name, cpu="1000", memory="1000Gi", pods="100000"))
        yield World(endpoint, cluster)
        await cluster.clear()
        for name in (harness.NAME, harness.NAME + control.SUFFIX, harness.NAME + last_good.SUFFIX):
            with contextlib.suppress(NotFound):
                await cluster.request("DELETE", f"{MAPS}/{name}")
        await cluster.request("DELETE", EVENTS)


def store(client: ApiClient) -> Store:
    return ConfigMapStore(client, harness.NAMESPACE, harness.NAME + last_good.SUFFIX)


@contextlib.asynccontextmanager
async def scheduler(world: World, **words: Any) -> AsyncIterator[App]:
    async with harness.scheduler_at(
        world.endpoint, from_config_map=True, store=store, **words
    ) as app:
        yield app


def stage_of(app: App) -> str:
    """The stage that an edit is in now, as `canary 20%`; "" if in none."""
    status = app.policies.rollout.status
    if status.result != "running" or status.stage is None:
        return ""
    stage = status.stages[status.stage]
    return stage.name if stage.name == "shadow" else f"{stage.name} {stage.share:.0%}"


def revision_of(app: App) -> str:
    return app.policies.rollout.active.bundle.revision


def in_stage(app: App, name: str) -> Callable[[], bool]:
    return lambda: stage_of(app).startswith(name)


def has_ended(app: App) -> Callable[[], bool]:
    return lambda: app.policies.rollout.status.result not in ("", "running")


# --- the way through -----------------------------------------------------------------------------


@ON_BOTH
async def test_a_good_edit_decides_a_share_of_the_owners_and_then_everything(
    world: World,
) -> None:
    await world.edit(files(prefer(OLD), **STAGES))
    stream = Stream(world.cluster)
    async with scheduler(world) as app:
        before = revision_of(app)
        async with stream.flowing():
            await eventually(lambda: len(stream.made) > 30)
            await world.edit(files(prefer(NEW), **STAGES))
            await eventually(in_stage(app, "shadow"), what="the shadow")
            assert metric(app, "starsched_rollout_stage", stage="shadow") == 1
            await eventually(in_stage(app, "canary 20%"), seconds=60, what="the canary")
            shadow = app.policies.rollout.status.shadow
            assert shadow is not None
            assert shadow.compared >= 20
            assert shadow.counts.get("moved", 0) > 0
            compared = metric(app, "starsched_rollout_compared_total")
            assert compared == shadow.compared
            assert metric(app, "starsched_rollout_differences_total", kind="moved") > 0
            await eventually(in_stage(app, "canary 40%"), seconds=60, what="the second step")
            # It stays there, so that its share can be counted.
            await world.say(mode="paused")
            await eventually(lambda: app.policies.rollout.status.paused)
            assert metric(app, "starsched_rollout_stage", stage="canary") == 1
            assert metric(app, "starsched_rollout_paused") == 1
            so_far = len(stream.made)
            await eventually(lambda: len(stream.made) > so_far + 100 * OF_EACH, seconds=60)
        nodes = await stream.until_placed()
        assert stage_of(app) == "canary 40%"
        candidate = app.policies.rollout.status.candidate
        paused = list(stream.made)[so_far + OF_EACH :]
        # Where they went, and what their events say, is the same.
        schedulers = await world.schedulers()
        assert {schedulers[name] for name in paused} == {before, candidate}
        assert all((nodes[name] == NEW) == (schedulers[name] == candidate) for name in paused)
        by_owner: dict[str, set[str]] = {}
        for name in paused:
            by_owner.setdefault(stream.owner[name], set()).add(schedulers[name])
        assert all(len(found) == 1 for found in by_owner.values()), "an owner was split"
        share = sum(candidate in found for found in by_owner.values()) / len(by_owner)
        # Five standard errors of 100 owners.
        assert 0.15 < share < 0.65, f"{share:.0%} of {len(by_owner)} owners"
        async with stream.flowing():
            await world.say(mode="staged")
            await eventually(lambda: revision_of(app) == candidate, seconds=60, what="in force")
        await check(world, stream)
        assert app.policies.rollout.status.result == "promoted"
        for stage, passed in (("shadow", 1), ("canary", 2)):
            labels = {"stage": stage, "outcome": "pass"}
            assert metric(app, "starsched_rollout_verdicts_total", **labels) == passed
            assert metric(app, "starsched_rollout_stage", stage=stage) == 0
        last = await world.told("PolicyAccepted")
        assert any(candidate in note for note in last)


#: One of the two nodes takes no pod any more; which they like best, they do not.
WITHOUT_OLD = f"""
def filter(pod, node):
    return "not there" if node.name == "{OLD}" else None
"""


@HERE
async def test_an_edit_that_closes_nodes_begins_no_stage_unless_it_is_meant(world: World) -> None:
    """A filter that is never true in one zone went through all gates: no pod was pending."""
    default = {"gates": {"latency": 1000, "timeToBind": 1000}, **STAGES}
    await world.edit(files(prefer(NEW), **default))
    stream = Stream(world.cluster)
    async with scheduler(world) as app:
        before = revision_of(app)
        async with stream.flowing():
            await eventually(lambda: len(stream.made) > 30)
            await world.edit(files(prefer(NEW, WITHOUT_OLD), **default))
            note = await world.until_told("PolicyRejected")
            assert "shadow: maxNodesLost: 50% (1 of 2) of the nodes would take none" in note
            assert revision_of(app) == before
            assert not await world.told("PolicyShadow")
            candidate = app.policies.rollout.status.candidate
            assert f"starsched.dev/accept-losses={candidate}" in note
            await world.mean(candidate)
            await eventually(lambda: revision_of(app) == candidate, seconds=90, what="the edit")
            assert await world.told("PolicyShadow")
        await check(world, stream)
        # What was in force before is in force again without a stage.
        shadows = len(await world.told("PolicyShadow"))
        await world.edit(files(prefer(NEW), **default))
        await eventually(lambda: revision_of(app) == before, what="the way back")
        assert len(await world.told("PolicyShadow")) == shadows


@ON_BOTH
async def test_a_filter_that_is_too_strict_for_one_class_decides_no_pod(world: World) -> None:
    await world.edit(files(prefer(OLD), **STAGES))
    stream = Stream(world.cluster)
    async with scheduler(world) as app:
        before = revision_of(app)
        async with stream.flowing():
            await eventually(lambda: len(stream.made) > 30)
            await world.edit(files(prefer(OLD, STRICT), **STAGES))
            note = await world.until_told("PolicyRejected")
        assert "shadow: maxNewlyPending: " in note
        assert "compared decisions, want at most 0" in note
        assert revision_of(app) == before
        await check(world, stream)
        assert set((await world.schedulers()).values()) == {before}
        labels = {"stage": "shadow", "outcome": "fail"}
        assert metric(app, "starsched_rollout_verdicts_total", **labels) == 1


@ON_BOTH
async def test_pods_that_a_canary_rejects_get_their_nodes_when_it_fails(world: World) -> None:
    await world.edit(files(prefer(OLD), **ONLY_CANARY))
    stream = Stream(world.cluster)
    async with scheduler(world) as app:
        before = revision_of(app)
        async with stream.flowing():
            await world.edit(files(prefer(OLD, STRICT), **ONLY_CANARY))
            await eventually(in_stage(app, "canary"), seconds=60, what="the canary")
            await eventually(
                lambda: app.kernel.queue.counts()["unschedulable"] > 0, what="a rejection"
            )
            candidate = app.policies.rollout.status.candidate
            note = await world.until_told("PolicyRejected")
            assert "canary 40%: maxNewlyPending: " in note
            assert "in the control sample 0 in " in note
            # Without waiting for anything else that might happen.
            await eventually(lambda: not app.kernel.queue.counts()["unschedulable"], seconds=5)
        assert revision_of(app) == before
        await check(world, stream)
        # The author can see whose decision it was.
        events = await world.cluster.events("FailedScheduling")
        assert all("not this class" in event["note"] for event in events)
        notes = [event["metadata"]["annotations"][REVISION_ANNOTATION] for event in events]
        assert set(notes) == {candidate}


@LATER
async def test_a_gate_that_keeps_the_pods_of_a_canary_out_fails_it(world: World) -> None:
    """No decision is made about such a pod, so nothing was counted: it waited for ever."""
    gate = STRICT.replace("filter(pod, node)", "pre_enqueue(pod)")
    await world.edit(files(prefer(OLD), **ONLY_CANARY))
    stream = Stream(world.cluster)
    async with scheduler(world) as app:
        before = revision_of(app)
        async with stream.flowing():
            await world.edit(files(prefer(OLD, gate), **ONLY_CANARY))
            note = await world.until_told("PolicyRejected")
        assert "canary 40%: maxNewlyPending: " in note
        assert revision_of(app) == before
        await check(world, stream)


@LATER
async def test_pods_that_fit_nowhere_anyway_fail_no_canary(world: World) -> None:
    """Those of the canary were tried anew when it began, and those of the control were not."""
    await world.edit(files(prefer(OLD), **ONLY_CANARY))
    stream = Stream(world.cluster)
    for number in range(60):
        await world.cluster.create(pod(f"huge-{number}", cpu="9000"))
    async with scheduler(world) as app:
        before = revision_of(app)
        await eventually(lambda: app.kernel.queue.counts()["unschedulable"] == 60)
        async with stream.flowing():
            await world.edit(files(prefer(NEW), **ONLY_CANARY))
            await eventually(has_ended(app), seconds=60, what="the end of the stages")
        assert app.policies.rollout.status.result == "promoted", app.policies.rollout.status.verdict
        assert revision_of(app) != before
        canary = app.policies.rollout.status.canary
        assert canary is not None
        assert canary.pending_owners == 0


# --- candidates that misbehave -------------------------------------------------------------------

#: Harmless until a pod of a class comes that the trial has not seen.
_ONLY_BOOM = 'if pod.labels.get("boom") == "yes":\n        '
MISBEHAVE = {
    "fails": "def filter(pod, node):\n    " + _ONLY_BOOM + 'fail("broken")\n    return None\n',
    "takes all memory": (
        "def filter(pod, node):\n    "
        + _ONLY_BOOM
        + 'return None if len("a" * (1 << 36)) else "no"\n    return None\n'
    ),
    "loops for ever": (
        "def filter(pod, node):\n    "
        + _ONLY_BOOM
        + "for i in range(1000000000):\n            pass\n    return None\n"
    ),
    "fails as a gate": (
        "def pre_enqueue(pod):\n    " + _ONLY_BOOM + 'fail("broken")\n    return None\n'
    ),
}


@HERE
@pytest.mark.parametrize("stages", [ONLY_SHADOW, ONLY_CANARY], ids=["shadow", "canary"])
@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(rule, id=name, marks=[] if name == "fails" else [_LONG])
        for name, rule in MISBEHAVE.items()
    ],
)
async def test_a_candidate_that_fails_for_some_pods_is_given_up(
    world: World, stages: dict[str, Any], rule: str
) -> None:
    await world.edit(files(prefer(OLD), **stages))
    stream = Stream(world.cluster)
    async with scheduler(world) as app:
        before = revision_of(app)
        async with stream.flowing():
            await world.edit(files(prefer(OLD, rule), **stages))
            await eventually(lambda: stage_of(app), seconds=60, what="a stage")
            stream.labels = {"boom": "yes"}
            note = await world.until_told("PolicyRejected")
        assert "errorRate: " in note
        assert revision_of(app) == before
        await check(world, stream)
        # What the policies in force are blamed for is theirs.
        assert app.policies.rollout.describe()["active"]["failed_decisions"] == 0


@LATER
@pytest.mark.parametrize("stages", [ONLY_SHADOW, ONLY_CANARY], ids=["shadow", "canary"])
async def test_a_candidate_that_is_slower_than_decisions_come_is_given_up(
    world: World, stages: dict[str, Any]
) -> None:
    slow = (
        "def filter(pod, node):\n    n = 0\n    for i in range(300000):\n        n += i\n"
        '    return "no" if n == len(pod.name) else None\n'
    )
    usual = {**stages, "gates": {**GATES, "latency": 2}}
    await world.edit(files(prefer(OLD), **usual))
    stream = Stream(world.cluster)
    async with scheduler(world) as app:
        before = revision_of(app)
        async with stream.flowing():
            await world.edit(files(prefer(OLD, slow), **usual))
            note = await world.until_told("PolicyRejected")
        assert "latency: " in note
        assert "want at most 2 times" in note
        assert revision_of(app) == before
        await check(world, stream)


def with_facts(texts: dict[str, str], source: dict[str, Any]) -> dict[str, str]:
    """*texts* with a source of facts."""
    runtime = yaml.safe_load(texts["runtime.yaml"])
    runtime["facts"] = {"sources": [source]}
    return texts | {"runtime.yaml": yaml.safe_dump(runtime)}


@LATER
async def test_a_candidate_shares_its_facts_with_the_policies_in_force(world: World) -> None:
    """It was refused for an internal error if a source names annotations."""
    source = {"annotations": {"of": "nodes", "keys": {"heat": "example.com/heat"}}}
    await world.edit(with_facts(files(prefer(OLD), **ONLY_SHADOW), source))
    stream = Stream(world.cluster)
    async with scheduler(world) as app:
        before = revision_of(app)
        async with stream.flowing():
            await world.edit(with_facts(files(prefer(OLD, "# Edited.\n"), **ONLY_SHADOW), source))
            await eventually(lambda: revision_of(app) != before, seconds=60, what="the edit")
        await check(world, stream)


@LATER
async def test_a_candidate_whose_facts_are_not_there_is_given_up(
    world: World, tmp_path: Path
) -> None:
    rule = (
        "def filter(pod, node):\n"
        '    heat = node.facts["heat"]\n'
        '    return None if heat != None and heat < 50 else "too hot, or not known"\n'
    )
    source = {"file": {"path": str(tmp_path / "none.json")}}
    texts = with_facts(files(prefer(OLD, rule), **ONLY_SHADOW), source)
    await world.edit(files(prefer(OLD), **ONLY_SHADOW))
    stream = Stream(world.cluster)
    async with scheduler(world) as app:
        before = revision_of(app)
        async with stream.flowing():
            await world.edit(texts)
            note = await world.until_told("PolicyRejected")
        assert "shadow: maxNewlyPending: " in note
        assert revision_of(app) == before
        await check(world, stream)


@LATER
@pytest.mark.parametrize("stages", [ONLY_SHADOW, ONLY_CANARY], ids=["shadow", "canary"])
async def test_a_candidate_whose_sandbox_is_killed_again_and_again_costs_no_pod(
    world: World, stages: dict[str, Any]
) -> None:
    sandboxes: dict[str, list[SandboxEvaluator]] = {}
    usual = make_stages()

    def make_evaluator(bundle: Bundle) -> Evaluator:
        made = usual.make_evaluator(bundle)
        assert isinstance(made, SandboxEvaluator)
        sandboxes.setdefault(bundle.revision, []).append(made)
        return made

    watched = CandidateStages(
        build=usual.make_bundle,
        make_evaluator=make_evaluator,
        run_tests=lambda _: [],
        on_close=usual.close,
    )
    # It has to ask its sandbox about every pod.
    asks = 'def filter(pod, node):\n    return "no" if pod.name == "x" else None\n'
    await world.edit(files(prefer(OLD), **stages))
    stream = Stream(world.cluster)
    async with scheduler(world, stages=watched) as app:
        before = revision_of(app)
        async with stream.flowing():
            await world.edit(files(prefer(OLD, asks), **stages))
            await eventually(lambda: stage_of(app), seconds=60, what="a stage")
            candidate = app.policies.rollout.status.candidate

            kills = itertools.count()

            def is_over() -> bool:
                for sandbox in sandboxes[candidate]:
                    kill_all(sandbox.pids)
                return next(kills) > 300 or has_ended(app)()

            await eventually(is_over, seconds=60, what="many kills")
            await eventually(has_ended(app), seconds=60, what="the end of the stages")
        # What it was asked when it was killed, it is asked again a few times. If that is enough,
        # the candidate is none the worse for it.
        failed = app.policies.rollout.status.result == "failed"
        assert revision_of(app) == (before if failed else candidate)
        assert not failed or "errorRate: " in await world.until_told("PolicyRejected")
        await check(world, stream)


# --- what happens meanwhile ----------------------------------------------------------------------

#: A stage that goes on for ever, so that something may happen in it.
ENDLESS: dict[str, Any] = {
    "canary": {"steps": [{"share": "40%", "duration": "1s", "decisions": 1_000_000}]}
}


@LATER
async def test_a_configmap_that_is_deleted_in_a_step_ends_it(world: World) -> None:
    await world.edit(files(prefer(OLD), **ENDLESS))
    stream = Stream(world.cluster)
    async with scheduler(world) as app:
        before = revision_of(app)
        async with stream.flowing():
            await world.edit(files(prefer(NEW), **ENDLESS))
            await eventually(in_stage(app, "canary"), seconds=60, what="the canary")
            await world.cluster.request("DELETE", f"{MAPS}/{harness.NAME}")
            await eventually(has_ended(app), what="the end of the step")
            await eventually(lambda: app.policies.rollout.describe()["source"]["gone"])
        assert app.kernel.schedulers.canary is None
        assert app.policies.rollout.status.result == "superseded"
        assert revision_of(app) == before
        await check(world, stream)
        # It comes back as it was, and goes through its stages anew.
        await world.edit(files(prefer(NEW), **ENDLESS))
        await eventually(in_stage(app, "canary"), seconds=60, what="the canary again")


@HERE
async def test_the_kill_switch_gives_the_pods_back_at_once(world: World) -> None:
    await world.edit(files(prefer(OLD), **ENDLESS))
    stream = Stream(world.cluster)
    async with scheduler(world) as app:
        before = revision_of(app)
        async with stream.flowing():
            await world.edit(files(prefer(NEW), **ENDLESS))
            await eventually(in_stage(app, "canary"), seconds=60, what="the canary")
            await world.stop_stages(True)
            await eventually(lambda: "annotation" in app.policies.rollout.status.paused)
            assert app.kernel.schedulers.canary is None
            so_far = len(stream.made)
            await eventually(lambda: len(stream.made) > so_far + 20 * OF_EACH)
        nodes = await stream.until_placed()
        later = list(stream.made)[so_far + OF_EACH :]
        assert {nodes[name] for name in later} == {OLD}
        assert revision_of(app) == before
        await world.stop_stages(False)
        await eventually(in_stage(app, "canary"), what="the canary again")
        await check(world, stream)


@HERE
async def test_who_may_promotes_a_candidate_and_gives_another_one_up(world: World) -> None:
    await world.edit(files(prefer(OLD), **ENDLESS))
    stream = Stream(world.cluster)
    async with scheduler(world) as app:
        async with stream.flowing():
            await world.edit(files(prefer(NEW), **ENDLESS))
            await eventually(in_stage(app, "canary"), seconds=60, what="the canary")
            candidate = app.policies.rollout.status.candidate
            await world.say(promote=candidate)
            await eventually(lambda: revision_of(app) == candidate, what="the promotion")
            assert f"revision {candidate} skips" in await world.until_told("PolicyPromoted")
            # Not the first text, to which one may go back at once.
            await world.edit(files(prefer(OLD, "# Another text."), **ENDLESS))
            await eventually(in_stage(app, "canary"), seconds=60, what="the next canary")
            other = app.policies.rollout.status.candidate
            assert other != candidate
            await world.say(abort=other)
            note = await world.until_told("PolicyRejected")
            assert "aborted by " in note
        assert revision_of(app) == candidate
        assert app.policies.rollout.status.result == "aborted"
        await check(world, stream)


@HERE
async def test_a_newer_edit_takes_the_place_of_one_in_a_canary(world: World) -> None:
    await world.edit(files(prefer(OLD), **ENDLESS))
    stream = Stream(world.cluster)
    async with scheduler(world) as app:
        before = revision_of(app)
        async with stream.flowing():
            await world.edit(files(prefer(NEW), **ENDLESS))
            await eventually(in_stage(app, "canary"), seconds=60, what="the canary")
            first = app.policies.rollout.status.candidate
            await world.edit(files(prefer(NEW, "# Another text."), **ENDLESS))
            await eventually(
                lambda: app.policies.rollout.status.candidate != first and stage_of(app),
                seconds=60,
                what="the canary of the next",
            )
            assert f"revision {first}: " in await world.until_told("PolicySuperseded")
            assert app.policies.rollout.status.base == before
        await check(world, stream)


@HERE
async def test_the_next_leader_goes_on_with_the_stage_that_was_begun(world: World) -> None:
    """The shadow has passed; its canary is neither skipped nor is the shadow repeated."""
    stages = {"shadow": SHADOW, **ENDLESS}
    await world.edit(files(prefer(OLD), **stages))
    stream = Stream(world.cluster)
    lease = LeaseSettings(lease_duration=30.0, renew_deadline=20.0, retry_period=0.1)
    async with (
        scheduler(world, lease=lease) as leader,
        scheduler(world, lease=lease, wait=False) as standby,
    ):
        await eventually(standby.watching.synced.is_set, seconds=60)
        before = revision_of(leader)
        async with stream.flowing():
            await world.edit(files(prefer(NEW), **stages))
            await eventually(in_stage(leader, "canary"), seconds=60, what="the canary")
            candidate = leader.policies.rollout.status.candidate
            await eventually(
                lambda: standby.policies.rollout.status.candidate == candidate, seconds=60
            )
            assert revision_of(standby) == before
            assert "does not lead" in standby.policies.rollout.status.paused
            assert standby.kernel.schedulers.canary is None
            leader.request_stop()
            await eventually(standby.leadership.leading.is_set, seconds=60)
            await eventually(in_stage(standby, "canary"), seconds=60, what="the canary again")
            status = standby.policies.rollout.status
            assert (status.candidate, status.base) == (candidate, before)
            assert status.shadow is None
            so_far = len(stream.made)
            await eventually(lambda: len(stream.made) > so_far + 20 * OF_EACH)
            await world.say(promote=candidate)
            await eventually(lambda: revision_of(standby) == candidate, what="the promotion")
        await check(world, stream)


@LATER
async def test_a_canary_of_some_namespaces_decides_no_pods_of_others(world: World) -> None:
    """And one of no namespace that there is stands still, and says so."""
    for name in ("default", "team-a"):
        labels = {"metadata": {"labels": {"canary": "yes" if name == "team-a" else "no"}}}
        with contextlib.suppress(Conflict, AlreadyExists):
            await world.cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        await world.cluster.request("PATCH", f"/api/v1/namespaces/{name}", labels)

    def stages(value: str) -> dict[str, Any]:
        selector = {"matchLabels": {"canary": value}}
        return {"canary": {"namespaceSelector": selector, "steps": STEPS[1:]}}

    await world.edit(files(prefer(OLD), **stages("never")))
    stream = Stream(world.cluster)
    async with scheduler(world) as app:
        before = revision_of(app)
        async with stream.flowing():
            await world.edit(files(prefer(NEW), **stages("yes")))
            note = await world.until_told("PolicyInconclusive")
            assert "decisions: 0 of 20" in note
            assert revision_of(app) == before
            await world.say(promote=app.policies.rollout.status.candidate)
            await eventually(lambda: revision_of(app) != before, what="the promotion")
            # Now those of `team-a`.
            before = revision_of(app)
            await world.edit(files(prefer(OLD), **stages("yes")))
            await eventually(in_stage(app, "canary"), seconds=60, what="the canary")
            for number in range(100):
                made = pod(f"a-{number}", cpu="1m")
                made["metadata"]["namespace"] = "team-a"
                await world.cluster.request("POST", "/api/v1/namespaces/team-a/pods", made)
            await eventually(
                lambda: revision_of(app) != before, seconds=60, what="the end of the canary"
            )
            canary, control = (
                app.policies.rollout.status.canary,
                app.policies.rollout.status.control,
            )
        assert canary is not None
        assert control is not None
        assert canary.decisions >= 20
        assert canary.owners + control.owners <= 100  # of several hundred pods
        await check(world, stream)


@HERE
async def test_an_edit_that_is_made_while_no_scheduler_runs_goes_through_its_stages(
    world: World,
) -> None:
    """And a scheduler that starts once more goes on in the stage that was begun."""
    stages = {"shadow": SHADOW, **ENDLESS}
    stream = Stream(world.cluster)
    await world.edit(files(prefer(OLD), **stages))
    async with scheduler(world) as app:
        before = revision_of(app)
        await eventually(lambda: app.policies.rollout.describe()["last_good"] == before)
    await world.edit(files(prefer(NEW), **stages))
    async with scheduler(world) as app, stream.flowing():
        assert revision_of(app) == before
        await eventually(in_stage(app, "shadow"), seconds=60, what="the shadow")
        await eventually(in_stage(app, "canary"), seconds=60, what="the canary")
        candidate = app.policies.rollout.status.candidate
    async with scheduler(world) as app:
        assert revision_of(app) == before
        async with stream.flowing():
            await eventually(in_stage(app, "canary"), seconds=60, what="the canary again")
            assert app.policies.rollout.status.shadow is None
            await world.say(promote=candidate)
            await eventually(lambda: revision_of(app) == candidate, what="the promotion")
        await check(world, stream)
    # What is in force is what a start finds, whatever is on its way.
    async with scheduler(world) as app:
        assert revision_of(app) == candidate
