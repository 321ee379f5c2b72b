"""Finds what would let a request start that its queue holds.

Owns asking the policy again: with a higher amount in an attribute, and with less in use. Nothing is
promised that `admit` does not say.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from engine.core.kernel.turn_standing import Standing
from engine.core.model.quantity import amount_text
from engine.core.scheduling.tree_hooks import Hold, QueueView, TreeHooks
from engine.explaining.remedies import Remedy
from engine.policy.evaluator import PolicyFailure

# A quota at each level may have to be raised: of so many queues at most.
_MOST_RAISES: Final = 8


def queue_remedies(hooks: TreeHooks, standing: Standing, nodes: int) -> Iterator[Remedy]:
    """What would let the request of *standing* start; then *nodes* would take the pod.

    Asks `admit` a few times for each queue above the pod.
    """
    hold = standing.hold
    if hold is None or hold.short is None or not standing.is_there or not hooks.has("admit"):
        return
    if (raised := _raised(hooks, standing, hold)) is not None:
        yield Remedy(hooks.tree.policy, raised, nodes)
    resource, by = hold.short
    freed = [_with_less(view, resource, by) for view in standing.path]
    if hooks.admit(standing.request, freed) is None:
        text = f"{amount_text(resource, by)} less in use by {_named(hold.at)}"
        yield Remedy(hooks.tree.policy, text, nodes)


def _raised(hooks: TreeHooks, standing: Standing, hold: Hold) -> str | None:
    """Which attributes to raise by how much; None if that does not help."""
    path, texts = list(standing.path), list[str]()
    for _ in range(_MOST_RAISES):
        if hold.short is None:
            return None
        for at, text, view in _raises(path, hold, *hold.short):
            tried = [*path[:at], view, *path[at + 1 :]]
            answer = hooks.admit(standing.request, tried)
            if isinstance(answer, PolicyFailure) or answer == hold:
                continue
            texts.append(text)
            if answer is None:
                return " and ".join(texts)
            path, hold = tried, answer
            break
        else:
            return None
    return None


def _raises(
    path: Sequence[QueueView], hold: Hold, resource: str, by: int
) -> Iterator[tuple[int, str, QueueView]]:
    """Each attribute with an amount of *resource*, raised: of the queue that is short first."""
    numbered = sorted(enumerate(path), key=lambda one: one[1].queue.path != hold.at)
    for at, view in numbered:
        queue = view.queue
        for name, value in queue.attributes.items():
            if not isinstance(value, Mapping) or not isinstance(value.get(resource), int):
                continue
            amounts: Mapping[str, Any] = {**value, resource: value[resource] + by}
            raised = dataclasses.replace(queue, attributes={**queue.attributes, name: amounts})
            source = f" ({queue.source})" if queue.source else ""
            text = (
                f"raise `{name}` of {_named(queue.path)} to "
                f"{amount_text(resource, amounts[resource])}{source}"
            )
            yield at, text, dataclasses.replace(view, queue=raised)


def _with_less(view: QueueView, resource: str, by: int) -> QueueView:
    """*view* as if *by* less were in use below it."""
    vectors = {name: dict(vector) for name, vector in view.sums.vectors.items()}
    for name in ("allocated", "requested"):
        vectors[name][resource] = max(0, vectors[name].get(resource, 0) - by)
    return dataclasses.replace(view, sums=dataclasses.replace(view.sums, vectors=vectors))


def _named(path: str) -> str:
    return f"queue `{path}`" if path else "the root"
