"""Live updates: the content of a screen is sent again when it has changed.

Owns how often that is and how many may watch. A stream asks for its answer every few seconds, and
sends at most so many bytes a second on average; when too many watch, a further one gets the event
`crowded`, asks again later and stays the plain page that it is.
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

#: How many may watch at a time, and seconds after which those beyond ask again.
MOST_STREAMS: Final = 16
_ASK_AGAIN_SECONDS: Final = 30
#: A stream ends then, and the browser opens the next one: what its caller may read is asked again.
_LIFE_SECONDS: Final = 300.0
_BYTES_A_SECOND: Final = 200_000
#: A connection that is gone is noticed by writing to it.
_SILENCE_SECONDS: Final = 20.0
_AGES: Final = re.compile(r"(<time [^>]*>)[^<]*")
_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
    "Vary": "Accept",
}

Render = Callable[[], Awaitable[str | None]]
"""The content of a screen; None if there is no answer now, and what is shown stays."""


class Streams:
    """The streams that are open.

    Args:
        most: How many may be.
        pace: Scales the seconds between two looks.
        sleep: Waits.
    """

    def __init__(
        self,
        *,
        most: int = MOST_STREAMS,
        pace: float = 1.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._most, self._pace, self._sleep = most, pace, sleep
        self._open: set[asyncio.Task[object]] = set()

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    async def serve(
        self, request: web.Request, render: Render, seconds: float
    ) -> web.StreamResponse:
        """Send what *render* returns, every so many *seconds*, until the browser goes."""
        response = web.StreamResponse(headers=_HEADERS)
        await response.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        if self.count >= self._most:
            await response.write(_message("", event="crowded", retry=_ASK_AGAIN_SECONDS))
            return response
        self._open.add(task)
        try:
            # A reset connection is the usual end.
            with contextlib.suppress(ConnectionError):
                await self._follow(request, response, render, seconds * self._pace)
        finally:
            self._open.discard(task)
        return response

    async def close(self) -> None:
        """End all streams."""
        for task in tuple(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _follow(
        self, request: web.Request, response: web.StreamResponse, render: Render, seconds: float
    ) -> None:
        shown, silent, left = "", 0.0, _LIFE_SECONDS
        while left > 0 and request.transport is not None and not request.transport.is_closing():
            content = await render()
            pause = seconds
            # Ages go on in the browser: they alone are no change.
            plain = shown if content is None else _AGES.sub(r"\1", content)
            if content is not None and plain != shown:
                message = _message(content)
                await response.write(message)
                pause = max(pause, len(message) / _BYTES_A_SECOND)
                shown, silent = plain, 0.0
            elif silent >= _SILENCE_SECONDS:
                await response.write(b": nothing new\n\n")
                silent = 0.0
            silent += pause
            left -= pause
            await self._sleep(pause)


def _message(data: str, *, event: str = "", retry: int | None = None) -> bytes:
    """A message of a stream of events."""
    lines = [f"event: {event}"] if event else []
    if retry is not None:
        lines.append(f"retry: {retry * 1000}")
    # A bare carriage return ends a line too.
    lines += (f"data: {line}" for line in re.split(r"\r\n|\r|\n", data))
    return ("\n".join(lines) + "\n\n").encode()
