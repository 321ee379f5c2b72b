"""Facts from a Prometheus server: instant queries over its HTTP API, repeated at an interval.

Owns the requests and what an answer means. A query that fails keeps its earlier readings, and its
facts grow old; the others go on, and do not wait for one that hangs. No credentials are sent and no
redirects followed, because anyone who may edit policies can choose the address.

Source: the HTTP API of Prometheus, version 1.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
import msgspec

from engine.core.model.fact import number_of, text_of
from engine.io.facts.readings import MAX_BYTES, Document, Reading, Readings, Subject, time_of
from engine.io.facts.source import ProblemLog, Report
from engine.lib.deep_json import UNREADABLE
from engine.policy.fact_config import FactQuery, PrometheusFacts

_READ_IN_PLACE: Final = 64 << 10
_REASON_LENGTH: Final = 300
# A server answers some twenty queries at once, and not all of them are to be ours.
_MOST_AT_ONCE: Final = 8
# Queries that take longer than this are reported later than the others.
_LATE_SECONDS: Final = 1.0


class QueryError(Exception):
    """A query failed; the message says why."""


class PrometheusSource:
    """The queries of one server, sent every interval."""

    #: An answer may take any time: a start or a switch waits no longer than for other sources.
    is_reading: Final = False

    def __init__(self, config: PrometheusFacts, *, late_seconds: float = _LATE_SECONDS) -> None:
        self._config = config
        self._late_seconds = late_seconds
        self._answers: dict[int, dict[Subject, dict[str, Reading]]] = {}
        self._problems = [ProblemLog(self.name, fact=query.fact) for query in config.queries]
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)

    @property
    def name(self) -> str:
        """`prometheus:url`."""
        return f"prometheus:{self._config.url}"

    @property
    def failures(self) -> int:
        """How often a query was not answered, or not clearly."""
        return sum(problems.count for problems in self._problems)

    async def run(self, report: Report) -> None:
        """Ask every query now and again after each interval, until cancelled."""
        interval = self._config.interval.total_seconds()
        loop = asyncio.get_running_loop()
        timeout = aiohttp.ClientTimeout(total=self._config.timeout.total_seconds())
        # The first report has the answers of all queries: a snapshot of the cluster takes that one.
        patience = None
        asking: dict[int, asyncio.Task[None]] = {}
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            asyncio.TaskGroup() as group,
        ):
            while True:
                ends_at = loop.time() + interval
                for number, query in enumerate(self._config.queries):
                    if number not in asking or asking[number].done():
                        asking[number] = group.create_task(self._ask(session, number, query))
                _, late = await asyncio.wait(asking.values(), timeout=patience)
                report(self._merged())
                patience = self._late_seconds
                if late:
                    done, _ = await asyncio.wait(late, timeout=max(0.0, ends_at - loop.time()))
                    if done:
                        report(self._merged())
                await asyncio.sleep(max(0.0, ends_at - loop.time()))

    async def _ask(self, session: aiohttp.ClientSession, number: int, query: FactQuery) -> None:
        problems = self._problems[number]
        try:
            async with self._turns:
                body = await self._fetch(session, query)
            answer = await _read(query, body)
        except (QueryError, aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = str(error) or type(error).__name__
            problems.report("Cannot query facts", reason[:_REASON_LENGTH])
            return
        self._answers[number] = answer.readings
        if answer.problems:
            problems.report("Ambiguous facts", answer.problems[0][:_REASON_LENGTH])
        elif not answer.readings and (reason := why_nothing(query, body)):
            problems.report("Facts about nothing", reason[:_REASON_LENGTH])
        else:
            problems.clear()

    async def _fetch(self, session: aiohttp.ClientSession, query: FactQuery) -> bytes:
        async with session.post(
            f"{self._config.url}/api/v1/query", data={"query": query.query}, allow_redirects=False
        ) as response:
            body = await response.content.read(MAX_BYTES + 1)
            while len(body) <= MAX_BYTES and not response.content.at_eof():
                body += await response.content.read(MAX_BYTES + 1 - len(body))
            if len(body) > MAX_BYTES:
                raise QueryError(f"the answer is larger than {MAX_BYTES:,} bytes")
            # The body of a 400 says what is wrong with a query.
            if response.status not in (200, 400, 422, 503):
                raise QueryError(f"got HTTP status {response.status}")
            return body

    def _merged(self) -> dict[Subject, Readings]:
        merged: dict[Subject, dict[str, Reading]] = {}
        for number in sorted(self._answers):
            for subject, readings in self._answers[number].items():
                merged.setdefault(subject, {}).update(readings)
        return dict(merged)


async def _read(query: FactQuery, body: bytes) -> Document:
    """As `read_answer`; a large answer in a thread, since the loop has the lease to renew."""
    if len(body) > _READ_IN_PLACE:
        return await asyncio.to_thread(read_answer, query, body)
    return read_answer(query, body)


def read_answer(query: FactQuery, body: bytes) -> Document:
    """The readings in the answer to *query*. Raises `QueryError` for any other body.

    Series without the labels that say what they are about, and samples that are histograms, are
    left out. Where several series are about the same subject, the one whose labels sort first
    counts, because servers give them in any order; that is a problem, reported for one of them.
    """
    found = Document()
    labels_of: dict[Subject, Mapping[str, Any]] = {}
    repeated: set[Subject] = set()
    for series in _series_in(body):
        subject, reading = _read_series(query, series)
        if subject is None or reading is None:
            continue
        before = labels_of.get(subject)
        if before is not None:
            repeated.add(subject)
            if _in_order(before) <= _in_order(series["metric"]):
                continue
        labels_of[subject] = series["metric"]
        found.readings[subject] = {query.fact: reading}
    if repeated:
        such = min(repeated)
        labels = ", ".join(f"{name}={value!r}" for name, value in _in_order(labels_of[such]))
        found.problems.append(
            f"several series are about `{'/'.join(such)}`, and `{{{labels}}}` counts, whose labels "
            "sort first: aggregate them in the query"
        )
    return found


def why_nothing(query: FactQuery, body: bytes) -> str:
    """What is wrong with an answer of which nothing could be read; "" if it has no series.

    Raises `QueryError` like `read_answer`.
    """
    series = _series_in(body)
    if not series:
        return ""
    labels = series[0].get("metric") if isinstance(series[0], Mapping) else None
    labels = labels if isinstance(labels, Mapping) else {}
    if _subject(query, labels) is not None:
        return f"none of {len(series)} series has a sample that is a number"
    want = " and ".join(f"`{name}`" for name in _wanted(query))
    got = ", ".join(f"`{name}`" for name in sorted(labels)) or "none"
    return f"none of {len(series)} series has the label {want}, which names the subject, got {got}"


def _series_in(body: bytes) -> list[Any]:
    """The series of an answer; one without labels for a scalar. Raises `QueryError`."""
    try:
        answer = msgspec.json.decode(body)
    except UNREADABLE as error:
        raise QueryError(f"not JSON: {error}") from error
    if not isinstance(answer, Mapping) or answer.get("status") != "success":
        reason = answer.get("error") if isinstance(answer, Mapping) else None
        raise QueryError(f"the server answers: {reason or 'nothing that is understood'}")
    data = answer.get("data")
    kind = data.get("resultType") if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping) or kind not in ("vector", "scalar"):
        raise QueryError(f"want an instant vector or a scalar, got `{kind}`")
    result = data.get("result")
    if kind == "scalar":
        result = [{"metric": {}, "value": result}]
    return result if isinstance(result, list) else []


def _in_order(labels: Mapping[str, Any]) -> list[tuple[str, str]]:
    return sorted((name, str(value)) for name, value in labels.items())


def _read_series(query: FactQuery, series: Any) -> tuple[Subject | None, Reading | None]:
    labels = series.get("metric") if isinstance(series, Mapping) else None
    sample = series.get("value") if isinstance(series, Mapping) else None
    if not isinstance(labels, Mapping) or not isinstance(sample, list) or len(sample) != 2:
        return None, None
    at, text = sample
    value = number_of(text)
    if value is not None and query.scale != 1.0:
        value = number_of(value * query.scale)
    return _subject(query, labels), Reading(value, text_of(text), time_of(at))


def _wanted(query: FactQuery) -> tuple[str, ...]:
    """The labels that say what a series is about."""
    return {
        "cluster": (),
        "node": (query.node_label,),
        "type": (query.type_label,),
        "pair": (query.type_label, query.node_label),
        "pod": (query.namespace_label, query.pod_label),
    }[query.about]


def _subject(query: FactQuery, labels: Mapping[str, Any]) -> Subject | None:
    """What a series is about; None if its labels do not say."""
    given = [str(labels.get(name, "")) for name in _wanted(query)]
    if query.strip_port and query.about in ("node", "pair"):
        given[-1] = _without_port(given[-1])
    if not all(given):
        return None
    return (query.about, *(["/".join(given)] if query.about == "pod" else given))


def _without_port(address: str) -> str:
    host, colon, port = address.rpartition(":")
    return host.strip("[]") if colon and port.isdecimal() else address
