"""The memory of processes that large pods came to and went from, next to that of plain pods.

Each shape has a scheduler and a sandbox of its own, in a child process; it is their resident memory
that is compared, and not what objects were counted. `docs/performance.md` has the figures.
"""

from typing import Final

import pytest

from devkit.benchmarks.costly import Result, measure
from devkit.benchmarks.costly_pods import COSTLY

pytestmark = pytest.mark.slow("starts a process for each shape")

_PODS: Final = 10
#: How many times the memory of plain pods there may be at most, for shapes for which it is more
#: than 1.3. What policies read of pods is the sandbox's, and some of that stays for other pods.
_MORE: Final = {
    "much-anti-affinity": 1.4,
    "tolerations": 1.4,
    "node-terms": 1.4,
    "equal-node-terms": 1.4,
}


@pytest.fixture(scope="module")
def plain() -> Result:
    return measure("plain", _PODS)


@pytest.mark.parametrize("name", COSTLY)
@pytest.mark.long("starts a process for each shape")
def test_large_pods_that_are_gone_leave_the_process_as_large_as_plain_ones_do(
    name: str, plain: Result
) -> None:
    """21 pods of 1 MB took a process from 131 to 963 MiB, and nothing came back."""
    large = measure(name, _PODS)
    assert (plain.bound, large.bound) == (_PODS, _PODS)
    assert large.gone_mib <= _MORE.get(name, 1.3) * plain.gone_mib


def test_shapes_that_leave_more_are_shapes() -> None:
    assert COSTLY.keys() >= _MORE.keys()
