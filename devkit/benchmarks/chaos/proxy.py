"""A TCP proxy that passes bytes on as a bad network does.

Owns connections and the faults of them; knows nothing of what is spoken. One fault at a time.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

UP, DOWN = "up", "down"  # from the client to the server, and back
_CHUNK: Final = 65536
_TRICKLE_BYTES: Final = 256

#: What can be wrong, and how it is shown in tables.
LATENCY, STALL, CUT, REFUSE, BLACK_HOLE, TRICKLE = FAULTS = (
    "latency",
    "stall",
    "cut",
    "refuse",
    "black hole",
    "trickle",
)
#: Each chunk of bytes takes so much longer.
LATENCY_SECONDS: Final = 0.15
_TRICKLE_SECONDS: Final = 0.02


class FaultProxy:
    """Listens on a free loopback port and passes connections on to `target`.

    `stopped --start--> passing --inject--> faulty --the fault ends--> passing --stop--> stopped`.

    Attributes:
        port: Where it listens, once started.
        target: The port that it stands in front of; may be set later.
        connections: How many there have been.
    """

    def __init__(self, target: int = 0) -> None:
        self.target = target
        self.port = 0
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._fault = ""
        self._directions: frozenset[str] = frozenset()
        self._is_over = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> "FaultProxy":
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """End all connections and listen no more."""
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> "FaultProxy":
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def cut(self) -> None:
        """Reset every connection, whatever is on its way."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def inject(self, fault: str, directions: frozenset[str], seconds: float) -> None:
        """Have *fault* for *seconds* (a cut takes no time), then pass bytes on again.

        A stall holds bytes back and delivers them afterwards. A black hole loses them, so the
        connections that had one end with it.
        """
        if fault == CUT:
            self.cut()
            return
        with self._having(fault, directions):
            if fault == REFUSE:
                self.cut()
            await asyncio.sleep(seconds)
        if fault == BLACK_HOLE:
            self.cut()

    @contextlib.contextmanager
    def _having(self, fault: str, directions: frozenset[str]) -> Iterator[None]:
        self._fault, self._directions = fault, directions
        self._is_over = asyncio.Event()
        try:
            yield
        finally:
            self._fault, self._directions = "", frozenset()
            self._is_over.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Ends by itself: streams report the task of a connection that is cancelled as an error.
        with contextlib.suppress(asyncio.CancelledError):
            await self._pass_on(reader, writer)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        self._writers.add(writer)
        try:
            if self._fault == REFUSE:
                return
            answers, onward = await asyncio.open_connection("127.0.0.1", self.target)
            ends.append(onward)
            self._writers.add(onward)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, onward, UP))
                group.create_task(self._pump(answers, writer, DOWN))
        except* (OSError, RuntimeError):  # uvloop's for a transport that is closed
            pass  # one of the two ends is gone, and so the other one goes
        finally:
            for end in ends:
                self._writers.discard(end)
                end.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str
    ) -> None:
        while data := await reader.read(_CHUNK):
            fault = self._fault if direction in self._directions else ""
            if fault == BLACK_HOLE:
                continue
            if fault == STALL:
                await self._is_over.wait()
            elif fault == LATENCY:
                await asyncio.sleep(LATENCY_SECONDS)
            elif fault == TRICKLE:
                data = await self._trickle(data, writer)
            writer.write(data)
            await writer.drain()
        # Ends cleanly what ended cleanly; bytes of the other direction may still be on their way.
        if not writer.is_closing() and writer.can_write_eof():
            writer.write_eof()

    async def _trickle(self, data: bytes, writer: asyncio.StreamWriter) -> bytes:
        """Write *data* in small pieces while the fault lasts; what is left of it."""
        while data and self._fault == TRICKLE:
            writer.write(data[:_TRICKLE_BYTES])
            await writer.drain()
            data = data[_TRICKLE_BYTES:]
            await asyncio.sleep(_TRICKLE_SECONDS)
        return data
