"""Replays a recorded log: each decision is made again on the recorded state.

Owns the state that a log describes and the comparison of verdicts. Each decision is made on the
state in which it was recorded; then the world goes on as recorded, whatever is decided now. So one
difference does not make others, and other policies are compared on the same inputs.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry

from engine.core.caching.cache import AlreadyAssumed, Cache
from engine.core.caching.objects import object_key
from engine.core.framework.behaviors import behaviors_of
from engine.core.kernel.events import (
    NODES,
    PODS,
    CanaryChanged,
    Event,
    NodeFactsChanged,
    ObjectChanged,
    OtherFactsChanged,
    PodFactsChanged,
    PodTypeLabelsChanged,
    QueueObjectChanged,
    ReadabilityChanged,
    Reply,
    RevisionSwitched,
    VersionChanged,
)
from engine.core.kernel.kernel import Kernel
from engine.core.kernel.scheduler_selector import Canary
from engine.core.model import objects as api
from engine.core.model.clock_facts import clock_facts
from engine.core.model.fact import Facts, NodeFacts
from engine.core.model.node import Node
from engine.core.model.objects import NodeManifest, ObjectMeta
from engine.core.model.pod import Pod
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.extenders import unopposed
from engine.core.scheduling.plugins.registry import make_plugins
from engine.core.scheduling.runtime_plugin import RuntimePlugin
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.files.world import OBJECT_KINDS
from engine.lib.clock import VirtualClock
from engine.lib.time_zones import zone_of
from engine.policy.analysis import time_reads
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.config import decode_configuration
from engine.policy.evaluator import Evaluator, InProcessEvaluator
from engine.recording.entries import (
    UNRECORDED,
    Entry,
    StateHash,
    answer_of,
    assumed_text,
    digest,
    object_text,
    verdict,
    verdict_text,
)
from engine.telemetry.metrics import Metrics
from workbench.replay.decision_log import Line, LogError, making_sense, place_of

#: The record of each kind of object that a log may hold, by plural resource name.
RECORDS: Final[dict[str, Any]] = dict(OBJECT_KINDS.values())

# Members of a verdict that say how it was found, and not what becomes of the pod.
_EVIDENCE: Final = frozenset({"feasible", "rejectors"})

_Reserved = tuple[tuple[tuple[RuntimePlugin, Any], ...], Pod, str]


class OtherFacts(msgspec.Struct):
    """Facts that are not about one node."""

    cluster: Facts
    types: dict[str, Facts]
    pods: dict[str, Facts]


class Outcome(msgspec.Struct, frozen=True, rename="camel"):
    """A recorded decision, and what is decided now.

    Attributes:
        number: Of its entry.
        at: When it was made, in seconds since the epoch.
        pod: `namespace/name`.
        uid: The pod's.
        revision: Of the policies that decided then.
        recorded, replayed: What was decided, then and now.
        is_same: The two are equal, byte for byte.
        changed: The members in which they differ.
        notes: How the inputs differ from the recorded ones; empty if they are the same.
    """

    number: int
    at: float
    pod: str
    uid: str
    revision: str
    recorded: Entry
    replayed: Entry
    is_same: bool
    changed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def different_fate(self) -> tuple[str, ...]:
        """Those of `changed` that say what becomes of the pod; none if that is the same."""
        return tuple(member for member in self.changed if member not in _EVIDENCE)


class Replayer:
    """The state that a log describes, decision by decision.

    Args:
        bundle: Decides instead of the recorded policies, if given.

    Attributes:
        bundles: The policies that have decided so far, candidates left out.
    """

    def __init__(self, bundle: Bundle | None = None) -> None:
        self._other = bundle
        self._evaluator: Evaluator | None = None
        self._scheduler: Scheduler | None = None
        self._scheduler_revision = ""
        # Of the candidate that may decide some pods.
        self._candidate: Scheduler | None = None
        self._candidate_evaluator: Evaluator | None = None
        self._candidate_revision = ""
        self._clock = VirtualClock(0.0)
        self._metrics = Metrics(CollectorRegistry())
        self._is_building = False
        self._is_skipping = False
        self._needs_checkpoint = True
        self._notes: tuple[str, ...] = ()
        self._lost = 0
        self.bundles: list[Bundle] = []
        self.decisions = 0
        self.gaps = 0
        self._clear()

    def close(self) -> None:
        """End what evaluates."""
        self._end_candidate()
        if self._evaluator is not None:
            self._evaluator.close()
            self._evaluator = None

    def _clear(self) -> None:
        self._end_candidate()
        self._cache = Cache()
        self._cache.objects.behaves = behaviors_of(UNRECORDED)
        self._plugins = make_plugins(self._cache.objects, clock=self._clock)
        self._kernel = Kernel(self._cache, self._plugins, metrics=self._metrics)
        if self._scheduler is not None:
            self._report(RevisionSwitched(self._scheduler))
        self._state = StateHash()
        self._recorded_facts: frozenset[str] = frozenset()  # of the cluster, by name
        self._pending: dict[str, Pod] = {}
        self._decided: dict[str, tuple[tuple[RuntimePlugin, Any], ...]] = {}
        self._reserved: dict[str, _Reserved] = {}

    def _report(self, event: Event) -> None:
        # Nothing is carried out: the log has the results.
        self._kernel.handle(event, self._clock.monotonic())

    @property
    def kernel(self) -> Kernel:
        """The cluster as it is after the entries so far, without the pods that wait."""
        return self._kernel

    def outcomes(self, lines: Iterable[Line]) -> Iterator[Outcome]:
        """The outcome of each decision in *lines*. Raises `LogError`, `PolicyErrors`."""
        for line in lines:
            self._follow_numbers(line)
            if self._is_skipping:
                if line.event == "checkpoint":
                    self._is_skipping = False
                    self._compare_state(line)
                continue
            if line.event == "decision":
                yield self._decide(line)
                continue
            with making_sense(line):
                self._apply(line)

    # --- the state ---------------------------------------------------------------------------

    def _follow_numbers(self, line: Line) -> None:
        if line.event == "log":
            # What continues without a gap needs no checkpoint: what plugins hold is known better
            # than a checkpoint says.
            is_next = line.reason == "size" and not line.lacks
            if is_next and not self._needs_checkpoint:
                self._is_skipping = True
            else:
                self.gaps += line.reason in ("overrun", "failure")
                self._needs_checkpoint = False
                self._clear()
                self._notes = ()
        elif line.lacks:
            self._notes = (line.lacks,)

    def _compare_state(self, line: Line) -> None:
        if line.state and line.state != str(self._state):
            self._notes = (f"the state is not the recorded one (checkpoint {line.number})",)

    def _apply(self, line: Line) -> None:
        if line.at > self._clock.now():
            self._clock.advance(line.at - self._clock.now())
        match line.event:
            case "log":
                pass
            case "policies":
                self._use(line)
            case "candidate":
                self._use_candidate(line)
            case "hole":
                self._report(ObjectChanged(NODES, None, _placeholder(line.key)))
            case "fill":
                self._cache.snapshot()
                for name in line.keys:
                    self._report(ObjectChanged(NODES, _placeholder(name), None))
                self._cache.snapshot()
            case "node" | "pod" | "object" | "pending":
                self._put(line)
            case "queue":
                text = bytes(line.object)
                found = msgspec.json.decode(text)
                self._report(QueueObjectChanged(line.kind, line.key, found))
                self._state.put_queue(line.kind, line.key, text)
            case "gone":
                self._remove(line.of, line.key)
            case "assume":
                self._assume(line)
            case "forget":
                self._forget(line)
            case "facts":
                self._show_facts(line)
            case "typeLabels":
                self._report(PodTypeLabelsChanged(tuple(line.labels)))
                self._state.put("typeLabels", "", msgspec.json.encode(line.labels))
            case "kubernetes":
                self._report(VersionChanged(line.minor, line.gates))
                self._state.put_minor(line.minor, line.gates)
            case "unknown":
                self._report(ReadabilityChanged(line.kinds))
                self._state.put_unknown(line.kinds)
            case "nominations" | "promises":
                self._nominate(line)
            case "checkpoint":
                self._compare_state(line)
                if line.held:
                    count = len(line.held)
                    self._notes = (
                        f"at the checkpoint {line.number}, {count} pods on their way held volumes "
                        "or devices; what they hold is not known",
                    )
            case "lost":
                self._lost += 1
            case _:
                raise ValueError("there is no such entry")

    def _put(self, line: Line) -> None:
        text = bytes(line.object)
        match line.event:
            case "node":
                node = Node.from_raw(text)
                known = self._cache.node_info(node.name)
                old = known.node if known is not None else None
                self._report(ObjectChanged(NODES, old, node))
                self._state.put("node", node.name, text)
            case "pod":
                pod = Pod.from_raw(text)
                if not pod.node_name:
                    raise ValueError(f"pod `{pod.key}` names no node")
                self._report(ObjectChanged(PODS, None, pod))
                self._state.put("pod", pod.uid, text)
                self._pending.pop(pod.uid, None)
                self._decided.pop(pod.uid, None)
                self._reserved.pop(pod.uid, None)
            case "pending":
                pod = Pod.from_raw(text)
                self._pending[pod.uid] = pod
            case _:
                if line.kind not in RECORDS:
                    raise ValueError(f"want one of the kinds of objects, got `{line.kind}`")
                obj = api.decode(RECORDS[line.kind], text)
                before = self._cache.objects.get(line.kind, object_key(obj))
                self._report(ObjectChanged(line.kind, before, obj))
                self._state.put(line.kind, object_key(obj), text)

    def _remove(self, of: str, key: str) -> None:
        self._state.drop(of, key)
        plural, known = of, None  # type: str, Any
        if of == "node":
            info = self._cache.node_info(key)
            plural, known = NODES, info.node if info is not None else None
        elif of == "pod":
            self._pending.pop(key, None)
            self._decided.pop(key, None)
            plural, known = PODS, self._cache.get_pod(key)
        else:
            known = self._cache.objects.get(of, key)
        if known is not None:
            self._report(ObjectChanged(plural, known, None))

    def _assume(self, line: Line) -> None:
        pod = self._pending_pod(line.uid)
        if line.annotations:
            pod = pod.with_annotations(line.annotations)
        try:
            assumed = self._kernel.attempts.assume(pod, line.node)
        except AlreadyAssumed as error:
            raise ValueError(str(error)) from error
        self._kernel.queue.nominator.remove(line.uid, placed_on=line.node)
        self._state.put("pod", line.uid, assumed_text(line.node))
        reserves = self._decided.pop(line.uid, ())
        if reserves:
            self._reserved[line.uid] = (reserves, assumed, line.node)
        for plugin, state in reserves:
            if plugin.reserve(state, assumed, line.node) is not None:
                break  # the record goes on with the undoing
        self._kernel.take_instructions()

    def _forget(self, line: Line) -> None:
        reserved = self._reserved.pop(line.uid, None)
        if reserved is not None:
            reserves, assumed, node = reserved
            self._kernel.attempts.unreserve(reserves, assumed, node)
        if line.undone:
            self._kernel.attempts.forget(line.uid)
            self._state.drop("pod", line.uid)
        self._kernel.take_instructions()

    def _show_facts(self, line: Line) -> None:
        text = bytes(line.facts)
        self._state.put_facts(line.of, line.key, text)
        if line.of == "node":
            of_node = msgspec.json.decode(text, type=NodeFacts)
            self._report(NodeFactsChanged(line.key, of_node))
        elif line.of == "pod":
            self._report(PodFactsChanged(line.key, msgspec.json.decode(text, type=Facts)))
        else:
            others = msgspec.json.decode(text, type=OtherFacts)
            self._recorded_facts = frozenset(others.cluster)
            self._report(OtherFactsChanged(others.cluster, others.types, others.pods))

    def _show_clock(self, bundle: Bundle, at: float) -> None:
        """Show what *bundle* reads of the clock and the log lacks, as its policies read it not."""
        names = time_reads(bundle.policies.values()).clock - self._recorded_facts
        if names:
            shown = self._cache.snapshot()
            clock = clock_facts(at, zone_of(bundle.runtime.facts.time_zone), names)
            cluster = {**shown.cluster_facts, **clock}
            self._report(OtherFactsChanged(cluster, shown.type_facts, shown.pod_facts))

    def _nominate(self, line: Line) -> None:
        self._state.put_nominations(line.pods)
        nominator = self._kernel.queue.nominator
        for pod in list(nominator):
            nominator.remove(pod.uid)
        for uid, node in line.pods:
            nominator.nominate(self._pending_pod(uid), node)

    def _pending_pod(self, uid: str) -> Pod:
        if uid not in self._pending:
            raise ValueError(f"the log has no pending pod with the uid `{uid}`")
        return self._pending[uid]

    # --- deciding ----------------------------------------------------------------------------

    def _use(self, line: Line) -> None:
        self._end_candidate()
        if self._scheduler is not None and self._scheduler_revision == line.revision:
            return
        if self._other is not None and self._scheduler is not None:
            self._scheduler_revision = line.revision
            return
        bundle = self._other
        if bundle is None:
            bundle = _bundle_of(line)
        self.close()
        self._evaluator = InProcessEvaluator(bundle.program)
        self._scheduler = Scheduler(bundle, self._evaluator, plugins=self._plugins)
        self.bundles.append(bundle)
        self._report(RevisionSwitched(self._scheduler))
        self._scheduler_revision = line.revision

    def _use_candidate(self, line: Line) -> None:
        """Have a candidate for the decisions that are its own; other policies decide all of them.

        It sees what plugins hold, and groups, as in the kernel that recorded it.
        """
        self._end_candidate()
        if not line.revision or self._other is not None:
            return
        bundle = _bundle_of(line)
        self._candidate_evaluator = InProcessEvaluator(bundle.program)
        self._candidate = Scheduler(bundle, self._candidate_evaluator, plugins=self._plugins)
        self._candidate_revision = line.revision
        self._report(CanaryChanged(Canary(self._candidate, lambda _pod, _group: False)))

    def _end_candidate(self) -> None:
        if self._candidate_evaluator is not None:
            self._candidate_evaluator.close()
            self._candidate = self._candidate_evaluator = None
            self._report(CanaryChanged(None))

    def _decide(self, line: Line) -> Outcome:
        """Decide again what *line* records."""
        self.decisions += 1
        scheduler, pod = self._scheduler, self._pending.get(line.uid)
        if self._candidate is not None and line.revision == self._candidate_revision:
            scheduler = self._candidate
        if scheduler is None or pod is None:
            missing = "policies" if scheduler is None else f"pod `{line.pod}`"
            raise LogError(f"{place_of(line)}: the log has no {missing}")
        with making_sense(line):
            recorded = msgspec.json.decode(line.verdict, type=Entry)
            pod_hash = digest(object_text(pod))
        notes = list(self._notes)
        # 1. Are the inputs those of the record?
        if line.state != str(self._state):
            notes.append("the state is not the recorded one: the log was changed or lacks entries")
        if line.pod_hash != pod_hash:
            notes.append("the pod is not the recorded one")
        if self._other is None and scheduler.bundle.revision != line.revision:
            notes.append(
                f"the policies are {scheduler.bundle.revision} now: the built-in ones of this "
                f"version differ from those that decided as {line.revision}"
            )
        # 2. The decision, with the answers that extenders gave then.
        if line.at > self._clock.now():
            self._clock.advance(line.at - self._clock.now())
        replayed: Entry
        if scheduler.profile_of(pod) is None:
            replayed = {"node": None, "message": f"no profile `{pod.scheduler_name}`"}
        else:
            if self._other is not None:
                self._show_clock(scheduler.bundle, line.at)
            decision = self._ask(scheduler, pod, line)
            replayed = verdict(decision)
            if decision.node is not None and decision.reserves:
                self._decided[pod.uid] = decision.reserves
            else:
                self._decided.pop(pod.uid, None)
        # 3. Equal means equal bytes.
        is_same = verdict_text(replayed) == bytes(line.verdict)
        if not is_same and recorded.get("node") != replayed.get("node"):
            self._decided.pop(pod.uid, None)  # what it would hold is not what was held
        members = dict.fromkeys([*recorded, *replayed])
        changed = tuple(m for m in members if recorded.get(m) != replayed.get(m))
        return Outcome(
            line.number,
            line.at,
            line.pod,
            line.uid,
            line.revision,
            recorded,
            replayed,
            is_same,
            changed,
            tuple(notes),
        )

    def _ask(self, scheduler: Scheduler, pod: Pod, line: Line) -> Decision:
        pods = self._kernel.cluster.placed_pods() if line.answers else ()
        by_uid = {one.uid: one for one in pods}
        answers = iter(line.answers)
        choosing = self._kernel.decisions.choose(pod, scheduler, [], is_member=line.member)
        try:
            question = next(choosing)
            while True:
                given = next(answers, None) if self._other is None else None
                answer = unopposed(question) if given is None else answer_of(given, by_uid)
                question = choosing.send(Reply(answer, self._clock.monotonic()))
        except StopIteration as end:
            decision: Decision = end.value[0]
            return decision


def _bundle_of(line: Line) -> Bundle:
    """The policies of *line*. Raises `PolicyErrors`."""
    config = None
    if line.config is not None:
        config = decode_configuration(line.config, "--config")
    return build_bundle(line.files, config)


def _placeholder(name: str) -> Node:
    return Node.from_manifest(NodeManifest(metadata=ObjectMeta(name=name)))
