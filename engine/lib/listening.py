"""Listening on an address, and saying in one line why that cannot be."""

import ssl

from aiohttp import web


class CannotListen(Exception):
    """An address is taken, closed to this user, or none of this machine."""


async def listen(
    runner: web.AppRunner, host: str, port: int, tls: ssl.SSLContext | None = None
) -> int:
    """Have *runner* serve *host* and *port* (0: a free one); the port. Raises `CannotListen`."""
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
    except OSError as error:
        # The event loop puts the address before it, in its own words.
        reason = (error.strerror or str(error)).rpartition(": ")[2]
        raise CannotListen(f"cannot listen on {host}:{port}: {reason}") from error
    bound: int = runner.addresses[0][1]
    return bound
