"""kube-scheduler and ours leave the same pods waiting for the same reasons, and evict the same.

Both run as programs, each on a real control plane of its own, and are given the same objects.
"""

from collections.abc import Iterator

import pytest

from tests.parity.side_by_side import Pair, Workload, pair, stale
from tests.parity.side_by_side_workloads import HOLDING, PREEMPTING, WAITING

pytestmark = pytest.mark.slow("starts the real kube-scheduler")


@pytest.fixture(scope="module")
def both() -> Iterator[Pair]:
    with pair() as both:
        yield both


def _named(workloads: tuple[Workload, ...]) -> list[object]:
    # Those with a profile of their own last: both programs start anew for each.
    ordered = sorted(workloads, key=lambda workload: workload.profile is not None)
    return [pytest.param(workload, id=workload.name) for workload in ordered]


@pytest.mark.parametrize("workload", _named((*WAITING, *PREEMPTING, *HOLDING)))
@pytest.mark.long("runs every workload on both schedulers")
async def test_both_schedulers_do_the_same(both: Pair, workload: Workload) -> None:
    ours, found = await both.compare(workload)
    assert not found, "\n".join(found)
    assert stale(ours) == []
