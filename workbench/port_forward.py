"""One exchange of bytes with a port of a pod, through the API server, as `kubectl port-forward`.

Owns the protocol: a WebSocket to the pod's `portforward` subresource, which the API server passes
to the kubelet. Each message is one byte for the channel (0 the data, 1 errors) and its bytes; the
first of each channel from there is the port. Who may do it is the cluster's RBAC.
"""

import asyncio
from typing import Final

import aiohttp
from yarl import URL

from engine.io.kube.client import ApiClient
from engine.io.kube.config import TlsContext
from engine.io.kube.errors import ConnectionLost, TimedOut, error_from_answer

PROTOCOL: Final = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
_PORT_BYTES: Final = 2
_MOST_BYTES: Final = 256 << 20


async def exchange_with_pod(
    client: ApiClient, namespace: str, pod: str, port: int, sent: bytes, *, seconds: float
) -> bytes:
    """Send *sent* to *port* of a pod, and return all that it sends until it ends the connection.

    Raises `ApiError` if the API server or the kubelet refuses, or the time is over.
    """
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/portforward"
    label = f"GET {path}"
    credentials = client.credentials
    where = credentials.endpoint
    header = await credentials.authorization()
    tls = TlsContext(where).context if client.server.startswith("https") else None
    try:
        async with (
            asyncio.timeout(seconds),
            aiohttp.ClientSession() as session,
            session.ws_connect(
                URL(f"{client.server}{path}?ports={port}", encoded=True),
                protocols=(PROTOCOL,),
                headers={} if header is None else {"Authorization": header},
                max_msg_size=0,
                proxy=where.proxy,
                ssl=tls if tls is not None else True,
                server_hostname=where.tls_server_name,
            ) as socket,
        ):
            await socket.send_bytes(bytes([_DATA]) + sent)
            return await _received(socket, label)
    except TimeoutError as error:
        raise TimedOut("the pod did not answer in time", sent=True, request=label) from error
    except aiohttp.WSServerHandshakeError as error:
        raise error_from_answer(error.status, b"", request=label) from error
    except aiohttp.ClientError as error:
        raise ConnectionLost(str(error), sent=True, request=label) from error


async def _received(socket: aiohttp.ClientWebSocketResponse, label: str) -> bytes:
    received = {_DATA: bytearray(), _ERROR: bytearray()}
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel = received.get(message.data[0])
        if channel is not None:
            channel += message.data[1:]
        if len(received[_DATA]) > _MOST_BYTES or len(received[_ERROR]) > _PORT_BYTES:
            break
    if failure := bytes(received[_ERROR][_PORT_BYTES:]):
        text = failure.decode(errors="replace").strip()
        raise ConnectionLost(f"the kubelet says: {text}", sent=True, request=label)
    return bytes(received[_DATA][_PORT_BYTES:])
