"""A simulated world: an API server, replicas of the scheduler, users, faults, and what must hold.

Owns putting the parts together, and the check of every step: each binding that the API server
accepts is looked at on the spot, with the objects as they were. What may go wrong is
`faults`', what the cluster does `life`'s, what must hold `invariants`'.
"""

import gc
import hashlib
import logging
import math
import random
import traceback
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog

from devkit.cluster import DevCluster, store
from devkit.cluster.faults import Fault
from devkit.cluster.front_end import FrontEnd
from devkit.faults import names, policies
from devkit.faults.agreement import contradictions
from devkit.faults.companions import (
    EXTENDER,
    PROMETHEUS,
    Companion,
    ExtenderServer,
    PrometheusServer,
)
from devkit.faults.disk import Disk, HostLogWriter
from devkit.faults.hosts import Host, Simulator
from devkit.faults.invariants import (
    ALWAYS,
    AT_BINDING,
    AT_EVICTION,
    Binding,
    Eviction,
    Objects,
    Tenure,
    Violation,
)
from devkit.faults.invariants.facts import is_over, key_of, nominated_node, priority_of
from devkit.faults.life import Life, run_seconds
from devkit.faults.network import KEEPALIVE_SECONDS, End, Network, Weather
from devkit.faults.reached import watching
from devkit.faults.sandbox import SimulatedPool, Trouble
from devkit.faults.shadowing import make_shadow
from engine.app import App, PolicyParts, Settings
from engine.core.manifests.kinds import PODS
from engine.io.facts import learned
from engine.io.facts.learned import LearnedConfigMap
from engine.io.informers import OTHER_OBJECTS
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.io.leader_election import LeadershipLost, LeaseSettings
from engine.policy.sandbox.process import SandboxEvaluator
from engine.recording.recorder import Recorder
from engine.rollout.control import ConfigMapControl
from engine.rollout.last_good import ConfigMapStore, DirectoryStore, Stores
from engine.rollout.sources import ConfigMapSource
from engine.rollout.trial import CandidateStages

Json = dict[str, Any]

_STATE: Final = Path("/state")
_PORT: Final = 6443
#: Virtual seconds without faults after which everything has to be in order: a pod that no event
#: wakes is tried again after `max_unschedulable`, and some things take several rounds.
REST_SECONDS: Final = 900.0
#: What a replica may not know yet.
_NEWS_SECONDS: Final = 5.0
#: Pods that came and went between two looks, and the backoff of a first error.
_MORE_PODS: Final = 20
_BACKOFF_SECONDS: Final = 2.0
_LOG_LINES: Final = 200


@dataclass(frozen=True, slots=True)
class Plan:
    """What a seed has chosen.

    Attributes:
        seconds: Virtual seconds of faults; a rest follows.
        replicas: How many schedulers there are.
        lease: Its times.
        features: Of `life.FEATURES`.
        faults: Names of kinds of faults.
        pace: Mean seconds between two changes of the users.
        every: Mean seconds between two faults.
        nodes: At the beginning.
        pieces: See `Weather`.
        servers: How many API servers there are.
        rest: Virtual seconds without faults and changes after that.
    """

    seed: int
    seconds: float
    replicas: int = 2
    lease: tuple[float, float, float] = (15.0, 10.0, 2.0)
    features: frozenset[str] = frozenset()
    faults: frozenset[str] = frozenset()
    pace: float = 5.0
    every: float = 5.0
    nodes: int = 6
    pieces: int = 0
    servers: int = 1
    rest: float = REST_SECONDS


@dataclass(slots=True)
class Outcome:
    """What became of a world.

    Attributes:
        violations: What must not be, in order.
        digest: Of every byte that went over the network, and when.
        faults: That happened, by kind.
        log: The last lines that the processes logged.
        seconds: Virtual, of all.
        counts: Of what else happened.
        reached: Transitions of the scheduler's state machines (`reached`).
    """

    plan: Plan
    violations: list[Violation] = field(default_factory=list)
    digest: str = ""
    faults: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    log: deque[str] = field(default_factory=lambda: deque(maxlen=_LOG_LINES))
    seconds: float = 0.0
    reached: Counter[str] = field(default_factory=Counter)


