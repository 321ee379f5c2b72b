"""The answer about one node: what is on it, and which of the pods that wait it could take.

Owns which pods are asked about: the examples of the largest rows of the queue, one after the other,
so that a node costs no more at a time than one explanation.
"""

from collections.abc import Sequence
from typing import Final, Literal

from engine.surfaces.live import nodes_page, queue_page
from engine.surfaces.live.answers import (
    ClassOnNode,
    NodeAnswer,
    NodesPage,
    NodeVerdicts,
    PodAnswer,
    PodsPage,
    QueuePage,
    QueueRow,
    Refusal,
)
from engine.surfaces.live.service import OK, UNKNOWN, Answered, LiveAnswers, Viewer

_MOST_CLASSES: Final = 8


async def node_answer(live: LiveAnswers, viewer: Viewer, name: str) -> Answered:
    """The answer about the node *name*. A standby, which has no queue, shows no pods."""
    status, nodes = await live.nodes(viewer, {"limit": str(nodes_page.MOST_ROWS)})
    if not isinstance(nodes, NodesPage):
        return status, nodes
    node = next((row for row in nodes.rows if row.name == name), None)
    if node is None:
        return UNKNOWN, Refusal(error=f"no node `{name[:80]}` is known here")
    _, pods = await live.pods(viewer, {"node": name})
    _, queue = await live.queue(viewer, {"limit": str(queue_page.MOST_ROWS)})
    rows: Sequence[QueueRow] = ()
    total = 0
    if isinstance(queue, QueuePage):
        rows, total = queue.rows, queue.total_rows
    largest = sorted(rows, key=lambda row: (-row.pods, row.example))[:_MOST_CLASSES]
    return OK, NodeAnswer(
        revision=nodes.revision,
        at=nodes.at,
        leader=nodes.leader,
        node=node,
        pods=pods.rows if isinstance(pods, PodsPage) else (),
        total_pods=pods.total if isinstance(pods, PodsPage) else 0,
        classes=tuple([await _class(live, viewer, row, name) for row in largest]),
        classes_left_out=total - len(largest),
    )


async def _class(live: LiveAnswers, viewer: Viewer, row: QueueRow, node: str) -> ClassOnNode:
    namespace, _, pod = row.example.partition("/")
    _, answer = await live.explain(viewer, {"node": node}, namespace, pod)
    if not isinstance(answer, PodAnswer) or not answer.asked:
        return ClassOnNode(row=row)
    (asked,) = answer.asked
    return ClassOnNode(row=row, verdict=_verdict(asked), rejections=asked.rejections)


def _verdict(asked: NodeVerdicts) -> Literal["fits", "rejects"]:
    return "rejects" if asked.rejections else "fits"
