"""What a pod costs is in proportion to what policies read of it, however much is in it.

Costs are counted, or compared with others of the same run: other programs may take the machine.
"""

import gc
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import pytest

from devkit.benchmarks.costly_pods import COSTLY, Shape
from devkit.benchmarks.kernel_decisions import collecting_as_deciding
from engine.core.caching.cache import Cache
from engine.core.caching.own_terms import OwnTerms
from engine.core.model.pod import Pod
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import Call, InProcessEvaluator
from tests.builders import make_node

_BUNDLE: Final = build_bundle({})


class _Counting(InProcessEvaluator):
    """Counts the bytes of pods that hooks are given, and of their answers."""

    given = 0
    answered = 0

    def evaluate(self, calls: Sequence[Call]) -> Any:
        self.given += sum(len(call.pod) + len(call.extra) for call in calls)
        answers = super().evaluate(calls)
        self.answered += sum(len(msgspec.json.encode(list(answer))) for answer in answers)
        return answers


def _texts(shape: Shape, count: int, *, of: int) -> list[bytes]:
    return [
        msgspec.json.encode(manifest | {"metadata": manifest["metadata"] | {"uid": f"u{number}"}})
        for number in range(of)
        for manifest in [shape.pod(number, count)]
    ]


def _decided(texts: Sequence[bytes]) -> tuple[_Counting, float]:
    """Pods of *texts* decided one after the other; with the CPU seconds that it took."""
    cache = Cache()
    for number in range(10):
        cache.add_node(make_node(f"n{number}", zone=f"z{number % 3}", cpu="64"))
    evaluator = _Counting(_BUNDLE.program)
    scheduler = Scheduler(_BUNDLE, evaluator)
    seconds = []
    with collecting_as_deciding():
        for text in texts:
            pod = Pod.from_raw(text)
            started = time.process_time()
            decision = scheduler.schedule(pod, cache.snapshot())
            seconds.append(time.process_time() - started)
            assert decision.node is not None
            cache.add_pod(pod.with_node(decision.node))
    return evaluator, min(seconds[1:])


@pytest.mark.parametrize("name", ["anti-affinity", "affinity", "preferred-affinity"])
def test_policies_are_given_none_of_the_affinity_terms(name: str) -> None:
    """Each hook was given all of them as text, and declared a counter for each: 0.5 s a pod."""
    shape = COSTLY[name]
    texts = _texts(shape, 1000, of=3)
    evaluator, _ = _decided(texts)
    few, _ = _decided(_texts(shape, 100, of=3))
    assert evaluator.given < few.given * 1.1


def test_what_spread_constraints_have_counted_grows_with_their_number_alone() -> None:
    """Each of 500 counters named the label keys of all 500: 1.5 MB of a pod of 58 kB."""
    shape = COSTLY["spreading"]
    few, many = (_decided(_texts(shape, count, of=2))[0].answered for count in (25, 100))
    assert many < 4.4 * few


def _seconds_to_read(text: bytes, read: Callable[[bytes], Any] = json.loads) -> float:
    seconds = []
    for _ in range(5):
        started = time.process_time()
        read(text)
        seconds.append(time.process_time() - started)
    return min(seconds)


@pytest.mark.parametrize("name", ["anti-affinity", "affinity", "preferred-affinity"])
def test_a_pod_with_many_affinity_terms_costs_as_much_as_reading_it_some_times(name: str) -> None:
    """It cost some hundred times as much as its text does to `json.loads`."""
    texts = _texts(COSTLY[name], 2000, of=4)
    _, seconds = _decided(texts)
    assert seconds < 40 * _seconds_to_read(texts[0])


def _alive(kind: type, is_counted: Callable[[Any], bool]) -> int:
    gc.collect()
    return sum(1 for one in gc.get_objects() if type(one) is kind and is_counted(one))


@pytest.mark.parametrize("name", ["anti-affinity", "preferred-affinity", "node-terms"])
def test_large_pods_are_not_held_when_they_are_gone(name: str) -> None:
    """Twelve pods of 221 kB took 270 MiB, of which nothing came back: classes kept examples.

    What is remembered for other pods was bounded by its number, or by its text, of which the
    decoded form is twenty times as large.
    """
    cache = Cache()
    for number in range(3):
        cache.add_node(make_node(f"n{number}", zone=f"z{number % 3}", cpu="64"))
    scheduler = Scheduler(_BUNDLE, InProcessEvaluator(_BUNDLE.program))

    def decide(text: bytes) -> None:
        pod = Pod.from_raw(text)
        decision = scheduler.schedule(pod, cache.snapshot())
        assert decision.node is not None
        cache.add_pod(placed := pod.with_node(decision.node))
        scheduler.schedule(Pod.from_raw(_SMALL), cache.snapshot())
        cache.remove_pod(placed)

    decide(_SMALL)
    for text in _texts(COSTLY[name], 3000, of=4):
        decide(text)
    decide(_SMALL)
    assert _alive(Pod, lambda pod: len(pod.raw or b"") > 100_000) == 0
    assert _alive(OwnTerms, lambda own: own.count() > 100) <= 1  # of one counter
    memo = scheduler.memo
    assert memo.memory_bytes < 24 << 20
    assert memo.single_bytes < 8 << 20


_SMALL: Final = b'{"metadata":{"name":"small","uid":"small"},"spec":{"containers":[{"name":"c"}]}}'
