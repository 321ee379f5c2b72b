"""Questions to the API server about callers, and their answers for some seconds.

Owns the cache and its bounds. Equal questions that are under way are asked once; only a few
different ones are asked at the same time, so that strangers take no connections from bindings. A
failure is not kept: the next request asks again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from engine.io.kube.errors import ApiError
from engine.lib.clock import Clock

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")

#: Longest wait for an answer of the API server, the wait for its turn included.
REVIEW_SECONDS: Final = 10.0
MOST_AT_ONCE: Final = 8
MOST_WAITING: Final = 512
MOST_KEPT: Final = 4096


class ReviewFailed(Exception):
    """The API server gave no answer: refused, unreachable, too slow, or asked too much."""


class Reviews(Generic[Key, Answer]):
    """Answers by question.

    Args:
        ask: Asks the API server.
        keep_for: For how many seconds an answer is good.
        clock: Time.
    """

    def __init__(
        self,
        ask: Callable[[Key], Awaitable[Answer]],
        keep_for: Callable[[Answer], float],
        clock: Clock,
    ) -> None:
        self._ask = ask
        self._keep_for = keep_for
        self._clock = clock
        self._kept: dict[Key, tuple[float, Answer]] = {}  # the oldest first
        self._asking: dict[Key, asyncio.Task[Answer]] = {}
        self._turn = asyncio.Semaphore(MOST_AT_ONCE)

    async def answer(self, question: Key) -> Answer:
        """The answer, kept or asked for. Raises `ReviewFailed`."""
        kept = self._kept.get(question)
        if kept is not None and self._clock.monotonic() < kept[0]:
            return kept[1]
        asking = self._asking.get(question)
        if asking is None:
            if len(self._asking) >= MOST_WAITING:
                raise ReviewFailed("too many questions about callers are under way")
            asking = self._asking[question] = asyncio.ensure_future(self._fetch(question))
            asking.add_done_callback(lambda task: self._asked(question, task))
        # One caller that goes away must not take the answer from the others.
        return await asyncio.shield(asking)

    def _asked(self, question: Key, task: asyncio.Task[Answer]) -> None:
        del self._asking[question]
        if not task.cancelled():
            task.exception()  # taken, also where every caller has gone away

    async def _fetch(self, question: Key) -> Answer:
        try:
            async with asyncio.timeout(REVIEW_SECONDS), self._turn:
                answer = await self._ask(question)
        except TimeoutError:
            raise ReviewFailed("the API server did not answer in time") from None
        except (ApiError, UnicodeEncodeError) as error:  # a name or path that is no text
            raise ReviewFailed(str(error)) from error
        seconds = self._keep_for(answer)
        self._kept.pop(question, None)
        if seconds > 0:
            self._kept[question] = (self._clock.monotonic() + seconds, answer)
            while len(self._kept) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return answer
