"""kube-scheduler with GenericWorkload and ours place and preempt the same pods of groups."""

from collections.abc import Iterator

import pytest

from tests.parity.group_workloads import PLACING, PREEMPTING
from tests.parity.side_by_side import Pair, Workload, pair

pytestmark = pytest.mark.slow("starts the real kube-scheduler")


@pytest.fixture(scope="module")
def both() -> Iterator[Pair]:
    with pair(with_groups=True) as both:
        yield both


@pytest.mark.parametrize(
    "workload", [pytest.param(one, id=one.name) for one in (*PLACING, *PREEMPTING)]
)
@pytest.mark.long("runs every workload on both schedulers")
async def test_both_schedulers_do_the_same_with_groups(both: Pair, workload: Workload) -> None:
    _, found = await both.compare(workload)
    assert not found, "\n".join(found)
