"""Lists and then watches one resource until cancelled: the transport half of an informer.

Owns the order of requests and what follows each failure. What the objects mean, and what changed
between two lists, is the sink's business (`informer.py`).

    listing --last page--> watching --server closes, connection breaks--> watching (same version)
    watching --connection lost--> asking if the server knows the version --yes--> watching
    watching --410, unreadable twice, version unknown to the server, a minute's silence--> listing
    watching, waiting, absent --catch_up, no event for some time--> listing
    listing --404 or 403, discovery does not have it, on an optional resource--> absent --> listing
    listing --any other failure, 401 and 403 too--> waiting --> listing
    watching an older version --server closes, connection breaks--> listing (the newest one first)

Only what the server does not serve is empty. What it refuses, or fails to show, is unknown: before
the first list nothing is in sync, and later what is known stays, and grows old (`Currency`).

A watch goes on from the resourceVersion of the last event handed over, so a break costs nothing;
a list hands over every object again, and the sink keeps what is new.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec
import structlog

from engine.io.kube.client import ApiClient
from engine.io.kube.discovery import is_served
from engine.io.kube.errors import (
    ApiError,
    ConnectionLost,
    Forbidden,
    Gone,
    NotFound,
    ServerError,
    TimedOut,
    TooManyRequests,
    Unauthorized,
)
from engine.io.kube.resources import Resource
from engine.io.watching.backoff import Backoff
from engine.lib.background import cancelled
from engine.lib.deep_json import UNREADABLE, decoded_deeply

log = structlog.get_logger(__name__)
_DEBUG, _INFO = logging.DEBUG, logging.INFO
_WARNING, _ERROR = logging.WARNING, logging.ERROR

Sleep = Callable[[float], Awaitable[object]]
State = Literal["new", "listing", "watching", "waiting", "absent"]

#: Errors after which the same watch may simply be opened again.
_PASSING = (ConnectionLost, TimedOut, ServerError, TooManyRequests)

#: Between two reports of an outage that goes on, at the level of the first.
_REPORT_SECONDS = 60.0
#: A watch that ends this soon without an event was refused in disguise; it does not reset backoff.
_SHORT_WATCH_SECONDS = 1.0
#: A watch that lives this long has worked, even if nothing happened.
_HEALTHY_WATCH_SECONDS = 5.0
#: Before it closes a watch that lived this long, the server has sent a bookmark at least.
_BOOKMARK_SECONDS = 55.0


def _number(version: str) -> float:
    """A resourceVersion as a number; unknown ones are reached by a list alone."""
    return int(version) if version.isdecimal() else math.inf


@dataclass(frozen=True)
class WatchOptions:
    """What to watch, and how patiently.

    Attributes:
        namespace: Objects of one namespace; None for all.
        field_selector: The server filters; what leaves the selection arrives as a deletion.
        label_selector: Likewise.
        optional: The cluster may not serve it, by its discovery documents: then it is empty.
        older: The same resource in older versions, the newest first: the newest version that the
            server has is watched, and what it has is looked up again whenever a watch of an older
            one ends.
        page_size: Objects per page of a list.
        watch_seconds: Least and most seconds after which the server closes a watch; the actual
            figure is drawn between them, so that watches do not all reconnect at once.
        grace: Seconds after that until a watch counts as hung.
        list_timeout: Seconds for one page.
        absent_retry: Most seconds between looks for an absent optional resource.
        slice_size: Objects handed over before other tasks may run.
    """

    namespace: str | None = None
    field_selector: str = ""
    label_selector: str = ""
    optional: bool = False
    older: tuple[Resource, ...] = ()
    page_size: int = 500
    watch_seconds: tuple[int, int] = (60, 120)
    grace: float = 15.0
    list_timeout: float = 60.0
    absent_retry: float = 120.0
    slice_size: int = 100


@dataclass
class WatchCounts:
    """What a reflector and its informer have done since the start."""

    lists: int = 0  # completed
    watches: int = 0  # opened
    failures: int = 0  # of lists and watches, refusals too; not of what is not served
    expirations: int = 0  # 410s
    events: int = 0  # of watches, without bookmarks
    bookmarks: int = 0
    unchanged: int = 0  # objects whose resourceVersion was known already
    malformed: int = 0  # events and objects that could not be read
    handler_errors: int = 0


@dataclass
class Currency:
    """How current what a reflector has handed over is.

    Attributes:
        known_at: When it last was known to be all there is (monotonic seconds): at the end of a
            list, an event, a bookmark, the orderly end of a watch. At first, when it began.
        failure: What lists or watches fail with since then; "" while they work.
        is_forbidden: That is a refusal: 401 or 403.
        remedy: What to do about it, if that is known; else "".
    """

    known_at: float
    failure: str = ""
    is_forbidden: bool = False
    remedy: str = ""

    def is_older(self, than: float, now: float) -> bool:
        """True if nothing could be read for more than *than* seconds, at *now*."""
        return bool(self.failure) and now - self.known_at > than


def missing_right(resource: Resource, options: WatchOptions) -> str:
    """What to add to which role so that *resource* may be listed and watched, as YAML."""
    group = resource.group or '""'
    role = f"Role in the namespace {options.namespace}" if options.namespace else "ClusterRole"
    named = options.field_selector.removeprefix("metadata.name=")
    names = f", resourceNames: [{named}]" if named != options.field_selector else ""
    what = f"apiGroups: [{group}], resources: [{resource.plural}]{names}"
    return f"add to the {role}: - {{{what}, verbs: [list, watch]}}"


class Sink(Protocol):
    """What a reflector hands its objects to. All calls are synchronous and must not raise."""

    def begin_list(self) -> None:
        """A list begins; every object that exists follows by *put*."""
        ...

    def put(self, raw: msgspec.Raw) -> str:
        """An object exists in this version. Returns its resourceVersion, "" if unreadable."""
        ...

    def remove(self, raw: msgspec.Raw) -> str:
        """An object was deleted. Returns the deletion's resourceVersion, "" if unreadable."""
        ...

    def end_list(self) -> Iterable[object]:
        """All were put: drop what was not, one per step; then the sink is in sync."""
        ...


