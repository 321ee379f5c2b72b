"""What another text would change about the queues of a tree: shares, order, and which there are.

Owns the comparison. Pods that would start, or stop being admitted, are differences of pods and
`workbench.plan.plan`'s.
"""

import dataclasses
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from engine.core.kernel.kernel import Kernel
from engine.core.sharing.tree import ROOT
from engine.language.syntax import with_loaded
from engine.policy.bundle import Bundle

# Rows that are kept; how many others there are is said.
_MOST: Final = 1_000

Vector: TypeAlias = Mapping[str, int]


class QueueChange(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that another text gives another share, or another place.

    Attributes:
        queue: Its path.
        is_new, is_gone: Only the candidate has it, or only the policies in force.
        pods: How many it has, those below it included; by the policies that have it.
        share_before, share_after: The amounts that differ; null if there are no shares. Of a
            resource that one of them does not name it gets nothing.
        place_before, place_after: Among the queues under the same one that have pods to try, 1 goes
            next; null if it has none.
    """

    queue: str
    is_new: bool = False
    is_gone: bool = False
    pods: int = 0
    share_before: Vector | None = None
    share_after: Vector | None = None
    place_before: int | None = None
    place_after: int | None = None


class QueueComparison(msgspec.Struct, frozen=True, kw_only=True):
    """How the queues of two texts differ.

    Attributes:
        policy_before, policy_after: Those that govern the queues; "" if there is no tree.
        vanished: How many queues only the policies in force have, and `appeared` the candidate.
        reordered: How many go at another place.
        changes: The queues that differ, those that vanish first, then those with the most pods.
        left_out: How many are not listed.
        causes, place: The changed files that make it, and the changed line of one of them.
    """

    policy_before: str = ""
    policy_after: str = ""
    vanished: int = 0
    appeared: int = 0
    reordered: int = 0
    changes: tuple[QueueChange, ...] = ()
    left_out: int = 0
    causes: tuple[str, ...] = ()
    place: str = ""


class QueueStand(msgspec.Struct, frozen=True):
    """How a queue stands: its pods, its share, and its place if it has pods to try."""

    pods: int
    share: Vector | None
    place: int | None


Stands: TypeAlias = Mapping[str, QueueStand]


def stands_of(kernel: Kernel) -> Stands:
    """How each queue of *kernel* stands, without the root; empty without a tree."""
    shares = kernel.shares
    if not shares.is_on:
        return {}
    places: dict[str, int] = {}
    for path, queue in shares.tree.queues.items():
        if queue.children:
            places |= {one: at for at, one in enumerate(kernel.turns.order_below(path), 1)}
    found = {}
    for state in shares.states():
        path, share = state.queue.path, state.standing.share
        if path != ROOT:
            kept = None if share is None else dict(share)
            found[path] = QueueStand(state.sums.pod_count, kept, places.get(path))
    return found


def compare_queues(
    before: Stands, after: Stands, policies: tuple[str, str]
) -> QueueComparison | None:
    """How they differ; None if neither text has a tree. *policies* govern them."""
    if not any(policies):
        return None
    changes = [
        change
        for path in sorted({*before, *after})
        if (change := _change(path, before.get(path), after.get(path))) is not None
    ]
    changes.sort(key=lambda one: (not one.is_gone, -one.pods, one.queue))
    return QueueComparison(
        policy_before=policies[0],
        policy_after=policies[1],
        vanished=sum(one.is_gone for one in changes),
        appeared=sum(one.is_new for one in changes),
        reordered=sum(
            one.place_before != one.place_after and not (one.is_gone or one.is_new)
            for one in changes
        ),
        changes=tuple(changes[:_MOST]),
        left_out=max(0, len(changes) - _MOST),
    )


def is_same_tree(one: Bundle, other: Bundle) -> bool:
    """True if both bundles govern the same queues by the same text; also if neither has any."""
    return _tree_of(one) == _tree_of(other)


def _tree_of(bundle: Bundle) -> tuple[object, ...] | None:
    """All that what a tree says depends on; None without a tree."""
    tree = bundle.queue_tree
    if tree is None:
        return None
    made = bundle.program.instances[tree.instance]
    texts = {name: bundle.files[name] for name in with_loaded(bundle.files, [made.module])}
    given = [dataclasses.replace(queue, source="") for queue in tree.given]
    rest = dataclasses.replace(tree, instance=0, given=())
    return rest, given, made.args, texts


def _change(path: str, before: QueueStand | None, after: QueueStand | None) -> QueueChange | None:
    if before == after:
        return None
    there = before or after
    assert there is not None, "it is in one of both"
    share_before = None if before is None else before.share
    share_after = None if after is None else after.share
    names = {
        name
        for name in {*(share_before or {}), *(share_after or {})}
        if (share_before or {}).get(name, 0) != (share_after or {}).get(name, 0)
    }
    change = QueueChange(
        queue=path,
        is_new=before is None,
        is_gone=after is None,
        pods=there.pods,
        share_before=_of(share_before, names),
        share_after=_of(share_after, names),
        place_before=None if before is None else before.place,
        place_after=None if after is None else after.place,
    )
    is_same = not names and change.place_before == change.place_after
    return None if is_same and not (change.is_new or change.is_gone) else change


def _of(share: Vector | None, names: set[str]) -> Vector | None:
    return None if share is None else {name: share.get(name, 0) for name in sorted(names)}
