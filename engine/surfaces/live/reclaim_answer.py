"""What queues would give back for a pod that waits, as a record.

Owns the sentences, and the bound of the time. Victims are found as by the scheduler itself, on a
copy.
"""

import math
from collections.abc import Callable
from typing import Final

from engine.core.caching.snapshot import Snapshot
from engine.core.kernel.victim_search import (
    Found,
    ReclaimCase,
    SnapshotNodes,
    VictimSearch,
    budget_wait,
)
from engine.core.model.pod_group import NEVER
from engine.core.queueing.nominator import Nominator
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.lib.printable import counted
from engine.policy.queue_tree_config import ReclaimLimits
from engine.surfaces.live.answers import PreemptionAnswer, Victim, WhyNot
from engine.surfaces.live.rules import Rules

#: Seconds that looking for victims may take.
LIMIT_SECONDS: Final = 2.0
_MOST_VICTIMS: Final = 50


class _TooLong(Exception):
    """Looking for victims took too long."""


def reclaim_answer(
    case: ReclaimCase,
    scheduler: Scheduler,
    rules: Rules,
    snapshot: Snapshot,
    nominator: Nominator,
    stopwatch: Callable[[], float],
) -> PreemptionAnswer:
    """What queues would give back in *case*, or why nothing; by *stopwatch* in `LIMIT_SECONDS`.

    *snapshot* is a copy, and as it was in the end.
    """
    tree = scheduler.tree
    assert tree is not None, "a case is of a tree"
    limits, rule = tree.tree.limits, rules.hook(tree.tree.policy, "reclaim")
    if case.pod.manifest.spec.preemption_policy == NEVER:
        return _none(rule, "its `preemptionPolicy` is `Never`")
    ends_at = stopwatch() + LIMIT_SECONDS

    def check() -> None:
        if stopwatch() > ends_at:
            raise _TooLong

    search = VictimSearch(case.holdings, SnapshotNodes(snapshot), scheduler, check)
    now = case.now
    try:
        found = search.for_case(case, nominator, now)
        if not found.pods and found.plan.failure is None and found.left_out.for_now:
            # As it will be once they have run for long enough.
            now += limits.min_runtime
            found = search.for_case(case, nominator, now)
    except _TooLong:
        text = f"looking for pods that may go takes longer than {LIMIT_SECONDS:g} s"
        return _none(rule, text)
    if found.plan.failure is not None:
        return _none(rule, str(found.plan.failure))
    if not found.pods:
        return _none(rule, _why_none(found))
    return _would(case, found, limits, rule)


def _would(case: ReclaimCase, found: Found, limits: ReclaimLimits, rule: str) -> PreemptionAnswer:
    """Who gives back, and when if that is not now."""
    holdings, most = case.holdings, limits.victims_per_minute
    queues = {uid: one.queue for one in found.plan.victims for uid in one.uids}
    free_at = max(holdings.free_at(uid, case.queue, limits.min_runtime) for uid in queues)
    waits = (
        (free_at - case.now, f"they have not run for `minRuntime` ({limits.min_runtime:g} s)"),
        (
            budget_wait(case.victims_at, len(found.pods), most, case.now),
            f"queue `{case.queue}` has had its {most:,} `victimsPerMinute`",
        ),
    )
    seconds = max(0, *(math.ceil(wait) for wait, _ in waits))
    victims = tuple(
        Victim(
            pod.key,
            pod.priority,
            f"queue `{queues[pod.uid]}` gives it back to `{case.queue}`",
            queues[pod.uid],
        )
        for pod in found.pods[:_MOST_VICTIMS]
    )
    return PreemptionAnswer(
        outcome="would_evict_later" if seconds else "would_evict",
        node=found.node,
        victims=victims,
        why_not=tuple(WhyNot(f"in {math.ceil(wait)} s: {why}") for wait, why in waits if wait > 0),
        rule=rule,
        in_seconds=seconds,
        pods=len(case.taking),
    )


def _none(rule: str, reason: str) -> PreemptionAnswer:
    text = f"queues give nothing back: {reason}"
    return PreemptionAnswer(outcome="cannot_help", why_not=(WhyNot(text),), rule=rule)


def _why_none(found: Found) -> str:
    left = found.left_out
    others = [
        f"{counted(count, 'pod')} {text}"
        for count, text in (
            (left.kept, "may not be evicted (not preemptible, `victim_key`, or a budget)"),
            (left.own, "of its own queue that are not less important"),
        )
        if count
    ]
    if not found.candidates:
        return ", ".join(["no pod is a candidate", *others])
    said = f"of {counted(found.candidates, 'candidate')} `reclaim` lets "
    if not found.plan.allowed:
        return ", ".join([f"{said}none go", *others])
    return ", ".join([f"{said}{found.plan.allowed:,} go, which is not enough", *others])
