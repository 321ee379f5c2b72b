"""The address of this host as another one sees it."""

import contextlib
import socket
from urllib.parse import urlsplit


def own_address(towards: str) -> str:
    """The address from which the server of the URL *towards* is reached; "" if that is unknown.

    Nothing is sent: a datagram socket is connected by looking up the route alone. The host must be
    written as an address, so that no name is resolved here.
    """
    with contextlib.suppress(OSError, ValueError):
        parts = urlsplit(towards)
        if not parts.hostname:
            return ""
        found = socket.getaddrinfo(
            parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST
        )
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    return ""
