"""Listens on an address, with an error of one line if that is impossible."""

import ssl

from aiohttp import web


class CannotListen(Exception):
    """The address is in use, not permitted to this user, or not one of this machine."""


async def listen(
    runner: web.AppRunner, host: str, port: int, tls: ssl.SSLContext | None = None
) -> int:
    """Serve *runner* on *host* and *port* (0: any); returns the port. Raises `CannotListen`."""
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
    except OSError as error:
        # The event loop puts the address before it, in its own words.
        reason = (error.strerror or str(error)).rpartition(": ")[2]
        raise CannotListen(f"cannot listen on {host}:{port}: {reason}") from error
    bound: int = runner.addresses[0][1]
    return bound
