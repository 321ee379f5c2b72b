"""What an earlier process saved: known before anything is decided by it or written over it.

Owns the one rule of all stores: *it could not be read* is not *nothing was saved*. Where something
is saved, and what it means, is its owner's.

    unread --read--> known                      (also: that nothing was saved)
    unread --error, time-out, garbage--> unread, and read again until that succeeds
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import structlog

from engine.lib.clock import Clock

log = structlog.get_logger(component="saved_state")

WhenUnread: TypeAlias = Literal["wait", "start"]
#: Whatever needs the state waits until it is read.
WAIT: Final[WhenUnread] = "wait"
#: After some patience the process goes on without; it writes nothing until the state is read.
START: Final[WhenUnread] = "start"

#: How long a read may take, and reading may fail, before that is an error.
PATIENCE_SECONDS: Final = 10.0
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 10.0

T = TypeVar("T")


class Unread(Exception):
    """What was saved is not known: it could not be read, or not be understood.

    Attributes:
        is_refused: That is a refusal, which lasts until a right is given.
    """

    def __init__(self, text: str, *, is_refused: bool = False) -> None:
        super().__init__(text)
        self.is_refused = is_refused


class SavedState(Generic[T]):
    """One state that an earlier process saved.

    Args:
        name: How logs, metrics and `/readyz` call it.
        read: What was saved, or that nothing was. Whatever it raises means that it is not known.
        message: What the log says while it cannot be read.
        when_unread: What happens once *patience* is over.
        patience: Seconds for one read, and for reading to succeed before that is an error.
        sleep: Waits between two reads.
        clock: Time.
        trouble: Why *read* has no answer, if that is known; else "".

    Attributes:
        is_known: What was saved is known; until then it must not be written over.
        reason: Why it is not known; "" if it is, or was not asked for yet.
        is_overdue: Reading has failed for longer than the patience.
        failures: How often reading has failed.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], Awaitable[T]],
        message: str,
        *,
        when_unread: WhenUnread,
        patience: float,
        sleep: Callable[[float], Awaitable[None]],
        clock: Clock,
        trouble: Callable[[], str] = str,
    ) -> None:
        self.name: Final = name
        self.when_unread: Final = when_unread
        self.is_known = False
        self.is_overdue = False
        self.failures = 0
        self.reason = ""
        self._read = read
        self._message = message
        self._patience = patience
        self._sleep = sleep
        self._clock = clock
        self._trouble = trouble
        self._settled = asyncio.Event()

    @property
    def why(self) -> str:
        """Why it is not known, as precisely as is known by now; "" if reading goes on."""
        return self._trouble() or self.reason

    async def read(self) -> T:
        """What was saved, as soon as it can be read.

        Raises `Unread` once the patience is over, if the process is to go on without it then.
        """
        if self.is_known:
            self.is_known = False
            self._settled.clear()
        began, pause = self._clock.monotonic(), _FIRST_PAUSE_SECONDS
        while True:
            try:
                return await self.once()
            except Unread:
                if self._clock.monotonic() - began >= self._patience:
                    self._overdue()
                    if self.when_unread == START:
                        raise
            # The end of the patience is reported when it comes, not at the next read after it.
            left = began + self._patience - self._clock.monotonic()
            await self._sleep(min(pause, left) if left > 0 else pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def once(self) -> T:
        """What was saved. Raises `Unread` if one read does not show it."""
        try:
            async with asyncio.timeout(self._patience):
                found = await self._read()
        except TimeoutError as error:
            self._failed(self._trouble() or f"no answer for {self._patience:g} s")
            raise Unread(self.reason) from error
        except Unread as error:
            self._failed(str(error), is_refused=error.is_refused)
            raise
        except Exception as error:
            # A fault of ours shows no more than any other that nothing was saved.
            self._failed(f"{type(error).__name__}: {error}")
            raise Unread(self.reason) from error
        if self.reason:
            log.info("Read what was saved", state=self.name)
        self.is_known, self.is_overdue, self.reason = True, False, ""
        self._settled.set()
        return found

    async def settled(self) -> None:
        """Return when it is known, or when the process is to go on without."""
        await self._settled.wait()

    def _failed(self, reason: str, *, is_refused: bool = False) -> None:
        self.is_known = False
        self.failures += 1
        if reason != self.reason:
            self.reason = reason
            report = log.error if is_refused else log.warning
            report(self._message, state=self.name, reason=reason)

    def _overdue(self) -> None:
        if self.when_unread == START:
            self._settled.set()
        if self.is_overdue:
            return
        self.is_overdue = True
        until_then = (
            "nothing is decided" if self.when_unread == WAIT else "decisions are made without it"
        )
        log.error(
            "What was saved still cannot be read; it is not overwritten",
            state=self.name,
            reason=self.reason,
            until_then=until_then,
        )


class SavedStates:
    """All states that a process needs of those before it.

    Args:
        clock: Time.
        when_unread: What happens with those that cannot be read.
        patience, sleep: See `SavedState`.
    """

    def __init__(
        self,
        clock: Clock,
        when_unread: WhenUnread = WAIT,
        *,
        patience: float = PATIENCE_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._when_unread = when_unread
        self._patience = patience
        self._sleep = sleep
        self._states: dict[str, SavedState[Any]] = {}

    def add(
        self,
        name: str,
        read: Callable[[], Awaitable[T]],
        message: str,
        *,
        when_unread: WhenUnread | None = None,
        trouble: Callable[[], str] = str,
    ) -> SavedState[T]:
        """The state *name*, not read yet; *when_unread* is for this one alone."""
        state = SavedState(
            name,
            read,
            message,
            when_unread=when_unread or self._when_unread,
            patience=self._patience,
            sleep=self._sleep,
            clock=self._clock,
            trouble=trouble,
        )
        self._states[name] = state
        return state

    def discard(self, state: SavedState[Any]) -> None:
        """Forget *state*: nothing needs it any more."""
        if self._states.get(state.name) is state:
            del self._states[state.name]

    async def settled(self) -> None:
        """Return when nothing of it is waited for."""
        for state in list(self._states.values()):
            await state.settled()

    def unread(self) -> dict[str, float]:
        """By state, 1 while it is not known, else 0."""
        return {name: float(not state.is_known) for name, state in self._states.items()}

    def waits_for(self) -> str | None:
        """What decisions wait for, for `/readyz`; None if they wait for nothing."""
        waited = [s for s in self._states.values() if not s.is_known and s.when_unread == WAIT]
        failing = [f"{one.name}: cannot be read: {one.why}" for one in waited if one.why]
        if failing:
            return "; ".join(failing)
        return f"{waited[0].name}: no answer yet" if waited else None