class Backup(NamedTuple):
    """The store at one moment, and how many bindings there were."""

    store: store.Backup
    bindings: int


class Replica:
    """A scheduler's place: the process in it may come and go."""

    def __init__(self, world: "World", name: str) -> None:
        self.name = name
        self._world = world
        self._times = 0
        self.disk = Disk(world.count)
        self.host: Host
        self.app: App
        self.trouble: Trouble
        self.recorder: Recorder | None = None
        self.pool: SimulatedPool
        self.start()

    @property
    def is_running(self) -> bool:
        """True while there is a process."""
        return not self.host.is_dead

    def start(self) -> None:
        """Begin a process."""
        world = self._world
        self._times += 1
        identity = f"{self.name}-{self._times}"
        rng = world.stream(f"replica {identity}")
        host = self.host = Host(world.simulator, world.network, identity)
        self.trouble = Trouble(rng, world.count)
        self.app = self._make_app(host, identity, rng)
        running = host.start(self.app.run())
        running.add_done_callback(partial(self._ended, host))

    def kill(self) -> None:
        """End the process at once."""
        self.host.kill()

    def _ended(self, host: Host, running: Any) -> None:
        world = self._world
        if self.recorder is not None and self.host is host and not host.is_dead:
            self.recorder.close()
        error = None if running.cancelled() else running.exception()
        if isinstance(error, LeadershipLost):
            world.counts["lease lost"] += 1
        elif error is not None:
            text = "".join(traceback.format_exception(error))
            world.violate("no unexpected exception", self.name, f"the process ended: {text}")
        if not host.is_dead:
            world.simulator.after(0.0, partial(self._bury, host))

    def _bury(self, host: Host) -> None:
        if self.host is host and not host.is_dead:
            self.kill()
            self._world.restart_later(self, 1.0)

    def _make_app(self, host: Host, identity: str, rng: random.Random) -> App:
        pool = self.pool = SimulatedPool(host.clock, self.trouble)
        client = ApiClient(Endpoint(server=f"http://127.0.0.1:{_PORT}"), rng=rng, clock=host.clock)
        duration, deadline, period = self._world.plan.lease
        stages = CandidateStages(
            build=policies.built,
            make_evaluator=lambda bundle: SandboxEvaluator(bundle.program, pool),
            run_tests=lambda _: [],
        )
        self.recorder = self._make_recorder(host)
        return App(
            client,
            policies=PolicyParts(
                source=ConfigMapSource(client, names.NAMESPACE, names.POLICIES),
                stages=stages,
                store=Stores(
                    ConfigMapStore(client, names.NAMESPACE, names.LAST_GOOD),
                    DirectoryStore(_STATE, self.disk),
                ),
                control=ConfigMapControl(client, names.NAMESPACE, names.CONTROL),
                shadow=make_shadow(host, stages.make_evaluator),
            ),
            decision_log=self.recorder,
            learned_store=LearnedConfigMap(
                client, names.NAMESPACE, names.POLICIES + learned.SUFFIX
            ),
            settings=Settings(
                lease=LeaseSettings(names.LEASE, names.NAMESPACE, duration, deadline, period),
                hostname=self.name,
                identity=identity,
            ),
            clock=host.clock,
        )

    def _make_recorder(self, host: Host) -> Recorder | None:
        folder = self._world.log_folder
        if folder is None:
            return None
        kinds = [resource.plural for resource, _ in OTHER_OBJECTS]
        writer = HostLogWriter(host, self.disk, folder / self.name)
        recorder = Recorder(writer, host.clock, kinds)
        recorder.start()
        return recorder


