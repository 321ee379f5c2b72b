"""The parts of the queue beside plain models of them, in random runs."""

import random

import pytest

from engine.core.queueing.events import ClusterEvent
from engine.core.queueing.in_flight import InFlight
from engine.core.queueing.nominator import Nominator
from engine.core.queueing.queued_pod import QueuedPod
from tests.builders import make_pod

EVENTS = [ClusterEvent("Node", str(number)) for number in range(1_000)]


@pytest.mark.parametrize("seed", range(10))
def test_each_attempt_sees_the_events_since_its_pop_and_no_others(seed: int) -> None:
    rng, in_flight = random.Random(seed), InFlight()
    pods = [QueuedPod(make_pod(str(number), uid=str(number)), (), 0.0, 0) for number in range(5)]
    since: dict[str, list[ClusterEvent]] = {}
    missed: set[str] = set()
    for event in EVENTS[:150]:
        queued = rng.choice(pods)
        match rng.randrange(5):
            case 0 if queued.uid not in since:
                in_flight.start(queued)
                since[queued.uid] = []
            case 1:
                in_flight.finish(queued)
                since.pop(queued.uid, None)
                missed.discard(queued.uid)
            case 2 | 3:
                in_flight.record(event, None, None)
                for seen in since.values():
                    seen.append(event)
            case 4:
                in_flight.miss()
                missed |= since.keys()
        in_flight.check_invariants()
        assert len(in_flight) == len(since)
        for one in pods:
            assert (one.uid in in_flight) == (one.uid in since)
            assert in_flight.has_missed(one.uid) == (one.uid in missed)
            if one.uid in since:
                found = in_flight.events_since_pop(one.uid)
                assert [recorded.event for recorded in found] == since[one.uid]
    held = max(since.values(), key=len, default=[])
    assert in_flight.event_counts().total() == len(held)


@pytest.mark.parametrize("seed", range(10))
def test_a_pod_has_one_nomination_and_those_that_it_leaves_are_reported(seed: int) -> None:
    rng = random.Random(seed)
    lost: list[tuple[str, str]] = []
    nominator = Nominator(lambda pod, node: lost.append((pod.uid, node)))
    wanted: dict[str, str] = {}
    want_lost: list[tuple[str, str]] = []

    def leaves(uid: str, node: str) -> None:
        before = wanted.pop(uid, None)
        if before is not None and before != node:
            want_lost.append((uid, before))
        if node:
            wanted[uid] = node

    for number in range(100):
        uid, node = rng.choice("abc"), rng.choice(("n1", "n2", ""))
        pod = make_pod(uid, uid=uid, labels={"version": str(number)})
        generation = nominator.generation
        match rng.randrange(4):
            case 0:
                nominator.nominate(pod, node)
                leaves(uid, node)
            case 1:
                nominator.remove(uid, placed_on=node)
                if wanted.get(uid) == node:
                    del wanted[uid]
                leaves(uid, "")
            case 2:
                nominator.refresh(pod)
                known = nominator.pods_on(wanted.get(uid, ""))
                assert (pod in known) == (uid in wanted)
            case 3:
                copy = nominator.copy()
                assert copy.node_of(uid) == nominator.node_of(uid)
                copy.nominate(pod, "n3")
                copy.remove(rng.choice("abc"))
                copy.check_invariants()
                assert nominator.generation == generation
        nominator.check_invariants()
        assert {one.uid: nominator.node_of(one.uid) for one in nominator} == wanted
        assert set(nominator.nodes()) == set(wanted.values())
        assert lost == want_lost
        changed = nominator.changed_since(generation)
        assert changed is not None
        assert len(changed) <= nominator.generation - generation
