"""The last readings of every source, and what policies see of them now.

Owns the merging of sources (a later one of the configuration wins where two give the same name) and
the ages. Pure: time is an argument. Getting the values is the sources', showing them `LiveFacts`'.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.core.model.fact import Fact, Facts, NodeFacts
from engine.io.facts.readings import CLUSTER, Readings, Subject


@dataclass(frozen=True, slots=True)
class OtherFacts:
    """Facts that are not about nodes: of the cluster, of pods by type, of pods by key."""

    cluster: Facts
    types: Mapping[str, Facts]
    pods: Mapping[str, Facts]


class FactStore:
    """The readings of all sources.

    Args:
        step_seconds: Ages are rounded down to whole steps, so that they change that seldom.
        max_age_seconds: Facts that are older are not shown; None: all are.
    """

    def __init__(self, step_seconds: float = 5.0, max_age_seconds: float | None = None) -> None:
        self.step_seconds = step_seconds
        self.max_age_seconds = max_age_seconds
        self._sources: dict[int, dict[Subject, Readings]] = {}
        self._order: list[int] = []
        # By node: its own subject and those of pairs with it, so that one node is cheap to look up.
        self._pairs_of: dict[str, dict[Subject, None]] = {}

    def replace(self, source: int, readings: Mapping[Subject, Readings]) -> set[Subject]:
        """Replace all readings of *source* (its index in the configuration).

        Returns the subjects whose readings changed.
        """
        before = self._sources.get(source, {})
        changed = {s for s in before.keys() | readings.keys() if before.get(s) != readings.get(s)}
        self._keep(source, dict(readings))
        for subject in changed:
            self._index(subject)
        return changed

    def put(self, source: int, subject: Subject, readings: Readings) -> bool:
        """Replace the readings of *source* about *subject*. True if they changed."""
        known = self._sources.get(source)
        if known is None:
            self._keep(source, {})
            known = self._sources[source]
        if known.get(subject, {}) == readings:
            return False
        if readings:
            known[subject] = readings
        else:
            del known[subject]
        self._index(subject)
        return True

    def forget(self, source: int) -> set[Subject]:
        """Drop all readings of *source*; returns the subjects that had some."""
        changed = self.replace(source, {})
        self._sources.pop(source, None)
        self._order = sorted(self._sources)
        return changed

    def subjects(self) -> Iterable[Subject]:
        """Everything that something is known about."""
        return dict.fromkeys(s for known in self._sources.values() for s in known)

    def too_old(self, now: float) -> int:
        """How many readings are older than what is shown."""
        most = self.max_age_seconds
        if most is None:
            return 0
        ages = (
            reading.fact(now, self.step_seconds).age_seconds
            for known in self._sources.values()
            for readings in known.values()
            for reading in readings.values()
        )
        return sum(1 for age in ages if age is not None and age > most)

    def newest(self, source: int) -> float | None:
        """When the newest reading of *source* was measured; None if no reading says when."""
        readings = self._sources.get(source, {}).values()
        times = (one.measured_at for about in readings for one in about.values())
        return max((at for at in times if at is not None), default=None)

    # --- what policies see -------------------------------------------------------------------

    def node(self, name: str, now: float) -> NodeFacts:
        """The facts of the node *name*."""
        of_pods: dict[str, dict[str, Fact]] = {}
        for subject in self._pairs_of.get(name, ()):
            for fact_name, fact in self._facts(subject, now).items():
                of_pods.setdefault(fact_name, {})[subject[1]] = fact
        return NodeFacts(self._facts(("node", name), now), of_pods)

    def others(self, now: float) -> OtherFacts:
        """All facts that are not about nodes."""
        types: dict[str, Facts] = {}
        pods: dict[str, Facts] = {}
        for subject in self.subjects():
            if subject[0] == "type":
                types[subject[1]] = self._facts(subject, now)
            elif subject[0] == "pod":
                pods[subject[1]] = self._facts(subject, now)
        return OtherFacts(self._facts(CLUSTER, now), types, pods)

    def facts(self, subject: Subject, now: float) -> Facts:
        """The facts of one subject."""
        return self._facts(subject, now)

    def _facts(self, subject: Subject, now: float) -> dict[str, Fact]:
        merged: dict[str, Fact] = {}
        most = self.max_age_seconds
        for source in self._order:
            for name, reading in self._sources[source].get(subject, {}).items():
                fact = reading.fact(now, self.step_seconds)
                # A dropped reading hides no other: when a source is down, those of earlier ones
                # show.
                if most is None or fact.age_seconds is None or fact.age_seconds <= most:
                    merged[name] = fact
        return {name: merged[name] for name in sorted(merged)}

    # --- keeping -----------------------------------------------------------------------------

    def _keep(self, source: int, readings: dict[Subject, Readings]) -> None:
        self._sources[source] = readings
        self._order = sorted(self._sources)

    def _index(self, subject: Subject) -> None:
        if subject[0] != "pair":
            return
        node = subject[2]
        if any(subject in known for known in self._sources.values()):
            self._pairs_of.setdefault(node, {})[subject] = None
        elif subject in self._pairs_of.get(node, ()):
            del self._pairs_of[node][subject]
            if not self._pairs_of[node]:
                del self._pairs_of[node]


def nodes_of(subjects: Iterable[Subject]) -> set[str]:
    """The nodes that *subjects* are about."""
    return {s[-1] for s in subjects if s[0] in ("node", "pair")}
