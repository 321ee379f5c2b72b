"""Documents of facts, answers of Prometheus, annotations, and what learners saved."""

from typing import Any, Final

import msgspec

from engine.io.facts.collection import document_of
from engine.io.facts.demand import DemandLearner, decode_placed_pod
from engine.io.facts.outcomes import OutcomeLearner, decode_watched_pod
from engine.io.facts.prometheus import QueryError, read_answer, why_nothing
from engine.io.facts.readings import Document, read_document, read_plain, reading_of_text
from engine.io.facts.store import FactStore, nodes_of
from engine.policy.fact_config import FactQuery, PodDemand, PodOutcomes

_NOW: Final = 1_790_000_000.0
_ABOUT: Final = ("cluster", "node", "pod", "type", "pair")


def run(data: bytes) -> None:
    """Read *data* as each of them, and show the facts to policies."""
    document = read_document(data, measured_at=_NOW, now=_NOW)
    _show(document)
    again = document_of(document.readings)
    assert not read_plain(msgspec.json.decode(msgspec.json.encode(again)), now=_NOW).problems
    for about in _ABOUT:
        _read_answer(FactQuery(fact="f", query="q", about=about, scale=1000.0), data)
    reading_of_text(data.decode(errors="replace")).fact(_NOW, 5.0)
    _learn(data)


def _show(document: Document) -> None:
    store = FactStore(max_age_seconds=3600.0)
    changed = store.replace(0, document.readings)
    for name in nodes_of(changed):
        msgspec.json.encode(store.node(name, _NOW))
    msgspec.json.encode(store.others(_NOW))
    store.too_old(_NOW)
    assert not store.replace(0, document.readings), "the same readings are a change"


def _read_answer(query: FactQuery, data: bytes) -> None:
    try:
        found = read_answer(query, data)
        if not found.readings:
            why_nothing(query, data)
    except QueryError as error:
        str(error)
        return
    _show(found)


def _learn(data: bytes) -> None:
    learners: tuple[tuple[Any, Any], ...] = (
        (OutcomeLearner(PodOutcomes(), ("app",)), decode_watched_pod),
        (DemandLearner(PodDemand()), decode_placed_pod),
    )
    for learner, decode in learners:
        try:
            learner.restore(msgspec.json.decode(data), _NOW)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        try:
            pod = decode(data)
        except Exception:  # as an informer does, which counts it
            pod = None
        if pod is not None:
            learner.observe(pod, _NOW)
            learner.forget(pod)
        learner.readings()
        kept = msgspec.json.encode(learner.to_plain())
        learner.restore(msgspec.json.decode(kept), _NOW)
        assert msgspec.json.encode(learner.to_plain()) == kept, "what is kept changes"
