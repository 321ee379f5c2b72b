"""A kernel that knows a copy of a cluster and decides nothing: it sums up the queues of a tree.

Owns making one, and where its pods stand. What is in the queues is the kernel's own to say.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
from engine.core.queueing.scheduling_queue import RetryTimes
from engine.core.scheduling.plugins.registry import make_plugins
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.core.scheduling.tree_hooks import Hold
from engine.lib.clock import VirtualClock
from engine.policy.bundle import Bundle
from engine.policy.evaluator import Evaluator, PolicyFailure
from engine.policy.queue_tree import QueueTreePolicy
from engine.telemetry.metrics import Metrics


def still_kernel(
    bundle: Bundle,
    evaluator: Evaluator,
    cache: Cache,
    pending: Iterable[Pod],
    objects: Iterable[Mapping[str, Any]] = (),
) -> Kernel:
    """A kernel of *cache* with the pods *pending*, by the policies of *bundle*.

    *evaluator* runs its program, and is the caller's to close.
    *objects* are manifests; those count that the tree of queues names.
    """
    # Nothing waits: a quota that is asked about again in time would make no end.
    retries = RetryTimes(max_unschedulable=math.inf)
    clock = VirtualClock()
    plugins = make_plugins(cache.objects, clock=clock)
    kernel = Kernel(cache, plugins, metrics=Metrics(CollectorRegistry()), retries=retries)

    def report(event: Event) -> None:
        kernel.handle(event, clock.monotonic())

    report(RevisionSwitched(Scheduler(bundle, evaluator, plugins=plugins, has_extenders=False)))
    report(LeadershipAcquired())
    tree = bundle.queue_tree
    for event in () if tree is None else queue_objects(tree, objects):
        report(event)
    for pod in pending:
        report(ObjectChanged(PODS, None, pod))
    report(TimePassed())
    _ask_next(kernel)
    return kernel


def tell(kernel: Kernel, event: Event, at: float) -> None:
    """Have a still kernel know of *event* at the time *at*, at least a second after the last."""
    kernel.handle(event, at)
    kernel.handle(TimePassed(), at)  # shares follow
    _ask_next(kernel)


def _ask_next(kernel: Kernel) -> None:
    """Ask what goes next, so that queues are in order and those are held that may not start.

    What may is put back.
    """
    first = kernel.turns.pop()
    if first is not None:
        kernel.turns.add(first)


def queue_objects(
    tree: QueueTreePolicy, manifests: Iterable[Mapping[str, Any]]
) -> list[QueueObjectChanged]:
    """Those of *manifests* that *tree* reads, as what a watch reports."""
    kinds = {(one.api_version, one.kind) for one in tree.objects}
    found = []
    for manifest in manifests:
        kind = str(manifest.get("kind"))
        if (manifest.get("apiVersion"), kind) in kinds:
            metadata = manifest.get("metadata") or {}
            names: Sequence[Any] = metadata.get("namespace"), metadata.get("name")
            key = "/".join(str(name) for name in names if name)
            found.append(QueueObjectChanged(kind, key, manifest))
    return found


def standing_on_a_copy(kernel: Kernel, uid: str) -> Standing | None:
    """Where the pod of *uid* stands, and if it could start were it next; None: in no queue."""
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