class ApiServer:
    """One of the API servers, on *host*.

    `down --start--> serving --crash--> down`.
    """

    def __init__(self, host: Host, front_end: FrontEnd) -> None:
        self.host = host
        self.front_end = front_end
        self.is_serving = False
        self._down_until = 0.0

    async def start(self) -> None:
        """Serve, unless it is to be down."""
        if self.host.simulator.now >= self._down_until:
            self.is_serving = True
            await self.front_end.start()

    def crash(self, seconds: float) -> None:
        """Go down for so many seconds at least."""
        now = self.host.simulator.now
        self._down_until = max(self._down_until, now + seconds)
        if self.is_serving:
            self.is_serving = False
            self.host.start(self.front_end.crash())
        self.host.later(seconds, self._recover)

    def _recover(self) -> None:
        if not self.is_serving:
            self.host.start(self.start())


class World:
    """A world that follows *plan*. `new --run--> over`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.outcome = Outcome(plan)
        self.simulator = Simulator(self.stream("turns"))
        self.network = Network(self.simulator, self.stream("network"))
        self.network.on_piece = self._saw
        self.server = Host(self.simulator, self.network, "api-server")
        self.cluster = DevCluster(port=_PORT, clock=self.server.clock, seed=plan.seed)
        self.servers = self._make_servers()
        self.companions = self._make_companions()
        self._acting_for = ""
        self.counts = self.outcome.counts
        self.replicas: list[Replica] = []
        self.bindings: list[Binding] = []
        self.tenures: list[Tenure] = []
        self.life = Life(
            self.server,
            self.cluster,
            self.stream("life"),
            pace=plan.pace,
            features=plan.features,
        )
        #: False from `heal` on: no further faults are to happen.
        self.is_faulty = True
        self._is_over = False
        self._digest = hashlib.blake2b(digest_size=16)
        self._number = 0
        self.good_files: Mapping[str, str] = {}
        self._lease: tuple[str, float, float] | None = None
        self._most_cpus: dict[str, int] = {}
        self.is_restoring = False
        #: Where decision logs are written while the world runs, if they are.
        self.log_folder: Path | None = None
        #: Groups of which a restore has forgotten a part: nothing can bind them whole again.
        self.torn: set[str] = set()
        self._pods: dict[str, str] = {}  # uid -> key, of those that were there at the last look
        self.gone: dict[str, float] = {}  # uids and keys of pods
        self.ended: set[str] = set()  # uids of pods that ran to their end
        # Pods whose binding arrived when the replica that sent it had given it up, see `Binder`.
        self._bound_late: set[str] = set()
        self._closed: dict[str, float] = {}  # nodes that take no pods, and since when
        #: True while everything works, and did long before.
        self.is_calm = False
        self.evicted_at = 0.0
        self._errors: tuple[Mapping[str, float], float] = ({}, 0.0)

    def _make_servers(self) -> list[ApiServer]:
        servers = [ApiServer(self.server, self.cluster.front_ends[0])]
        for number in range(1, self.plan.servers):
            host = Host(self.simulator, self.network, f"api-server-{number + 1}")
            servers.append(ApiServer(host, self.cluster.add_front_end(_PORT)))
        return servers

    def _make_companions(self) -> dict[str, Companion]:
        made: list[Companion] = []
        if self.has("extender"):
            host = Host(self.simulator, self.network, EXTENDER)
            made.append(ExtenderServer(host, self.stream(EXTENDER), self.count, self._bind_for))
        if self.has("facts"):
            host = Host(self.simulator, self.network, PROMETHEUS)
            rng = self.stream(PROMETHEUS)
            made.append(PrometheusServer(host, rng, self.count, self.cluster))
        return {companion.name: companion for companion in made}

    def has(self, feature: str) -> bool:
        """True if the cluster has *feature* of `life.FEATURES`."""
        return feature in self.plan.features

    def stream(self, name: str) -> random.Random:
        """A source of chance of its own: what is asked of one does not change another."""
        return random.Random(f"{self.plan.seed}/{name}")

    # --- running ------------------------------------------------------------------------------

    def run(self, *phases: Callable[[], None]) -> Outcome:
        """Begin, and let *phases* happen until the first violation; returns what came of it."""
        # What nothing refers to is collected at the end, not in the middle of something.
        gc.disable()
        with _listening(self), watching(self.outcome.reached):
            try:
                for phase in (self._begin, *phases):
                    if not self.outcome.violations:
                        phase()
            except Exception as error:  # a bug here, or something that goes in circles
                text = "".join(traceback.format_exception(error))
                self.violate("the simulation goes on", type(error).__name__, text)
            self._is_over = True
            self.outcome.reached.update(f"fault: {name}" for name in self.outcome.faults)
            for parts in (self.replicas, self.servers, self.companions):
                parts.clear()
            self.network.close()
            self.simulator.close()
        gc.enable()
        self.outcome.seconds = self.simulator.now
        self.outcome.digest = self._digest.hexdigest()
        return self.outcome

    def go_on(self, seconds: float) -> None:
        """Let everything happen for so many seconds, or until something must not be."""
        self.simulator.run(self.simulator.now + seconds, end=lambda: bool(self.outcome.violations))

    def _begin(self) -> None:
        self._watch_writes()
        self.network.weather = Weather(pieces=self.plan.pieces)
        self.cluster.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.NAMESPACE}}
        )
        self.restore_policies()
        self.server.start(self._serve())
        for server in self.servers[1:]:
            server.host.start(server.start())
        for companion in self.companions.values():
            companion.host.start(companion.start())
        self.restore_facts()
        self.life.begin(self.plan.nodes)
        self.go_on(0.5)
        self.replicas += [Replica(self, f"replica-{n}") for n in range(self.plan.replicas)]
        self.simulator.after(1.0, self._check_always)

    async def _serve(self) -> None:
        await self.servers[0].start()
        self.cluster.start_kubelets(
            start_delay=0.2,
            stop_delay=0.4,
            run_seconds=lambda pod: run_seconds(pod, self.life.owners),
        )

    def heal(self) -> None:
        """End all faults: from now on everything works."""
        self.is_faulty = False
        self.life.rest()
        self.cluster.faults.clear()
        # What was lost stays so: a connection that lost bytes brings no others.
        for direction in sorted(self.network.cut_off):
            self.network.join([direction], KEEPALIVE_SECONDS)
        self.network.connect_errors.clear()
        self.calm_weather()
        for connection in self.network.connections:
            connection.near.cut_after = connection.far.cut_after = -1
        for replica in self.replicas:
            replica.trouble.due.clear()
            replica.disk.state = "works"
            replica.disk.mend()
            replica.host.resume()
        self.cluster.resume_watches()
        for server in self.servers:
            server.front_end.cache.catch_up()
        for companion in self.companions.values():
            companion.due.clear()
        self.restore_facts()
        self.restore_policies()
        self.set_mode("at-once")

    # --- what faults do -----------------------------------------------------------------------

    def count(self, fault: str) -> None:
        """A fault has happened."""
        self.outcome.faults[fault] += 1

    def add_fault(self, name: str, fault: Fault) -> None:
        """Count the requests that *fault* hits as *name*, and end it after a while."""

        def end() -> None:
            self.outcome.faults[name] += fault.hits
            self.cluster.faults.remove(fault)

        self.simulator.after(60.0, end)

    def restart_later(self, replica: Replica, seconds: float) -> None:
        """Begin the process of *replica* again, in a while."""

        def restart() -> None:
            if not replica.is_running:
                replica.start()

        self.simulator.after(seconds, restart)

    def calm_weather(self) -> None:
        """The network is as it was in the beginning."""
        self.network.weather.latency = Weather().latency

    def take_backup(self) -> Backup:
        """Save what the store has, to be restored once."""
        self.is_restoring = True
        return Backup(self.cluster.store.backup(), len(self.bindings))

    def restore(self, backup: Backup) -> None:
        """Have the store forget all since *backup*; the API servers are down."""
        self.cluster.restore(backup.store)
        self.is_restoring = False
        # 1. A pod that is bound again is another one as far as bindings go.
        forgotten = self.bindings[backup.bindings :]
        self.bindings[backup.bindings :] = [
            replace(made, pod_uid=f"{made.pod_uid} before {self.simulator.now}")
            for made in forgotten
        ]
        # 2. Groups that were bound in part, or whose pods were being made.
        there = {pod["metadata"]["uid"] for pod in self.cluster.list("pods")}
        bound = {made.pod_uid for made in self.bindings}
        lost = {made.pod_uid for made in forgotten}
        self.torn |= {
            name
            for name, (_, uids) in self.life.groups.items()
            if (lost & set(uids) and bound & set(uids)) or not there.issuperset(uids)
        }
        # 3. The lease: that of the last holder is over by now.
        if self._lease is not None:
            self.tenures.append(Tenure(*self._lease))
            self._lease = None
        # 4. What users had written in the meantime, they write again once they notice.
        if not self.is_faulty:
            self.restore_policies()
            self.restore_facts()
            self.set_mode("at-once")

    def next_number(self) -> int:
        """A number that no edit has had."""
        self._number += 1
        return self._number

    def take_lease_away(self, holder: str) -> bool:
        """Let *holder* have the lease, or delete it if that is ""; False if there is none.

        Who had it knows nothing of that yet, and may act until its time is up.
        """
        found = self.cluster.get("leases", names.LEASE, names.NAMESPACE)
        if found is None:
            return False
        if self._lease is not None:
            self.tenures.append(Tenure(*self._lease))
            self._lease = None
        if not holder:
            self.cluster.delete("leases", names.LEASE, names.NAMESPACE)
            return True
        seconds = max(1, round(self.plan.lease[0]))
        spec = {**found["spec"], "holderIdentity": holder, "leaseDurationSeconds": seconds}
        self.cluster.update("leases", {**found, "spec": spec})
        return True

    def write_facts(self, data: Mapping[str, str] | None) -> None:
        """Write the facts document, or delete it."""
        self._edit_map(names.FACTS, data)

    def restore_facts(self) -> None:
        """Write a whole facts document, if the cluster has facts."""
        if self.has("facts"):
            self.write_facts({"nodes.json": policies.FACTS_DOCUMENT})

    def edit(self, files: Mapping[str, str] | None) -> None:
        """Write the policies, or delete them."""
        self._edit_map(names.POLICIES, files)

    def delete_last_good(self) -> bool:
        """Delete the ConfigMap of the last good policies; False if there is none."""
        name = names.LAST_GOOD
        is_there = self.cluster.get("configmaps", name, names.NAMESPACE) is not None
        self._edit_map(name, None)
        return is_there

    def _edit_map(self, name: str, data: Mapping[str, str] | None) -> None:
        if data is not None:
            self._write_map(name, data)
        elif self.cluster.get("configmaps", name, names.NAMESPACE) is not None:
            self.cluster.delete("configmaps", name, names.NAMESPACE)

    def restore_policies(self) -> None:
        """Write good ones."""
        self.edit_well("back")

    def edit_well(self, name: str) -> None:
        """Write the good ones of the edit *name*, which are to be in force in the end."""
        self.good_files = policies.files_of(name, self.next_number(), self.plan.features)
        self.edit(self.good_files)

    def set_mode(self, mode: str) -> None:
        """Write how edits are rolled out."""
        self._write_map(names.CONTROL, {"mode": mode})

    def _write_map(self, name: str, data: Mapping[str, str]) -> None:
        found = self.cluster.get("configmaps", name, names.NAMESPACE)
        if found is None:
            self.cluster.create(_config_map(name, data))
        else:
            self.cluster.update("configmaps", {**found, "data": dict(data)})

    # --- what must hold -----------------------------------------------------------------------

    def violate(self, rule: str, about: str, text: str) -> None:
        """Take note of something that must not be."""
        if self._is_over:
            return
        self.outcome.violations.append(
            Violation(rule, about, f"at {self.simulator.now:.3f}: {text}")
        )

    def objects(self) -> Objects:
        """Those of the API server, now."""
        listed = self.cluster.list
        return Objects(
            nodes=listed("nodes"),
            pods=listed("pods"),
            claims=listed("resourceclaims.resource.k8s.io"),
            slices=listed("resourceslices.resource.k8s.io"),
            volumes=listed("persistentvolumes"),
            volume_claims=listed("persistentvolumeclaims"),
            budgets=listed("poddisruptionbudgets.policy"),
            events=listed("events"),
            storage_classes=listed("storageclasses.storage.k8s.io"),
            device_classes=listed("deviceclasses.resource.k8s.io"),
        )

    def _watch_writes(self) -> None:
        api = self.cluster.api
        bind, update, delete = api.bind, api.update, api.delete

        def checked_bind(namespace: str, name: str, body: Any, **options: Any) -> Any:
            before = self.objects()
            version = bind(namespace, name, body, **options)
            by = self._caller()
            if by and not options.get("dry_run"):
                self._bound(version.manifest, by, before)
            return version

        def seen_update(kind: Any, namespace: str, name: str, *rest: Any, **options: Any) -> Any:
            version, is_new = update(kind, namespace, name, *rest, **options)
            self._lease_written(kind, name, version)
            self._node_written(kind, version)
            return version, is_new

        create = api.create

        def seen_create(kind: Any, *rest: Any, **options: Any) -> Any:
            version = create(kind, *rest, **options)
            self._lease_written(kind, version.manifest["metadata"]["name"], version)
            self._node_written(kind, version)
            return version

        def checked_delete(kind: Any, namespace: str, name: str, *rest: Any, **options: Any) -> Any:
            before = self.cluster.get(kind.plural, name, namespace) if kind is PODS else None
            found = delete(kind, namespace, name, *rest, **options)
            if before is not None and self._caller():
                self._evicted(before)
            if kind.plural == "nodes":
                self._closed[name] = self.simulator.now
            return found

        api.bind = checked_bind  # type: ignore[method-assign]
        api.delete = checked_delete  # type: ignore[method-assign]
        api.update = seen_update  # type: ignore[method-assign]
        api.create = seen_create  # type: ignore[method-assign]

    def tenures_so_far(self) -> list[Tenure]:
        """Those that have ended, and the one under way."""
        return [*self.tenures, *([Tenure(*self._lease)] if self._lease is not None else [])]

    @property
    def leaders(self) -> list[Replica]:
        """The replicas that lead; one, if all is well."""
        return [
            one for one in self.replicas if one.is_running and one.app.leadership.leading.is_set()
        ]

    def _caller(self) -> str:
        """The identity of the replica whose request is being carried out."""
        if self._acting_for:
            return self._acting_for
        end = self.cluster.caller
        return end.peer.host.name if isinstance(end, End) else ""

    def _bind_for(self, by: str, namespace: str, name: str, binding: Json) -> None:
        """Bind a pod, as an extender does for the replica *by*. Raises `ApiStatus`."""
        self._acting_for = by
        try:
            self.cluster.api.bind(namespace, name, binding)
        finally:
            self._acting_for = ""

    def _node_written(self, kind: Any, version: Any) -> None:
        if kind.plural == "nodes":
            node = version.manifest
            uid, cpus = node["metadata"]["uid"], int(node["status"]["allocatable"]["cpu"])
            self._most_cpus[uid] = max(cpus, self._most_cpus.get(uid, 0))
            name = node["metadata"]["name"]
            if not (node.get("spec") or {}).get("unschedulable"):
                self._closed.pop(name, None)
            else:
                self._closed.setdefault(name, self.simulator.now)

    def _as_known(self, before: Objects) -> Objects:
        """*before*, with what each node has had at most: that it shrank need not be known yet."""
        nodes = []
        unforeseen = self.life.bound_by_hand.keys() | self._bound_late
        pods = [pod for pod in before.pods if pod["metadata"]["uid"] not in unforeseen]
        for node in before.nodes:
            status, most = node["status"], str(self._most_cpus[node["metadata"]["uid"]])
            allocatable = {**status["allocatable"], "cpu": most}
            nodes.append({**node, "status": {**status, "allocatable": allocatable}})
        return replace(before, nodes=nodes, pods=pods)

    def _bound(self, pod: Json, by: str, before: Objects) -> None:
        metadata, node = pod["metadata"], pod["spec"]["nodeName"]
        self.counts["bound"] += 1
        key = f"{metadata['namespace']}/{metadata['name']}"
        made = Binding(self.simulator.now, metadata["uid"], key, node, by)
        self.bindings.append(made)
        for one in self.replicas:
            if one.host.name == by and not one.app.cache.is_assumed(metadata["uid"]):
                self._bound_late.add(metadata["uid"])
        for rule in AT_BINDING.values():
            for found in rule(made, self._as_known(before)):
                if self.cluster.get("nodes", node) is not None:  # gone: that could not be known yet
                    self.violate(*found)

        found_node = self.cluster.get("nodes", node)
        is_open = found_node is not None and not found_node["spec"].get("unschedulable")
        since = self.simulator.now - self._closed.get(node, math.inf)
        if self.is_calm and not is_open and since > _NEWS_SECONDS:
            text = f"bound to `{node}`, which is gone or cordoned since {since:.1f} s"
            self.violate("a pod is bound to a node that takes pods", key, text)

    def _evicted(self, victim: Json) -> None:
        """A replica has deleted a pod: for another one, that is more important."""
        if victim["metadata"].get("deletionTimestamp"):
            return
        self.counts["evicted"] += 1
        self.evicted_at = self.simulator.now
        node, key = victim["spec"].get("nodeName", ""), key_of(victim)
        if not node:  # its binding was on the way
            self.life.withdrawn[victim["metadata"]["uid"]] = self.simulator.now
        objects = self.objects()
        # Of a group, the first pod's nomination is sure to be written before. A pod that is being
        # prepared is nominated, too, and may be less important.
        nominated = [
            pod
            for pod in objects.pending()
            if nominated_node(pod) and priority_of(pod) > priority_of(victim)
        ]
        here = [pod for pod in nominated if nominated_node(pod) == node]
        others = max(self.life.bound_by_hand.values(), default=-math.inf)
        # The pod that is helped may have been bound by another program, between two evictions.
        if not nominated and self.is_calm and self.simulator.now - others > _NEWS_SECONDS:
            text = "no pod that is more important is nominated"
            self.violate("a pod is evicted for another one", key, text)
        if not here:
            return
        preemptor = max(here, key=priority_of)
        eviction = Eviction(self.simulator.now, key_of(preemptor), node, (key,))
        # What budgets allowed when it was decided is not known any more.
        for rule in AT_EVICTION.values():
            for found in rule(eviction, Objects(pods=[preemptor, victim])):
                self.violate(*found)

    def _lease_written(self, kind: Any, name: str, version: Any) -> None:
        if kind.plural != "leases" or name != names.LEASE or not self._caller():
            return
        spec = version.manifest["spec"]
        holder, now = spec.get("holderIdentity") or "", self.simulator.now
        how = "taken after it was given back" if self.tenures else "taken new"
        if self._lease is not None:
            before, since, until = self._lease
            if before == holder:
                self._lease = holder, since, now + self.plan.lease[0]
                return
            self.tenures.append(Tenure(before, since, min(until, now)))
            how = "taken after it expired"
        self.outcome.reached[f"lease: {how if holder else 'given back'}"] += 1
        self.counts["leader changes"] += 1
        self._lease = (holder, now, now + self.plan.lease[0]) if holder else None

    def _check_always(self) -> None:
        objects = self.objects()
        self.note_gone(objects)
        self._check_errors(objects)
        for rule in ALWAYS.values():
            for found in rule(objects):
                self.violate(*found)
        for replica in self.replicas:
            if replica.is_running and replica.app.leadership.leading.is_set():
                there = self.network.count_from(replica.host)
                for found in contradictions(replica.app, there):
                    self.violate(found.rule, found.about, f"{replica.name}: {found.text}")
                elector = replica.app.leadership.elector
                if self.is_calm and elector is not None and not elector.may_act:
                    text = "it leads, and its time is up"
                    self.violate("nothing fails without a fault", replica.name, text)
        self.simulator.after(self.plan.pace, self._check_always)

    def note_gone(self, objects: Objects) -> None:
        """Take note of pods that are not there any more, or hold nothing any more."""
        self.ended.update(pod["metadata"]["uid"] for pod in objects.pods if is_over(pod))
        there = {pod["metadata"]["uid"]: key_of(pod) for pod in objects.pods}
        for uid in self._pods.keys() - there.keys():
            self.gone[uid] = self.gone[self._pods[uid]] = self.simulator.now
        self._pods = there

    def attempts(self, *results: str) -> dict[str, float]:
        """How many attempts each replica has made; those with one of *results*, if given."""
        return {
            one.host.name: sum(
                sample.value
                for family in one.app.env.metrics.schedule_attempts.collect()
                for sample in family.samples
                if sample.name.endswith("_total")
                and (not results or sample.labels["result"] in results)
            )
            for one in self.replicas
        }

    def _check_errors(self, objects: Objects) -> None:
        """A pod whose attempt met an error is tried again after its backoff, not before."""
        pods = sum(1 for _ in objects.pending())
        now, errors = self.simulator.now, self.attempts("error")
        before, since = self._errors
        self._errors = errors, now
        most = (pods + _MORE_PODS) * (now - since + _BACKOFF_SECONDS)
        for name, count in errors.items():
            if count - before.get(name, 0) > most:
                text = f"{count - before.get(name, 0):g} errors in {now - since:.1f} s, {pods} pods"
                self.violate("failed attempts back off", name, text)

    # --- the trace ----------------------------------------------------------------------------

    def _saw(self, end: End, data: bytes) -> None:
        head = f"{self.simulator.now!r} {end.peer.host.name} {end.host.name} ".encode()
        self._digest.update(head + data)
        self.counts["pieces"] += 1


def _config_map(name: str, data: Mapping[str, str]) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": names.NAMESPACE},
        "data": dict(data),
    }


class _listening:
    """What is logged as an error while a world runs is a violation."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __enter__(self) -> None:
        world = self._world

        def take(_: Any, level: str, event: Any) -> Any:
            if world._is_over:
                raise structlog.DropEvent
            host = world.simulator.running
            name = "" if host is None else host.name
            world.outcome.log.append(f"{world.simulator.now:.3f} {name} {level} {event}")
            if level in ("error", "critical") and event["event"] not in _EXPECTED_ERRORS:
                error = event.pop("exc_info", None)
                if isinstance(error, BaseException):
                    event["error"] = "".join(traceback.format_exception(error))
                world.violate("no unexpected exception", str(event.pop("event")), str(event))
            if world.is_calm and event.get("event") in _NOT_WHEN_CALM:
                world.violate("nothing fails without a fault", name, str(event))
            raise structlog.DropEvent

        self._before = structlog.get_config()
        structlog.configure(
            processors=[structlog.processors.format_exc_info, take],
            wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
            cache_logger_on_first_use=False,
        )

    def __exit__(self, *_: object) -> None:
        structlog.configure(**self._before)


#: What is logged as an error and is none of the scheduler's: bad texts, and policies that no
#: sandbox starts with or that cannot be read. What is in force in the end is checked.
_EXPECTED_ERRORS: Final = frozenset(
    {
        "No usable policies: every pod waits",
        "No usable policies: running the built-in ones alone",
        "Not even the built-in policies load",
        "Policies rejected",
        "The built-in policies failed their trial",
        "Policies rolled back",
        "Policies that failed their trial stay in force: there are no others",
        "The last good policies do not load any more",
        "Watch refused",
        "Could not list",
        "Too old to decide by; pods that depend on it are held",
        "The last good policies failed their trial and stay in force",
        "What was saved still cannot be read; it is not overwritten",
    }
)
#: What is logged as a warning, and has no reason while everything works.
_NOT_WHEN_CALM: Final = frozenset(
    {
        "Skipped a malformed object",
        "Watch sent a line that is not an event",
        "Could not list",
        "Watch failed",
        "Watch expired, listing again",
        "Cannot get the lease",
    }
)
