"""A scheduler of real parts in memory: cache, queue, policies, loop, groups and permits.

What an API server would do with bindings, the test does.
"""

import functools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final, cast

from prometheus_client import CollectorRegistry

from engine.binding.outcomes import AttemptOutcomes
from engine.binding.placement import Placement, Rejection
from engine.caching.cache import Cache
from engine.event_handlers import GroupHandler, NodeHandler, PodHandler
from engine.lib.clock import VirtualClock
from engine.model.pod import Pod
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import InProcessEvaluator, PolicyFailure
from engine.queueing.events import ASSIGNED_POD_DELETE
from engine.queueing.hints import Hints
from engine.queueing.queued_pod import SortKey
from engine.queueing.scheduling_queue import SchedulingQueue
from engine.scheduling.loop import SchedulingLoop
from engine.scheduling.permit import Permits
from engine.scheduling.pod_groups import PodGroups
from engine.scheduling.scheduling_cycle import Scheduler
from engine.telemetry.metrics import Metrics
from tests.builders import make_pod
from tests.profiles import only

CONFIG = (
    only("NodeResourcesFit", "GangScheduling")
    + """
  pluginConfig:
    - name: GangScheduling
      args: {groupLabel: group, minCountLabel: min}
"""
)
GANGS: Final = {"config.yaml": CONFIG}

# More turns than any number of honest attempts in so small a world: it is going in circles.
MOST_TURNS = 400


@functools.lru_cache(maxsize=8)
def _loaded(files: tuple[tuple[str, str], ...]) -> tuple[Bundle, InProcessEvaluator]:
    bundle = build_bundle(dict(files))
    return bundle, InProcessEvaluator(bundle.program)


class World:
    """A scheduler without an API server; what it would bind is kept in `bindings`.

    Args:
        files: Its policies and their configuration.
    """

    def __init__(self, files: Mapping[str, str] = GANGS) -> None:
        self.clock = VirtualClock()
        self.cache = Cache()
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)
        self.bundle, self.evaluator = _loaded(tuple(sorted(files.items())))
        self.scheduler = Scheduler(self.bundle, self.evaluator)
        self.hints = Hints.of(self.bundle, self.cache)
        self.queue = SchedulingQueue(
            self.clock,
            key_of=self._key_of,
            pre_enqueue=lambda pod: self.scheduler.hooks.pre_enqueue(pod, self.cache.snapshot()),
            max_unschedulable=1e9,
            hints=self.hints,
        )
        says = dict.fromkeys(("record", "report", "nominate", "forget", "seen"), _ignore)
        nobody = cast(Any, SimpleNamespace(**says))
        self.outcomes = AttemptOutcomes(
            queue=self.queue, recorder=nobody, status=nobody, metrics=self.metrics, clock=self.clock
        )
        self.groups = PodGroups(self.cache)
        self.bindings: list[Placement] = []
        parts: dict[str, Any] = {
            "cache": self.cache,
            "queue": self.queue,
            "outcomes": self.outcomes,
            "metrics": self.metrics,
            "clock": self.clock,
        }
        self.permits = Permits(groups=self.groups, bindings=self, **parts)
        self.outcomes.on_not_placed = self.permits.failed
        self.loop = SchedulingLoop(scheduler=self.scheduler, bindings=self.permits, **parts)
        self.permits.use(self.scheduler, list)
        self.nodes = NodeHandler(self.cache, self.queue, self.permits.node_gone)
        self._pods = PodHandler(self.cache, self.queue, nobody, lambda pod: True)
        self.pods = GroupHandler(self._pods, self.groups, self.permits)
        self.known: dict[str, Pod] = {}  # by name, as the API server has them

    def _key_of(self, pod: Pod) -> SortKey:
        key = self.scheduler.hooks.queue_key(pod, self.cache.snapshot())
        assert not isinstance(key, PolicyFailure)
        return key

    # --- what the loop hands over ------------------------------------------------------------

    def start(self, placement: Placement) -> None:
        self.queue.done(placement.pod.uid)
        self.bindings.append(placement)

    def run_beside(self, *_: Any) -> None:
        """No plugin does anything."""

    # --- what happens ------------------------------------------------------------------------

    def add(self, pod: Pod) -> None:
        self.known[pod.name] = pod
        self.pods.on_add(pod)

    def change(self, pod: Pod) -> None:
        """Take in *pod* as the new version of the one of its name."""
        before, self.known[pod.name] = self.known[pod.name], pod
        self.pods.on_update(before, pod)

    def delete(self, name: str) -> None:
        self.pods.on_delete(self.known.pop(name))

    def end_binding(self, index: int, *, succeeds: bool) -> None:
        placement = self.bindings.pop(index)
        name = placement.pod.name
        known = self.known.get(name)
        if succeeds and known is not None and known.uid == placement.pod.uid:
            self.outcomes.bound(placement)
            self.known[name] = known.with_node(placement.node)
            self.pods.on_update(known, self.known[name])
            return
        self.cache.forget(placement.pod.uid)
        self.queue.move(ASSIGNED_POD_DELETE, placement.pod, None)
        self.outcomes.not_placed(
            placement.queued,
            Rejection("refused", is_error=True),
            profile=placement.profile,
            revision=placement.revision,
            started_at=placement.started_at,
        )

    def switch(self) -> None:
        self.scheduler = Scheduler(self.bundle, self.evaluator)
        self.loop.scheduler = self.scheduler
        waited = self.permits.use(self.scheduler, lambda: list(self.known.values()))
        self.queue.rekey(self.hints)
        self.queue.activate(waited)

    def turns(self, count: int) -> bool:
        """Decide up to *count* pods; False if there was nothing left to decide."""
        self.permits.work()
        return all(self.loop.schedule_one() for _ in range(count))

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.queue.flush()
        self.permits.work()

    def check(self) -> None:
        self.cache.check_invariants()
        self.queue.check_invariants()
        self.permits.check_invariants()

    # --- at rest -----------------------------------------------------------------------------

    def come_to_rest(self) -> None:
        for _ in range(8):  # the longest backoff, several times over
            for _ in range(20):
                assert not self.turns(MOST_TURNS), "it never comes to rest"
                self.permits.work()
                if not self.bindings and not self.queue.has_poppable:
                    break
                while self.bindings:
                    self.end_binding(0, succeeds=True)
            else:
                raise AssertionError("it goes on for ever")
            self.wait(11.0)
        self.check()

    def placed(self, pods: list[Pod]) -> list[Pod]:
        return [pod for pod in pods if self.known[pod.name].node_name]

    def slots(self, cpu: int) -> int:
        """How many more pods of so many cores fit."""
        infos = [info for info in self.cache.snapshot().infos if info and info.node]
        return sum(
            max(0, info.node.allocatable["cpu"] - info.requested.get("cpu", 0)) // (1000 * cpu)
            for info in infos
            if info.node
        )


def _ignore(*_: Any, **__: Any) -> None:
    """What an API server would be told."""


def member(name: str, group: str, wanted: int, cpu: int, priority: int) -> Pod:
    labels = {"group": group, "min": str(wanted)}
    return make_pod(name, cpu=cpu, labels=labels, priority=priority)
