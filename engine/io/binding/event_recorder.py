"""Events: what happened to an object, for `kubectl describe`.

Owns the form of events (events.k8s.io/v1), the counting of repeats and their delivery. When they
are sent is `deferred_writer`'s business; what they say is the caller's.
"""

import asyncio
import functools
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from engine.core.model.pod import Pod
from engine.io.binding.deferred_writer import DeferredWriter
from engine.io.kube.client import MERGE_PATCH, ApiClient
from engine.io.kube.errors import AlreadyExists, ApiError, ConnectionLost, NotFound
from engine.io.kube.resources import EVENTS
from engine.lib import printable
from engine.lib.clock import Clock
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="event_recorder")

REVISION_ANNOTATION: Final = "starsched.dev/policy-revision"

#: The reporting controller of events that are not about a pod.
CONTROLLER: Final = "starsched"
NORMAL: Final = "Normal"
WARNING: Final = "Warning"

# What the API server takes of a note, a name and a `reportingInstance`.
MOST_NOTE_BYTES: Final = 1024
_MOST_NAME: Final = 253
_MOST_INSTANCE: Final = 128

#: A repeat of an event counts as the same one within this time (as kube's recorder has it).
SERIES_SECONDS: Final = 360.0
#: Repeats within this time of the last write are counted and written with a later one.
SERIES_WRITE_SECONDS: Final = 60.0
_MOST_SERIES: Final = 4096
_NAMESPACE_ENDS: Final = "NamespaceTerminating"
_TRIES: Final = 4
_FIRST_WAIT: Final = 0.25
_LONGEST_WAIT: Final = 2.0
#: How long an event is tried again that no server takes: as long as a binding.
GIVE_UP_AFTER: Final = 30.0

Sleep = Callable[[float], Awaitable[None]]

_encode: Final = msgspec.json.Encoder().encode


class Reference(NamedTuple):
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""

    def plain(self) -> dict[str, str]:
        """As an ObjectReference of the API; what is empty is left out."""
        fields = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "resourceVersion": self.resource_version,
        }
        return {key: value for key, value in fields.items() if value}


class Occurrence(NamedTuple):
    """What an event says happened.

    Attributes:
        kind: `Normal` or `Warning`.
        reason: Why, in CamelCase.
        action: What was done or tried.
        note: The text for people; cut to what the API accepts.
        controller: `reportingController`: the profile's scheduler name.
        revision: The policy revision in force, written as an annotation.
    """

    kind: str
    reason: str
    action: str
    note: str
    controller: str = CONTROLLER
    revision: str = ""


def pod_reference(pod: Pod) -> Reference:
    """The reference of a pod."""
    return Reference("v1", "Pod", pod.namespace, pod.name, pod.uid, pod.resource_version)


def truncate_note(note: str) -> str:
    """*note* cut to what the API accepts, the way kube-scheduler cuts it: 1020 bytes and ` ...`.

    The API counts bytes, not characters; a character that would be split is left out. Control
    characters are written out.
    """
    note = printable.message(note)
    if len(note) * 4 <= MOST_NOTE_BYTES:
        return note
    raw = note.encode()
    if len(raw) <= MOST_NOTE_BYTES:
        return note
    return raw[: MOST_NOTE_BYTES - 4].decode(errors="ignore") + " ..."


def micro_time(moment: float) -> str:
    """A MicroTime of the API for a Unix time."""
    second, micros = divmod(round(moment * 1e6), 1_000_000)
    return f"{_second(second)}.{micros:06d}Z"


