"""How an attempt holds a node, releases it, and ends.

Owns each step together with its undo: what counts a pod on a node before the API server does is
here, next to what reverts it. Also owns how a failed attempt ends: its pod goes back to the queue,
with or without a nomination, and the failure is reported.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from engine.core.caching.cache import Cache
from engine.core.framework import reasons
from engine.core.framework.status import Code, Status
from engine.core.kernel.instructions import (
    Instruction,
    PodAssumed,
    PodForgotten,
    PodUncounted,
    ReportFailure,
)
from engine.core.model.pod import Pod
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.queueing.scheduling_queue import SchedulingQueue
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.placement import Placement, Rejection
from engine.core.scheduling.runtime_plugin import reserve_failure


class Attempts:
    """Begins and ends attempts.

    Args:
        cache: Where pods are assumed.
        queue: Where pods that were not placed go back to.
        out: Receives the instructions.
    """

    def __init__(self, cache: Cache, queue: SchedulingQueue, out: list[Instruction]) -> None:
        self._cache = cache
        self._queue = queue
        self._out = out
        self._failed: list[Pod] = []

    # --- holding a node ----------------------------------------------------------------------

    def hold(
        self, queued: QueuedPod, decision: Decision, node: str, started_at: float
    ) -> Placement | Rejection:
        """Count the pod on *node*, and have plugins hold what it needs there.

        If one of them refuses, nothing is held, and the refusal is returned. Raises
        `AlreadyAssumed` if the pod counts somewhere.
        """
        pod = queued.pod
        if decision.annotations:
            pod = pod.with_annotations(decision.annotations)
        placement = Placement(
            queued=queued,
            pod=self.assume(pod, node),
            node=node,
            profile=pod.scheduler_name,
            revision=decision.revision,
            started_at=started_at,
            reserves=decision.reserves,
        )
        if not decision.reserves:
            return placement
        with ExitStack() as undo:
            undo.callback(self.release, placement)
            for plugin, state in decision.reserves:
                refusal = plugin.reserve(state, placement.pod, node)
                if refusal is not None:
                    return _refused(plugin.name, refusal)
            undo.pop_all()
        return placement

    def assume(self, pod: Pod, node: str) -> Pod:
        """Count *pod* on *node*; returns the copy that counts. Raises `AlreadyAssumed`."""
        namesake = self._cache.uid_of(pod.key)
        assumed = self._cache.assume(pod, node)
        if namesake is not None:  # another pod: this one would have been refused
            self._out.append(PodUncounted(namesake))
        self._out.append(PodAssumed(pod.uid, node, pod.added_annotations))
        return assumed

    def release(self, placement: Placement) -> None:
        """Undo `hold`: plugins unreserve in reverse order, the pod no longer counts on its node."""
        self.unreserve(placement.reserves, placement.pod, placement.node)
        self.forget(placement.pod.uid)

    def unreserve(self, reserves: Sequence[tuple[Any, Any]], pod: Pod, node: str) -> None:
        """Have plugins release what they hold for *pod*."""
        for plugin, state in reversed(reserves):
            plugin.unreserve(state, pod, node)

    def forget(self, uid: str) -> None:
        """Stop counting a pod that is only assumed. What plugins hold for it stays."""
        self._out.append(PodForgotten(uid, self._cache.forget(uid)))

    # --- the end of an attempt ---------------------------------------------------------------

    def fail(
        self,
        queued: QueuedPod,
        rejection: Rejection,
        *,
        profile: str,
        revision: str,
        started_at: float,
        is_logged: bool = True,
    ) -> None:
        """Put the pod of a failed attempt back into the queue, if it still wants a node."""
        tried_because = queued.tried_because
        is_repeat = queued.rejection == rejection.reason and (
            not rejection.is_error or queued.message == rejection.message
        )
        # 1. The queue knows the pod's newest version, and whether it was deleted or bound.
        is_queued = self._queue.requeue(
            queued, rejection.rejectors, reason=rejection.reason, message=rejection.message
        )
        pod = queued.pod
        # 2. The nomination, in force for the next decision.
        if is_queued and rejection.nominated_node is not None:
            self._queue.nominator.nominate(pod, rejection.nominated_node)
        self._failed.append(pod)
        self._out.append(
            ReportFailure(
                pod,
                rejection,
                queued.attempts,
                tried_because,
                profile,
                revision,
                started_at,
                is_queued,
                is_logged,
                is_repeat,
            )
        )

    def fail_placement(self, placement: Placement, rejection: Rejection) -> None:
        """As `fail`, for a pod that had a node; it has to be released before."""
        self.fail(
            placement.queued,
            rejection,
            profile=placement.profile,
            revision=placement.revision,
            started_at=placement.started_at,
        )

    def take_failed(self) -> list[Pod]:
        """The pods whose attempts failed since the last call."""
        failed, self._failed = self._failed, []
        return failed

    @property
    def has_failed(self) -> bool:
        """True if `take_failed` would return a pod."""
        return bool(self._failed)


def _refused(plugin: str, status: Status) -> Rejection:
    """The rejection of a pod for which a plugin could not reserve."""
    if status.code is Code.ERROR:
        failure = reserve_failure(replace(status, plugin=plugin))
        reason = reasons.failure(failure.token, plugin)
        return Rejection(str(failure), is_error=True, reason=reason)
    message = f"0/1 nodes are available: 1 {status.message}."
    reason = reasons.rejection(status)
    return Rejection(message, is_error=False, rejectors=frozenset({plugin}), reason=reason)
