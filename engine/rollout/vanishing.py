"""Queues that an edit of a QueueTree takes away, by the texts alone.

Owns which these are, and the warning about those that pods are in. What shares, places and pods
become of it is a plan's.
"""

from collections.abc import Mapping

from engine.core.sharing.tree import ROOT, build_tree
from engine.lib.printable import counted
from engine.policy.bundle import Bundle
from engine.policy.errors import Problem
from engine.policy.queue_tree_config import COUNT, HOLD

_WHERE = {
    HOLD: "those that wait are held then, until they name another queue or theirs is back",
    COUNT: "they are in no queue then, and count in the root",
}


def vanishing_queues(before: Bundle, after: Bundle) -> str:
    """Which queues of the text *before* are not in *after*, as a sentence; "" if all are.

    What objects and namespaces add is not known from texts: of those only that none are read.
    """
    if before.queue_tree is None:
        return ""
    was = build_tree(before.queue_tree.given).queues.keys() - {ROOT}
    if after.queue_tree is None:
        count = f"{len(was)} queues vanish" if was else "all queues vanish"
        return f"{count}: there is no QueueTree any more, so that pods are in no queue"
    gone = sorted(was - build_tree(after.queue_tree.given).queues.keys())
    if after.queue_tree.objects or after.queue_tree.namespaces:
        gone = []  # they may come from there now
    elif before.queue_tree.objects or before.queue_tree.namespaces:
        return "the queues vanish that objects or namespaces add: none are read any more"
    if not gone:
        return ""
    named = ", ".join(f"`{path}`" for path in gone[:3])
    more = f" and {len(gone) - 3} more" if len(gone) > 3 else ""
    verb = "queue vanishes" if len(gone) == 1 else "queues vanish"
    return f"{len(gone)} {verb}: {named}{more}"


def warning_of_vanishing(before: Bundle, after: Bundle, pods: Mapping[str, int]) -> Problem | None:
    """The warning about queues that vanish, if there are pods in them.

    *pods* has the number of each queue's own, placed or not, by its path.
    """
    said = vanishing_queues(before, after)
    tree = after.queue_tree
    left = {} if tree is None else build_tree(tree.given).queues
    lost = {path: count for path, count in pods.items() if path not in left}
    if not said or not lost:
        return None
    most = max(lost, key=lambda path: (lost[path], path))
    count = sum(lost.values())
    are = f"{counted(count, 'pod')} {'is' if count == 1 else 'are'} in what vanishes"
    text = f"{said}; {are}, most in `{most}` ({lost[most]:,})"
    hint = ""
    if tree is not None:
        hint = _WHERE.get(tree.unknown, f"they are in the queue `{tree.unknown}` then")
    return Problem("", 0, 0, text, hint, "warning")