@functools.lru_cache(maxsize=8)
def _second(moment: int) -> str:
    """A whole second as the API writes it; events come many to a second."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S")


class _Series:
    """One event and how often it was seen.

    `new --create--> written --repeat--> due --patch--> written`; `due --404--> new`.

    `last_at` is for people, by the wall clock; `seen_at` and `wrote_at` are monotonic.
    """

    __slots__ = (
        "body",
        "count",
        "is_created",
        "is_queued",
        "last_at",
        "name",
        "namespace",
        "seen_at",
        "wrote_at",
    )

    def __init__(self, name: str, namespace: str, body: dict[str, Any], clock: Clock) -> None:
        self.name = name
        self.namespace = namespace
        self.body = body
        self.count = 1
        self.is_created = False
        self.is_queued = False
        self.last_at = clock.now()
        self.seen_at = self.wrote_at = clock.monotonic()


class EventRecorder:
    """Records events and sends them when there is capacity; repeats become a series of one event.

    Args:
        client: The API server.
        writer: Sends when bindings leave capacity.
        clock: Dates the events.
        metrics: Counts what was dropped.
        instance: Names this process in `reportingInstance`.
        sleep: Waits between tries.
    """

    def __init__(
        self,
        client: ApiClient,
        writer: DeferredWriter,
        *,
        clock: Clock,
        metrics: Metrics,
        instance: str,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._client = client
        self._writer = writer
        self._clock = clock
        self._metrics = metrics
        self._instance = instance
        self._sleep = sleep
        self._rng = client.rng
        self._series: OrderedDict[tuple[str, ...], _Series] = OrderedDict()
        self._last_name_ns = 0

    def policies(self, about: Reference, kind: str, reason: str, note: str, revision: str) -> None:
        """Record the outcome of a policy edit; *about* is the object with the policies."""
        self.record(about, Occurrence(kind, reason, "Reload", note, revision=revision))

    def record(
        self,
        regarding: Reference,
        what: Occurrence,
        *,
        repeats: bool = True,
        related: Reference | None = None,
    ) -> None:
        """Record an event; returns at once.

        Args:
            regarding: The object it is about.
            what: What happened.
            repeats: False for what happens to an object once at most; saves the bookkeeping. If
                several processes report it, the API server keeps the first report.
            related: Another object that has to do with it.
        """
        now = self._clock.now()
        if not repeats:
            name = _name_of_what_happens_once(regarding, what.reason, what.note)
            self._enqueue(self._new(regarding, what, now, related, name))
            return
        # The note belongs to the key: an event's note cannot be changed later, so another note is
        # another event.
        key = (*regarding[:5], *what)
        known = self._series.get(key)
        seen_at = self._clock.monotonic()
        if known is not None and seen_at - known.seen_at < SERIES_SECONDS:
            self._series.move_to_end(key)
            known.count += 1
            known.last_at, known.seen_at = now, seen_at
            # The second one turns the event into a series at once; later ones are collected.
            if known.count == 2 or seen_at - known.wrote_at >= SERIES_WRITE_SECONDS:
                self._enqueue(known)
            return
        series = self._new(regarding, what, now, related)
        self._series[key] = series
        self._series.move_to_end(key)
        self._enqueue(series)
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Keep to the limit, but for those that wait to be written: a repeat would be another one.

        Two go for each one that comes, so that there are soon as few again.
        """
        for _ in range(2):
            key, oldest = next(iter(self._series.items()))
            if len(self._series) > _MOST_SERIES and not oldest.is_queued:
                del self._series[key]

    def _new(
        self,
        regarding: Reference,
        what: Occurrence,
        now: float,
        related: Reference | None,
        called: str = "",
    ) -> _Series:
        namespace = regarding.namespace or "default"
        if not called:
            # Two events of one object in one tick of the clock still get two names.
            name_ns = max(int(now * 1e9), self._last_name_ns + 1)
            self._last_name_ns = name_ns
            called = f"{name_ns:x}"
        suffix = f".{called}"
        name = regarding.name[: _MOST_NAME - len(suffix)].rstrip("-.") + suffix
        metadata: dict[str, Any] = {"name": name, "namespace": namespace}
        if what.revision:
            metadata["annotations"] = {REVISION_ANNOTATION: what.revision}
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": metadata,
            "eventTime": micro_time(now),
            "reportingController": what.controller,
            "reportingInstance": f"{what.controller}-{self._instance}"[:_MOST_INSTANCE],
            "action": what.action,
            "reason": what.reason,
            "type": what.kind,
            "regarding": regarding.plain(),
            "note": truncate_note(what.note),
        }
        if related is not None:
            body["related"] = related.plain()
        return _Series(name, namespace, body, self._clock)

    def _enqueue(self, series: _Series) -> None:
        if series.is_queued:
            return
        if self._writer.submit(functools.partial(self._write, series)):
            series.is_queued = True
        else:
            self._metrics.events_dropped.labels("full").inc()

    async def _write(self, series: _Series) -> None:
        """Create the event or count it up; a few tries, then it is dropped and counted.

        More of them while there is no server: then nothing else that waits could be written.
        """
        series.is_queued = False
        wait = _FIRST_WAIT
        give_up_at = self._clock.monotonic() + GIVE_UP_AFTER
        tries = 0
        while True:
            tries += 1
            try:
                if series.is_created:
                    await self._patch(series)
                else:
                    await self._create(series)
                series.wrote_at = self._clock.monotonic()
                return
            except AlreadyExists:
                # The answer to an earlier try was lost.
                series.is_created = True
                series.wrote_at = self._clock.monotonic()
                return
            except NotFound as error:
                if not series.is_created:
                    self._drop(series, "rejected", error)  # its namespace is gone
                    return
                series.is_created = False  # expired on the server: a new one under the same name
            except ApiError as error:
                if error.status not in (0, 429) and error.status < 500:
                    self._drop(series, "rejected", error)
                    return
                is_away = isinstance(error, ConnectionLost)
                if tries >= _TRIES and not (is_away and self._clock.monotonic() < give_up_at):
                    self._drop(series, "failed", error)
                    return
                floor = error.retry_after or 0.0
                await self._sleep(floor + wait * (0.5 + self._rng.random()))
                wait = min(_LONGEST_WAIT, 2 * wait)

    async def _create(self, series: _Series) -> None:
        body = series.body
        if series.count > 1:
            body = body | {"series": _series_field(series)}
        await self._client.create(EVENTS, _encode(body), series.namespace)
        series.is_created = True

    async def _patch(self, series: _Series) -> None:
        await self._client.patch(
            EVENTS,
            series.name,
            _encode({"series": _series_field(series)}),
            series.namespace,
            content_type=MERGE_PATCH,
        )

    def _drop(self, series: _Series, cause: str, error: ApiError) -> None:
        self._metrics.events_dropped.labels(cause).inc()
        # Events in a namespace that is being deleted are of no use.
        write = log.debug if _NAMESPACE_ENDS in error.causes else log.warning
        write(
            "Dropped an event",
            regarding=f"{series.namespace}/{series.body['regarding']['name']}",
            event_reason=series.body["reason"],
            reason=str(error),
        )


def _name_of_what_happens_once(regarding: Reference, reason: str, note: str) -> str:
    """The end of an event's name, the same in every process for the same event; "" without a uid.

    Two processes that both believe for a moment that they lead may both find a pod bound as
    decided, one of them because the other has bound it.
    """
    if not regarding.uid:
        return ""
    text = "\0".join((regarding.uid, reason, note)).encode(errors="surrogatepass")
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def _series_field(series: _Series) -> dict[str, Any]:
    return {"count": series.count, "lastObservedTime": micro_time(series.last_at)}
