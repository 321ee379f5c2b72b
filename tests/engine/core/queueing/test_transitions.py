"""Each move of a pod is an entry of the table, and is kept with its cause."""

import random
from collections.abc import Callable

import pytest

from engine.core.model.pod import Pod
from engine.core.queueing.events import ASSIGNED_POD_DELETE, NODE_ADD, ClusterEvent
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.queueing.transitions import TRANSITIONS, Cause, Move, Place, Trigger
from tests.builders import make_node, make_pod
from tests.engine.core.queueing.test_scheduling_queue import FIT, Bench, big_node


def tried_because(bench: Bench, pod: Pod) -> str:
    return str(bench.queue.describe(pod.key)["tried_because"])


# --- why a pod is tried ------------------------------------------------------------------------


def test_a_new_pod_is_tried_because_it_is_new() -> None:
    bench = Bench()
    bench.queue.add(make_pod())
    assert bench.pop().tried_because == "new pod"


def test_a_rejected_pod_says_which_event_of_which_object_may_help_which_plugin() -> None:
    bench = Bench()
    pod = make_pod()
    bench.reject(pod, FIT | {"NodeName"})
    bench.queue.move(NODE_ADD, None, make_node("node-3", cpu="64"))
    assert tried_because(bench, pod) == "NodeAdd node-3 (NodeName)"
    assert bench.pop().tried_because == "NodeAdd node-3 (NodeName)"


def test_the_end_of_a_backoff_is_no_reason_for_an_attempt() -> None:
    bench = Bench()
    pod = make_pod()
    bench.reject(pod)
    bench.queue.move(NODE_ADD, None, big_node())
    bench.after(5)
    assert bench.place(pod) == "active"
    assert tried_because(bench, pod) == "NodeAdd n (NodeResourcesFit)"


def test_an_event_during_the_last_attempt_says_so() -> None:
    bench = Bench()
    bench.queue.add(make_pod())
    queued = bench.pop()
    bench.queue.move(ASSIGNED_POD_DELETE, make_pod("gone", node="n"), None)
    bench.queue.requeue(queued, FIT)
    want = "AssignedPodDelete default/gone (NodeResourcesFit) during its last attempt"
    assert queued.tried_because == want


def test_a_change_of_a_nominated_node_says_so() -> None:
    bench = Bench()
    pod = make_pod("p", nominated="n")
    bench.reject(pod, frozenset({"NodeName"}))
    bench.queue.move(ASSIGNED_POD_DELETE, make_pod("gone", node="n"), None)
    assert tried_because(bench, pod) == "AssignedPodDelete default/gone (nominated node)"


def test_an_event_of_an_object_in_a_namespace_names_both() -> None:
    bench = Bench()
    pod = make_pod()
    bench.reject(pod, frozenset({"of-a-user"}))
    claim = make_pod("claim", namespace="team")  # any object with metadata will do
    bench.queue.move(ClusterEvent("PersistentVolumeClaim", "Add"), None, claim)
    assert tried_because(bench, pod) == "PersistentVolumeClaimAdd team/claim (of-a-user)"


@pytest.mark.parametrize(
    ("retry", "want"),
    [
        pytest.param(
            lambda bench, pod: bench.after(301), "no event helped for too long", id="flush"
        ),
        pytest.param(
            lambda bench, pod: bench.queue.activate([pod.uid]), "activated", id="activation"
        ),
        pytest.param(lambda bench, pod: bench.queue.rekey(), "policies changed", id="policies"),
        pytest.param(
            lambda bench, pod: bench.queue.recheck(pod.uid, Trigger.PREEMPTION_FAILED),
            "preemption failed",
            id="preemption",
        ),
    ],
)
def test_retries_without_an_event_say_why(retry: Callable[[Bench, Pod], object], want: str) -> None:
    bench = Bench()
    pod = make_pod()
    bench.reject(pod)
    retry(bench, pod)
    assert tried_because(bench, pod) == want


def test_a_pod_whose_attempt_failed_says_so() -> None:
    bench = Bench()
    bench.queue.add(make_pod())
    queued = bench.pop()
    bench.queue.requeue(queued)
    assert queued.tried_because == "attempt failed"


# --- how much is kept --------------------------------------------------------------------------


def test_the_last_moves_are_kept_and_no_more() -> None:
    bench = Bench()
    pod = make_pod()
    bench.reject(pod)
    for _ in range(50):
        bench.queue.move(NODE_ADD, None, big_node())
        bench.queue.requeue(bench.pop(), FIT)
    moves = bench.queue.describe(pod.key)["moves"]
    assert len(moves) == 8
    assert moves[-1] == "0.0s ago: in_flight -> unschedulable: rejected"


def test_events_that_leave_a_gated_pod_where_it_is_do_not_push_out_its_moves() -> None:
    bench = Bench(pre_enqueue=lambda pod: ("quota", "none left"))
    pod = make_pod()
    bench.queue.add(pod)
    for i in range(20):
        bench.queue.move(ASSIGNED_POD_DELETE, make_pod(f"x{i}", node="n"), None)
    assert bench.queue.describe(pod.key)["moves"] == [
        "0.0s ago: unknown -> gated: new pod",
        "0.0s ago: gated: AssignedPodDelete default/x19 (quota)",
    ]