class _Event(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


class _BookmarkMeta(msgspec.Struct, frozen=True, rename="camel", gc=False):
    resource_version: str


class _Bookmark(msgspec.Struct, frozen=True, gc=False):
    metadata: _BookmarkMeta


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_bookmark = msgspec.json.Decoder(_Bookmark).decode


class _Garbled(Exception):
    """A line of a watch is no event, or its object cannot be told from others."""


class Reflector:
    """Keeps *sink* up to date with one resource until cancelled.

    Args:
        client: The API server.
        resource: What to watch.
        sink: What the objects are handed to.
        options: See `WatchOptions`.
        sleep: Waits between tries; tests pass their own.
        on_served: Called with the version in which the server has the resource, or None.

    Attributes:
        counts: Counted up as things happen.
    """

    def __init__(
        self,
        client: ApiClient,
        resource: Resource,
        sink: Sink,
        options: WatchOptions | None = None,
        *,
        sleep: Sleep = asyncio.sleep,
        on_served: Callable[[Resource | None], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._newest = resource
        self._on_served = on_served
        self._served: Resource | None = None
        self._has_asked = False  # whether the resource is served
        self._sink = sink
        self._options = options or WatchOptions()
        self.counts = WatchCounts()
        self._clock = client.clock
        self.currency = Currency(self._clock.monotonic())
        self._rng = client.rng
        self._sleep = sleep
        self._backoff = Backoff(self._rng)
        self._log = log.bind(resource=str(resource))
        self._handed_over = 0
        self._garbled_at: str | None = None
        self._has_listed = False
        self._is_absent = False
        self._was_lost = False
        self._reported_at, self._reported_level = -math.inf, _DEBUG
        self._is_asked = asyncio.Event()  # to list again
        # By the version that is to be known; any list that begins later shows it.
        self._waiting: list[tuple[float, asyncio.Future[None]]] = []
        self.state: State = "new"
        self.resource_version = ""

    async def run(self) -> None:
        """List and watch until cancelled. Never returns and never raises for the server's sake."""
        while True:
            following = asyncio.ensure_future(self._follow())
            asked = asyncio.ensure_future(self._is_asked.wait())
            try:
                await asyncio.wait({following, asked}, return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    following.result()
            finally:
                await cancelled([following, asked])
            self._is_asked.clear()

    async def catch_up(self, version: str, patience: float) -> None:
        """Return when all up to *version* is handed over, or the resource is absent.

        A watch may be behind the server without a sign of it. If no event within *patience* seconds
        shows that it is not, what there is now is listed. Versions of all resources are compared:
        they are numbers of one counter.
        """
        wanted = _number(version)
        if self.state == "watching" and self._has_reached(wanted):
            return
        known: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, known))
        await asyncio.wait({known}, timeout=patience)
        if not known.done():
            self._is_asked.set()
            await known

    async def _follow(self) -> None:
        while True:
            try:
                await self._list()
            except ApiError as error:
                await self._after_failed_list(error)
                continue
            await self._watch()

    # --- list ---------------------------------------------------------------------------------

    async def _list(self) -> None:
        self.state = "listing"
        started = self._clock.monotonic()
        waiting = self._waiting.copy()  # requests from now on may need a later list
        count = await self._list_newest()
        self._serves(self._resource)
        for _ in self._sink.end_list():
            await self._take_turns()
        self.counts.lists += 1
        self._log.log(
            _DEBUG if self._has_listed else _INFO,
            "Listed",
            count=count,
            duration_ms=round((self._clock.monotonic() - started) * 1000),
        )
        self._has_listed = True
        self._is_absent = False
        self._is_current()
        self._answer(waiting)

    def _has_reached(self, wanted: float) -> bool:
        """True if all up to *wanted* is known; a version that is no number shows nothing."""
        return wanted <= _number(self.resource_version) < math.inf

    def _answer(self, waiting: Iterable[tuple[float, asyncio.Future[None]]]) -> None:
        """Let those go on that have waited for what is known now."""
        for one in tuple(waiting):
            self._waiting.remove(one)
            if not one[1].done():
                one[1].set_result(None)

    async def _list_newest(self) -> int:
        """List the newest version that the server has. Raises `NotFound` if it has none."""
        for resource in (self._newest, *self._options.older):
            self._resource = resource
            try:
                return await self._list_whole()
            except NotFound:
                if resource is (self._newest, *self._options.older)[-1]:
                    raise
        raise AssertionError("unreachable")

    async def _list_whole(self) -> int:
        try:
            return await self._list_pages(self._options.page_size)
        except Gone:
            # Compacted away between two pages: a list that takes longer than etcd's memory would
            # never end page by page, so take it in one answer.
            self.counts.expirations += 1
            return await self._list_pages(0)

    async def _list_pages(self, limit: int) -> int:
        options = self._options
        self._sink.begin_list()
        count = 0
        version = ""
        pages = self._client.list_pages(
            self._resource,
            namespace=options.namespace,
            field_selector=options.field_selector,
            label_selector=options.label_selector,
            limit=limit,
            timeout=options.list_timeout,
        )
        async with contextlib.aclosing(pages):
            coming = asyncio.ensure_future(anext(pages, None))
            try:
                while (page := await coming) is not None:
                    # The server makes the next page while we take this one in.
                    coming = asyncio.ensure_future(anext(pages, None))
                    version = page.resource_version
                    for raw in page.items:
                        self._sink.put(raw)
                        await self._take_turns()
                    count += len(page.items)
            finally:
                await _end(coming)
        # Only now: a watch from a list that broke off would miss the pages after the break.
        self.resource_version = version
        self._was_lost = False
        return count

    async def _after_failed_list(self, error: ApiError) -> None:
        try:
            # Rights are asked before paths are: what is not served is forbidden to those without.
            may_be_absent = isinstance(error, NotFound | Forbidden)
            is_absent = may_be_absent and await self._is_served_nowhere()
        except ApiError as other:
            is_absent = False
            if not isinstance(error, Forbidden):  # a refusal is one whatever discovery says
                error = other
        if not is_absent:
            self.counts.failures += 1
            await self._wait(error, "Could not list")
            return
        self._serves(None)
        self._sink.begin_list()
        for _ in self._sink.end_list():
            await self._take_turns()
        if not self._is_absent:
            self._log.info("Not served, so there is none", reason=str(error))
        self._is_absent = True
        self._is_current()
        self._answer(self._waiting)
        self.state = "absent"
        self._backoff.reset()
        await self._sleep(self._options.absent_retry * self._rng.uniform(0.5, 1.0))

    async def _is_served_nowhere(self) -> bool:
        """True if the resource may be absent, and the server says that it is, in each version."""
        if not self._options.optional:
            return False
        for resource in (self._newest, *self._options.older):
            if await is_served(self._client, resource):
                return False
        return True

    def _serves(self, served: Resource | None) -> None:
        """Report in which version the server has the resource, if that has changed."""
        if self._has_asked and served == self._served:
            return
        self._has_asked = True
        self._served = served
        self._on_served(served)

    # --- watch --------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Watch from the current resourceVersion, again and again, until a list is needed."""
        while True:
            started = self._clock.monotonic()
            if self.currency.is_older(_BOOKMARK_SECONDS, started):
                return  # a watch that is quiet would leave open for long whether it works again
            self.state = "watching"
            heard_before = self.counts.events + self.counts.bookmarks
            try:
                if self._was_lost:
                    await self._check_version()
                await self._watch_once()
            except Gone as error:
                self.counts.expirations += 1
                self._log.info("Watch expired, listing again", reason=error.message)
                if self._backoff.attempts:  # the list before this one did not help either
                    await self._wait(error, "Watch expired again")
                else:
                    self._backoff.next()
                return
            except _Garbled:
                # Half a line may be the network's fault; the same twice is the server's.
                is_repeated = self._garbled_at == self.resource_version
                self._garbled_at = self.resource_version
                await self._wait(None, "Watch sent a line that is not an event")
                if is_repeated:
                    self._garbled_at = None
                    return
            except _PASSING as error:
                self.counts.failures += 1
                self._was_lost |= isinstance(error, ConnectionLost | TimedOut)
                if self._clock.monotonic() - started >= _HEALTHY_WATCH_SECONDS:
                    self._backoff.reset()  # it worked until now, however quiet it was
                await self._wait(error, "Watch failed")
                if "ResourceVersionTooLarge" in error.causes:
                    return  # the server went back in time, such as to a backup
                if self._resource is not self._newest:
                    return  # it may be another server, which has a newer version
            except ApiError as error:
                # 401, 403, 404: the list meets the same and decides.
                self.counts.failures += 1
                await self._wait(error, "Watch refused")
                return
            else:
                was_quiet = heard_before == self.counts.events + self.counts.bookmarks
                lived = self._clock.monotonic() - started
                if was_quiet and lived < _SHORT_WATCH_SECONDS:
                    await self._wait(None, "Watch closed at once")
                    continue
                self._is_current()
                if self._backoff.attempts:
                    self._works_again()
                if self._resource is not self._newest:
                    return  # the server may have a newer version by now
                if was_quiet and lived >= _BOOKMARK_SECONDS:
                    # A server that was restored to an earlier state says nothing until its
                    # versions have passed ours. If nothing happened at all, a list costs little.
                    self._log.debug("Watch was silent, listing again")
                    return

    async def _check_version(self) -> None:
        """Ask if the server knows our version, after it was away; a watch would not show that.

        One that comes back as an earlier state takes the watch, says nothing until its versions
        have passed ours, and goes on then as if nothing had happened.
        """
        options = self._options
        await self._client.check_version(
            self._resource,
            self.resource_version,
            namespace=options.namespace,
            field_selector=options.field_selector,
            label_selector=options.label_selector,
            timeout=options.list_timeout,
        )
        self._was_lost = False

    async def _watch_once(self) -> None:
        options = self._options
        counts, sink = self.counts, self._sink
        lines = self._client.stream(
            self._resource,
            self.resource_version,
            namespace=options.namespace,
            field_selector=options.field_selector,
            label_selector=options.label_selector,
            timeout_seconds=self._rng.randint(*options.watch_seconds),
            grace=options.grace,
        )
        counts.watches += 1
        async with contextlib.aclosing(lines):
            async for line in lines:
                try:
                    event = decoded_deeply(_decode_event, line)
                except UNREADABLE as error:
                    counts.malformed += 1
                    raise _Garbled from error
                match event.type:
                    case "ADDED" | "MODIFIED":
                        counts.events += 1
                        version = sink.put(event.object)
                    case "DELETED":
                        counts.events += 1
                        version = sink.remove(event.object)
                    case "BOOKMARK":
                        counts.bookmarks += 1
                        version = self._bookmark_version(event.object)
                    case _:
                        counts.malformed += 1
                        version = ""
                if not version and event.type != "BOOKMARK":
                    # Something has changed, and only another look can say what: going on would
                    # miss it for good.
                    raise _Garbled
                if self._backoff.attempts:
                    self._works_again()
                # After the handlers ran: cancelled or broken here, nothing is skipped.
                self.resource_version = version or self.resource_version
                self._is_current()
                if self._waiting:
                    self._answer(one for one in self._waiting if self._has_reached(one[0]))
                await self._take_turns()

    def _bookmark_version(self, raw: msgspec.Raw) -> str:
        try:
            return _decode_bookmark(raw).metadata.resource_version
        except UNREADABLE as error:
            self.counts.malformed += 1
            self._log.warning("Skipped a bookmark", reason=str(error))
            return ""

    # --- waiting ------------------------------------------------------------------------------

    async def _take_turns(self) -> None:
        """Let other tasks run once per slice: a list of 50,000 pods must not block bindings."""
        self._handed_over += 1
        if self._handed_over >= self._options.slice_size:
            self._handed_over = 0
            await asyncio.sleep(0)

    def _is_current(self) -> None:
        """All that there is was handed over a moment ago."""
        currency = self.currency
        currency.known_at = self._clock.monotonic()
        if currency.failure:
            currency.failure, currency.is_forbidden, currency.remedy = "", False, ""

    async def _wait(self, error: ApiError | None, what: str) -> None:
        delay = self._backoff.next()
        if error is not None and error.retry_after is not None:
            delay = max(delay, error.retry_after)
        currency = self.currency
        currency.failure = what if error is None else str(error)
        currency.is_forbidden = isinstance(error, Forbidden | Unauthorized)
        currency.remedy = self._remedy(error)
        # At its beginning and from time to time; the rest is logged at debug level.
        now = self._clock.monotonic()
        level = _ERROR if currency.is_forbidden else _WARNING
        is_due = (
            self._backoff.attempts == 1
            or level > self._reported_level
            or now - self._reported_at >= _REPORT_SECONDS
        )
        if is_due:
            self._reported_at, self._reported_level = now, level
        remedy = {"hint": currency.remedy} if currency.remedy else {}
        self._log.log(
            level if is_due else _DEBUG,
            what,
            reason=str(error) if error is not None else "",
            **remedy,
            retry_in_s=round(delay, 3),
            attempts=self._backoff.attempts,
        )
        self.state = "waiting"
        await self._sleep(delay)

    def _remedy(self, error: ApiError | None) -> str:
        match error:
            case Forbidden():
                return missing_right(self._resource, self._options)
            case Unauthorized():
                return "the API server does not accept the credentials of this process"
        return ""

    def _works_again(self) -> None:
        self._log.info("Watch works again", attempts=self._backoff.attempts)
        self._backoff.reset()


async def _end(task: "asyncio.Future[Any]") -> None:
    """Cancel *task* if it is under way, and wait for its end."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # the tasks that wait for it have seen it
