"""A reclaim that happened in words: who gave to whom, and what both had before and after."""

from engine.core.kernel.reclaims import Reclaimed, Shift
from engine.core.model.quantity import amount_text


def reclaim_text(one: Reclaimed, giver: str, rule: str) -> str:
    """What the queue *giver* gave in *one*; *rule* is `file:line` of the policy, "" if unknown.

    "" if it is for a more important pod of the same queue.
    """
    if giver == one.queue:
        return ""
    by = f", by {rule}" if rule else ""
    moved = [_shift_text(shift) for shift in one.shifts if shift.queue in (giver, one.queue)]
    had = f" ({'; '.join(moved)})" if moved else ""
    return f"{_named(giver)} gives back to {_named(one.queue)}{by}{had}"


def _shift_text(shift: Shift) -> str:
    """`web: 4 cpu -> 3 cpu of a share of 2 cpu`."""
    amounts = (shift.before, shift.after, *(() if shift.share is None else (shift.share,)))
    before, after, *share = (amount_text(shift.resource, amount) for amount in amounts)
    of = f" of a share of {share[0]}" if share else ""
    return f"{shift.queue or 'the root'}: {before} -> {after}{of}"


def _named(path: str) -> str:
    return f"queue `{path}`" if path else "the root"
