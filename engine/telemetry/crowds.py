"""Connections to a server of ours that are too many: who has to leave.

Owns the choice. A connection costs memory and a descriptor for as long as it stays, whether it asks
for anything or not, and whoever reaches the port can open as many as he likes; without descriptors
the process loses the API server too. The oldest leave first: who has just come, such as a probe, is
answered long before his turn.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web

from engine.lib.background import cancelled

#: More than honest clients have by far.
MOST_CONNECTIONS: Final = 512
_EVERY_SECONDS: Final = 0.5
# A request that is under way may end in this time; who asks for nothing just stays so long.
_GRACE_SECONDS: Final = 2.0


@contextlib.asynccontextmanager
async def no_crowds(runner: web.AppRunner) -> AsyncIterator[None]:
    """Keep the newest of *runner*'s connections, until the block ends."""
    task = asyncio.ensure_future(_thin_out(runner))
    try:
        yield
    finally:
        await cancelled([task])


async def _thin_out(runner: web.AppRunner) -> None:
    now = asyncio.get_running_loop().time
    leaving: dict[web.RequestHandler, float] = {}
    while True:
        await asyncio.sleep(_EVERY_SECONDS)
        connections = [] if runner.server is None else runner.server.connections
        before, leaving = leaving, {}
        for one in connections[: max(0, len(connections) - MOST_CONNECTIONS)]:
            until = leaving[one] = before.get(one, now() + _GRACE_SECONDS)
            if now() < until:
                one.close()
            else:
                one.force_close()
