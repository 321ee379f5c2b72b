"""The event loop of every command: uvloop's, whose exit no unresponsive name server delays.

Owns the choice, and how names are looked up.
"""

import asyncio
import contextlib
import errno
import ipaddress
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


class EventLoop(uvloop.Loop):
    """A loop whose name lookups do not delay the exit of the process.

    The C library cannot cancel a lookup. In threads that are joined, as those of uvloop and asyncio
    are, a name server that does not answer delays the exit for up to half a minute: longer than a
    kubelet waits before it kills.
    """

    async def getaddrinfo(self, host: Any, port: Any, **words: int) -> list[Any]:
        """As the base class."""
        if _is_address(host):
            return socket.getaddrinfo(host, port, **words)  # needs no name server
        future: asyncio.Future[list[Any]] = self.create_future()

        def finish(end: Callable[[Any], None], outcome: Any) -> None:
            if not future.done():  # else it was cancelled
                end(outcome)

        def look_up() -> None:
            end: Callable[[Any], None] = future.set_result
            try:
                outcome: Any = socket.getaddrinfo(host, port, **words)
            except Exception as error:
                end, outcome = future.set_exception, error
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.call_soon_threadsafe(finish, end, outcome)

        try:
            threading.Thread(target=look_up, name="getaddrinfo", daemon=True).start()
        except RuntimeError as error:
            # This user or container may have no more: a lookup that fails like any other.
            raise OSError(errno.EAGAIN, str(error)) from error
        return await future


def _is_address(host: Any) -> bool:
    try:
        return isinstance(host, str) and bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run *work* in such a loop; returns what it returns and raises what it raises."""
    with asyncio.Runner(loop_factory=EventLoop) as runner:
        return runner.run(work)
