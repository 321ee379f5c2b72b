"""Nodes about which a policy says the same, with what it reads of them.

Owns the grouping, which is arithmetic on arrays: 5,000 nodes cost what a few groups cost.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.core.framework.reasons import token_of
from engine.core.framework.status import Code, Status
from engine.core.scheduling.rejections import node_name
from engine.explaining.verdict_table import PolicyColumn, VerdictTable
from engine.surfaces.live.answers import NodeGroup, PolicyAnswer
from engine.surfaces.live.rules import Rules

_EXAMPLES: Final = 3
# Groups of one verdict: if more nodes differ in what is read of them, they are one group.
_MOST_OF_A_KIND: Final = 4
_MOST_GROUPS: Final = 24
# Characters of a value that is shown.
_LONGEST_VALUE: Final = 400

UNSAID: Final = "(no reason given)"


def policy_answers(table: VerdictTable, rules: Rules) -> tuple[PolicyAnswer, ...]:
    """What each policy of *table* says alone, by groups of nodes."""
    failed = {failure.policy for failure in table.failures}
    return tuple(
        _policy_answer(table, column, rules, has_failed=column.policy in failed)
        for column in table.columns.values()
    )


def _policy_answer(
    table: VerdictTable, column: PolicyColumn, rules: Rules, *, has_failed: bool
) -> PolicyAnswer:
    codes = column.codes[table.slots]
    rejects = int(np.count_nonzero(codes > 0))
    groups = list(_groups(table, column, codes, rules))
    groups.sort(key=_nearest_first)
    return PolicyAnswer(
        policy=column.policy,
        fits=int(np.count_nonzero(codes == 0)),
        rejects=rejects,
        decides=len(table.slots_rejected_only_by(column.policy)) if rejects else 0,
        waits_for=rules.waits_for(column.policy) if rejects else (),
        failed=has_failed,
        groups=tuple(groups[:_MOST_GROUPS]),
        groups_left_out=max(0, len(groups) - _MOST_GROUPS),
    )


def _nearest_first(group: NodeGroup) -> tuple[Any, ...]:
    """Near misses first: where pods that go would help, and the fewest reasons reject the pod."""
    reasons = group.reason.count(", ")
    return group.verdict == "fits", not group.is_resolvable, reasons, -group.count, group.reason


def _groups(
    table: VerdictTable, column: PolicyColumn, codes: NDArray[np.int32], rules: Rules
) -> Iterator[NodeGroup]:
    inputs = column.inputs
    for code in (np.flatnonzero(np.bincount(codes + 1)) - 1).tolist():  # from -1 on
        slots = table.slots[codes == code]
        if inputs is None:
            yield _group(table, column, code, slots, rules, {})
            continue
        ids = inputs.ids[slots]
        kinds = np.flatnonzero(np.bincount(ids)).tolist()
        if code == 0 or len(kinds) > _MOST_OF_A_KIND:
            read = _shown(inputs.text_of(ids.item(0)))
            yield _group(table, column, code, slots, rules, read, is_same=len(kinds) == 1)
            continue
        for kind in kinds:
            read = _shown(inputs.text_of(kind))
            yield _group(table, column, code, slots[ids == kind], rules, read)


def _group(
    table: VerdictTable,
    column: PolicyColumn,
    code: int,
    slots: NDArray[np.int64],
    rules: Rules,
    read: Mapping[str, Any],
    *,
    is_same: bool = True,
) -> NodeGroup:
    # The example is the one whose values are shown.
    examples = tuple(node_name(slot, table.snapshot) for slot in slots[:_EXAMPLES].tolist())
    if code <= 0:
        return NodeGroup(
            verdict="failed" if code else "fits",
            count=len(slots),
            example=examples[0],
            examples=examples,
            read=read,
            is_same=is_same,
        )
    status = column.status(code)
    reason = ", ".join(status.reasons) or UNSAID
    return NodeGroup(
        verdict="rejects",
        count=len(slots),
        example=examples[0],
        examples=examples,
        reason=reason,
        token=token_of(status),
        source=_source(rules, status),
        is_resolvable=status.code is Code.UNSCHEDULABLE,
        read=read,
        is_same=is_same,
    )


def _source(rules: Rules, status: Status) -> str:
    """The place of the first reason that is written somewhere."""
    places = (rules.source(status.plugin, reason) for reason in status.reasons or (UNSAID,))
    return next((place for place in places if place), "")


def _shown(text: bytes) -> dict[str, Any]:
    """What a hook was given of a node, by field; of counters too, under `counts`."""
    given: dict[str, Any] = msgspec.json.decode(text)
    if given.keys() == {"node", "counts"}:
        given = {**given["node"], "counts": given["counts"]}
    return {name: _cut(value) for name, value in given.items()}


def _cut(value: Any) -> Any:
    text = msgspec.json.encode(value)
    if len(text) <= _LONGEST_VALUE:
        return value
    return text[:_LONGEST_VALUE].decode(errors="ignore") + "..."
