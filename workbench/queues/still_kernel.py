"""A kernel that knows a copy of a cluster and decides nothing: it sums up the queues of a tree.

Owns making one, and where its pods stand. What is in the queues is the kernel's own to say.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry

from engine.core.caching.cache import Cache
from engine.core.kernel.events import (
    PODS,
    Event,
    LeadershipAcquired,
    ObjectChanged,
    QueueObjectChanged,
    RevisionSwitched,
    TimePassed,
)
from engine.core.kernel.kernel import Kernel
from engine.core.kernel.turn_standing import Standing, hold_text
from engine.core.model.pod import Pod
from engine.core.model.pod_group import NEVER
from engine.core.queueing.scheduling_queue import RetryTimes
from engine.core.scheduling.placement import Preemption
from engine.core.scheduling.plugins.registry import make_plugins
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.core.scheduling.tree_hooks import Hold
from engine.lib.clock import VirtualClock
from engine.policy.bundle import Bundle
from engine.policy.evaluator import Evaluator, PolicyFailure
from engine.policy.queue_tree import QueueTreePolicy
from engine.telemetry.metrics import Metrics

# For so long victims count in the budget of a queue.
_MINUTE: Final = 60.0


class StillKernel:
    """A kernel of *cache* with the pods *pending*, by the policies of *bundle*.

    Pods on nodes count as having run for as long as `minRuntime` wants.

    Args:
        bundle: The policies.
        evaluator: Runs their program; closed by the caller.
        cache: Nodes and the pods on them; the kernel's from then on.
        pending: Pods without a node, in the order in which they came.
        objects: Manifests; those count that the tree of queues names.

    Attributes:
        kernel: The kernel, for reading.
    """

    def __init__(
        self,
        bundle: Bundle,
        evaluator: Evaluator,
        cache: Cache,
        pending: Iterable[Pod],
        objects: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        # Nothing waits: a quota that is asked about again in time would make no end.
        retries = RetryTimes(max_unschedulable=math.inf)
        plugins = make_plugins(cache.objects, clock=VirtualClock())
        self.kernel = Kernel(cache, plugins, metrics=Metrics(CollectorRegistry()), retries=retries)
        self._now = 0.0
        scheduler = Scheduler(bundle, evaluator, plugins=plugins, has_extenders=False)
        self._report(RevisionSwitched(scheduler))
        self._report(LeadershipAcquired())
        tree = bundle.queue_tree
        for event in queue_objects(tree, objects):
            self._report(event)
        for pod in pending:
            self._report(ObjectChanged(PODS, None, pod))
        self._report(TimePassed())
        # Between two takings that know nothing of each other.
        self._apart = _MINUTE if tree is None else _MINUTE + tree.limits.min_runtime
        self._now += self._apart
        self._ask_next()

    def tell(self, event: Event) -> None:
        """Have it know of *event*, and shares follow."""
        self._report(event)
        self._now += 1.0
        self._ask_next()

    def standing_of(self, uid: str) -> Standing | None:
        """Where the pod of *uid* stands, and if it could start were it next; None: in no queue."""
        kernel = self.kernel
        standing, hooks = kernel.turns.standing_of(uid), kernel.shares.hooks
        if standing is None or hooks is None or standing.hold is not None or not standing.is_there:
            return standing
        if not hooks.has("admit"):
            return standing
        answer = hooks.admit(standing.request, standing.path)
        if answer is None:
            return standing
        has_failed = isinstance(answer, PolicyFailure)
        hold = Hold(str(answer), answer.token) if isinstance(answer, PolicyFailure) else answer
        text = hold_text(standing.queue, hold, has_failed=has_failed)
        return dataclasses.replace(
            standing, head=standing.pod, hold=hold, text=text, has_failed=has_failed
        )

    def taken_for(self, standing: Standing) -> Preemption | None:
        """Who would have to give back for a pod that is held, by itself; None: none.

        Of pods of a group nothing is known.
        """
        kernel, uid = self.kernel, standing.pod.uid
        hold, queued = standing.hold, kernel.queue.get(uid)
        if not kernel.reclaims.is_on or hold is None or hold.short is None or queued is None:
            return None
        may_evict = standing.pod.manifest.spec.preemption_policy != NEVER
        if not may_evict or kernel.groups.tried_in(uid) is not None:
            return None
        # As if nothing had been taken before.
        self._now += self._apart
        self._report(TimePassed())
        scheduler = kernel.schedulers.of(queued.pod)
        found = kernel.reclaims.for_pod(queued, standing.queue, scheduler)
        return None if found is None else found[0]

    def _report(self, event: Event) -> None:
        self.kernel.handle(event, self._now)

    def _ask_next(self) -> None:
        """Ask what goes next, so that queues are in order and those are held that may not start.

        What may is put back.
        """
        self._report(TimePassed())
        first = self.kernel.turns.pop()
        if first is not None:
            self.kernel.turns.add(first)


def queue_objects(
    tree: QueueTreePolicy | None, manifests: Iterable[Mapping[str, Any]]
) -> list[QueueObjectChanged]:
    """Those of *manifests* that *tree* reads, as what a watch reports; none without a tree."""
    kinds = set() if tree is None else {(one.api_version, one.kind) for one in tree.objects}
    found = []
    for manifest in manifests:
        kind = str(manifest.get("kind"))
        if (manifest.get("apiVersion"), kind) in kinds:
            metadata = manifest.get("metadata") or {}
            names: Sequence[Any] = metadata.get("namespace"), metadata.get("name")
            key = "/".join(str(name) for name in names if name)
            found.append(QueueObjectChanged(kind, key, manifest))
    return found
