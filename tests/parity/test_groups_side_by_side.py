"""kube-scheduler with GenericWorkload and ours place and preempt the same pods of groups."""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.parity.group_workloads import PLACING, PREEMPTING
from tests.parity.side_by_side import Outcome, Pair, Workload, differences, pair

pytestmark = pytest.mark.slow("starts the real kube-scheduler")

# What DynamicResources says of groups without claims; ours says nothing (docs/parity.md).
_NOTHING_DONE: Final = "deallocation and deletion of ResourceClaims completed, "


@pytest.fixture(scope="module")
def both() -> Iterator[Pair]:
    with pair(with_groups=True) as both:
        yield both


@pytest.mark.parametrize(
    "workload", [pytest.param(one, id=one.name) for one in (*PLACING, *PREEMPTING)]
)
async def test_both_schedulers_do_the_same_with_groups(both: Pair, workload: Workload) -> None:
    theirs, ours = await both.run(workload)
    assert theirs.pending or theirs.placed, "nothing was compared"
    for group in theirs.groups.values():
        group["message"] = (group["message"] or "").replace(_NOTHING_DONE, "") or group["message"]
    if workload.texts_depend_on_time:
        _drop_texts(theirs)
        _drop_texts(ours)
    found = differences(theirs, ours)
    assert not found, "\n".join(found)


def _drop_texts(outcome: Outcome) -> None:
    """Keep which pods wait, and whether their group was placed."""
    outcome.pending = {name: {} for name in outcome.pending}
    for group in outcome.groups.values():
        del group["message"]
