"""One API server of a cluster: its port, its connections, and what it has seen of the store.

Owns listening, stopping and crashing. Several may serve one store, as those of a cluster do.
"""

import asyncio

from aiohttp import web

from devkit.cluster.access import Access
from devkit.cluster.api import Api
from devkit.cluster.faults import Faults
from devkit.cluster.server import Server
from devkit.cluster.watch_cache import WatchCache


class FrontEnd:
    """An API server.

    `stopped --start--> serving --stop, crash--> stopped`.

    Args:
        port: 0 takes a free one; it is kept.
        token, bookmark_interval: See `Server`.
    """

    def __init__(
        self,
        api: Api,
        faults: Faults,
        access: Access,
        *,
        port: int,
        token: str | None,
        bookmark_interval: float,
    ) -> None:
        self.port = port
        self.server = Server(api, faults, access, token=token, bookmark_interval=bookmark_interval)
        self._http: web.Server | None = None
        self._listener: asyncio.Server | None = None

    @property
    def cache(self) -> WatchCache:
        """What it has seen of the store."""
        return self.server.cache

    @property
    def caller(self) -> asyncio.BaseTransport | None:
        """Over which the request came that is being carried out; None if none is."""
        return self.server.caller

    async def start(self) -> None:
        """Listen. Does nothing if it listens already."""
        if self._listener is not None:
            return
        self._http = self.server.http_server()
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._http, "127.0.0.1", self.port, backlog=1024)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """End watches and connections in order."""
        for watch in tuple(self.server.watches):
            watch.close()
        await self._close(grace=1.0)

    async def crash(self) -> None:
        """Go down at once: every connection breaks, new ones are refused."""
        for watch in tuple(self.server.watches):
            watch.abort()
        self.server.forget_requests()
        self.cache.restart()
        if self._http is not None:
            for connection in self._http.connections:
                if connection.transport is not None:
                    connection.transport.abort()
        await self._close(grace=0.0)

    async def _close(self, *, grace: float) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._http is not None:
            self._http.pre_shutdown()  # idle connections end now, busy ones after their answer
            await self._http.shutdown(grace)
            self._http = None
