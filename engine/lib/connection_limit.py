"""A limit on the connections to a server of ours: beyond it, the oldest are closed.

Each connection holds memory and a descriptor for as long as it stays, whether it sends a request or
not, and every client that reaches the port can open any number; without descriptors the process
loses the API server, too. The oldest are closed first, so that a client that has just connected,
such as a probe, is answered long before it would be closed.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web

from engine.lib.background import cancelled

#: Far more than well-behaved clients need.
MAX_CONNECTIONS: Final = 512
_EVERY_SECONDS: Final = 0.5
# Time for a request that is under way to end; an idle connection stays that long, too.
_GRACE_SECONDS: Final = 2.0


@contextlib.asynccontextmanager
async def connection_limit(
    runner: web.AppRunner, limit: int = MAX_CONNECTIONS
) -> AsyncIterator[None]:
    """Keep only the newest *limit* connections of *runner* open, until the block ends."""
    task = asyncio.ensure_future(_close_oldest(runner, limit))
    try:
        yield
    finally:
        await cancelled([task])


async def _close_oldest(runner: web.AppRunner, limit: int) -> None:
    now = asyncio.get_running_loop().time
    closing: dict[web.RequestHandler, float] = {}
    while True:
        await asyncio.sleep(_EVERY_SECONDS)
        connections = [] if runner.server is None else runner.server.connections
        before, closing = closing, {}
        for connection in connections[: max(0, len(connections) - limit)]:
            until = closing[connection] = before.get(connection, now() + _GRACE_SECONDS)
            if now() < until:
                connection.close()
            else:
                connection.force_close()
