"""Keeps the tree of queues of the policies in force: its queues, their sums, and their shares.

Owns when what is asked. A change of a pod is summed up when the event or the decision ends that
made it; the tree is made again when one of its sources has changed; what is passed up and the
shares are computed once in `refresh`, for the queues alone whose sums or attributes changed.

    sources --queues--> tree --queue_of of each pod--> sums --passes_up--> up --shares--> shares

What is decided by them is `turn_queue`'s and `reclaims`'.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.core.kernel.cluster import ClusterChanges
from engine.core.kernel.events import (
    NODES,
    PODS,
    ObjectChanged,
    QueueAdjusted,
    QueueObjectChanged,
    UsageRestored,
)
from engine.core.kernel.instructions import (
    Instruction,
    PodAssumed,
    PodCounted,
    PodForgotten,
    PodUncounted,
)
from engine.core.kernel.queue_sources import NAMESPACES, QueueSources
from engine.core.kernel.shared import Shared
from engine.core.kernel.victim_search import Holdings
from engine.core.model.event_kinds import KINDS
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.model.pod_group import DisruptionUnit
from engine.core.queueing.nominator import Nominator
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.core.scheduling.tree_hooks import QueueView, TreeHooks
from engine.core.scheduling.tree_shares import Standing, TreeShares
from engine.core.sharing.amounts import Amounts, add, offered
from engine.core.sharing.guarantees import broken_guarantees
from engine.core.sharing.sums import VECTORS, Contribution, PodPhase, QueueSums, Sums
from engine.core.sharing.tree import ROOT, Queue, QueueTree, build_tree
from engine.core.sharing.usage import Usage
from engine.lib.printable import counted
from engine.policy.evaluator import PolicyFailure
from engine.policy.queue_tree_config import COUNT, HOLD

# Shares take a tenth of the time at most, however often they are to be refreshed.
_PART_OF_TIME: Final = 10

# Pods that sums may be behind by while nothing is decided.
_MOST_BEHIND: Final = 256

# Queues that are not there of which problems are listed, pods that one names, and letters of it.
_MOST_MISSING: Final = 20
_MOST_NAMED: Final = 3
_LONGEST_NAME: Final = 80

_NO_TREE: Final = build_tree(())

_MILLIS: Final = 1_000


@dataclass(frozen=True, slots=True)
class QueueState:
    """How a queue stands.

    Attributes:
        queue: The queue with its attributes.
        sums: Of its pods and those below it.
        standing: What is passed up to it, and its share.
        usage: What it used in the past, in thousandths; None: it is not kept.
        starved: Seconds for which it lacked something that its pods wait for.
        borrowed: Seconds for which it had more than its share of something.
    """

    queue: Queue
    sums: Sums
    standing: Standing
    usage: Amounts | None
    starved: float
    borrowed: float


class QueueShares:
    """The tree of queues of the policies in force, or none.

    Args:
        cluster: Knows the pods without a node.
        nominator: Knows for which pods others are evicted.
    """

    def __init__(self, shared: Shared, cluster: ClusterChanges, nominator: Nominator) -> None:
        self._cache, self._time = shared.cache, shared.time
        self._cluster = cluster
        self._nominator = nominator
        self._scheduler: Scheduler | None = None
        self._sources = QueueSources(shared.cache)
        # Of each pod its key, the name that it gave of its queue, and if it is to be looked at.
        self._keys: dict[str, str] = {}
        self._allocated_at: dict[str, float] = {}
        self._named: dict[str, tuple[str, bool]] = {}
        self._touched: dict[str, None] = {}
        self._nominated: dict[str, None] = {}
        self._nominations = -1
        self._sums = QueueSums(_NO_TREE)
        # What each node offers, and all of them.
        self._nodes: dict[str, Amounts] = {}
        self._total: dict[str, int] = {}
        self._shares = TreeShares()
        self._next = 0.0
        self._failed: dict[str, str] = {}  # why pods are in no queue, by namespace
        # Pods that name a queue which is not there, by that name; and the name, by uid.
        self._astray: dict[str, dict[str, None]] = {}
        self._strays_to: dict[str, str] = {}
        # Queues whose pods on nodes are others since their usage followed them; and those of which
        # policies see another usage since that was asked.
        self._used: dict[str, None] = {}
        self._aged: set[str] = set()
        self.seconds = 0.0  # that computing shares took in all
        #: Grows when pods may be in other queues than before, for another reason than their own.
        self.places_version = 0
        #: True if the policies in force have a tree. Asked with each event.
        self.is_on = False

    # --- reading -----------------------------------------------------------------------------

    @property
    def tree(self) -> QueueTree:
        """The tree; without queues if there is none."""
        return self._sums.tree

    @property
    def policy(self) -> str:
        """The policy that governs the queues; "" if there is no tree."""
        return "" if self.hooks is None else self.hooks.tree.policy

    @property
    def outside(self) -> int:
        """How many pods are in no queue."""
        return len(self._keys) - len(self._sums)

    def problems(self, readable: Collection[str] | None = None) -> list[str]:
        """What is wrong with the tree, its sources and what its policy answers, for people.

        Pods are named only if they are of *readable* namespaces (None: all).
        """
        of_tree = [
            f"{one.source + ': ' if one.source else ''}queue `{one.queue}` {one.message}"
            for one in self.tree.problems
        ]
        of_pods = {
            namespace: text
            for namespace, text in self._failed.items()
            if readable is None or namespace in readable
        }
        kept = (self._sources.problems, of_pods)
        texts = [text for found in kept for _, text in sorted(found.items())]
        attribute = "" if self.hooks is None else self.hooks.tree.guarantees
        guarantees = broken_guarantees(self.tree, attribute, self._total) if attribute else []
        return [*of_tree, *guarantees, *texts, *self._missing(readable), *self._shares.problems]

    def _missing(self, readable: Collection[str] | None) -> Iterator[str]:
        """Which queues pods name that are not there, those that most do first."""
        names = sorted(self._astray, key=lambda name: (-len(self._astray[name]), name))
        for name in names[:_MOST_MISSING]:
            uids = self._astray[name]
            shown = [
                self._keys[uid]
                for uid in itertools.islice(uids, _MOST_NAMED)
                if readable is None or self._keys[uid].partition("/")[0] in readable
            ]
            say = f": {', '.join(shown)}" if shown else ""
            are = f"{counted(len(uids), 'pod')} {'names' if len(uids) == 1 else 'name'} it"
            yield f"queue `{name[:_LONGEST_NAME]}` is not there, and {are}{say}"
        if len(names) > _MOST_MISSING:
            yield f"{len(names) - _MOST_MISSING:,} more queues that pods name are not there"

    def states(self) -> list[QueueState]:
        """How each queue stands, each before those under it."""
        return [self.state(path) for path in self.tree.queues]

    def state(self, path: str, now: float | None = None) -> QueueState:
        """How the queue of *path* stands. Raises KeyError if there is none.

        *now* (monotonic seconds) is by default when the last event or decision was.
        """
        now = self._time.monotonic() if now is None else now
        standing = self._shares[path]
        starved, borrowed = standing.starving.until(now), standing.borrowing.until(now)
        usage = None if self._usage is None else self._usage[path]
        queue, sums = self.tree.queues[path], self._sums[path]
        return QueueState(queue, sums, standing, usage, starved, borrowed)

    def queue_of(self, uid: str) -> str | None:
        """The path of the queue of the pod of *uid*; None: it is in none, or not known."""
        found = self._sums.contribution(uid)
        return None if found is None else found.queue

    def pods_by_queue(self) -> Counter[str]:
        """How many pods each queue has itself. Looks at every pod of the tree."""
        return Counter(added.queue for _, added in self._sums.contributions())

    def pods_of(self, path: str) -> list[tuple[Pod, Contribution]]:
        """The pods of the queue itself, with what each adds. Looks at every pod of the tree."""
        found = ((self._pod(uid), added) for uid, added in self._sums.pods_of(path))
        return [(pod, added) for pod, added in found if pod is not None]

    def problem_namespaces(self) -> set[str]:
        """The namespaces of pods that `problems` names."""
        found = set(self._failed)
        for uids in self._astray.values():
            for uid in itertools.islice(uids, _MOST_NAMED):
                found.add(self._keys[uid].partition("/")[0])
        return found

    def objects(self) -> Iterator[QueueObjectChanged]:
        """The objects that add queues, as they were reported last."""
        return self._sources.objects()

    def wakes_at(self) -> float | None:
        """When shares are to be computed, or usage is to be read, next (monotonic seconds).

        None: neither need be.
        """
        moments = [] if (due_at := self._due_at()) is None else [due_at]
        if self._usage is not None and (reading := self._usage.next_reading) is not None:
            moments.append(reading / _MILLIS)
        return min(moments, default=None)

    def _due_at(self) -> float | None:
        is_due = (
            self._touched or self._shares.is_dirty or self._sources.is_stale or self._sums.changed
        )
        return self._next if is_due and self.hooks is not None else None

    def check_invariants(self) -> None:
        """Raise `AssertionError` unless the sums are those of the pods that there are."""
        if self.hooks is None:
            return
        self._sum_up()
        self._sums.check_invariants()
        astray = {}
        for pod in self._cluster.known_pods():
            assert pod.uid in self._keys, f"{pod.key} is in no sum"
            added = self._contribution(pod.uid)
            assert self._sums.contribution(pod.uid) == added, pod.key
            if added is None and not pod.is_terminating and pod.uid in self._named:
                astray[pod.uid] = self._named[pod.uid][0]
        assert astray == self._strays_to, "pods whose queue is not there are others than noted"
        by_name = {uid: name for name, uids in self._astray.items() for uid in uids}
        assert by_name == self._strays_to, "queues that are not there have other pods than noted"
        total: dict[str, int] = {}
        for info in self._cache.infos():
            if info.node is not None:
                add(total, offered(info.node), 1)
        assert total == self._total, "what all nodes offer is not the sum of the nodes"
        if self._usage is not None:
            allocated = {path: self._sums[path].vectors["allocated"] for path in self.tree.queues}
            self._usage.check_invariants(allocated, self._now_millis)

    # --- for the order of the queue ----------------------------------------------------------

    @property
    def hooks(self) -> TreeHooks | None:
        """The policy that governs the queues; None if there is no tree."""
        return None if self._scheduler is None else self._scheduler.tree

    def place_of(self, pod: Pod) -> tuple[str | None, str, bool]:
        """The queue of a pod that waits: its path, the name that it gave, if it is preemptible.

        The path is None if it is in no queue, or if there is none of its name; the name is "" then,
        or not.
        """
        named = self._name_of(pod)
        if named is None:
            return None, "", True
        return self._path_of(named[0]), *named

    def catch_up(self) -> None:
        """Have what is passed up follow the sums, and the shares if it is time."""
        if self.hooks is not None:
            if self._sources.is_stale:
                self._rebuild()
            self._shares.pass_up(self.hooks, self._sums)
            self.refresh()

    @property
    def has_moved(self) -> bool:
        """True if `moved` or `changed` would name a queue."""
        return self._sums.has_moved or bool(self._shares.changed or self._aged)

    def note_failure(self, hook: str, path: str, failure: PolicyFailure | None) -> None:
        """Keep that *hook* failed for the queue of *path*, or that it does not any more."""
        self._shares.note_failure(hook, path, failure)

    @property
    def moved(self) -> set[str]:
        """The queues whose sums have changed since this was asked last."""
        return self._sums.take_moved()

    @property
    def changed(self) -> dict[str, set[str]]:
        """The queues whose share or `up` has changed since this was asked last.

        Each with the resources of which its share has grown.
        """
        changed, self._shares.changed = self._shares.changed, {}
        return changed

    @property
    def aged(self) -> set[str]:
        """The queues of whose usage policies see another one since this was asked last."""
        aged, self._aged = self._aged, set()
        return aged

    def path_views(self, path: str, own: Sequence[str] = ()) -> list[QueueView]:
        """The queue of *path* and those above it, the root last, as hooks see them.

        What is claimed counts as allocated, but for what the pods of *own* claim, which others may
        not have.
        """
        if any(map(self.claims, own)):
            assert self.hooks is not None, "asked only of a tree"
            with self._sums.trial(), self._shares.trial():
                self._sums.disclaim(own)
                self._shares.pass_up(self.hooks, self._sums)
                return self.path_views(path)
        return [self.view(queue.path) for queue in self.tree.above(path)]

    def view(self, path: str) -> QueueView:
        """The queue of *path* as hooks see it."""
        return self._shares.view(path, self._sums)

    def claims(self, uid: str) -> bool:
        """True if other pods were evicted for the one of *uid*, which waits."""
        return self._nominator.node_of(uid) is not None

    def holdings(
        self,
        *,
        evicted: Collection[str],
        took_at: Mapping[tuple[str, str], float],
        units: Sequence[DisruptionUnit],
    ) -> Holdings:
        """What queues have, with what else protects it."""
        return Holdings(
            sums=self._sums,
            shares=self._shares,
            total=self._total,
            allocated_at=self._allocated_at,
            evicted=evicted,
            took_at=took_at,
            units=units,
        )

    def contribution(self, uid: str) -> Contribution | None:
        """What the pod of *uid* adds to its queue; None: it is in none."""
        return self._sums.contribution(uid)

    def share_of(self, path: str) -> Amounts | None:
        """What the queue of *path* may have; None: no policy says."""
        return self._shares[path].share

    def taken(self, path: str, resource: str) -> int:
        """How much of *resource* the queue of *path* has, or claims."""
        vectors = self._sums[path].vectors
        return vectors["allocated"].get(resource, 0) + vectors["claimed"].get(resource, 0)

    def leaving(self, path: str, resource: str) -> int:
        """How much of *resource* pods of the queue of *path* have that are on their way out."""
        return self._sums[path].vectors["leaving"].get(resource, 0)

    def freed(self, path: str) -> Mapping[str, int]:
        """What became free in the queue of *path* and below it, added up over time."""
        return self._sums.freed.get(path, {})

    # --- what changes ------------------------------------------------------------------------

    def use(self, scheduler: Scheduler) -> None:
        """Follow the tree of these policies from now on."""
        self._scheduler = scheduler
        self.is_on = scheduler.tree is not None
        self._sums = QueueSums(_NO_TREE)
        self._shares.clear(self._time.monotonic())
        self._shares.use(_NO_TREE, _NO_TREE)
        self._sources.begin()
        self._keep_usage()
        for kept in (self._keys, self._named, self._touched, self._failed):
            kept.clear()
        self._astray.clear()
        self._strays_to.clear()
        self.places_version += 1
        if self.hooks is None:
            self._nodes.clear()
            self._total.clear()
            return
        for info in self._cache.infos():
            if info.node is not None:
                self._count_node(info.node.name, offered(info.node))
        for pod in self._cluster.known_pods():
            self._touch(pod)
        self._next = self._time.monotonic()

    def take_object(self, event: QueueObjectChanged) -> None:
        """An object that adds queues appeared, changed, or is gone."""
        self._sources.take(event)

    def adjust(self, event: QueueAdjusted) -> None:
        """A queue has other attributes than its source gives."""
        self._sources.adjust(event)

    def take(self, event: ObjectChanged) -> None:
        """A pod, a node, or anything else has changed."""
        if event.plural == PODS:
            for pod in (event.old, event.new):
                if pod is not None:
                    self._touch(pod)
        elif event.plural == NODES:
            self._take_node(event.old, event.new)
            return
        hooks = self.hooks
        are_source = event.plural == NAMESPACES and hooks and hooks.tree.namespaces is not None
        if are_source or (hooks and KINDS.get(event.plural) in hooks.kinds_read):
            for pod in self._cluster.known_pods():
                self._touch(pod)
        if are_source:
            self._sources.is_stale = True

    def _take_node(self, old: Node | None, new: Node | None) -> None:
        for node, is_there in ((old, False), (new, True)):
            if node is not None:
                self._count_node(node.name, offered(node) if is_there else None)

    def _count_node(self, name: str, offered: Amounts | None) -> None:
        """Count what the node *name* offers from now on; None: it is gone."""
        before = self._nodes.pop(name, {})
        if offered is not None:
            self._nodes[name] = offered
        if before != (offered or {}):
            add(self._total, before, -1)
            add(self._total, offered or {}, 1)
            self._shares.mark(ROOT)

    def follow(self, out: Iterable[Instruction], *, at_once: bool = True) -> None:
        """Sum up what the event or decision that gave these instructions has changed.

        Not *at_once*: with what others change until the next `refresh`, so that the queues of many
        pods are asked for in one round trip.
        """
        for one in out:
            if isinstance(one, PodCounted):
                self._touch(one.pod)
            elif isinstance(one, PodUncounted | PodAssumed | PodForgotten):
                self._touched[one.uid] = None
        if self._nominator.generation != self._nominations:
            self._nominations = self._nominator.generation
            self._touched |= self._nominated
            self._nominated = dict.fromkeys(pod.uid for pod in self._nominator)
            self._touched |= self._nominated
        if self._sources.is_stale and self.tree is _NO_TREE:
            self._rebuild()  # so that the first pods are in their queues at once
        if at_once or len(self._touched) >= _MOST_BEHIND:
            self._sum_up()

    def _sum_up(self) -> None:
        """Have the sums follow the pods that have changed."""
        unknown = (self._pod(uid) for uid in self._touched if uid not in self._named)
        self._learn_names([pod for pod in unknown if pod is not None])
        for uid in self._touched:
            self._settle(uid)
        self._touched.clear()
        if self._usage is not None:
            self._follow_usage(self._usage)

    def _touch(self, pod: Pod) -> None:
        self._keys[pod.uid] = pod.key
        self._named.pop(pod.uid, None)
        self._touched[pod.uid] = None

    def _settle(self, uid: str) -> None:
        added = self._contribution(uid)
        if self._usage is not None:
            for one in (self._sums.contribution(uid), added):
                if one is not None and one.phase in VECTORS["allocated"]:
                    self._used[one.queue] = None
        self._sums.put(uid, added)
        if added is None or added.phase not in (PodPhase.ALLOCATED, PodPhase.LEAVING):
            self._allocated_at.pop(uid, None)
        else:
            self._allocated_at.setdefault(uid, self._time.monotonic())
        pod = self._pod(uid)
        if added is None or uid in self._strays_to:
            self._follow_stray(uid, pod if added is None else None)
        if pod is None:
            key = self._keys.pop(uid, "")
            self._named.pop(uid, None)
            if self._failed.get(key.partition("/")[0], "").startswith(f"{key} "):
                del self._failed[key.partition("/")[0]]

    def _follow_stray(self, uid: str, pod: Pod | None) -> None:
        """Note the queue that *pod*, which counts in none, names; None: it counts, or is gone."""
        before = self._strays_to.pop(uid, None)
        if before is not None:
            del self._astray[before][uid]
            if not self._astray[before]:
                del self._astray[before]
        if pod is None or pod.is_terminating:
            return
        named = self._named.get(uid)
        if named is not None and self._path_of(named[0]) is None:
            self._strays_to[uid] = named[0]
            self._astray.setdefault(named[0], {})[uid] = None

    # --- pods --------------------------------------------------------------------------------

    def _pod(self, uid: str) -> Pod | None:
        placed = self._cache.get_pod(uid)
        if placed is not None:
            return placed
        pending = self._cluster.pending_pod(self._keys.get(uid, ""))
        return pending if pending is not None and pending.uid == uid else None

    def _contribution(self, uid: str) -> Contribution | None:
        pod = self._pod(uid)
        if pod is None:
            return None
        if self._cache.get_pod(uid) is not None:
            phase = PodPhase.LEAVING if pod.is_terminating else PodPhase.ALLOCATED
        elif pod.is_terminating:
            return None
        else:
            is_claimed = bool(self._nominator.node_of(uid))
            phase = PodPhase.CLAIMED if is_claimed else PodPhase.WAITING
        named = self._name_of(pod)
        if named is None:
            return None
        path = self._path_of(named[0])
        if path is None:
            return None
        return Contribution(path, phase, pod.requests, named[1])

    def _name_of(self, pod: Pod) -> tuple[str, bool] | None:
        """The name of the pod's queue, and if the pod is preemptible; None: it is in none."""
        if pod.uid not in self._named:
            self._learn_names([pod])
        return self._named.get(pod.uid)

    def _learn_names(self, pods: Sequence[Pod]) -> None:
        """Learn of *pods* in which queues they are."""
        hooks = self.hooks
        assert hooks is not None, "asked only of a tree"
        answers: Sequence[tuple[str, bool] | PolicyFailure | None]
        if hooks.has("queue_of"):
            answers = hooks.queues_of(pods, self._cache.snapshot())
        else:
            paths = [self._sources.queue_of_namespace(hooks, pod.namespace) for pod in pods]
            answers = [(path, True) if path else None for path in paths]
        for pod, answer in zip(pods, answers, strict=True):
            if isinstance(answer, PolicyFailure):
                self._failed[pod.namespace] = f"{pod.key} is in no queue: {answer}"
                continue
            self._failed.pop(pod.namespace, None)
            if answer is not None:
                self._named[pod.uid] = answer

    def _path_of(self, name: str) -> str | None:
        """The path of the queue that pods call *name*; None if they are in none."""
        queue = self.tree.find(name)
        if queue is not None:
            return queue.path
        assert self.hooks is not None
        unknown = self.hooks.tree.unknown
        if unknown == COUNT:
            return ROOT
        if unknown == HOLD:
            return None
        other = self.tree.find(unknown)
        return None if other is None else other.path

    # --- the tree ----------------------------------------------------------------------------

    def _rebuild(self) -> None:
        """Make the tree of its sources as they are by now."""
        hooks = self.hooks
        assert hooks is not None, "asked only of a tree"
        before, tree = self.tree, self._sources.build(hooks)
        self._sums.use(tree)
        self._shares.use(before, tree)
        if self._usage is not None:
            self._used |= dict.fromkeys((*self._usage.paths, *tree.queues))
        # Pods whose queues may go by these names now.
        if (before.queues.keys(), before.aliases, before.paths) != (
            tree.queues.keys(),
            tree.aliases,
            tree.paths,
        ):
            self.places_version += 1
            self._touched |= dict.fromkeys(self._keys)
            self._sum_up()

    # --- what was used -----------------------------------------------------------------------

    @property
    def _usage(self) -> Usage | None:
        return self._shares.usage

    @property
    def keeps_usage(self) -> bool:
        """True if what queues used in the past is kept."""
        return self._usage is not None

    def usage_to_save(self, now: float) -> dict[str, dict[str, int]]:
        """What queues have used by *now* (monotonic seconds), as `UsageRestored` has it.

        The queues that used most come first.
        """
        return {} if self._usage is None else self._usage.to_plain(round(now * _MILLIS))

    def restore_usage(self, event: UsageRestored) -> None:
        """Go on from what an earlier process saved."""
        if self._usage is not None:
            self._read_usage()
            age = round(max(0.0, event.age) * _MILLIS)
            self._usage.restore(event.saved, age, self._now_millis)
            self._read_usage()

    @property
    def _now_millis(self) -> int:
        return round(self._time.entered_at * _MILLIS)

    def _keep_usage(self) -> None:
        """Keep what queues used as the policies in force say: what is known of it stays."""
        rule = None if self.hooks is None else self.hooks.tree.usage
        self._used.clear()
        self._aged.clear()
        if rule is None:
            self._shares.usage = None
            return
        half_life, sampling = (
            round(time.total_seconds() * _MILLIS) for time in (rule.half_life, rule.sampling)
        )
        if self._usage is None:
            self._shares.usage = Usage(half_life, sampling)
        else:
            self._usage.retime(half_life, sampling, self._now_millis)
            self._used |= dict.fromkeys(self._usage.paths)

    def _follow_usage(self, usage: Usage) -> None:
        """Have it follow what queues have on nodes since the event or decision."""
        if not self._used:
            return
        self._read_usage()  # as it was until then
        queues, now = self.tree.queues, self._now_millis
        for path in self._used.keys() - queues.keys():
            usage.follow(path, {}, self._total, now)
        for path in {q.path: None for p in self._used if p in queues for q in self.tree.above(p)}:
            usage.follow(path, self._sums[path].vectors["allocated"], self._total, now)
        self._used.clear()

    def _read_usage(self) -> None:
        """Have policies see what queues have used by the last multiple of the sampling interval."""
        if self._usage is None:
            return
        changed = self._usage.read(self._total, self._now_millis)
        if self.hooks is not None and self.hooks.reads_usage:
            for path in changed:
                self._shares.mark(path)
            self._aged |= changed

    # --- shares ------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Compute what is passed up, and the shares, if it is time and something has changed."""
        started = self._time.monotonic()
        self._read_usage()
        at = self._due_at()
        if at is None or started < at or self.hooks is None:
            return
        self._sum_up()
        if self._sources.is_stale:
            self._rebuild()
        self._shares.compute(self.hooks, self._sums, self._total, started)
        now = self._time.monotonic()
        self.seconds += now - started
        self._next = now + max(self.hooks.tree.refresh, _PART_OF_TIME * (now - started))
