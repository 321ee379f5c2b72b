"""Orders the pods that can be tried by the queues of a tree, and holds those that may not start.

Owns whose turn it is. Each queue that has pods orders them as the active queue does without a tree;
pods that are alike in what quotas read are one *lane* of it. A queue above others goes by the turns
of those, so that a pop walks down from the root. The request that is next is asked about before it
is popped. If it is held, its lane stands still until that may have changed; pods of it stay where
they are, and cost nothing.

    pod --> lane of its queue --turn_key of each queue on the way--> next --admit--> popped
                 ^                                                     \\--> its lane is held
                 '--- so much became free, a share has grown, time <------'

Which pods are in which queue, and what the queues have, is `queue_shares`'.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from engine.core.kernel.pod_groups import GroupKey, PodGroups
from engine.core.kernel.queue_shares import QueueShares
from engine.core.kernel.turn_standing import LaneState, Level, Standing, hold_text
from engine.core.model.pod import Pod
from engine.core.queueing.active_queue import ActiveQueue
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.scheduling.tree_hooks import Hold, QueueView, Request, TreeHooks
from engine.core.scheduling.tree_shares import ATTRIBUTES
from engine.core.sharing.amounts import Amounts, add
from engine.core.sharing.ratios import TurnKey
from engine.core.sharing.tree import ROOT, Queue
from engine.lib.clock import Clock
from engine.lib.heap import KeyedHeap
from engine.policy.evaluator import PolicyFailure

#: The reason tokens of pods whose queue is not there, or has others under it.
QUEUE_MISSING: Final = "QueueMissing"
NOT_A_LEAF: Final = "QueueNotALeaf"
#: And of those that a policy holds without saying under which.
HELD: Final = "HeldByQueue"

# Requests that one pop asks about at most; the next one goes on.
_MOST_ASKED: Final = 64
# What became free counts as long as others have not taken it again. If a quota is of another form,
# a few of those that it may have helped are asked about each second all the same.
_RETRY_SECONDS: Final = 1.0
_MOST_RETRIED: Final = 4

_LaneKey: TypeAlias = tuple[Any, ...]


@dataclass(slots=True, eq=False)
class _Lane:
    """Pods of one queue that are alike in what quotas read, or one group.

    Attributes:
        queue: The path of the queue.
        key: What they have in common.
        group: The group, if they are one.
        pods: In the order in which they are tried.
        held: Why they stand still; None: they do not.
        failure: The policy could not say.
        falls_to: They may start once their queue, or the one that is short, has no more than this.
        freed_to: The same, of what became free there so far: never later.
        request: What a pod of it asks for, which is the same for all, unless it is a group.
    """

    queue: str
    key: _LaneKey
    group: GroupKey | None
    pods: KeyedHeap[str, QueuedPod] = field(default_factory=KeyedHeap)
    held: Hold | None = None
    failure: PolicyFailure | None = None
    falls_to: int = 0
    freed_to: int = 0
    request: Request | None = None

    @property
    def head(self) -> QueuedPod:
        """The pod that is next in it; there is always one."""
        first = self.pods.peek()
        assert first is not None, "an empty lane is forgotten"
        return first


@dataclass(slots=True, eq=False)
class _Leaf:
    """A queue that has pods: its lanes, and those of them that do not stand still, in order."""

    lanes: dict[_LaneKey, _Lane] = field(default_factory=dict)
    ready: KeyedHeap[_LaneKey, _Lane] = field(default_factory=KeyedHeap)

    @property
    def first(self) -> _Lane | None:
        """The lane whose turn it is; None: all stand still."""
        return self.ready.peek()


class OnHold(Protocol):
    """Takes that a request is held: the pod that is next of it, the text, the reason token."""

    def __call__(self, queued: QueuedPod, text: str, token: str, *, has_failed: bool) -> None:
        """Report it."""
        ...


class TurnQueue(ActiveQueue):
    """The active queue of a kernel: as without a tree, while there is none.

    Args:
        clock: Time.
        shares: The tree of queues.
        groups: Knows which pods start together.
        on_hold: Called when a request is held.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        shares: Callable[[], QueueShares],
        groups: PodGroups,
        on_hold: OnHold,
    ) -> None:
        super().__init__()  # pods in no queue are here
        self._clock = clock
        self._shares_of = shares
        self._groups = groups
        self._on_hold = on_hold
        self._lane_of: dict[str, _Lane] = {}
        self._leaves: dict[str, _Leaf] = {}
        # By the path of a queue above others: those with a pod that may be tried, in order.
        self._heaps: dict[str, KeyedHeap[str, str]] = {}
        self._keys: dict[str, TurnKey] = {}
        self._asked: dict[str, bytes] = {}
        # Queues whose key, or whose next pod, may be another one.
        self._stale: set[str] = set()
        # Lanes that stand still, by the queue that is short and the resource; "": of none.
        self._watched: dict[tuple[str, str], dict[_LaneKey, _Lane]] = {}
        self._ripe: set[tuple[str, str]] = set()
        self._awake: dict[tuple[str, str], _Lane] = {}
        self._retried: set[_Lane] = set()
        self._failed: dict[_LaneKey, _Lane] = {}
        self._version = -1
        self._goes_by_turns = False  # asked several times of each pod
        self._retry_at: float | None = None
        self.woken = 0  # lanes that were asked about again because something became free
        self.started = 0  # and of these, those that went on then

    # --- an active queue ---------------------------------------------------------------------

    @property
    def _shares(self) -> QueueShares:
        return self._shares_of()

    @property
    def goes_by_turns(self) -> bool:
        """True if a policy says whose turn it is, or what may be tried."""
        return self._goes_by_turns

    def follow_policies(self) -> None:
        """Other policies are in force, whose tree the shares have already."""
        hooks = self._shares.hooks
        self._goes_by_turns = hooks is not None and hooks.decides
        if not self._goes_by_turns:
            self._follow_places()  # else at the next pop, when the tree has its queues

    def __len__(self) -> int:
        return super().__len__() + len(self._lane_of)

    def __iter__(self) -> Iterator[QueuedPod]:
        yield from super().__iter__()
        for leaf in self._leaves.values():
            for lane in leaf.lanes.values():
                yield from lane.pods

    def add(self, queued: QueuedPod) -> None:
        """Add a pod, or put it in another place after its key changed."""
        if not self._goes_by_turns:
            super().add(queued)
            return
        path, key, group = self._lane_for(queued)
        known = self._lane_of.get(queued.uid)
        if known is not None and (known.queue, known.key) != (path, key):
            self.remove(queued)
        if path is None:
            super().add(queued)
            return
        leaf = self._leaves.setdefault(path, _Leaf())
        lane, is_new = leaf.lanes.get(key), False
        if lane is None:
            lane = leaf.lanes[key] = _Lane(path, key, group)
            is_new = True
        elif group is not None:
            self._release(lane)  # the request is another one now
        lane.pods.push(queued.uid, queued, queued.order)
        self._lane_of[queued.uid] = lane
        if is_new:
            self._stand_behind(leaf, lane)
        if lane.held is None:
            leaf.ready.push(key, lane, lane.head.order)
        self._stale.add(path)

    def _stand_behind(self, leaf: _Leaf, lane: _Lane) -> None:
        """Have a new lane wait with those before it, if the whole queue does."""
        for one in leaf.lanes.values():
            hold = one.held
            if hold is not None and hold.whole_queue and one.head.order < lane.head.order:
                self._stand_still(lane, hold)
                return

    def remove(self, queued: QueuedPod) -> None:
        """Remove a pod."""
        lane = self._lane_of.pop(queued.uid, None)
        if lane is None:
            super().remove(queued)
            return
        lane.pods.remove(queued.uid)
        leaf = self._leaves[lane.queue]
        self._stale.add(lane.queue)
        if not lane.pods:
            self._release(lane)
            self._end_wake(lane)
            leaf.ready.remove(lane.key)
            del leaf.lanes[lane.key]
            if not leaf.lanes:
                del self._leaves[lane.queue]
        elif lane.group is not None:
            self._release(lane)
        if lane.pods and lane.held is None:
            leaf.ready.push(lane.key, lane, lane.head.order)

    def pop(self) -> QueuedPod | None:
        """The pod whose turn it is and that may be tried, removed; None if there is none."""
        if not self._goes_by_turns:
            return super().pop()
        self._shares.catch_up()
        self._follow_places()
        for _ in range(_MOST_ASKED):
            self._notice()
            self._wake()
            lane = self._next()
            other = self._heap.peek()
            if lane is None or (other is not None and other.order < lane.head.order):
                return super().pop()
            if self._may_start(lane):
                queued = lane.head
                self.remove(queued)
                return queued
        return None

    @property
    def may_pop(self) -> bool:
        """True if `pop` may give a pod, or would find out that it does not."""
        if not self._goes_by_turns:
            return super().may_pop
        if self._version != self._shares.places_version:
            return len(self) > 0
        if super().may_pop or any(leaf.ready for leaf in self._leaves.values()):
            return True
        if not self._watched and not self._failed:
            return False
        is_over = self._retry_at is not None and self._retry_at <= self._clock.monotonic()
        return is_over or bool(self._ripe) or self._shares.has_moved

    def wakes_at(self) -> float | None:
        """When requests that are held are to be asked about again, whatever happens."""
        return self._retry_at if self._watched or self._failed else None

    # --- which pods are alike ----------------------------------------------------------------

    def _lane_for(self, queued: QueuedPod) -> tuple[str | None, _LaneKey, GroupKey | None]:
        """The queue of a pod, what it has in common with others of its lane, and its group."""
        path, name, preemptible = self._shares.place_of(queued.pod)
        if path is None:
            return (None, (), None) if not name else (_nowhere(name), (QUEUE_MISSING,), None)
        if path == ROOT:  # its queue is not there, and it counts in the root: it never waits
            return None, (), None
        if not self._shares.tree.queues[path].is_leaf:
            return _nowhere(path), (NOT_A_LEAF,), None
        group = self._groups.tried_in(queued.uid)
        if group is not None:
            return path, (group,), group
        pod, tree = queued.pod, self._hooks.tree
        key = (
            # What it claims is its own, so that it may start where others of its kind may not.
            self._shares.claims(queued.uid),
            tuple(sorted(pod.requests.items())),
            preemptible,
            pod.priority if tree.mentions("priority") else 0,
            int(pod.created_at) if tree.mentions("created_at") else 0,
        )
        return path, key, None

    @property
    def _hooks(self) -> TreeHooks:
        hooks = self._shares.hooks
        assert hooks is not None, "there is a tree"
        return hooks

    def _pods_of(self, lane: _Lane) -> list[Pod]:
        """The next pod of the lane, or those of its group that wait."""
        if lane.group is None:
            return [lane.head.pod]
        members = {pod.uid: pod for pod in self._groups.members_of(lane.group)}
        waiting = [uid for uid in self._groups.pending_in(lane.group) if uid in members]
        return [members[uid] for uid in waiting] or [lane.head.pod]

    def _request(self, lane: _Lane) -> Request:
        if lane.group is not None:
            return self.request(self._pods_of(lane), lane.group)
        if lane.request is None:
            lane.request = self.request([lane.head.pod])
        return lane.request

    def request(self, pods: Sequence[Pod], group: GroupKey | None = None) -> Request:
        """What *pods* ask for together: one, or those of *group* that wait."""
        together = least = _together(pods)
        if group is not None:
            state = self._groups.state(group)
            count = min(max(state.min_count - state.placed - state.waiting, 0), len(pods))
            least = _together(pods[:count])
        return Request(
            resources=together,
            least=least,
            pods=len(pods),
            priority=max(pod.priority for pod in pods),
            preemptible=all(self._shares.place_of(pod)[2] for pod in pods),
            created_at=int(min(pod.created_at for pod in pods)),
            group="" if group is None else group.name,
        )

    def _follow_places(self) -> None:
        """Put every pod into its queue again, if the tree has other queues than before."""
        version = self._shares.places_version
        if version == self._version:
            return
        self._version = version
        pods = list(self)
        for kept in (self._lane_of, self._leaves, self._heaps, self._keys, self._asked):
            kept.clear()
        for of_held in (
            *(self._stale, self._watched, self._ripe),
            *(self._awake, self._retried, self._failed),
        ):
            of_held.clear()
        self._heap = KeyedHeap()
        for queued in pods:
            self.add(queued)

    # --- whose turn it is --------------------------------------------------------------------

    def _notice(self) -> None:
        """Note which queues have changed, and which lanes that may help."""
        moved, changed, aged = self._shares.moved, self._shares.changed, self._shares.aged
        for path in (*moved, *changed, *aged):
            self._stale.add(path)
        if self._hooks.reads_above:
            for path in [one for one, grown in changed.items() if ATTRIBUTES in grown]:
                self._stale.update(self._below(path))
        if aged:
            self._release_all((ROOT, ""))  # what they wait for may be another usage
        if self._watched:
            self._ripe |= {watch for watch in self._watched if watch[0] in moved}
            if self._ripe and self._retry_at is None:
                self._retry_at = self._clock.monotonic() + _RETRY_SECONDS
            for path, grown in changed.items():
                for watch in [one for one in self._watched if one[0] == path]:
                    if not watch[1] or watch[1] in grown:
                        self._release_all(watch)
            # More nodes, or other attributes: of whichever queue, a quota may go by them.
            if changed.get(ROOT) or any(ATTRIBUTES in grown for grown in changed.values()):
                for watch in list(self._watched):
                    self._release_all(watch)

    def _below(self, path: str) -> Iterator[str]:
        """The queues below that of *path* with a pod that may be tried."""
        for one in self._heaps.get(path, ()):
            yield one
            yield from self._below(one)

    def _next(self) -> _Lane | None:
        """The lane whose turn it is; None if all stand still."""
        self._settle()
        path = ROOT
        while path not in self._leaves:
            heap = self._heaps.get(path)
            found = heap.peek() if heap is not None else None
            if found is None:
                return None
            path = found
        return self._leaves[path].first

    def _settle(self) -> None:
        """Order again what is stale, from the leaves up."""
        tree = self._shares.tree
        stale, self._stale = self._stale, set()
        by_level: dict[int, set[str]] = {}
        for path in stale:
            by_level.setdefault(_level(path), set()).add(path)
        hooks = self._hooks
        if not hooks.reads_head:
            # No key goes by another one, so that one round trip has all of them.
            self._ask_keys(dict.fromkeys(path for path in stale if path != ROOT))
        for level in range(max(by_level, default=0), 0, -1):
            paths = by_level.get(level, set())
            heads = {path: head for path in paths if (head := self._head(path)) is not None}
            if hooks.reads_head:
                self._ask_keys(heads)
            for path in paths:
                parent = _parent(path, tree.queues)
                heap = self._heaps.setdefault(parent, KeyedHeap())
                head = heads.get(path)
                if head is None or head.held is not None:
                    heap.remove(path)
                else:
                    order = (self._keys.get(path, ()), head.head.order)
                    heap.push(path, path, order)
                by_level.setdefault(_level(parent), set()).add(parent)

    def _head(self, path: str) -> _Lane | None:
        """The lane that is next below *path*; one that stands still if all do, to have a key."""
        leaf = self._leaves.get(path)
        if leaf is not None:
            return leaf.first or next(iter(leaf.lanes.values()))
        heap = self._heaps.get(path)
        found = heap.peek() if heap is not None else None
        return None if found is None else self._head(found)

    def _ask_keys(self, heads: Mapping[str, _Lane | None]) -> None:
        """Ask for the keys of these queues, where something has changed that they may go by.

        Of each the lane that is next, if keys may go by that.
        """
        hooks, tree = self._hooks, self._shares.tree
        if not hooks.has("turn_key"):
            return
        questions = {}
        for path, lane in heads.items():
            if path not in tree.queues:
                continue  # of a queue that is not there nothing is asked
            request = None if lane is None else self._request(lane)
            views, below = [self._shares.view(path)], list[QueueView]()
            if hooks.turns_by_path:
                leaf = path if lane is None else lane.queue
                line, levels = self._shares.path_views(leaf), _level(leaf) - _level(path)
                views, below = line[levels:], line[: levels + 1]
            question = hooks.turn_question(views, request, below)
            if self._asked.get(path) != question:
                questions[path] = question
        for path, key in zip(questions, hooks.turn_keys(list(questions.values())), strict=True):
            if isinstance(key, PolicyFailure):
                self._shares.note_failure("turn_key", path, key)
                self._keys.pop(path, None)  # by the arrival of its head
            else:
                self._shares.note_failure("turn_key", path, None)
                self._keys[path] = key
                self._asked[path] = questions[path]

    def _turn(self, lane: _Lane) -> tuple[Any, ...]:
        """What orders lanes of different queues as the walk from the root does."""
        parts = lane.queue.split("/")
        paths = ("/".join(parts[: n + 1]) for n in range(len(parts)))
        return (*(self._keys.get(path, ()) for path in paths), lane.head.order)

    # --- what may start ----------------------------------------------------------------------

    def _may_start(self, lane: _Lane) -> bool:
        """Ask if the request that is next in the lane may be tried; if not, the lane is held."""
        was_woken = self._end_wake(lane)
        if (wrong := _wrong(lane)) is not None:
            self._hold(lane, wrong)
            return False
        hooks = self._hooks
        if not hooks.has("admit"):
            return True
        own = [pod.uid for pod in self._pods_of(lane)]
        request, path = self._request(lane), self._shares.path_views(lane.queue, own)
        answer = hooks.admit(request, path)
        if answer is None:
            self.started += was_woken
            return True
        if isinstance(answer, PolicyFailure):
            lane.failure = answer
            self._hold(lane, Hold(str(answer), answer.token))
        else:
            for one in self._with(lane, answer):
                self._hold(one, answer)
        return False

    def _with(self, lane: _Lane, hold: Hold) -> Sequence[_Lane]:
        """The lanes that *hold* is for: those behind it too, if the policy says so."""
        if not hold.whole_queue:
            return [lane]
        lanes = self._leaves[lane.queue].lanes.values()
        return [lane, *(one for one in lanes if one is not lane and one.held is None)]

    def _hold(self, lane: _Lane, hold: Hold) -> None:
        """Have the lane stand still, and say so."""
        self._stand_still(lane, hold)
        has_failed = lane.failure is not None
        if has_failed:
            self._failed[lane.queue, *lane.key] = lane
        text = hold_text(_named(lane.queue), hold, has_failed=has_failed)
        self._on_hold(lane.head, text, hold.token or HELD, has_failed=has_failed)

    def _stand_still(self, lane: _Lane, hold: Hold) -> None:
        lane.held = hold
        leaf = self._leaves[lane.queue]
        leaf.ready.remove(lane.key)
        self._stale.add(lane.queue)
        watch = self._watch_of(lane)
        if watch is not None:
            at, resource = watch
            by = hold.short[1] if hold.short is not None else 1
            lane.falls_to = self._shares.taken(at, resource or _PODS) - by
            lane.freed_to = self._shares.freed(at).get(resource or _PODS, 0) + by
            self._watched.setdefault(watch, {})[lane.queue, *lane.key] = lane
        now = self._clock.monotonic()
        if self._retry_at is None or self._retry_at <= now:
            self._retry_at = now + _RETRY_SECONDS

    def _watch_of(self, lane: _Lane) -> tuple[str, str] | None:
        """The queue and the resource of which something has to become free; None: it cannot help.

        "" for the resource: of any, as every pod frees something.
        """
        hold = lane.held
        if hold is None or lane.failure is not None or lane.key in _WRONG:
            return None
        if hold.short is None:
            return ROOT, ""
        return (hold.at if hold.at in self._shares.tree.queues else ROOT), hold.short[0]

    def _release(self, lane: _Lane) -> None:
        """Let the lane go on: what held it may have changed."""
        watch = self._watch_of(lane)
        if watch is not None and watch in self._watched:
            self._watched[watch].pop((lane.queue, *lane.key), None)
            if not self._watched[watch]:
                del self._watched[watch]
                self._ripe.discard(watch)
        hold, lane.held, lane.failure = lane.held, None, None
        self._failed.pop((lane.queue, *lane.key), None)
        if hold is None:
            return
        if hold.whole_queue:
            for one in self._leaves[lane.queue].lanes.values():
                if one.held is hold:
                    self._release(one)
        if lane.pods:
            self._leaves[lane.queue].ready.push(lane.key, lane, lane.head.order)
        self._stale.add(lane.queue)

    def _release_all(self, watch: tuple[str, str]) -> None:
        for lane in list(self._watched.get(watch, {}).values()):
            self._release(lane)

    # --- what may go on ----------------------------------------------------------------------

    def _wake(self) -> None:
        """Let lanes go on that may start now: of those that wait for the same, the next by turn."""
        now = self._clock.monotonic()
        if self._retry_at is not None and self._retry_at <= now:
            self._retry(now)
        if self._ripe:
            self._settle()
        for watch in list(self._ripe):
            lanes = self._watched.get(watch)
            if watch in self._awake and lanes:
                continue  # it has not been asked about yet
            at, resource = watch
            level = self._shares.taken(at, resource or _PODS)
            able = [one for one in (lanes or {}).values() if level <= one.falls_to]
            if not able:
                self._ripe.discard(watch)
                continue
            lane = min(able, key=self._turn)
            self._awake[watch] = lane
            self.woken += 1
            self._release(lane)

    def _retry(self, now: float) -> None:
        """Have a few asked about whose quota may be of a form that sums alone do not show."""
        self._retry_at = None
        for watch, lanes in list(self._watched.items()):
            freed = self._shares.freed(watch[0]).get(watch[1] or _PODS, 0)
            able = sorted((one for one in lanes.values() if freed >= one.freed_to), key=self._turn)
            for lane in able[:_MOST_RETRIED]:
                self._retried.add(lane)
                self.woken += 1
                self._release(lane)
            if len(able) > _MOST_RETRIED:
                self._retry_at = now + _RETRY_SECONDS
        for lane in list(self._failed.values()):
            self._release(lane)

    def _end_wake(self, lane: _Lane) -> bool:
        """The lane is asked about, or gone; True if it was let go on because of what is free."""
        if lane in self._retried:
            self._retried.remove(lane)
            return True
        for watch, awake in self._awake.items():
            if awake is lane:
                del self._awake[watch]
                return True
        return False

    # --- reading -----------------------------------------------------------------------------

    def hold_of(self, uid: str) -> tuple[str, Hold] | None:
        """The queue of a pod that is held, and why; None: it is not held."""
        lane = self._lane_of.get(uid)
        return None if lane is None or lane.held is None else (lane.queue, lane.held)

    def held(self) -> Iterator[LaneState]:
        """What stands still, by queue; while it is read, others may come and go."""
        for leaf in list(self._leaves.values()):
            for lane in list(leaf.lanes.values()):
                if lane.held is not None and lane.pods:
                    yield self._state_of(lane)

    @property
    def woken_in_vain(self) -> int:
        """Of `woken`, those that could not go on then; not those that are not asked about yet."""
        return self.woken - self.started - len(self._awake) - len(self._retried)

    def head_of(self, path: str) -> LaneState | None:
        """What is next in the queue of *path*, or below it; None: no pod of it is ready.

        As of when a pod was popped last. If all stand still, one of those that do.
        """
        lane = self._head(path)
        return None if lane is None else self._state_of(lane)

    def _state_of(self, lane: _Lane) -> LaneState:
        return LaneState(
            queue=lane.queue.removeprefix(_nowhere("")),
            is_there=lane.queue in self._shares.tree.queues,
            head=lane.head.pod,
            group="" if lane.group is None else lane.group.name,
            pods=len(lane.pods),
            hold=lane.held,
            has_failed=lane.failure is not None,
        )

    def standing_of(self, uid: str) -> Standing | None:
        """Where a pod stands among those of its queue, and that among others; None: in no queue.

        As of when a pod was popped last.
        """
        lane = self._lane_of.get(uid)
        if lane is None:
            return None
        lanes, own = self._leaves[lane.queue].lanes.values(), lane.pods.get(uid)
        assert own is not None, "a pod is in the lane that it says"
        # A queue that waits as a whole waits for the first of those that are held for the same.
        alike = [one for one in lanes if lane.held is not None and one.held is lane.held]
        reported = min(alike or [lane], key=lambda one: one.head.order)
        is_there = lane.queue in self._shares.tree.queues
        # No turn has to come for what is wrong with the name itself.
        hold = lane.held or _wrong(lane)
        name, has_failed = _named(lane.queue), reported.failure is not None
        asking = [pod.uid for pod in self._pods_of(lane)]
        path = self._shares.path_views(lane.queue, asking) if is_there else []
        return Standing(
            queue=name,
            is_there=is_there,
            queued=own,
            ready=tuple(itertools.chain.from_iterable(one.pods for one in lanes)),
            head=reported.head.pod,
            hold=hold,
            text="" if hold is None else hold_text(name, hold, has_failed=has_failed),
            has_failed=has_failed,
            request=self._request(lane),
            path=tuple(path),
            levels=tuple(self._level(view.queue) for view in path[:-1]),
        )

    def order_below(self, path: str) -> list[str]:
        """The queues right below that of *path* with a pod that may be tried, next ones first."""
        return sorted(self._heaps.get(path, KeyedHeap[str, str]()), key=self._order_of)

    def _level(self, queue: Queue) -> Level:
        """Where *queue* stands among those under the same one."""
        heap = self._heaps.get(queue.parent or ROOT, KeyedHeap[str, str]())
        order = {path: self._order_of(path) for path in heap}
        first = heap.peek() or ""
        place = None
        if queue.path in order:
            place = 1 + sum(other < order[queue.path] for other in order.values())
        key, first_key = self._keys.get(queue.path, ()), self._keys.get(first, ())
        return Level(queue.path, place, len(order), key, first, first_key)

    def _order_of(self, path: str) -> tuple[Any, ...]:
        lane = self._head(path)
        return self._keys.get(path, ()), () if lane is None else lane.head.order

    def check_invariants(self) -> None:
        """Raise `AssertionError` if a pod is lost, or one that may be tried is not in its turn."""
        super().check_invariants()
        found: dict[str, _Lane] = {}
        # Of another tree than the lanes are of, until the next pop: what they wait for may be gone.
        is_new = self._version != self._shares.places_version
        for path, leaf in self._leaves.items():
            assert leaf.lanes, f"`{path}` has no pods"
            leaf.ready.check_invariants()
            for key, lane in leaf.lanes.items():
                assert lane.pods, f"`{path}` has an empty lane"
                assert (lane.queue, lane.key) == (path, key), f"a lane of `{path}` is misplaced"
                assert (key in leaf.ready) == (lane.held is None), f"`{path}`: held, or ready"
                watch = None if is_new else self._watch_of(lane)
                if watch is not None:
                    assert (path, *key) in self._watched[watch], f"`{path}` waits for nothing"
                found |= {queued.uid: lane for queued in lane.pods}
        assert found == self._lane_of, "a pod is in another lane than it says"


_PODS: Final = "pods"
# What keeps pods out of their queue, by the key of their lane.
_WRONG: Final[Mapping[_LaneKey, str]] = {
    (QUEUE_MISSING,): "there is no queue of this name",
    (NOT_A_LEAF,): "it has queues under it, of which the pod has to name one",
}


def _wrong(lane: _Lane) -> Hold | None:
    """What keeps the pods of *lane* out of their queue; None: nothing."""
    why = _WRONG.get(lane.key)
    return None if why is None else Hold(why, lane.key[0])


def _nowhere(name: str) -> str:
    """In place of the path of a queue that is not there."""
    return f"?{name}"


def _named(path: str) -> str:
    """What people call the queue of *path*, which may not be there."""
    return path.removeprefix(_nowhere(""))


def _level(path: str) -> int:
    return path.count("/") + 1 if path else 0


def _parent(path: str, queues: Mapping[str, Queue]) -> str:
    queue = queues.get(path)
    return ROOT if queue is None or queue.parent is None else queue.parent


def _together(pods: Sequence[Pod]) -> Amounts:
    """What *pods* request together, and how many they are."""
    total: dict[str, int] = {}
    for pod in pods:
        add(total, pod.requests, 1)
    return total | {_PODS: len(pods)}