# --- the table ---------------------------------------------------------------------------------


# The triggers of `recheck`, which are the last ones.
NEWS = list(Trigger)[list(Trigger).index(Trigger.GROUP_CHANGED) :]


class Wanderer:
    """Does whatever a queue can be asked to do, in a random order, and notes each move."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.is_open = True
        # A change of the pod may open the first; labels do not open the second.
        self.gate = ("quota", "SchedulingGates")[seed % 2]
        self.keys: dict[str, int] = {}
        self.bench = Bench(pre_enqueue=self._gate, key_of=lambda pod: ((0, self._key(pod)),))
        self.queue = self.bench.queue
        self.pods = {f"u{i}": make_pod(f"p{i}", uid=f"u{i}") for i in range(4)}
        self.tried: list[QueuedPod] = []
        self.seen: set[tuple[Place, Trigger, Place]] = set()

    def _gate(self, pod: Pod) -> tuple[str, str] | None:
        return None if self.is_open else (self.gate, "none left")

    def _key(self, pod: Pod) -> int:
        return self.keys.get(pod.uid, 0)

    def step(self) -> None:
        uid = self.random.choice(list(self.pods))
        acts: list[Callable[[], object]] = [
            lambda: self.queue.add(self.pods[uid]),
            lambda: self.queue.delete(self.pods[uid]),
            lambda: self._pop(None),
            lambda: self._pop(uid),
            lambda: self._end(self.queue.done),
            self._skip,
            self._requeue,
            self._requeue,
            lambda: self._update(uid),
            lambda: self.queue.move(NODE_ADD, None, big_node()),
            lambda: self.queue.move(ASSIGNED_POD_DELETE, make_pod("gone", node="n"), None),
            lambda: self.queue.activate([uid]),
            lambda: self.queue.recheck(uid, self.random.choice(NEWS)),
            lambda: self.queue.recheck(uid, Trigger.GROUP_CHANGED),
            lambda: self.keys.update({uid: self.random.randrange(9)}),
            lambda: self.queue.reorder(uid),
            lambda: self.bench.after(self.random.choice((0.5, 1, 3, 20))),
            self._toggle_gate,
        ]
        self.random.choice(acts)()
        if self.random.random() < 0.02:
            self.queue.rekey()
        if self.random.random() < 0.02:
            self.queue.ask_again(lambda pod: pod.uid == uid)
        if self.random.random() < 0.02:
            self.bench.after(301)

    def _pop(self, uid: str | None) -> None:
        if (queued := self.queue.pop(uid)) is not None:
            self.tried.append(queued)

    def _end(self, how: Callable[[str], None]) -> None:
        if self.tried:
            how(self.random.choice(self.tried).uid)

    def _skip(self) -> None:
        self._end(self.queue.skip)
        self.tried = [queued for queued in self.tried if queued.place is not Place.TERMINATING]

    def _requeue(self) -> None:
        if not self.tried:
            return
        queued = self.tried.pop(self.random.randrange(len(self.tried)))
        if self.random.random() < 0.2:
            self.queue.requeue_untried(queued, Trigger.THROTTLED)
        else:
            # No event helps the second; the third is an error.
            rejectors = self.random.choice((FIT, frozenset({"PodGroup"}), frozenset()))
            self.queue.requeue(queued, rejectors)

    def _update(self, uid: str) -> None:
        old = self.pods[uid]
        self.pods[uid] = make_pod(
            old.name,
            uid=uid,
            terminating=self.random.random() < 0.2,
            labels={"a": str(self.random.random())},
            cpu=self.random.choice("12"),
        )
        self.queue.update(old, self.pods[uid])

    def _toggle_gate(self) -> None:
        self.is_open = not self.is_open


@pytest.fixture
def all_moves(monkeypatch: pytest.MonkeyPatch) -> list[Move]:
    """Every move that any queue makes."""
    made: list[Move] = []
    remember = QueuedPod.remember

    def note(
        queued: QueuedPod, now: float, came_from: Place, trigger: Trigger, cause: Cause | None
    ) -> None:
        made.append(Move(now, came_from, queued.place, trigger, cause))
        remember(queued, now, came_from, trigger, cause)

    monkeypatch.setattr(QueuedPod, "remember", note)
    return made


@pytest.mark.slow("compares much")
def test_every_move_is_in_the_table_and_every_entry_of_the_table_is_made(
    all_moves: list[Move],
) -> None:
    for seed in range(40):
        wanderer = Wanderer(seed)
        for _ in range(500):
            wanderer.step()
            wanderer.queue.check_invariants()
    for move in all_moves:
        assert move.place in TRANSITIONS[move.came_from, move.trigger]
    made = {(move.came_from, move.trigger) for move in all_moves}
    assert made == TRANSITIONS.keys()
