"""What-if answers: a question, what is found out on a copy, and what the caller may see of it.

Owns the sentences about what is not taken into account.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from engine.core.kernel.kernel import Kernel
from engine.lib.printable import counted
from engine.surfaces.live.answers import Leader
from engine.surfaces.live.explainer import Explainer, LimitReached, MakeCluster
from engine.surfaces.live.what_if.answers import (
    BestShapeAnswer,
    Counts,
    ShapeAnswer,
    WhatIfAnswer,
    WouldEnd,
    WouldStart,
    WouldWait,
)
from engine.surfaces.live.what_if.best_shape import (
    Offer,
    Outcome,
    best_first,
    try_offer,
    waiting_of,
)
from engine.surfaces.live.what_if.changes import AddNodes, Change, Drain
from engine.surfaces.live.what_if.imagined_cluster import Found, ImaginedCluster, Tracked
from engine.surfaces.live.what_if.shapes import Shape

#: Rows of each kind that are listed.
MOST_ROWS: Final = 1_000
HIDDEN: Final = "(a pod of another namespace)"

Row = TypeVar("Row", WouldStart, WouldWait, WouldEnd)


class WhatIf:
    """Asks what would become of the pods of *kernel*'s cluster.

    Args:
        kernel: Of which nothing is changed.
        explainer: Whose thread and policies answer.
        types: The machine types that can be asked for.
    """

    def __init__(self, kernel: Kernel, explainer: Explainer, types: Mapping[str, Shape]) -> None:
        self._kernel = kernel
        self._explainer = explainer
        self._types = dict(types)

    @property
    def machine_types(self) -> tuple[str, ...]:
        """The names of the machine types."""
        return tuple(sorted(self._types))

    async def answer(self, changes: tuple[Change, ...], at: str, leader: Leader) -> WhatIfAnswer:
        """What *changes* would come to; without, only what can be asked for.

        Raises `WrongQuestion`, and as `Explainer.explain`.
        """
        if not changes:
            return WhatIfAnswer(
                revision="", at=at, leader=leader, changes=(), machine_types=self.machine_types
            )

        def ask(make: MakeCluster) -> WhatIfAnswer:
            cluster = make(self._types)
            cluster.change(changes)
            found = cluster.found
            return WhatIfAnswer(
                revision=cluster.bundle.revision,
                at=at,
                leader=leader,
                changes=tuple(found.changes),
                added=tuple(found.added),
                counts=_counts(found),
                start=tuple(_starts(found.tracked.values(), found.added)),
                wait=tuple(_waits(cluster)),
                end=tuple(_ends(found)),
                left_out=cluster.left_out,
                notes=_notes(cluster, changes),
                machine_types=self.machine_types,
            )

        return await self._explainer.imagine(ask)

    async def best_shape(
        self, offers: tuple[Offer, ...], at: str, leader: Leader
    ) -> BestShapeAnswer:
        """Which of *offers* helps most. Raises `WrongQuestion`, and as `Explainer.explain`."""

        def ask(make: MakeCluster) -> BestShapeAnswer:
            outcomes, last = list[Outcome](), list[ImaginedCluster]()

            def made() -> ImaginedCluster:
                last[:] = [make(self._types)]
                return last[0]

            for offer in offers:
                try:
                    outcomes.append(try_offer(offer, made, LimitReached))
                except LimitReached:
                    if not outcomes:
                        raise
                    outcomes.append(Outcome(offer, 0, [], [], (), is_complete=False))
            cluster = last[0]
            ordered = best_first(outcomes)
            best = ordered[0] if ordered[0].helped else None
            return BestShapeAnswer(
                revision=cluster.bundle.revision,
                at=at,
                leader=leader,
                best="" if best is None else best.offer.name,
                reason=_why_best(ordered),
                shapes=tuple(_shape(one) for one in ordered),
                left_out=cluster.left_out,
                notes=_notes(cluster, [AddNodes(1, one.like or one.name) for one in offers]),
            )

        return await self._explainer.imagine(ask)


def namespaces_in(answer: WhatIfAnswer | BestShapeAnswer) -> set[str]:
    """The namespaces of the pods that *answer* lists."""
    if isinstance(answer, BestShapeAnswer):
        return {_namespace(pod.pod) for shape in answer.shapes for pod in shape.pods}
    rows: Sequence[WouldStart | WouldWait | WouldEnd] = (*answer.start, *answer.wait, *answer.end)
    return {_namespace(one.pod) for one in rows} | {
        _namespace(one.by) for one in answer.end if one.by
    }


def shown(answer: WhatIfAnswer, readable: Collection[str] | None) -> WhatIfAnswer:
    """*answer* with the pods of *readable* namespaces alone (None: all), and not too many rows."""
    start, hidden_start, more_start = _cut(answer.start, readable)
    wait, hidden_wait, more_wait = _cut(answer.wait, readable)
    end, hidden_end, more_end = _cut(answer.end, readable)
    if readable is not None:
        end = tuple(
            one if not one.by or _namespace(one.by) in readable else _by_hidden(one) for one in end
        )
    return msgspec.structs.replace(
        answer,
        start=start,
        wait=wait,
        end=end,
        hidden_pods=hidden_start + hidden_wait + hidden_end,
        rows_left_out=more_start + more_wait + more_end,
    )


def shapes_shown(answer: BestShapeAnswer, readable: Collection[str] | None) -> BestShapeAnswer:
    """The same of the answer about shapes."""
    shapes = []
    for shape in answer.shapes:
        pods, hidden, more = _cut(shape.pods, readable)
        shapes.append(
            msgspec.structs.replace(shape, pods=pods, hidden_pods=hidden, rows_left_out=more)
        )
    return msgspec.structs.replace(answer, shapes=tuple(shapes))


# --- rows --------------------------------------------------------------------------------------


def _starts(tracked: Iterable[Tracked], added: Collection[str]) -> Iterator[WouldStart]:
    for one in tracked:
        if one.node:
            yield WouldStart(
                pod=one.pod.key,
                node=one.node,
                origin=one.origin,
                was_on=one.was_on,
                is_new_node=one.node in added,
                anyway=one.anyway,
            )


def _waits(cluster: ImaginedCluster) -> Iterator[WouldWait]:
    for one in waiting_of(cluster):
        token, message = cluster.reason_of(one.pod)
        yield WouldWait(
            pod=one.pod.key, token=token, message=message, origin=one.origin, was_on=one.was_on
        )


def _ends(found: Found) -> Iterator[WouldEnd]:
    for one in found.ended:
        yield WouldEnd(
            pod=one.pod.key, node=one.pod.node_name, by=one.by, comes_back=one.comes_back
        )


def _counts(found: Found) -> Counts:
    of_now = [one for one in found.tracked.values() if one.origin == "waiting"]
    others = [one for one in found.tracked.values() if one.origin != "waiting"]
    return Counts(
        start=sum(bool(one.node) and not one.anyway for one in of_now),
        anyway=sum(bool(one.node) and one.anyway for one in of_now),
        wait=sum(not one.node for one in of_now),
        moved=sum(bool(one.node) for one in others),
        unplaced=sum(not one.node for one in others),
        lost=sum(not one.comes_back for one in found.ended),
    )


def _shape(outcome: Outcome) -> ShapeAnswer:
    return ShapeAnswer(
        name=outcome.offer.name,
        nodes=outcome.nodes,
        helped=len(outcome.helped),
        cost=round(outcome.cost, 6),
        pods=tuple(_starts(outcome.helped, outcome.added)),
        still_waiting=outcome.still_waiting,
        is_complete=outcome.is_complete,
    )


def _cut(
    rows: tuple[Row, ...], readable: Collection[str] | None
) -> tuple[tuple[Row, ...], int, int]:
    """The rows that are listed, how many are hidden, and how many are too many."""
    seen = [one for one in rows if readable is None or _namespace(one.pod) in readable]
    return tuple(seen[:MOST_ROWS]), len(rows) - len(seen), max(0, len(seen) - MOST_ROWS)


def _by_hidden(one: WouldEnd) -> WouldEnd:
    return msgspec.structs.replace(one, by=HIDDEN)


def _namespace(pod: str) -> str:
    return pod.partition("/")[0]


# --- sentences ---------------------------------------------------------------------------------


def _why_best(ordered: list[Outcome]) -> str:
    best = ordered[0]
    if not best.helped:
        return "no shape helps a pod that waits"
    helps = f"{counted(best.nodes, 'node')} of `{best.offer.name}` would start"
    text = f"{helps} {counted(len(best.helped), 'pod')} for {best.cost:g}"
    if len(ordered) == 1:
        return text
    next_one = ordered[1]
    than = f"`{next_one.offer.name}` {len(next_one.helped):,} for {next_one.cost:g}"
    return f"{text}; the next best is {than}"


def _notes(cluster: ImaginedCluster, changes: Iterable[Change]) -> tuple[str, ...]:
    """What is not taken into account, of what concerns this question."""
    notes = []
    bundle, found = cluster.bundle, cluster.found
    if bundle.configuration is not None and bundle.configuration.extenders:
        notes.append("extenders are not asked")
    if any(isinstance(one, Drain) for one in changes):
        notes.append(
            "drained pods go at once: budgets of disruption and grace periods do not count"
        )
    if any(one.comes_back for one in found.ended):
        notes.append("which of equal nodes a pod that is made again gets is not known before")
    if any(one.by for one in found.ended):
        notes.append("pods that are evicted for others go at once, and come back as new pods")
    if found.added:
        notes.append(
            "new nodes are ready at once, and have the pods of DaemonSets of the node that they "
            "are like; those of a machine type have none"
        )
        if cluster.has_devices:
            notes.append("new nodes have no devices of ResourceSlices")
    if bundle.queue_tree is not None and cluster.kernel.reclaims.is_on:
        notes.append("pods count as having run for `minRuntime`")
    if cluster.left_out:
        notes.append(
            f"{counted(cluster.left_out, 'pod')} that come last in the queue were not considered"
        )
    return tuple(notes)
