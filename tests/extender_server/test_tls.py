"""Who may talk to the extender: TLS, client certificates, renewal."""

import asyncio
import contextlib
import shutil
import ssl
from pathlib import Path

import aiohttp
import pytest

from engine.extender_server import server as extender_server
from engine.extender_server.server import ServerTls
from tests.builders import node_manifest, pod_manifest
from tests.certificates import Authority
from tests.extender_server.harness import Running, extender, with_nodes, write

BODY = with_nodes(pod_manifest("p"), node_manifest("a"))


async def ask(running: Running, tls: ssl.SSLContext) -> int:
    # A connection of its own each time: a kept one would not shake hands again.
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
        url = running.url.replace("http:", "https:")
        async with session.post(f"{url}/filter", json=BODY) as answer:
            return answer.status


def trusting(authority: Authority, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    """A client's settings: whom it trusts, and the certificate that it shows."""
    context = ssl.create_default_context(cafile=str(authority.file))
    if client is not None:
        context.load_cert_chain(*client)
    return context


async def test_only_clients_of_the_authority_are_answered(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path), Authority(tmp_path)
    folder = write(tmp_path / "p", {})
    tls = ServerTls(*ours.issue("127.0.0.1"), client_ca_file=ours.file)
    async with extender(folder, tls=tls) as running:
        assert await ask(running, trusting(ours, ours.issue("scheduler@example.com"))) == 200
        for stranger in (
            trusting(ours),
            trusting(ours, theirs.issue("scheduler@example.com")),
        ):
            with pytest.raises(aiohttp.ClientError):
                await ask(running, stranger)
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):  # plain HTTP
                await session.post(f"{running.url}/filter", json=BODY)


async def test_a_renewed_certificate_is_shown_and_a_broken_one_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extender_server, "_CERTIFICATE_SECONDS", 0.02)
    before, after = Authority(tmp_path), Authority(tmp_path)
    crt, key = before.issue("127.0.0.1")
    new_crt, new_key = after.issue("127.0.0.1")
    folder = write(tmp_path / "p", {})
    async with extender(folder, tls=ServerTls(crt, key)) as running:
        assert await ask(running, trusting(before)) == 200
        crt.write_text("half written", encoding="ascii")
        assert await ask(running, trusting(before)) == 200
        shutil.copy(new_crt, crt)
        shutil.copy(new_key, key)
        async with asyncio.timeout(20):
            while True:
                with contextlib.suppress(aiohttp.ClientConnectorCertificateError):
                    assert await ask(running, trusting(after)) == 200
                    break
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await ask(running, trusting(before))
