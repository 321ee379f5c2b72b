"""Requests to one extender: a POST per question, over kept connections, in kube-scheduler's way.

Owns sending, time-outs, TLS and the texts of what goes wrong. Does not know what the bodies say,
and does not try again: what a failure costs is its caller's business.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Final, TypeVar
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from engine.core.framework.extender import Extender, ExtenderError, ExtenderTls, MalformedAnswer
from engine.io.kube.client import user_agent
from engine.lib.certificates import as_files, authorities, show_certificate
from engine.lib.files import Stamp, stamp_of

_KEEPALIVE_SECONDS: Final = 60.0
# As many as Go's client, which kube-scheduler asks extenders with.
_MOST_REDIRECTS: Final = 10
# Of an answer: in any case, and for each node that the extender was asked about.
_MOST_BYTES: Final = 1 << 20
_BYTES_PER_NODE: Final = 1 << 10
# A larger answer is read in a thread: the event loop has the lease to renew, and other pods.
_READ_IN_PLACE: Final = 64 << 10

T = TypeVar("T")


def most_bytes(nodes: int, asked: bytes = b"") -> int:
    """How large an answer about *nodes* nodes may be, if what is in *asked* may come back."""
    return _MOST_BYTES + _BYTES_PER_NODE * nodes + len(asked)


class ExtenderClient:
    """A client of one extender. Belongs to the event loop of its first request.

    Raises `ExtenderError` if a file that its TLS settings name cannot be used.
    """

    def __init__(self, extender: Extender) -> None:
        self.extender = extender
        self._base = extender.url_prefix.rstrip("/")
        self._tls: ssl.SSLContext | bool = True
        self._stamp: Stamp = ()
        if urlsplit(self._base).scheme == "https":
            self._stamp = _stamp(extender.tls)
            self._tls = tls_context(extender.tls)
        self._seconds = extender.timeout.total_seconds() if extender.timeout else None
        self._session: aiohttp.ClientSession | None = None
        self._in_flight = 0
        self._is_retired = False
        self._closing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"ExtenderClient({self.extender.name})"

    async def send(
        self,
        verb: str,
        body: bytes,
        read: Callable[[bytes], T],
        *,
        repeatable: bool = True,
        most: int = _MOST_BYTES,
    ) -> T:
        """Post *body* to *verb* and return what *read* makes of the body of an answer of 200.

        Raises `ExtenderError` for everything else, an answer of more than *most* bytes included. A
        request that is *repeatable* goes out again if the extender hung up on a kept connection
        before it answered. The time-out is over all of it, *read* included.
        """
        self._in_flight += 1
        waits_for = "exceeded while awaiting headers"
        try:
            async with asyncio.timeout(self._seconds) as limit:
                try:
                    answer = await self._post(verb, body, most)
                except _HungUp:
                    if not repeatable:
                        raise
                    answer = await self._post(verb, body, most)
                waits_for = "or context cancellation while reading body"
                if len(answer) > _READ_IN_PLACE:
                    return await asyncio.to_thread(read, answer)
                found = read(answer)
                ends_at = limit.when()
                if ends_at is not None and asyncio.get_running_loop().time() > ends_at:
                    raise TimeoutError
                return found
        except MalformedAnswer as error:
            text = f'Post "{self._shown(verb)}": cannot read the answer: {error}'
            raise ExtenderError(text) from error
        except TimeoutError as error:
            text = f"context deadline exceeded (Client.Timeout {waits_for})"
            raise ExtenderError(f'Post "{self._shown(verb)}": {text}') from error
        finally:
            self._in_flight -= 1
            if self._is_retired and not self._in_flight:
                self._close_soon()

    async def _post(self, verb: str, body: bytes, most: int) -> bytes:
        self._renew()
        connection = SimpleNamespace(reused=False)
        try:
            async with self._open_session().post(
                URL(f"{self._base}/{verb}", encoded=True),
                data=body,
                headers={"Content-Type": "application/json"},
                ssl=self._tls,  # a kept connection of other settings is not taken
                server_hostname=self.extender.tls.server_name or None,
                max_redirects=_MOST_REDIRECTS,
                trace_request_ctx=connection,
            ) as answer:
                if answer.status != 200:
                    raise ExtenderError(
                        f"failed {verb} with extender at URL {self._shown(verb)}, "
                        f"code {answer.status}"
                    )
                return await self._body(verb, answer, most)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            kind = _HungUp if connection.reused else ExtenderError
            raise kind(f'Post "{self._shown(verb)}": {_describe(error)}') from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise ExtenderError(f'Post "{self._shown(verb)}": {_describe(error)}') from error

    def _renew(self) -> None:
        """Use renewed files; those that cannot be read, such as half-written ones, are ignored."""
        if isinstance(self._tls, bool):
            return
        stamp = _stamp(self.extender.tls)
        if stamp != self._stamp:
            with contextlib.suppress(ExtenderError):
                self._tls, self._stamp = tls_context(self.extender.tls), stamp

    async def _body(self, verb: str, answer: aiohttp.ClientResponse, most: int) -> bytes:
        chunks: list[bytes] = []
        left = most
        async for chunk in answer.content.iter_any():
            left -= len(chunk)
            if left < 0:
                text = f"the answer is larger than {most:,} bytes"
                raise ExtenderError(f'Post "{self._shown(verb)}": {text}')
            chunks.append(chunk)
        return b"".join(chunks)

    def _shown(self, verb: str) -> str:
        """The URL as it may appear in an event of any user's pod."""
        return f"{self.extender.name.rstrip('/')}/{verb}"

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            tracing = aiohttp.TraceConfig()
            tracing.on_connection_reuseconn.append(_note_reuse)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_SECONDS),
                headers={"User-Agent": user_agent(), "Accept-Encoding": "gzip"},
                cookie_jar=aiohttp.DummyCookieJar(),
                # `send` has a clock of its own, over both tries.
                timeout=aiohttp.ClientTimeout(total=None),
                trace_configs=[tracing],
                read_bufsize=1 << 20,
            )
        return self._session

    # --- ending -------------------------------------------------------------------------------

    def retire(self) -> None:
        """Close as soon as nothing is under way; a later request opens it for its own time."""
        self._is_retired = True
        if not self._in_flight:
            self._close_soon()

    async def close(self) -> None:
        """Close the connections; requests under way fail."""
        if self._closing is not None:
            await self._closing
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _close_soon(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            self._closing = asyncio.ensure_future(session.close())


class _HungUp(ExtenderError):
    """A kept connection turned out to be closed."""


async def _note_reuse(
    _session: aiohttp.ClientSession,
    context: SimpleNamespace,
    _parameters: aiohttp.TraceConnectionReuseconnParams,
) -> None:
    context.trace_request_ctx.reused = True


def _describe(error: BaseException) -> str:
    """What happened, as Go's HTTP client says it where the words are the same."""
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return f"tls: {error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        reason = error.os_error.strerror or str(error.os_error)
        if isinstance(error.os_error, ConnectionRefusedError):
            reason = "connect: connection refused"
        return f"dial tcp {error.host}:{error.port}: {reason}"
    return str(error) or type(error).__name__


# --- TLS --------------------------------------------------------------------------------------


def _stamp(tls: ExtenderTls) -> Stamp:
    return stamp_of((tls.cert_file, tls.key_file, tls.ca_file))


def tls_context(tls: ExtenderTls) -> ssl.SSLContext:
    """The TLS settings of *tls*. Raises `ExtenderError` if a file or the data cannot be used."""
    try:
        authority = _authority(tls)
        context = ssl.create_default_context(cadata=authority)
        # Clusters' own authorities often lack what Python 3.13 began to ask for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if tls.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        # As for kube-scheduler, a certificate without a key is not used, nor a key without one.
        if tls.cert_data or tls.key_data:
            certificate, key = _pem(tls.cert_data, tls.cert_file), _pem(tls.key_data, tls.key_file)
            if certificate and key:
                with as_files(certificate, key) as (certificate_file, key_file):
                    show_certificate(context, certificate_file, key_file)
        elif tls.cert_file and tls.key_file:
            show_certificate(context, tls.cert_file, tls.key_file)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        where = getattr(error, "filename", None)
        what = f"open {where}: {reason}" if where else f"tls: {reason}"
        raise ExtenderError(f"couldn't build extenders: {what}") from error
    return context


def _authority(tls: ExtenderTls) -> str | None:
    pem = _pem(tls.ca_data, tls.ca_file)
    return authorities(pem) if pem else None


def _pem(data: bytes, file: str) -> bytes:
    return data or (Path(file).read_bytes() if file else b"")
