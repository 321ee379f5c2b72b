"""One run of a scheduler through every trouble that an alert is about, scraped by Prometheus.

The scheduler, its sandboxes and Prometheus are real; the API server is the embedded one, whose
faults make the rest. Alerts are those of `deploy/monitoring/alerts.yaml` without the time that they
wait before they fire.
"""

import asyncio
import contextlib
import itertools
import json
import math
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from devkit.cluster import DevCluster, make_node, make_pod
from engine.app import App
from engine.io.leader_election import LeaseSettings
from engine.lib.clock import SystemClock
from engine.rollout.control import SUFFIX
from tests.builders import HOSTNAME
from tests.engine.app import harness
from tests.engine.app.harness import edit, namespace, node_of, placements, scheduler
from tests.engine.io.facts.prometheus_server import Prometheus, free_port
from tests.storage_builders import claim, storage_class, uses, volume
from tests.waiting import eventually, pace

ROOT: Final = Path(__file__).parents[2]
ALERTS: Final = ROOT / "deploy" / "monitoring" / "alerts.yaml"
#: What kubernetes-mixin selects.
JOB: Final = "kube-scheduler"
HOUR: Final = 3600.0
SECONDS: Final = 60.0
_RESTARTS: Final = 3
#: Pods that fit are to be bound within this.
OBJECTIVE: Final = 5.0

CONFIG: Final = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint: {enabled: [{name: mine, weight: 1000}]}
- schedulerName: slow
  plugins:
    multiPoint: {enabled: [{name: slow}]}
"""
#: A profile that an edit takes away.
FORMER: Final = "- schedulerName: former\n"
POLICY: Final = '''"""Prefers a node, fails for some pods, and has others wait.

{comment}
"""

def filter(pod, node):
    if pod.labels.get("wanted") == "failure":
        fail("as wanted")
    return None

def score(pod, node):
    heat = node.facts["heat"]
    return 100 if node.name == "{node}" and heat != None else 0

def permit(pod, group):
    if pod.labels.get("wanted") == "wait":
        return wait(1, "as wanted")
    return None
'''
# One operation of the interpreter that never ends: no limit on steps stops it.
SLOW: Final = '''"""Runs into its deadline for some pods."""

def filter(pod, node):
    if pod.labels.get("wanted") == "delay":
        x = 3
        for i in range(60):
            x = x * x
    return None
'''
#: What one pod may have.
SLOT: Final = "example.com/slot"
#: A tree in which one queue may have next to nothing, two take from each other, one is full.
TREE: Final[Mapping[str, Any]] = {
    "apiVersion": "starsched.dev/v1",
    "kind": "QueueTree",
    "policy": "by_name",
    "queues": {"greedy": {}, "hungry": {}, "ping": {}, "pong": {}, "full": {}},
    "limits": {"minRuntime": "0s"},
    "namespaces": {"label": "example.com/queue"},
}
BY_NAME: Final = '''"""Gives the half of the cluster to one queue."""

def queue_of(pod):
    return pod.labels.get("queue")

def shares(parent, children):
    half = parent.share.get("cpu", 0) // 2
    return {q.name: {"cpu": {"greedy": 1, "hungry": half}.get(q.name, 0)} for q in children}

def admit(request, path):
    return hold("is full", token = "QuotaReached") if path[0].name == "full" else None

def reclaim(taker, victim):
    takes = {"ping": "pong", "pong": "ping"}
    return 0 if takes.get(taker.queue.name) == victim.queue.name else None
'''
#: Cores are shared with other tests: no edit is to fail for the time that it takes.
RUNTIME: Final[Mapping[str, Any]] = {
    "apiVersion": "starsched.dev/v1",
    "kind": "PolicyRuntime",
    "limits": {"deadline": "500ms"},
    "fallback": {"errorRate": 0.01, "minDecisions": 2, "lostTime": "1h"},
    "rollout": {
        "shadow": {"duration": "1s", "compared": 5, "cores": "50%"},
        "gates": {"maxMoved": "100%", "latency": 1000, "maxWithoutProfile": 100},
    },
}


class ServerClock(SystemClock):
    """The API server's time, which is behind while pods are to be older than they are."""

    behind = 0.0

    def now(self) -> float:
        return super().now() - self.behind


