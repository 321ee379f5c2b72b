"""Fault injection: make chosen requests late, refused, unanswered or cut off.

Owns which request gets which fault. The server carries the fault out. Deterministic: a fault
applies to the requests that match it, in order of arrival, by count; nothing is random.

    faults.fail(429, retry_after=2, verb="create", resource="pods/binding", times=3)
    faults.drop(verb="create", resource="pods/binding", applied=True)   # bound, answer lost
    hold = faults.hang(verb="list", resource="nodes"); ...; hold.release()
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypedDict, Unpack

from engine.core.manifests.errors import REASONS, ApiStatus


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as faults and the request log see it.

    Attributes:
        verb: get, list, watch, create, update, patch, delete or deletecollection.
        resource: `pods`, `pods/binding`, `leases.coordination.k8s.io`; empty for other paths.
    """

    verb: str
    resource: str
    namespace: str
    name: str
    path: str
    user_agent: str = ""


class Match(TypedDict, total=False):
    """Which requests a fault is about; the fields of `Fault` of the same names."""

    verb: str
    resource: str
    namespace: str
    name: str
    path: str
    where: Callable[[Call], bool] | None
    skip: int
    times: int | None
    every: int


@dataclass(eq=False)
class Fault:
    """What happens to the requests that match. Made by `Faults`.

    Patterns are shell patterns (`pods*`); empty ones match everything.

    Attributes:
        skip: Matching requests to let pass first.
        times: Matching requests to hit after those; None for all.
        every: Hit only each *every*-th of them.
        applied: Carry the request out first, then answer with the fault.
        repeated: Carry the request out that many times more; the last answer counts.
        persists: Carry the request out after *delay* even if its sender has gone by then.
        answers: How often the answer is sent.
        page: The most objects on a page of a list; 0 for as many as it asks for.
        hits: Requests hit so far.
    """

    verb: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    where: Callable[[Call], bool] | None = None
    skip: int = 0
    times: int | None = 1
    every: int = 1
    applied: bool = False
    delay: float = 0.0
    status: ApiStatus | None = None
    dropped: bool = False
    hangs: bool = False
    repeated: int = 0
    persists: bool = False
    answers: int = 1
    page: int = 0
    hits: int = 0
    _seen: int = 0
    #: Of requests that hang; None once they may go on. API servers may have loops of their own.
    _hanging: list[asyncio.Future[None]] | None = field(default_factory=list)
    _hit: asyncio.Event = field(default_factory=asyncio.Event)

    def matches(self, call: Call) -> bool:
        """True if *call* is one that the fault is about."""
        return (
            _like(call.verb, self.verb)
            and _like(call.resource, self.resource)
            and _like(call.namespace, self.namespace)
            and _like(call.name, self.name)
            and _like(call.path, self.path)
            and (self.where is None or self.where(call))
        )

    def strikes(self, call: Call) -> bool:
        """True if *call* is hit; counts it."""
        if self.is_spent or not self.matches(call):
            return False
        self._seen += 1
        past = self._seen - self.skip
        if past <= 0 or past % self.every:
            return False
        self.hits += 1
        self._hit.set()
        return True

    @property
    def is_spent(self) -> bool:
        """True if no request can be hit any more."""
        return self.times is not None and self.hits >= self.times

    @property
    def is_final(self) -> bool:
        """True if the request gets no ordinary answer."""
        return self.dropped or self.status is not None

    def release(self) -> None:
        """Let hanging requests go on, and later ones pass."""
        self.times = self.hits
        hanging, self._hanging = self._hanging or [], None
        for one in hanging:
            if not one.done():
                one.set_result(None)

    async def wait_released(self) -> None:
        """Return after `release`."""
        if self._hanging is not None:
            going_on = asyncio.get_running_loop().create_future()
            self._hanging.append(going_on)
            await going_on

    async def wait_hit(self, hits: int = 1) -> None:
        """Return when *hits* requests have been hit, so that a test need not sleep."""
        while self.hits < hits:
            self._hit.clear()
            await self._hit.wait()


def _like(text: str, pattern: str) -> bool:
    return not pattern or fnmatchcase(text, pattern)


class Faults:
    """The faults in force, in the order in which they were added.

    Every method that adds one takes the fields of `Fault` that select requests: `verb`, `resource`,
    `namespace`, `name`, `path`, `where`, `skip`, `times`, `every`.
    """

    def __init__(self) -> None:
        self._active: list[Fault] = []

    def fail(
        self,
        code: int,
        *,
        reason: str | None = None,
        message: str | None = None,
        retry_after: int | str | None = None,
        applied: bool = False,
        **match: Unpack[Match],
    ) -> Fault:
        """Answer with *code*; with *applied*, after carrying the request out all the same.

        *retry_after*: a number as an API server sends it, or the text of the header alone.
        """
        named = reason if reason is not None else REASONS.get(code, "")
        text = message if message is not None else _MESSAGES.get(code, f"injected fault {code}")
        header = retry_after if isinstance(retry_after, str) else None
        details = {"retryAfterSeconds": retry_after} if isinstance(retry_after, int) else None
        status = ApiStatus(code, text, reason=named, details=details, retry_header=header)
        return self._add(Fault(status=status, applied=applied, **match))

    def delay(self, seconds: float, *, persists: bool = False, **match: Unpack[Match]) -> Fault:
        """Let the request wait for *seconds* before it is looked at.

        With *persists*, it is carried out then although its sender may have gone.
        """
        return self._add(Fault(delay=seconds, persists=persists, **match))

    def repeat(self, **match: Unpack[Match]) -> Fault:
        """Carry the request out twice, as a proxy that tries again; the second answer is sent."""
        return self._add(Fault(repeated=1, **match))

    def answer_twice(self, **match: Unpack[Match]) -> Fault:
        """Send the answer twice."""
        return self._add(Fault(answers=2, **match))

    def page(self, most: int, **match: Unpack[Match]) -> Fault:
        """Answer lists with pages of *most* objects, whatever they ask for."""
        return self._add(Fault(page=most, **match))

    def hang(
        self, *, applied: bool = False, dropped: bool = False, **match: Unpack[Match]
    ) -> Fault:
        """Leave the request unanswered until `release` (or until the client gives up).

        With *dropped* the connection breaks then.
        """
        return self._add(Fault(hangs=True, applied=applied, dropped=dropped, **match))

    def drop(self, *, applied: bool = False, **match: Unpack[Match]) -> Fault:
        """Break the connection instead of answering; with *applied*, after carrying it out."""
        return self._add(Fault(dropped=True, applied=applied, **match))

    def remove(self, fault: Fault) -> None:
        """Take *fault* out of force; requests that hang on it go on."""
        fault.release()
        if fault in self._active:
            self._active.remove(fault)

    def clear(self) -> None:
        """Take every fault out of force."""
        for fault in tuple(self._active):
            self.remove(fault)

    def striking(self, call: Call) -> list[Fault]:
        """The faults that hit *call*: any delays and hangs, then at most one that ends it."""
        met = []
        for fault in tuple(self._active):
            if fault.strikes(call):
                met.append(fault)
                if fault.is_final:
                    break
        return met

    def _add(self, fault: Fault) -> Fault:
        if fault.every < 1:
            raise ValueError(f"every: want an int of at least 1, got `{fault.every}`")
        self._active.append(fault)
        return fault


_MESSAGES = {
    429: "Too many requests, please try again later.",
    500: "Internal error occurred: injected fault",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted",
}
