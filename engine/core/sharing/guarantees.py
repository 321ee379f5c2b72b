"""Finds guarantees that cannot be kept: together they are more than what is there."""

from collections.abc import Iterator, Mapping

from engine.core.model.quantity import amount_text
from engine.core.sharing.amounts import Amounts, add
from engine.core.sharing.tree import ROOT, QueueTree


def broken_guarantees(tree: QueueTree, attribute: str, total: Amounts) -> list[str]:
    """What is wrong with what queues are guaranteed by their *attribute*, for people.

    Args:
        tree: The queues. One that names no amount of a resource passes on the sum of those below.
        attribute: Of each queue, amounts by resource.
        total: What all nodes offer; empty before there are any, and then nothing is wrong there.
    """
    below: dict[str, dict[str, int]] = {path: {} for path in tree.queues}
    found = []
    for path in reversed(list(tree.queues)):  # those below first
        queue, together = tree.queues[path], below[path]
        given = dict(total) if path == ROOT else dict(queue.attributes.get(attribute) or {})
        if path != ROOT or total:
            found += list(_broken(path, attribute, given, together))
        if queue.parent is not None:
            add(below[queue.parent], {**together, **given}, 1)
    return found[::-1]


def _broken(
    path: str, attribute: str, given: Mapping[str, int], together: Mapping[str, int]
) -> Iterator[str]:
    for resource, amount in sorted(together.items()):
        has = given.get(resource, 0 if path == ROOT else amount)
        if amount <= has:
            continue
        has_text, wants = amount_text(resource, has), amount_text(resource, amount)
        if path == ROOT:
            yield f"queues are guaranteed {wants} together (`{attribute}`), nodes offer {has_text}"
        else:
            yield (
                f"queue `{path}` is guaranteed {has_text} (`{attribute}`), "
                f"those below it {wants} together"
            )
