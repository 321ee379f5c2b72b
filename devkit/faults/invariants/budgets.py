"""Rules about preemption: whom it may evict, and which budgets it may violate.

Owns the arithmetic of PodDisruptionBudgets and the search for a node that needs no violation.
"""

import math
from collections.abc import Iterator, Sequence

from devkit.faults.invariants.capacity import (
    asks_for_amounts_alone,
    is_open,
    left_after,
    victims_for,
)
from devkit.faults.invariants.facts import (
    Eviction,
    Manifest,
    Objects,
    Violation,
    condition_of,
    is_over,
    key_of,
    node_of,
    priority_of,
)


def violated_budgets(eviction: Eviction, before: Objects) -> Iterator[Violation]:
    """An eviction that preemption must not do.

    Preemption evicts pods of lower priority only, none that need not go, and violates a budget
    only where no node could take the preemptor without. The last is found for preemptors that ask
    for amounts alone.

    Args:
        eviction: Pods that are not in *before* any more are passed over.
        before: The objects just before the first victim went.
    """
    pods = {key_of(pod): pod for pod in before.pods}
    preemptor = pods.get(eviction.preemptor)
    victims = [pods[key] for key in eviction.victims if key in pods]
    if preemptor is None or not victims:
        return
    if preemptor["spec"].get("preemptionPolicy") == "Never":
        yield _violation(eviction, "preempts, and its policy is never to")
    mine = priority_of(preemptor)
    for victim in victims:
        if priority_of(victim) >= mine:
            theirs = priority_of(victim)
            text = f"has priority {mine}, and preempts `{key_of(victim)}` with {theirs}"
            yield _violation(eviction, text)
    broken = _broken(victims, before)
    if not broken or not asks_for_amounts_alone(preemptor):
        return
    for node in before.nodes:
        spared = [
            victim
            for victim in victims_for(preemptor, node, before)
            if not _broken([victim], before)
        ]
        if (
            is_open(node)
            and not left_after(preemptor, node, before, {key_of(victim) for victim in spared})
            and not _broken(spared, before)
        ):
            names = ", ".join(f"`{name}`" for name in broken)
            text = f"violates {names} on `{eviction.node}`, and not needed on `{key_of(node)}`"
            yield _violation(eviction, text)
            return


def allowed_disruptions(budget: Manifest, pods: Sequence[Manifest]) -> int:
    """How many of *pods* a budget lets go now, by its spec and their readiness."""
    matching = [
        pod
        for pod in pods
        if pod["metadata"].get("namespace") == budget["metadata"].get("namespace")
        and matches(budget["spec"].get("selector"), pod["metadata"].get("labels") or {})
        and not is_over(pod)
    ]
    expected = len(matching)
    healthy = sum(
        bool((condition_of(pod, "Ready") or {}).get("status") == "True")
        and "deletionTimestamp" not in pod["metadata"]
        for pod in matching
    )
    spec = budget["spec"]
    if "maxUnavailable" in spec:
        wanted = max(0, expected - _scaled(spec["maxUnavailable"], expected))
    else:
        wanted = _scaled(spec.get("minAvailable", 1), expected)
    return max(0, healthy - wanted)


def matches(selector: Manifest | None, labels: Manifest) -> bool:
    """True if a label selector selects *labels*; an empty one selects all, None nothing."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(name) == value for name, value in wanted.items()) and all(
        _meets(one, labels) for one in selector.get("matchExpressions") or ()
    )


def _meets(requirement: Manifest, labels: Manifest) -> bool:
    name, values = requirement["key"], requirement.get("values") or ()
    match requirement["operator"]:
        case "In":
            return name in labels and labels[name] in values
        case "NotIn":
            return labels.get(name) not in values or name not in labels
        case "Exists":
            return name in labels
        case _:
            return name not in labels


def _broken(victims: Sequence[Manifest], before: Objects) -> list[str]:
    """The budgets that would be violated if all *victims* went."""
    bound = [pod for pod in before.pods if node_of(pod)]
    found = []
    for budget in before.budgets:
        namespace = budget["metadata"].get("namespace")
        mine = sum(
            victim["metadata"].get("namespace") == namespace
            and matches(budget["spec"].get("selector"), victim["metadata"].get("labels") or {})
            for victim in victims
        )
        if mine and mine > _allowed(budget, bound):
            found.append(key_of(budget))
    return found


def _allowed(budget: Manifest, bound: Sequence[Manifest]) -> int:
    # The scheduler goes by what the disruption controller wrote, if there is such a controller.
    status = budget.get("status") or {}
    if "disruptionsAllowed" in status:
        return int(status["disruptionsAllowed"])
    return allowed_disruptions(budget, bound)


def _scaled(value: int | str, count: int) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(int(value[:-1]) * count / 100)
    return int(value)


def _violation(eviction: Eviction, text: str) -> Violation:
    return Violation("violated_budgets", eviction.preemptor, text)
