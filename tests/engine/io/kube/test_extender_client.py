"""The client of an extender, against real servers: what arrives, and what goes wrong."""

import asyncio
import re
import shutil
import ssl
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from engine.core.framework.extender import Extender, ExtenderError, ExtenderTls
from engine.io.kube.extender_client import ExtenderClient, tls_context
from tests.certificates import Authority
from tests.small_extender import SmallExtender


def _client(url: str, **words: Any) -> ExtenderClient:
    return ExtenderClient(Extender(url_prefix=url, **words))


async def test_a_request_is_a_post_of_json_to_the_verb_and_200_brings_the_body() -> None:
    seen: list[web.Request] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append(request)
        assert await request.read() == b'{"Pod":1}'
        return web.Response(body=b"answer")

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    client = _client(f"http://127.0.0.1:{runner.addresses[0][1]}/prefix//")
    assert await client.send("a/verb", b'{"Pod":1}', bytes) == b"answer"
    assert seen[0].method == "POST"
    assert seen[0].path == "/prefix/a/verb"
    assert seen[0].headers["Content-Type"] == "application/json"
    await client.close()
    await runner.cleanup()


@pytest.mark.parametrize("status", [201, 204, 400, 404, 500, 503])
async def test_anything_but_200_is_an_error_with_kube_schedulers_text(status: int) -> None:
    async with SmallExtender(filter=lambda _: web.Response(status=status)) as extender:
        client = _client(extender.url)
        want = f"failed filter with extender at URL {extender.url}/filter, code {status}"
        with pytest.raises(ExtenderError, match=f"^{re.escape(want)}$"):
            await client.send("filter", b"{}", bytes)
        await client.close()


async def test_an_extender_that_is_down_is_an_error_that_says_where() -> None:
    async with SmallExtender() as extender:
        url = extender.url
    client = _client(url)
    address = url.removeprefix("http://").removesuffix("/x")
    with pytest.raises(ExtenderError) as caught:
        await client.send("filter", b"{}", bytes)
    assert str(caught.value) == (
        f'Post "{url}/filter": dial tcp {address}: connect: connection refused'
    )
    await client.close()


@pytest.mark.parametrize(
    "head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"], ids=["head", "body"]
)
async def test_an_extender_that_does_not_answer_in_time_is_an_error(head: bytes) -> None:
    gone = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        await gone.wait()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = _client(f"http://127.0.0.1:{port}", timeout=timedelta(milliseconds=100))
    with pytest.raises(ExtenderError, match="context deadline exceeded"):
        await client.send("filter", b"{}", bytes)
    gone.set()
    await client.close()
    server.close()


