"""When it is said that what was saved cannot be read, and how loudly."""

import asyncio

import structlog

from engine.lib.clock import VirtualClock
from engine.lib.saved_state import SavedStates, Unread
from tests.waiting import no_time


async def _logged(error: Exception, seconds: float) -> list[tuple[float, str, str]]:
    """What is logged of a read that fails for so long: when, at which level, and the message."""
    clock, lines = VirtualClock(), list[tuple[float, str, str]]()

    async def read() -> str:
        if clock.monotonic() < seconds:
            raise error
        return "saved"

    async def sleep(pause: float) -> None:
        await no_time(pause)
        clock.advance(pause)

    def note(_: object, level: str, line: structlog.types.EventDict) -> structlog.types.EventDict:
        lines.append((clock.monotonic(), level, line["event"]))
        raise structlog.DropEvent

    before = structlog.get_config()["processors"].copy()
    processors = structlog.get_config()["processors"]
    processors[:] = [note]
    try:
        state = SavedStates(clock, sleep=sleep).add("kept", read, "Cannot read what is kept")
        assert await asyncio.wait_for(state.read(), 5) == "saved"
    finally:
        processors[:] = before
    return lines


async def test_that_it_still_cannot_be_read_is_said_when_the_patience_is_over() -> None:
    """It waited for the next read: with the longer and longer pauses that was up to 15 s."""
    lines = await _logged(Unread("away"), 60.0)
    assert lines[0] == (0.0, "warning", "Cannot read what is kept")
    assert lines[1][:2] == (10.0, "error")


async def test_a_refusal_is_an_error_at_once() -> None:
    """It does not pass by itself: a right has to be given."""
    lines = await _logged(Unread("no right", is_refused=True), 3.0)
    assert lines[0] == (0.0, "error", "Cannot read what is kept")
    assert lines[1][1:] == ("info", "Read what was saved")
