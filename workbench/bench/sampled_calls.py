"""Samples the calls of hooks while a workload is decided, for benchmarks to repeat.

The calls are those of the engine in a simulation: a hook gets only the fields that it reads, nodes
that are alike are evaluated once, and known verdicts are reused. So the number of calls of a hook
matters as much as the cost of one.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from engine.policy.bundle import Bundle
from engine.policy.evaluator import Call, Evaluator, PolicyFailure, Verdict
from workbench.simulation.simulation import Simulation
from workbench.simulation.workload import Arrival, Workload

# The calls of a hook that may end the sandbox, each of which costs much time.
_MOST_LOST: Final = 3


class LostHookError(Exception):
    """A hook ends the sandbox too often to be measured."""


@dataclass(slots=True)
class HookCalls:
    """The calls of one hook.

    Attributes:
        policy, hook: Which.
        calls: The number of calls: each of one pod, with all nodes without a known verdict.
        entries: The number of evaluations: one for each node, or one for a pod.
        failures: The number of evaluations without a verdict.
        lost: The calls that ended the sandbox.
        sample: Some of the calls.
    """

    policy: str
    hook: str
    calls: int = 0
    entries: int = 0
    failures: int = 0
    lost: int = 0
    sample: list[Call] = field(default_factory=list)


def entries_of(call: Call) -> int:
    """The number of evaluations in *call*."""
    return 1 if call.nodes is None or call.hook == "score_all" else len(call.nodes)


class _Listener:
    """Passes calls on and keeps a uniform sample of them: those that a sandbox would get.

    The caller closes the evaluator.
    """

    def __init__(self, bundle: Bundle, evaluator: Evaluator, most: int, seed: int) -> None:
        self._names = [instance.policy for instance in bundle.program.instances]
        self._evaluator = evaluator
        self._most = most
        self._chance = random.Random(seed)
        self.heard: dict[tuple[int, str], HookCalls] = {}
        # Hooks that are not called any more, with the reason.
        self.lost: dict[tuple[int, str], PolicyFailure] = {}

    def evaluate(self, calls: Sequence[Call]) -> Sequence[Sequence[Verdict | PolicyFailure]]:
        """One list of verdicts per call, in the order of *calls*."""
        if self.lost:
            # Each would take as long; the loop continues whatever is raised here.
            return [self._answer(call) for call in calls]
        answers = self._evaluator.evaluate(calls)
        for call, answer in zip(calls, answers, strict=True):
            key = call.instance, call.hook
            known = self.heard.get(key)
            if known is None:
                name = self._names[call.instance]
                known = self.heard[key] = HookCalls(name, call.hook)
            known.calls += 1
            known.entries += entries_of(call)
            failures = [one for one in answer if isinstance(one, PolicyFailure)]
            known.failures += len(failures)
            losses = [one for one in failures if one.is_transient]
            known.lost += bool(losses)
            if known.lost >= _MOST_LOST:
                self.lost.setdefault(key, losses[0])
            if len(known.sample) < self._most:
                known.sample.append(call)
            elif (place := self._chance.randrange(known.calls)) < self._most:
                known.sample[place] = call
        return answers

    def close(self) -> None:
        """Do nothing: the caller closes the evaluator behind it."""

    def _answer(self, call: Call) -> Sequence[Verdict | PolicyFailure]:
        failure = self.lost.get((call.instance, call.hook))
        if failure is not None:
            return [failure] * entries_of(call)
        return self._evaluator.evaluate([call])[0]


def sample_calls(
    bundle: Bundle, evaluator: Evaluator, workload: Workload, *, most: int, seed: int
) -> list[HookCalls]:
    """The calls of *bundle*'s hooks while *workload* is decided, with a sample of *most* for each.

    Raises `ManifestError` for a cluster that cannot be built, and `LostHookError`.
    """
    listener = _Listener(bundle, evaluator, most, seed)
    Simulation(bundle, listener, workload).run()
    for failure in listener.lost.values():
        raise LostHookError(f"policy `{failure.policy}`: {failure}")
    return [listener.heard[key] for key in sorted(listener.heard)]


def with_arrivals(workload: Workload, pods: int, seed: int) -> Workload:
    """*workload* with at least *pods* arriving pods, if it has that many.

    A cluster at rest has no pending pods, so some placed ones are removed from their nodes, in an
    order given by the seed, and arrive again.
    """
    missing = pods - len(workload.arrivals)
    placed = list(workload.cluster.placed_pods())
    if missing <= 0 or not placed:
        return workload
    chosen = random.Random(seed).sample(placed, min(missing, len(placed)))
    taken = {id(manifest) for manifest in chosen}
    rest = [manifest for manifest in workload.cluster.pods if id(manifest) not in taken]
    arrivals = [
        *workload.arrivals,
        *(Arrival(0.0, workload.cluster.pod_of(manifest)) for manifest in chosen),
    ]
    return replace(workload, cluster=replace(workload.cluster, pods=rest), arrivals=arrivals)
