"""The record of a small cluster on which two sets of policies differ.

Making one is `workbench.comparing.counterexample`'s.
"""

from typing import Any

import msgspec


class Counterexample(msgspec.Struct, frozen=True):
    """A cluster on which two sets of policies differ, and from which nothing can be taken away.

    Attributes:
        kind: What is different.
        first, second: What each set says.
        first_policy, second_policy: Whose verdict that is; empty if no policy's alone.
        first_source, second_source: `file:line` of it.
        of: The pod of the workload that it was made from.
        pod, other: The pod, and for the order of the queue the one that it is compared with.
        nodes, pods, objects: The cluster; *pods* are on its nodes.
    """

    kind: str
    first: str
    second: str
    first_policy: str
    second_policy: str
    first_source: str
    second_source: str
    of: str
    pod: dict[str, Any]
    other: dict[str, Any] | None
    nodes: list[dict[str, Any]]
    pods: list[dict[str, Any]]
    objects: list[dict[str, Any]]
