"""Rules about what happened over time: bindings, leases, groups, logs, and what grows.

Owns them, and making tenures of a lease's versions.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Final

from devkit.faults.invariants.facts import Binding, Group, Manifest, Tenure, Violation

#: What a log has of an error that is not one of the program's own, in either format.
_UNEXPECTED: Final = ("Unexpected exception", "Traceback (most recent call last)")


def bound_once(bindings: Iterable[Binding]) -> Iterator[Violation]:
    """Pods for which the API server accepted several bindings."""
    by_pod: dict[str, list[Binding]] = defaultdict(list)
    for binding in bindings:
        by_pod[binding.pod_uid].append(binding)
    for several in by_pod.values():
        if len(several) > 1:
            where = ", ".join(f"to `{one.node}` by `{one.by}` at {one.at:.3f}" for one in several)
            yield Violation("bound_once", several[0].pod, f"bound {len(several)} times: {where}")


def bound_by_leader(bindings: Iterable[Binding], tenures: Sequence[Tenure]) -> Iterator[Violation]:
    """Bindings by a replica at a time when its lease could have been over."""
    mine: dict[str, list[Tenure]] = defaultdict(list)
    for tenure in tenures:
        mine[tenure.holder].append(tenure)
    for binding in bindings:
        held = mine[binding.by]
        if any(tenure.since <= binding.at < tenure.until for tenure in held):
            continue
        ended = [tenure.until for tenure in held if tenure.until <= binding.at]
        since = f"its lease was over since {binding.at - max(ended):.3f} s" if ended else "no lease"
        text = f"bound by `{binding.by}` at {binding.at:.3f}: {since}"
        yield Violation("bound_by_leader", binding.pod, text)


def tenures_of(versions: Iterable[tuple[float, Manifest]]) -> list[Tenure]:
    """Who held a lease, and when, by the *versions* of it that the server accepted.

    A holder has it from when the server accepted its first version until a lease duration after
    the last, or until the server accepted another one's. An empty holder gave it back.

    Args:
        versions: In order, each with the time at which the server accepted it.
    """
    found: list[Tenure] = []
    for at, lease in versions:
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        until = at + (spec.get("leaseDurationSeconds") or 0)
        if found and found[-1].until > at:
            last = found.pop()
            if last.holder == holder:
                found.append(Tenure(holder, last.since, max(until, last.until)))
                continue
            if at > last.since:
                found.append(Tenure(last.holder, last.since, at))
        if holder:
            found.append(Tenure(holder, at, until))
    return found


def partial_groups(groups: Iterable[Group], bindings: Iterable[Binding]) -> Iterator[Violation]:
    """Groups of which some pods were bound, and fewer than must be; for groups that are at rest.

    A pod that was bound and deleted since counts as bound.
    """
    bound = {binding.pod_uid for binding in bindings}
    for group in groups:
        count = len(group.pods & bound)
        if 0 < count < group.min_count:
            text = f"{count} of {len(group.pods)} pods were bound, want {group.min_count} or none"
            yield Violation("partial_groups", group.name, text)


def grown(
    about: str, samples: Sequence[float], *, factor: float = 1.5, slack: float = 0.0
) -> Iterator[Violation]:
    """A measure, taken at a steady pace under a steady load, that grows without bound.

    Compares the medians of the second and the last quarter: the first one warms up. With fewer
    than eight samples nothing can be said.
    """
    quarter = len(samples) // 4
    if quarter < 2:
        return
    early, last = median(samples[quarter : 2 * quarter]), median(samples[-quarter:])
    if last > early * factor + slack:
        yield Violation("grown", about, f"grew from {early:g} to {last:g}")


def unexpected(about: str, lines: Iterable[str]) -> Iterator[Violation]:
    """Lines of a log that report an exception that the program does not know."""
    for line in lines:
        if any(words in line for words in _UNEXPECTED):
            yield Violation("unexpected", about, line.strip()[:2000])
