"""The transport interface that `ApiClient` sends requests through.

Owns the interface; `direct.py` and `proxied.py` implement it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import metadata
from typing import Final, Protocol

from engine.telemetry.spans import Span

JSON: Final = "application/json"
#: Methods that change nothing.
READS: Final = frozenset({"GET", "HEAD"})

Pieces = AsyncIterator[bytes]
"""The body of an answer as it arrives."""


def user_agent() -> str:
    """`starsched/<version>`."""
    try:
        return f"starsched/{metadata.version('starsched')}"
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        return "starsched/0.0.0"


@dataclass(slots=True)
class Request:
    """One request.

    Attributes:
        method: HTTP method.
        target: Path below the server's URL, and query; escaped.
        timeout: Seconds for everything, the wait for a connection included.
        body: Request body, or None.
        content_type: Of *body*.
        authorization: The header's value, or None.
        may_send: Asked once more just before the request is written, however long it has waited for
            a connection; if it says no, the request fails as not sent. None: it always may.
        span: Ends with the answer; the server gets its context. None: it is not traced.
    """

    method: str
    target: str
    timeout: float
    body: bytes | None = None
    content_type: str = JSON
    authorization: str | None = None
    may_send: Callable[[], bool] | None = None
    span: Span | None = None

    @property
    def label(self) -> str:
        """Method and path, for messages."""
        return f"{self.method} {self.target.partition('?')[0]}"


#: Takes the method of a request, the status of its answer (0: none), the seconds that it took, and
#: the bytes of its body.
Observer = Callable[[str, int, float, int], None]


class Transport(Protocol):
    """A way to the API server. Whatever goes wrong, and every answer but 2xx, is an `ApiError`.

    Attributes:
        observer: Is passed every request that has ended; of a stream, once it has begun.
    """

    observer: "Observer | None"

    async def send(self, request: Request) -> bytes:
        """The body of the answer to *request*. No write is sent twice."""
        ...

    def send_now(self, request: Request) -> "asyncio.Future[bytes] | None":
        """As `send`, without a task; None if this transport cannot.

        The caller takes the future's exception. Cancelling it gives the answer up.
        """
        ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[Pieces]:
        """The body of the answer to *request*, piece by piece."""
        ...

    async def close(self) -> None:
        """Close every connection; what is under way fails with `ConnectionLost`."""
        ...