@pytest.mark.parametrize("packed", [False, True])
async def test_an_answer_without_an_end_is_an_error(packed: bool) -> None:
    """All that came until the time-out was kept: an extender could fill the memory with it."""
    sent = 0

    async def pour(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal sent
        answer = web.StreamResponse()
        if packed:
            answer.enable_compression(web.ContentCoding.gzip)
        await answer.prepare(request)
        while sent < 64 << 20:
            await answer.write(bytes(1 << 18))
            sent += 1 << 18
        return answer

    runner = web.ServerRunner(web.Server(pour), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    extender = Extender(url_prefix=f"http://127.0.0.1:{runner.addresses[0][1]}")
    client = ExtenderClient(extender)
    with pytest.raises(ExtenderError, match="the answer is larger than 1,048,576 bytes"):
        await client.send("filter", b"{}", bytes)
    await client.close()
    await runner.cleanup()
    assert packed or sent < 64 << 20


@pytest.mark.parametrize("size", [1_000, 1 << 19], ids=["small", "large, in a thread"])
async def test_the_time_out_covers_the_reading_of_the_answer(size: int) -> None:
    """Two million scores were read for 9 s, beyond a time-out of 3 s that the request had met."""

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(body=bytes(size))

    def read(body: bytes) -> int:
        ends_at = time.monotonic() + 0.3
        while time.monotonic() < ends_at:
            pass
        return len(body)

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    hasty = ExtenderClient(Extender(url_prefix=url, timeout=timedelta(seconds=0.2)))
    with pytest.raises(ExtenderError, match=r"context deadline exceeded .* while reading body"):
        await hasty.send("prioritize", b"{}", read)
    patient = ExtenderClient(Extender(url_prefix=url, timeout=timedelta(seconds=60)))
    assert await patient.send("prioritize", b"{}", read) == size
    await hasty.close()
    await patient.close()
    await runner.cleanup()


async def test_a_large_answer_is_read_while_the_loop_goes_on() -> None:
    """The lease was not renewed meanwhile, and no other pod was decided."""
    is_reading, has_turned = threading.Event(), threading.Event()

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(body=bytes(1 << 19))

    def read(body: bytes) -> bool:
        is_reading.set()
        return has_turned.wait(10)

    async def turn() -> None:
        assert await asyncio.to_thread(is_reading.wait, 10)
        has_turned.set()

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    client = ExtenderClient(Extender(url_prefix=f"http://127.0.0.1:{runner.addresses[0][1]}"))
    turning = asyncio.ensure_future(turn())
    assert await client.send("prioritize", b"{}", read)
    await turning
    await client.close()
    await runner.cleanup()


async def test_an_extender_that_hangs_up_half_way_is_an_error() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        writer.close()

    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    client = _client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    with pytest.raises(ExtenderError, match="Post"):
        await client.send("filter", b"{}", bytes)
    await client.close()
    server.close()


@pytest.mark.parametrize("repeatable", [True, False])
async def test_a_kept_connection_that_was_closed_costs_nothing_unless_it_could_bind_twice(
    repeatable: bool,
) -> None:
    requests = 0

    async def once_each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        while not reader.at_eof():
            with_body = await reader.readuntil(b"\r\n\r\n{}")
            assert with_body
            requests += 1
            if requests == 2:
                break  # the second request of the kept connection is met with a hang-up
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    server = await asyncio.start_server(once_each, "127.0.0.1", 0)
    client = _client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert await client.send("filter", b"{}", bytes) == b"ok"
    if repeatable:
        assert await client.send("filter", b"{}", bytes) == b"ok"
        assert requests == 3
    else:
        with pytest.raises(ExtenderError, match="EOF"):
            await client.send("bind", b"{}", bytes, repeatable=False)
        assert requests == 2
    await client.close()
    server.close()


async def test_a_client_that_is_not_used_any_more_closes_after_its_last_answer() -> None:
    may_answer = asyncio.Event()

    async def slowly() -> bytes:
        await may_answer.wait()
        return b"done"

    async with SmallExtender(filter=lambda _: slowly()) as extender:
        client = _client(extender.url)
        asking = asyncio.ensure_future(client.send("filter", b"{}", bytes))
        await extender.waiting.wait()
        client.retire()
        may_answer.set()
        assert await asking == b"done"
        await client.close()


# --- TLS ---------------------------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def _server_tls(authority: Authority, *, asks_client: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.issue("127.0.0.1", "extender.example.com"))
    if asks_client:
        context.load_verify_locations(authority.file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def _ask(url: str, tls: ExtenderTls) -> bytes:
    client = _client(url, tls=tls)
    try:
        return await client.send("filter", b"{}", bytes)
    finally:
        await client.close()


async def test_the_certificate_is_held_to_the_authority_and_the_name(authority: Authority) -> None:
    ca = authority.file
    tls = _server_tls(authority)
    async with SmallExtender(filter=lambda _: b"ok", tls=tls) as extender:
        assert await _ask(extender.url, ExtenderTls(ca_file=str(ca))) == b"ok"
        assert await _ask(extender.url, ExtenderTls(ca_data=ca.read_bytes())) == b"ok"
        good_name = ExtenderTls(ca_file=str(ca), server_name="extender.example.com")
        assert await _ask(extender.url, good_name) == b"ok"
        assert await _ask(extender.url, ExtenderTls(insecure=True)) == b"ok"
        for wrong in (
            ExtenderTls(),
            ExtenderTls(ca_file=str(ca), server_name="elsewhere.example.com"),
        ):
            with pytest.raises(ExtenderError, match=r"tls: .*certificate"):
                await _ask(extender.url, wrong)


async def test_a_client_certificate_is_shown_from_files_and_from_data(authority: Authority) -> None:
    ca = str(authority.file)
    crt, key = authority.issue("scheduler@example.com")
    tls = _server_tls(authority, asks_client=True)
    async with SmallExtender(filter=lambda _: b"ok", tls=tls) as extender:
        files = ExtenderTls(ca_file=ca, cert_file=str(crt), key_file=str(key))
        data = ExtenderTls(ca_file=ca, cert_data=crt.read_bytes(), key_data=key.read_bytes())
        mixed = ExtenderTls(ca_file=ca, cert_data=crt.read_bytes(), key_file=str(key))
        for shown in (files, data, mixed):
            assert await _ask(extender.url, shown) == b"ok"
        with pytest.raises(ExtenderError):
            await _ask(extender.url, ExtenderTls(ca_file=ca))


async def test_a_client_certificate_from_data_needs_no_writable_directory(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the read-only file system of the manifests such an extender was never asked."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    crt, key = authority.issue("scheduler@example.com")
    tls = _server_tls(authority, asks_client=True)
    async with SmallExtender(filter=lambda _: b"ok", tls=tls) as extender:
        data = ExtenderTls(
            ca_data=authority.file.read_bytes(),
            cert_data=crt.read_bytes(),
            key_data=key.read_bytes(),
        )
        assert await _ask(extender.url, data) == b"ok"


async def test_renewed_files_are_used_and_what_cannot_be_read_changes_nothing(
    authority: Authority, tmp_path: Path
) -> None:
    """They were read once, so an extender was refused when its authority or ours was renewed."""
    ours, theirs = authority, Authority(tmp_path)
    ca = shutil.copy(ours.file, tmp_path / "ca")
    cert, key = ours.issue("scheduler@example.com")
    shown = ExtenderTls(ca_file=str(ca), cert_file=str(cert), key_file=str(key))
    seen: list[Any] = []
    servers = []
    for one in (ours, theirs):
        runner = web.ServerRunner(web.Server(_serial(seen)), shutdown_timeout=0.1)
        await runner.setup()
        servers.append((runner, _server_tls(one, asks_client=True)))
    first = web.TCPSite(servers[0][0], "127.0.0.1", 0, ssl_context=servers[0][1])
    await first.start()
    port = servers[0][0].addresses[0][1]
    client = _client(f"https://127.0.0.1:{port}", tls=shown)
    await client.send("filter", b"{}", bytes)
    shutil.copy(ours.issue("renewed@example.com")[0], cert)  # without its key yet
    await client.send("filter", b"{}", bytes)
    assert seen[0] == seen[1]
    new_cert, new_key = theirs.issue("scheduler@example.com")
    for source, target in ((new_cert, cert), (new_key, key), (theirs.file, ca)):
        shutil.copy(source, target)
    await servers[0][0].cleanup()
    second = web.TCPSite(servers[1][0], "127.0.0.1", port, ssl_context=servers[1][1])
    await second.start()
    await client.send("filter", b"{}", bytes)
    assert seen[2] != seen[1]
    await client.close()
    await servers[1][0].cleanup()


def _serial(seen: list[Any]) -> Any:
    """Answers, and notes which certificate the client showed."""

    async def answer(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        seen.append(request.transport.get_extra_info("peercert")["serialNumber"])
        return web.Response(body=b"ok")

    return answer


@pytest.mark.parametrize(
    ("tls", "want"),
    [
        (ExtenderTls(ca_file="/nowhere/ca.crt"), "open /nowhere/ca.crt: No such file"),
        # OpenSSL says `No such file or directory`, and not which.
        (ExtenderTls(cert_file="/nowhere/tls.crt", key_file=__file__), "open /nowhere/tls.crt: No"),
        (ExtenderTls(cert_file=__file__, key_file="/nowhere/tls.key"), "open /nowhere/tls.key: No"),
        (ExtenderTls(ca_data=b"no PEM"), "unable to load root certificates"),
        (ExtenderTls(cert_data=b"no PEM", key_data=b"no PEM"), "tls: "),
    ],
)
def test_tls_settings_that_cannot_be_used_are_reported_at_once(tls: ExtenderTls, want: str) -> None:
    with pytest.raises(ExtenderError, match="couldn't build extenders") as caught:
        _client("https://127.0.0.1:1", tls=tls)
    assert want in str(caught.value)


def test_an_authority_may_have_remarks_in_any_language(
    authority: Authority, tmp_path: Path
) -> None:
    """One whose file had a letter beyond ASCII around its certificates ended the start."""
    ca = tmp_path / "remarks.crt"
    ca.write_bytes("# Autorité de Zürich\n".encode() + authority.file.read_bytes())
    for tls in (ExtenderTls(ca_file=str(ca)), ExtenderTls(ca_data=ca.read_bytes())):
        assert len(tls_context(tls).get_ca_certs()) == 1


def test_a_key_that_takes_a_passphrase_is_refused(authority: Authority) -> None:
    """OpenSSL asked for it on the terminal, and waited."""
    crt, key = authority.issue_encrypted("scheduler@example.com")
    files = ExtenderTls(cert_file=str(crt), key_file=str(key))
    data = ExtenderTls(cert_data=crt.read_bytes(), key_data=key.read_bytes())
    for tls in (files, data):
        with pytest.raises(ExtenderError, match="tls: the private key is encrypted"):
            _client("https://127.0.0.1:1", tls=tls)


async def test_a_password_in_the_url_is_used_and_not_reported() -> None:
    """It was a label of a metric, and part of the event on every pod that an extender failed."""
    async with SmallExtender(filter=lambda body: {}) as extender:
        url = extender.url.replace("http://", "http://me:secret@")
        client = _client(url)
        try:
            await client.send("filter", b"{}", bytes)
            with pytest.raises(ExtenderError) as caught:
                await client.send("gone", b"{}", bytes)
        finally:
            await client.close()
    shown = f"{caught.value} {client!r} {client.extender!r} {client.extender.name}"
    assert "secret" not in shown
    assert client.extender.name == extender.url
