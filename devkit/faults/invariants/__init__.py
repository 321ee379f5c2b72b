"""What must hold of a scheduler's work, checked from API objects and histories alone.

Owns the rules, as pure functions over plain manifests (dicts, as an API server returns them), with
arithmetic of its own: it imports nothing else of `engine`, so that an error of the scheduler cannot
hide in its check. It collects nothing: callers read objects and histories where they have them.

Rules come in four kinds, one table each, and yield a `Violation` for everything that is wrong:

- `OVER_HISTORY`: over all that happened (`History`).
- `AT_BINDING`, `AT_EVICTION`: about one step, with the objects as they were just before it.
- `ALWAYS`: over the objects at any moment.
- `AT_REST`: over the objects when faults have ceased and nothing moves any more.

Begin with `facts`, the data, then the tables below.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from devkit.faults.invariants.budgets import violated_budgets
from devkit.faults.invariants.capacity import late, late_groups, overcommitted
from devkit.faults.invariants.claims import misplaced_devices, unprovisioned
from devkit.faults.invariants.exclusives import (
    overdrawn_devices,
    shared_devices,
    shared_volumes,
    unreserved_claims,
)
from devkit.faults.invariants.facts import (
    Binding,
    Eviction,
    Group,
    History,
    Objects,
    Tenure,
    Violation,
)
from devkit.faults.invariants.histories import (
    bound_by_leader,
    bound_once,
    grown,
    partial_groups,
    tenures_of,
    unexpected,
)
from devkit.faults.invariants.statements import (
    outdated_conditions,
    unreported_bindings,
    untrue_conditions,
    untrue_events,
)

OVER_HISTORY: Final[Mapping[str, Callable[[History], Iterator[Violation]]]] = {
    "a pod is bound once": lambda history: bound_once(history.bindings),
    "only the leader binds": lambda history: bound_by_leader(history.bindings, history.tenures),
    "a group is bound whole or not at all": lambda history: partial_groups(
        history.groups, history.bindings
    ),
}
AT_BINDING: Final[Mapping[str, Callable[[Binding, Objects], Iterator[Violation]]]] = {
    "a node holds no more than its allocatable": overcommitted,
    "a pod is bound where its volumes are": unprovisioned,
}
AT_EVICTION: Final[Mapping[str, Callable[[Eviction, Objects], Iterator[Violation]]]] = {
    "preemption respects priorities and budgets": violated_budgets,
}
ALWAYS: Final[Mapping[str, Callable[[Objects], Iterator[Violation]]]] = {
    "a device is allocated once": shared_devices,
    "allocations stay within a device's capacity": overdrawn_devices,
    "a volume is given once": shared_volumes,
}
AT_REST: Final[Mapping[str, Callable[[Objects], Iterator[Violation]]]] = {
    **ALWAYS,
    "a bound pod has its claims": unreserved_claims,
    "a pod runs where its devices are": misplaced_devices,
    "a pod that fits is bound": late,
    "conditions are true": untrue_conditions,
    "events are true": untrue_events,
}

__all__ = [
    "ALWAYS",
    "AT_BINDING",
    "AT_EVICTION",
    "AT_REST",
    "OVER_HISTORY",
    "Binding",
    "Eviction",
    "Group",
    "History",
    "Objects",
    "Tenure",
    "Violation",
    "bound_by_leader",
    "bound_once",
    "grown",
    "late",
    "late_groups",
    "misplaced_devices",
    "outdated_conditions",
    "overcommitted",
    "overdrawn_devices",
    "partial_groups",
    "shared_devices",
    "shared_volumes",
    "tenures_of",
    "unexpected",
    "unprovisioned",
    "unreported_bindings",
    "unreserved_claims",
    "untrue_conditions",
    "untrue_events",
    "violated_budgets",
]
