"""Shows the facts of a cluster from a file to policies, as of the time when it was written.

Owns the time by which the ages of facts are computed, and which document belongs to which source of
the policies' configuration. Ages do not grow during a simulation; the clock goes on.
"""

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.core.caching.cache import Cache
from engine.core.model.clock_facts import beside_sources, clock_facts
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.model.times import epoch_seconds
from engine.files.world import ManifestError
from engine.io.facts.annotations import read_annotations
from engine.io.facts.collection import FactsDocument, source_name
from engine.io.facts.readings import Document, Readings, Subject, read_plain, time_of
from engine.io.facts.store import FactStore, nodes_of
from engine.lib.time_zones import zone_of
from engine.policy.analysis import time_reads
from engine.policy.bundle import Bundle
from engine.policy.fact_config import AnnotationFacts, FactsConfig

#: The source name of facts from a decision log, whichever source they came from.
RECORDED: Final = "recorded"
#: The members of a facts document; an object with no others is one.
SECTIONS: Final = frozenset({"time", "cluster", "nodes", "pods", "types", "pairs"})


@dataclass(frozen=True, slots=True)
class ShownFacts:
    """What is shown of facts.

    Attributes:
        unknown: The sources of the configuration without a document.
        moment: As of when, in seconds since the epoch.
        clock: The facts of the clock that no source gives.
    """

    unknown: tuple[str, ...]
    moment: float
    clock: frozenset[str]

    def clock_note(self, bundle: Bundle) -> str:
        """What time the clock shows that the policies of *bundle* read; empty if they read none."""
        if not self.clock & time_reads(bundle.policies.values()).clock:
            return ""
        zone = zone_of(bundle.runtime.facts.time_zone)
        clock = clock_facts(self.moment, zone)
        at = datetime.datetime.fromtimestamp(self.moment, zone)
        return f"the clock shows {clock['weekday'].text}, {at:%Y-%m-%d %H:%M}, in {zone.key}"


def show_facts(
    cache: Cache,
    config: FactsConfig,
    documents: Sequence[FactsDocument],
    *,
    taken_at: str = "",
    read_at: float = 0.0,
    nodes: Sequence[Node] = (),
    pods: Sequence[Pod] = (),
) -> ShownFacts:
    """Show the facts of *documents* and of the annotations of *nodes* and *pods* in *cache*.

    Documents of sources that *config* does not name are shown too, below those that it names.
    Ages and the clock are as of *taken_at* (RFC 3339), else of the newest value, else of *read_at*
    (seconds since the epoch).

    Raises:
        ManifestError: for a malformed document.
    """
    # 1. The places of the sources: as configured, after the sources that need no configuration.
    left = list(documents)
    said: dict[int, dict[Subject, Readings]] = {}
    for place, source in enumerate(config.sources):
        if isinstance(source, AnnotationFacts):
            said[place] = _annotated(source, nodes, pods)
            continue
        name = source_name(source)
        found = next((one for one in left if one.source == name), None)
        if found is not None:
            left.remove(found)
            said[place] = {**_read(found).readings}
    for number, document in enumerate(left):
        said[number - len(left)] = {**_read(document).readings}
    # 2. The time.
    now = epoch_seconds(taken_at) if taken_at else None
    if now is None:
        times = [r.measured_at for s in said.values() for of in s.values() for r in of.values()]
        times += [time_of(one.document.get("time")) for one in documents]
        now = max((at for at in times if at is not None), default=read_at)
    # 3. Shown, as the running scheduler shows them.
    max_age = config.max_age
    store = FactStore(
        config.age_step.total_seconds(), None if max_age is None else max_age.total_seconds()
    )
    for place, readings in said.items():
        store.replace(place, readings)
    for name in sorted(nodes_of(store.subjects())):
        cache.set_node_facts(name, store.node(name, now))
    others = store.others(now)
    clock = clock_facts(now, zone_of(config.time_zone))
    cluster = beside_sources(others.cluster, clock)
    cache.set_other_facts(cluster=cluster, types=others.types, pods=others.pods)
    own = frozenset(name for name in clock if cluster[name] is clock[name])
    return ShownFacts(unknown_sources(config, documents), now, own)


def unknown_sources(config: FactsConfig, documents: Sequence[FactsDocument]) -> tuple[str, ...]:
    """The sources of *config* without a document."""
    known = [one.source for one in documents]
    if RECORDED in known:
        return ()  # a log holds what policies saw, of whatever source
    unknown = []
    for source in config.sources:
        if isinstance(source, AnnotationFacts):
            continue
        name = source_name(source)
        if name in known:
            known.remove(name)
        else:
            unknown.append(name)
    return tuple(unknown)


def _read(document: FactsDocument) -> Document:
    # An age in place of a time counts from the epoch: only differences matter.
    read = read_plain(document.document, now=0.0)
    if read.problems:
        raise ManifestError(f"{document.source}: {read.problems[0]}")
    return read


def _annotated(
    source: AnnotationFacts, nodes: Iterable[Node], pods: Iterable[Pod]
) -> dict[Subject, Readings]:
    found: dict[Subject, Readings] = {}
    if source.of == "nodes":
        for node in nodes:
            if readings := read_annotations(source, node.annotations):
                found["node", node.name] = readings
    else:
        for pod in pods:
            if readings := read_annotations(source, pod.annotations):
                found["pod", pod.key] = readings
    return found