def alerts() -> list[dict[str, Any]]:
    """The shipped alerts."""
    (group,) = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def has_data(series: list[dict[str, Any]]) -> bool:
    """True if an answer of Prometheus has a number in it."""
    return any(not math.isnan(float(one["value"][1])) for one in series)


class World:
    """A cluster, its scheduler, and what Prometheus says of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = CONFIG + FORMER
        self.port = free_port()
        at_once = [{k: v for k, v in one.items() if k != "for"} for one in alerts()]
        rules = {"groups": [{"name": "alerts", "rules": at_once}]}
        self.prometheus = Prometheus(folder, f"127.0.0.1:{self.port}", job=JOB, rules=rules)
        self.clock = ServerClock()
        self.cluster = DevCluster(clock=self.clock)
        self.fired: dict[str, list[dict[str, str]]] = {}
        self.when_healthy: set[str] = set()
        self.ended_at = 0.0
        self._numbers = itertools.count()

    # --- what Prometheus says --------------------------------------------------------------

    def firing(self) -> set[str]:
        """The alerts that fire now; keeps the labels of each."""
        found = self.prometheus.query('ALERTS{alertstate="firing"}')
        for one in found:
            labels = one["metric"]
            known = self.fired.setdefault(labels["alertname"], [])
            if labels not in known:
                known.append(labels)
        return {one["metric"]["alertname"] for one in found}

    async def until_firing(self, *names: str) -> None:
        async def do_fire() -> bool:
            return set(names) <= await asyncio.to_thread(self.firing)

        await self._until(do_fire, f"{', '.join(names)} to fire")

    async def until_calm(self) -> None:
        async def is_calm() -> bool:
            return not await asyncio.to_thread(self.firing)

        await self._until(is_calm, "no alert to fire")

    async def until_shown(self, expression: str) -> None:
        """Wait until *expression* has a value."""

        async def is_shown() -> bool:
            return bool(await asyncio.to_thread(self.prometheus.query, expression))

        await self._until(is_shown, expression)

    async def until_settled(self) -> None:
        """Set `ended_at` to a time of which all is known, the troubles at the end too."""
        # A rate takes two scrapes.
        newest = "rate(starsched_binding_retries_total[1m])"
        expression = f'up{{job="{JOB}"}} == 1 and on (instance) {newest}'

        async def is_settled() -> bool:
            # A scrape that fails is known when its time-out is over, and is dated to its beginning.
            self.ended_at = time.time() - 2.0
            return bool(await asyncio.to_thread(self.prometheus.query, expression, self.ended_at))

        await self._until(is_settled, "a scrape after all troubles")

    async def _until(self, is_so: Callable[[], Awaitable[bool]], what: str) -> None:
        await eventually(is_so, seconds=SECONDS, what=what, longest_pause=0.25)

    # --- what people and controllers do ----------------------------------------------------

    def write_facts(self, measured_at: float) -> None:
        """What the source of facts says, measured at a time."""
        document = {"time": measured_at, "nodes": {"node-1": {"heat": 1}}}
        new = self.folder / "new.json"
        new.write_text(json.dumps(document))
        new.replace(self.folder / "facts.json")

    def edit(self, node: str, comment: str = "", broken: str = "") -> None:
        """Have policies that prefer *node*."""
        sources = [
            {"file": {"path": str(self.folder / "facts.json")}},
            {
                "prometheus": {
                    "url": self.prometheus.url,
                    "interval": "1s",
                    "queries": [
                        {"fact": "load", "query": "vector(1)", "about": "cluster"},
                        {"fact": "broken", "query": "sum(", "about": "cluster"},
                    ],
                }
            },
        ]
        runtime = {**RUNTIME, "facts": {"sources": sources}}
        texts = {
            "config.yaml": self.config,
            "runtime.yaml": yaml.safe_dump(runtime),
            "mine.star": POLICY.format(node=node, comment=comment) + broken,
            "slow.star": SLOW,
            "tree.yaml": yaml.safe_dump(dict(TREE)),
            "by_name.star": BY_NAME,
        }
        edit(self.cluster, texts)

    def set_mode(self, mode: str) -> None:
        """How edits are rolled out from now on."""
        made = harness.config_map({"mode": mode})
        made["metadata"]["name"] = harness.NAME + SUFFIX
        if self.cluster.get("configmaps", made["metadata"]["name"], harness.NAMESPACE) is None:
            self.cluster.create(made)
        else:
            self.cluster.update("configmaps", made)

    def pods(self, prefix: str, count: int, *, wanted: str = "", **words: Any) -> list[str]:
        """Create pods, each one unlike the others; returns their names."""
        names = [f"{prefix}-{next(self._numbers)}" for _ in range(count)]
        for name in names:
            words["labels"] = {"wanted": wanted, "name": name}
            self.cluster.create(make_pod(name, **{"cpu": "10m", "memory": "1Mi", **words}))
        return names

    async def until_placed(self, names: list[str]) -> None:
        await eventually(lambda: set(names) <= placements(self.cluster).keys(), seconds=SECONDS)

    @contextlib.asynccontextmanager
    async def scheduler(self) -> AsyncIterator[App]:
        """The scheduler; another one still holds its lease."""
        lease = LeaseSettings()
        self.cluster.create(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": lease.name, "namespace": lease.namespace},
                "spec": {
                    "holderIdentity": "another",
                    "leaseDurationSeconds": 15,
                    "renewTime": "2026-01-01T00:00:00.000000Z",
                },
            }
        )
        async with scheduler(
            self.cluster,
            from_config_map=True,
            wait=False,
            lease=lease,
            local_port=self.port,
            initial_backoff=0.2,
            max_backoff=0.5,
        ) as app:
            yield app


async def run(world: World) -> None:
    """Everything that alerts and dashboards are about, in one life of a scheduler."""
    cluster = world.cluster
    async with cluster:
        cluster.create(namespace())
        for name in ("node-1", "node-2"):
            slot = {SLOT: "1"} if name == "node-1" else None
            labels = {HOSTNAME: name}
            cluster.create(make_node(name, cpu="16", pods=1000, labels=labels, resources=slot))
        cluster.start_kubelets()
        # 1. Nobody is there; then only a standby is.
        await world.until_firing("StarschedDown")
        await without_policies(world)
        world.write_facts(time.time())
        world.edit("node-1")
        async with world.scheduler() as app:
            await world.until_firing("StarschedNoLeader")
            await asyncio.wait_for(app.leadership.leading.wait(), SECONDS)
            # 2. All is well.
            await world.until_placed(world.pods("calm", 5))
            await world.until_calm()
            await all_is_well(world, app)
            # 3. Nothing is.
            await troubles(world, app)
            await world.until_settled()
        await restarts(world)


async def without_policies(world: World) -> None:
    """A scheduler that may not read what it needs, and then finds that there is nothing."""
    faults = world.cluster.faults
    refused = faults.fail(403, verb="list", resource="configmaps", times=None)
    async with scheduler(world.cluster, from_config_map=True, wait=False, local_port=world.port):
        await world.until_firing("StarschedSavedStateUnread")
        faults.remove(refused)
        await world.until_firing("StarschedNoPolicies")


async def all_is_well(world: World, app: App) -> None:
    """An edit through its stages, and pods of every kind."""
    cluster = world.cluster
    cluster.faults.fail(409, verb="create", resource="pods/binding", times=1)
    world.edit("node-2")
    before = app.policies.rollout.active.bundle.revision
    while app.policies.rollout.active.bundle.revision == before:
        await world.until_placed(world.pods("stream", 2))
        await pace(20)
    (waiting,) = world.pods("wait", 1, wanted="wait")
    await world.until_shown("scheduler_permit_wait_duration_seconds_count > 1")
    cluster.delete("pods", waiting, grace=0)
    await with_a_volume(cluster)
    # A pod that takes the place of another.
    cluster.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "urgent"},
            "value": 1000,
        }
    )
    await world.until_placed(world.pods("small", 2, cpu="12"))
    await world.until_placed(world.pods("urgent", 1, cpu="12", priorityClassName="urgent"))
    world.firing()
    world.when_healthy = world.firing()


async def with_a_volume(cluster: DevCluster) -> None:
    """A pod whose volume is bound by the scheduler; the test is the volume controller."""
    disk = volume("disk", node="node-1")
    bound = claim("data", volume="disk")
    for made in (storage_class("local"), disk, claim("data"), bound):
        for name in ("uid", "resourceVersion"):
            made["metadata"].pop(name, None)
        if made is not bound:
            cluster.create(made)
    cluster.update("persistentvolumes", disk, subresource="status")
    cluster.create(make_pod("with-volume", cpu="10m", volumes=uses("data")))

    def is_claimed() -> bool:
        disk = cluster.get("persistentvolumes", "disk")
        return bool(disk and disk["spec"].get("claimRef"))

    await eventually(is_claimed, seconds=SECONDS, what="the volume to be claimed")
    cluster.update("persistentvolumeclaims", bound)
    cluster.update("persistentvolumeclaims", bound, subresource="status")
    await eventually(lambda: node_of(cluster, "with-volume"), seconds=SECONDS)


async def troubles(world: World, app: App) -> None:
    """What each alert is about, one after the other; all go on until the end."""
    cluster = world.cluster
    # An edit that stands still. Pods keep coming, so it would pass otherwise.
    world.set_mode("paused")
    world.edit("node-1", comment="An edit that is paused.")
    await world.until_firing("StarschedRolloutPaused")
    world.set_mode("at-once")
    # Pods that came an hour ago and fit nowhere.
    world.clock.behind = HOUR
    world.pods("huge", 2, cpu="64")
    critical = {"namespace": "kube-system", "priorityClassName": "system-cluster-critical"}
    world.pods("critical", 1, cpu="64", **critical)
    world.clock.behind = 0.0
    await world.until_firing("StarschedPodsWaitingTooLong", "StarschedCriticalPodsWaiting")
    # A queue waits for what another has, and one is too far down.
    cluster.create(make_pod("greedy", cpu="10m", labels={"queue": "greedy"}))
    cluster.create(make_pod("hungry", cpu="64", labels={"queue": "hungry"}))
    deep = {"example.com/queue": "a.b.c.d.e.f.g.h.i"}
    cluster.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "deep", "labels": deep}}
    )
    await world.until_firing("StarschedQueueStarved", "StarschedQueueTreeProblem")
    # Two queues take what there is one of from each other, and a third may have nothing.
    cluster.create(make_pod("held", cpu="10m", labels={"queue": "full"}))
    for name in ("ping", "pong", "ping-again"):
        labels = {"queue": name.partition("-")[0]}
        cluster.create(make_pod(name, cpu="10m", resources={SLOT: "1"}, labels=labels))
        await world.until_placed([name])
    await world.until_firing("StarschedReclaimReversal")
    # Pods whose profile an edit takes away.
    world.pods("left", 2, cpu="64", scheduler_name="former")
    await world.until_shown('scheduler_unschedulable_pods{profile="former"} > 0')
    world.config = CONFIG
    world.edit("node-1", comment="An edit without a profile.")
    await world.until_firing("StarschedPodsWithoutProfile")
    # Policies that fail, and an edit that is in force with them.
    world.pods("failing", 4, wanted="failure")
    await world.until_firing("StarschedPolicyFailing")
    world.edit("node-1", comment="An edit that is rolled back.")
    await world.until_firing("StarschedPolicyRolledBack")
    world.edit("node-1", broken="def score(pod, node:\n")
    await world.until_shown('starsched_policy_reloads_total{result="rejected"} > 0')
    await world.until_firing("StarschedPolicyRejected")
    # Policies that are too slow.
    world.pods("slow", 6, wanted="delay", scheduler_name="slow")
    await world.until_firing("StarschedPodsThrottled", "StarschedSandboxRestarting")
    # The source of facts says what it said an hour ago.
    world.write_facts(time.time() - HOUR)
    await world.until_firing("StarschedFactsStale")
    # An API server that answers badly.
    cluster.faults.fail(500, verb="watch", resource="nodes", times=None)
    cluster.close_watches("nodes", abort=True)
    await world.until_firing("StarschedWatchFailing")
    # Rights that are gone, and a resource that could not be read for an hour.
    for verb in ("list", "watch"):
        cluster.faults.fail(403, verb=verb, resource="csidrivers*", times=None)
        cluster.faults.fail(500, verb=verb, resource="csistoragecapacities*", times=None)
    for plural in ("csidrivers", "csistoragecapacities"):
        cluster.close_watches(f"{plural}.storage.k8s.io", abort=True)
    await world.until_firing("StarschedNotReadable")
    (old,) = [
        one for one in app.watching.informers if one.resource.plural == "csistoragecapacities"
    ]
    old.currency.known_at -= HOUR
    await world.until_firing("StarschedWatchStale")
    # A budget, of a namespace without pods, as an API server with other types might have it.
    odd = {"metadata": {"name": "odd", "namespace": "empty"}, "status": {"disruptionsAllowed": "a"}}
    cluster.store_as_is("poddisruptionbudgets", {"apiVersion": "policy/v1", **odd})
    await world.until_firing("StarschedObjectNotReadable")
    refused = cluster.faults.fail(403, verb="create", resource="pods/binding", times=None)
    unwritten = cluster.faults.fail(403, verb="create", resource="events*", times=None)
    world.pods("refused", 40)
    await world.until_firing(
        "StarschedBindingRefused",
        "StarschedErrorRatio",
        "StarschedEventsDropped",
        "StarschedAttemptsFailing",
    )
    cluster.faults.remove(refused)
    cluster.faults.remove(unwritten)
    away = cluster.faults.fail(503, verb="create", resource="pods/binding", times=None)
    world.pods("late", 10)
    await world.until_firing("StarschedApiErrors")
    # Pods that were decided at once, and bound later than the objective allows.
    world.pods("later", 20)
    await world.until_shown(f"vector(time()) > {time.time() + OBJECTIVE}")
    cluster.faults.remove(away)
    await world.until_firing("StarschedSchedulingSlow")


async def restarts(world: World) -> None:
    """Processes that are killed while they lead, one after the other, at the same address."""
    world.cluster.faults.clear()
    arguments = (
        f"--kubeconfig={world.cluster.write_kubeconfig(world.folder / 'kubeconfig')}",
        "--secure-port=0",
        f"--local-port={world.port}",
        "--leader-elect-lease-duration=4s",
        "--leader-elect-renew-deadline=3s",
        "--leader-elect-retry-period=1s",
    )
    for number in range(_RESTARTS):
        with (world.folder / f"run-{number}.log").open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "workbench.cli.main", "run", *arguments),
                stdout=output,
                stderr=output,
            )
        try:
            own = f"process_start_time_seconds > {time.time() - SECONDS}"
            # The lease of the one before, which was killed, runs out first.
            for leads in (0, 1) if number else (1,):
                await world.until_shown(f"leader_election_master_status == {leads} and on () {own}")
            if number == _RESTARTS - 1:  # while it runs, as the alerts are about what does
                await world.until_firing("StarschedRestarting", "StarschedLeaderFlapping")
        finally:
            process.kill()
            await process.wait()
