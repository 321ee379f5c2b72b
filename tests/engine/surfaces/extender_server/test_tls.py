"""Who may talk to the extender: TLS, client certificates, renewal."""

import asyncio
import contextlib
import shutil
import ssl
from pathlib import Path

import aiohttp
import pytest
import structlog

from engine.io.endpoints.server import SecureSettings
from engine.surfaces.extender_server.server import ServerTls
from tests.builders import node_manifest, pod_manifest
from tests.certificates import Authority
from tests.engine.surfaces.extender_server.harness import Running, extender, with_nodes, write
from tests.waiting import eventually

pytestmark = pytest.mark.slow("runs a whole extender")

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
    tmp_path: Path,
) -> None:
    before, after = Authority(tmp_path), Authority(tmp_path)
    crt, key = before.issue("127.0.0.1")
    new_crt, new_key = after.issue("127.0.0.1")
    folder = write(tmp_path / "p", {})
    async with extender(folder, tls=ServerTls(crt, key), certificate_seconds=0.02) as running:
        assert await ask(running, trusting(before)) == 200
        crt.write_text("half written", encoding="ascii")
        assert await ask(running, trusting(before)) == 200
        shutil.copy(new_crt, crt)
        # Without its key yet, for as long as it takes to be looked at.
        with structlog.testing.capture_logs() as logs:
            await eventually(lambda: "Could not reload the certificate" in str(logs))
        assert await ask(running, trusting(before)) == 200
        shutil.copy(new_key, key)
        async with asyncio.timeout(20):
            while True:
                with contextlib.suppress(aiohttp.ClientConnectorCertificateError):
                    assert await ask(running, trusting(after)) == 200
                    break
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await ask(running, trusting(before))


async def test_a_new_authority_of_clients_takes_the_place_of_the_one_before(
    tmp_path: Path,
) -> None:
    """Its clients were turned away until a restart, and those of the one before were not."""
    ours, before, after = Authority(tmp_path), Authority(tmp_path), Authority(tmp_path)
    old, new = (trusting(ours, one.issue("scheduler@example.com")) for one in (before, after))
    authorities = Path(shutil.copy(before.file, tmp_path / "clients.crt"))
    tls = ServerTls(*ours.issue("127.0.0.1"), client_ca_file=authorities)
    async with extender(write(tmp_path / "p", {}), tls=tls, certificate_seconds=0.02) as running:
        assert await ask(running, old) == 200
        shutil.copy(after.file, authorities)
        async with asyncio.timeout(20):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    assert await ask(running, new) == 200
                    break
        with pytest.raises(aiohttp.ClientError):
            await ask(running, old)


def test_a_key_that_takes_a_passphrase_is_refused(tmp_path: Path) -> None:
    """OpenSSL asked for it on the terminal, and waited."""
    tls = ServerTls(*Authority(tmp_path).issue_encrypted("127.0.0.1"))
    with pytest.raises(OSError, match="the private key is encrypted"):
        tls.context()


async def test_its_endpoints_are_guarded_like_a_schedulers(tmp_path: Path) -> None:
    """Without an API server that knows callers, only the probes are open."""
    async with extender(write(tmp_path / "p", {}), secure=SecureSettings("127.0.0.1")) as running:
        base = f"https://127.0.0.1:{running.app.endpoints.secure_port}"
        for path, token, want in (
            ("/readyz", None, 200),
            ("/metrics", None, 403),
            ("/policies", None, 403),
            ("/policies", "token", 401),
        ):
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            async with running.session.get(base + path, headers=headers, ssl=False) as answer:
                assert answer.status == want, path
