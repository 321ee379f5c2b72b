"""Shows the facts of a cluster from a file to policies, as of the time when it was written.

Owns the time by which the ages of facts are computed, and which document belongs to which source of
the policies' configuration. Ages do not grow during a simulation.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from engine.caching.cache import Cache
from engine.facts.annotations import read_annotations
from engine.facts.collection import FactsDocument, source_name
from engine.facts.readings import Document, Readings, Subject, read_plain
from engine.facts.store import FactStore, nodes_of
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.times import epoch_seconds
from engine.offline.world import ManifestError
from engine.policy.fact_config import AnnotationFacts, FactsConfig

#: The source name of facts from a decision log, whichever source they came from.
RECORDED: Final = "recorded"
#: The members of a facts document; an object with no others is one.
SECTIONS: Final = frozenset({"time", "cluster", "nodes", "pods", "types", "pairs"})


def show_facts(
    cache: Cache,
    config: FactsConfig,
    documents: Sequence[FactsDocument],
    *,
    taken_at: str = "",
    nodes: Sequence[Node] = (),
    pods: Sequence[Pod] = (),
) -> tuple[str, ...]:
    """Show the facts of *documents* and of the annotations of *nodes* and *pods* in *cache*.

    Documents of sources that *config* does not name are shown too, below those that it names.
    Ages are as of *taken_at* (RFC 3339), else as of the newest value.

    Returns:
        The sources of *config* without a document.

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
    unknown = unknown_sources(config, documents)
    if not said:
        return unknown
    # 2. The time.
    now = epoch_seconds(taken_at) if taken_at else None
    if now is None:
        now = max(
            (r.measured_at for s in said.values() for of in s.values() for r in of.values()
             if r.measured_at is not None),
            default=0.0,
        )  # fmt: skip
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
    cache.set_other_facts(cluster=others.cluster, types=others.types, pods=others.pods)
    return unknown


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
