"""Vectors of resources: amounts by resource name, in whole numbers.

The units are those of the language: millicores, bytes, pieces. Policies reckon with vectors in
`@std/amounts.star`; what is here is what the runtime's own sums need.
"""

from collections.abc import Mapping
from typing import Final, Protocol, TypeAlias

Amounts: TypeAlias = Mapping[str, int]
"""An amount of each resource that is named."""

#: No sum is larger: what is beyond is shown as this. Any two can be added in 64 bits.
LARGEST: Final = 1 << 62


def add(total: dict[str, int], amounts: Amounts, sign: int) -> None:
    """Add *amounts* to *total*, or take them away; what is 0 then is left out."""
    for resource, amount in amounts.items():
        found = total.get(resource, 0) + sign * amount
        if found:
            total[resource] = found
        else:
            total.pop(resource, None)


class _Node(Protocol):
    @property
    def unschedulable(self) -> bool: ...

    @property
    def allocatable(self) -> Amounts: ...


#: How many pods fit on a node is no amount that is divided among queues.
NOT_DIVIDED: Final = frozenset({"pods"})


def offered(node: _Node) -> Amounts:
    """What a node adds to what is divided: nothing while it is cordoned."""
    if node.unschedulable:
        return {}
    return {r: amount for r, amount in node.allocatable.items() if r not in NOT_DIVIDED}
