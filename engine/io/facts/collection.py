"""Collects facts into documents: asks every source of a configuration once.

Owns the asking and the written form, a facts document per source with the times that its values
were measured at. Annotations are left out: they come with their objects. What is shown of documents
to policies is `files.known_facts`'.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from engine.io.facts.readings import Reading, Readings, Subject
from engine.io.facts.source import Source
from engine.policy.fact_config import (
    AnnotationFacts,
    ConfigMapFacts,
    FactsConfig,
    FactSource,
    FileFacts,
    PodOutcomes,
    PrometheusFacts,
)

#: How long a source may take to report something.
PATIENCE_SECONDS: Final = 15.0

_SECTIONS: Final = {"node": "nodes", "pod": "pods", "type": "types"}


class FactsDocument(msgspec.Struct, frozen=True):
    """What one source reported: its name as in logs and metrics, and the document."""

    source: str
    document: dict[str, Any]


def source_name(config: FactSource) -> str:
    """How logs, metrics and snapshots call the source of *config*."""
    match config:
        case AnnotationFacts():
            return f"annotations:{config.of}"
        case FileFacts():
            return f"file:{config.path}"
        case ConfigMapFacts():
            return f"configmap:{config.namespace}/{config.name}"
        case PrometheusFacts():
            return f"prometheus:{config.url}"
        case PodOutcomes():
            return "learned:pod-outcomes"
    return "learned:pod-demand"


async def collect(
    config: FactsConfig,
    make_source: Callable[[FactSource, FactsConfig], Source],
    patience: float = PATIENCE_SECONDS,
) -> tuple[list[FactsDocument], dict[str, str]]:
    """The current facts of each source of *config*, and why others have none, by their names."""
    wanted = [one for one in config.sources if not isinstance(one, AnnotationFacts)]
    sources = [make_source(one, config) for one in wanted]
    answers = await asyncio.gather(*(_first(source, patience) for source in sources))
    documents, missing = [], {}
    for source, answer in zip(sources, answers, strict=True):
        if isinstance(answer, str):
            missing[source.name] = answer
        elif not answer:
            missing[source.name] = "cannot be read" if source.failures else "has no facts"
        else:
            documents.append(FactsDocument(source.name, document_of(answer)))
    return documents, missing


async def _first(source: Source, patience: float) -> Mapping[Subject, Readings] | str:
    """The first report of *source*, or why there is none."""
    first: asyncio.Future[Mapping[Subject, Readings]] = asyncio.get_running_loop().create_future()

    def report(readings: Mapping[Subject, Readings]) -> None:
        if not first.done():
            first.set_result(readings)

    following = asyncio.ensure_future(source.run(report))
    either: set[asyncio.Future[Any]] = {first, following}
    try:
        await asyncio.wait(either, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if first.done():
            return first.result()
        if following.done() and (error := following.exception()) is not None:
            return str(error)
        return f"no report within {patience:g} s"
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def document_of(readings: Mapping[Subject, Readings]) -> dict[str, Any]:
    """The facts document of *readings*; see `docs/facts.md` for its format."""
    document: dict[str, Any] = {}
    for subject, given in sorted(readings.items()):
        match subject:
            case ("cluster",):
                place = document.setdefault("cluster", {})
            case ("pair", type_, node):
                place = document.setdefault("pairs", {}).setdefault(type_, {})
                place = place.setdefault(node, {})
            case (kind, name):
                place = document.setdefault(_SECTIONS[kind], {}).setdefault(name, {})
            case _:
                continue
        place.update({name: _plain(reading) for name, reading in sorted(given.items())})
    return document


def _plain(reading: Reading) -> dict[str, Any]:
    plain: dict[str, Any] = {"value": reading.value, "text": reading.text}
    if reading.measured_at is not None:
        plain["time"] = reading.measured_at
    return plain
