"""The certificates of the secure port and of its callers: renewed, foreign, expired, mismatched."""

import asyncio
import datetime
import shutil
import ssl
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from structlog.testing import capture_logs

from devkit.cluster import DevCluster
from engine.io.endpoints.authentication import ProxyHeaders
from engine.io.endpoints.caller_trust import (
    LOOKUP_NAME,
    LOOKUP_NAMESPACE,
    LOOKUP_SECONDS,
    CallerTrust,
    CannotAuthenticate,
    TrustSettings,
)
from engine.io.endpoints.self_signed import LIFETIME, RENEWED_BEFORE
from engine.io.endpoints.server import SecureSettings
from engine.io.endpoints.serving_tls import CannotServeTls, NamedPair, ServingTls, TlsSettings
from engine.lib.clock import SystemClock, VirtualClock
from tests.certificates import Authority
from tests.engine.io.binding.scripted_api import Refuse, ScriptedApi
from tests.engine.io.endpoints.harness import Running, endpoints, trusting, unverified
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("no_sandboxes")

OFTEN = 0.02


async def shown(running: Running, name: str | None = None) -> x509.Certificate:
    """The certificate that the secure port shows to a new client that asks for *name*."""
    _, writer = await asyncio.open_connection(
        "127.0.0.1", running.server.secure_port, ssl=unverified(), server_hostname=name or ""
    )
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(der)


async def status(running: Running, client: tuple[Path, Path], **headers: str) -> int:
    """Of `/policies` for a caller with a certificate; 0 if the connection is refused."""
    try:
        return (await running.get("/policies", tls=unverified(client), headers=headers))[0]
    except (aiohttp.ClientError, ssl.SSLError):
        return 0


async def test_without_files_a_certificate_for_this_host_is_made(cluster: DevCluster) -> None:
    async with endpoints(cluster) as running:
        made = await shown(running)
        names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert "localhost" in names.get_values_for_type(x509.DNSName)
        assert "127.0.0.1" in map(str, names.get_values_for_type(x509.IPAddress))


def test_one_that_was_made_is_replaced_before_it_expires() -> None:
    clock = VirtualClock()
    tls = ServingTls(TlsSettings(), clock)
    first = tls.context
    clock.advance((LIFETIME - RENEWED_BEFORE).total_seconds() - 60)
    tls.refresh()
    assert tls.context is first
    clock.advance(120)
    tls.refresh()
    assert tls.context is not first


def test_one_that_was_made_is_kept_in_a_directory(tmp_path: Path) -> None:
    folder, clock = tmp_path / "new" / "certs", VirtualClock()
    settings = TlsSettings(cert_dir=folder)
    ServingTls(settings, clock)
    first = (folder / "starsched.crt").read_bytes()
    assert (folder / "starsched.key").stat().st_mode & 0o077 == 0
    ServingTls(settings, clock)
    assert (folder / "starsched.crt").read_bytes() == first
    clock.advance(LIFETIME.total_seconds())
    ServingTls(settings, clock)
    assert (folder / "starsched.crt").read_bytes() != first


async def test_a_renewed_certificate_is_shown_and_a_broken_one_changes_nothing(
    cluster: DevCluster, tmp_path: Path
) -> None:
    before, after = Authority(tmp_path), Authority(tmp_path)
    cert, key = before.issue("127.0.0.1")
    new_cert, new_key = after.issue("127.0.0.1")
    settings = SecureSettings(
        "127.0.0.1", tls=TlsSettings(cert_file=cert, key_file=key), refresh_seconds=OFTEN
    )
    async with endpoints(cluster, settings) as running:
        assert (await running.get("/livez", tls=trusting(before.file)))[0] == 200
        cert.write_text("half written", encoding="ascii")
        assert (await running.get("/livez", tls=trusting(before.file)))[0] == 200
        shutil.copy(new_cert, cert)  # without its key yet
        assert (await running.get("/livez", tls=trusting(before.file)))[0] == 200
        shutil.copy(new_key, key)
        want = x509.load_pem_x509_certificate(new_cert.read_bytes()).serial_number

        async def is_new() -> bool:
            return (await shown(running)).serial_number == want

        await eventually(is_new)
        assert (await running.get("/livez", tls=trusting(after.file)))[0] == 200


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("a")
    _, other_key = authority.issue("b")
    for pair in ((cert, other_key), (key, cert), (cert, None), (tmp_path / "none", key)):
        settings = TlsSettings(cert_file=pair[0], key_file=pair[1])
        with pytest.raises(CannotServeTls, match=str(pair[0].name)):
            ServingTls(settings, SystemClock())
    secret = TlsSettings(cert_file=cert, key_file=authority.issue_encrypted("c")[1])
    with pytest.raises(CannotServeTls, match="encrypted"):
        ServingTls(secret, SystemClock())


async def test_names_choose_a_certificate(cluster: DevCluster, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    main, named, wild = (authority.issue(name) for name in ("main", "by-itself.example", "other"))
    tls = TlsSettings(
        *main,
        named=(NamedPair(*named), NamedPair(*wild, names=("*.wild.example",))),
    )
    serials = {
        pair: x509.load_pem_x509_certificate(pair[0].read_bytes()).serial_number
        for pair in (main, named, wild)
    }
    async with endpoints(cluster, SecureSettings("127.0.0.1", tls=tls)) as running:
        for name, pair in (
            (None, main),
            ("unknown.example", main),
            ("by-itself.example", named),
            ("a.wild.example", wild),
        ):
            assert (await shown(running, name)).serial_number == serials[pair], name


async def test_old_versions_and_other_ciphers_are_refused(cluster: DevCluster) -> None:
    newest = SecureSettings("127.0.0.1", tls=TlsSettings(min_version="VersionTLS13"))
    one = TlsSettings(ciphers=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",))
    for settings, cipher, is_taken in (
        (newest, "ECDHE+AESGCM", False),
        (SecureSettings("127.0.0.1", tls=one), "ECDHE-ECDSA-AES256-GCM-SHA384", True),
        (SecureSettings("127.0.0.1", tls=one), "ECDHE-ECDSA-AES128-GCM-SHA256", False),
    ):
        client = unverified()
        client.maximum_version = ssl.TLSVersion.TLSv1_2
        client.set_ciphers(cipher)
        async with endpoints(cluster, settings) as running:
            if is_taken:
                assert (await running.get("/livez", tls=client))[0] == 200
            else:
                with pytest.raises(aiohttp.ClientError):
                    await running.get("/livez", tls=client)


# --- callers ---------------------------------------------------------------------------------


def trust(clients: Authority | None, proxies: Authority | None = None, **more: object) -> object:
    return TrustSettings(
        client_ca_file=clients.file if clients is not None else None,
        proxy_ca_file=proxies.file if proxies is not None else None,
        skips_lookup=True,
        **more,  # type: ignore[arg-type]  # words of the test
    )


async def test_a_client_certificate_names_a_user_and_its_groups(
    cluster: DevCluster, tmp_path: Path
) -> None:
    ours, foreign = Authority(tmp_path), Authority(tmp_path)
    cluster.access.allow_path("alice", "/policies")
    settings = SecureSettings("127.0.0.1", trust=trust(ours))  # type: ignore[arg-type]
    mail = "a@example.com"
    now = datetime.datetime.now(datetime.UTC)
    async with endpoints(cluster, settings) as running:
        for client, want in (
            (ours.issue(mail, common_name="alice"), 200),
            (ours.issue(mail, common_name="bob"), 403),
            (ours.issue(mail, common_name="x", organization_name="system:masters"), 200),
            (ours.issue(mail), 403),  # without a name, nobody
            (foreign.issue(mail, common_name="alice"), 0),
            (
                ours.issue(
                    mail,
                    common_name="alice",
                    not_before=now - datetime.timedelta(days=2),
                    not_after=now - datetime.timedelta(days=1),
                ),
                0,
            ),
        ):
            assert await status(running, client) == want
        # A certificate does not vouch for headers.
        assert await status(running, ours.issue(mail, common_name="bob"), **HEADERS) == 403


HEADERS = {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}


async def test_a_front_proxy_is_believed_if_it_is_one(cluster: DevCluster, tmp_path: Path) -> None:
    clients, proxies = Authority(tmp_path), Authority(tmp_path)
    headers = ProxyHeaders(allowed_names=("front",))
    settings = SecureSettings(
        "127.0.0.1",
        trust=trust(clients, proxies, headers=headers),  # type: ignore[arg-type]
    )
    mail = "p@example.com"
    async with endpoints(cluster, settings) as running:
        front = proxies.issue(mail, common_name="front")
        assert await status(running, front, **HEADERS) == 200
        assert await status(running, front, **{"X-Remote-User": "bob"}) == 403
        assert await status(running, front) == 403
        assert await status(running, proxies.issue(mail, common_name="x"), **HEADERS) == 403
        assert await status(running, clients.issue(mail, common_name="front"), **HEADERS) == 403


async def test_the_certificate_of_a_kept_connection_runs_out(
    cluster: DevCluster, tmp_path: Path
) -> None:
    ours, clock = Authority(tmp_path), SystemClock()
    masters = ours.issue("a@example.com", common_name="x", organization_name="system:masters")
    settings = SecureSettings("127.0.0.1", trust=trust(ours))  # type: ignore[arg-type]
    ahead = 0.0

    class Shifted(SystemClock):
        def now(self) -> float:
            return clock.now() + ahead

    async with endpoints(cluster, settings, clock=Shifted()) as running:
        connector = aiohttp.TCPConnector(ssl=unverified(masters))
        async with aiohttp.ClientSession(connector=connector) as session:
            for ahead, want in ((0.0, 200), (1e12, 403)):  # noqa: B007  # `Shifted` reads it
                async with session.get(f"{running.secure}/policies") as answer:
                    assert answer.status == want


async def test_authorities_are_looked_up_and_followed(cluster: DevCluster, tmp_path: Path) -> None:
    before, after = Authority(tmp_path), Authority(tmp_path)
    cluster.access.allow_path("alice", "/policies")

    def publish(authority: Authority) -> None:
        manifest = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": LOOKUP_NAME, "namespace": LOOKUP_NAMESPACE},
            "data": {"client-ca-file": authority.file.read_text(encoding="ascii")},
        }
        if cluster.get("configmaps", LOOKUP_NAME, LOOKUP_NAMESPACE) is None:
            cluster.create(manifest)
        else:
            cluster.update("configmaps", manifest)

    publish(before)
    old, new = (one.issue("a@example.com", common_name="alice") for one in (before, after))
    clock = VirtualClock(SystemClock().now())
    settings = SecureSettings("127.0.0.1", refresh_seconds=OFTEN)
    async with endpoints(cluster, settings, clock=clock) as running:

        async def lets_in(client: tuple[Path, Path]) -> bool:
            return await status(running, client) == 200

        await eventually(lambda: lets_in(old))
        publish(after)
        clock.advance(61)
        await eventually(lambda: lets_in(new))
        assert await status(running, old) == 0


async def test_a_lookup_that_fails_is_fatal_only_if_wanted(cluster: DevCluster) -> None:
    strict = SecureSettings("127.0.0.1", trust=TrustSettings(tolerates_failure=False))
    with pytest.raises(CannotAuthenticate, match=LOOKUP_NAME):
        async with endpoints(cluster, strict):
            pass
    async with endpoints(cluster) as running:
        assert (await running.get("/policies", "of-alice"))[0] == 200


async def test_a_lookup_that_goes_on_failing_is_logged_again_only_when_that_changes() -> None:
    """Where the API server has no authority for clients it was a warning a minute, for ever."""
    clock = VirtualClock()
    logged = []
    found = {"metadata": {"name": LOOKUP_NAME, "namespace": LOOKUP_NAMESPACE}, "data": {}}
    no = Refuse(403, "Forbidden", "no")
    async with ScriptedApi() as api, api.client() as client:
        trust = CallerTrust(TrustSettings(), client, clock)
        for answer in (no, no, Refuse(404, "NotFound", "none"), None, no):
            if answer is None:
                api.pods[LOOKUP_NAME] = found
            else:
                api.script["read"] = [answer]
            with capture_logs() as lines:
                await trust.refresh()
            logged.append([line["event"] for line in lines])
            clock.advance(LOOKUP_SECONDS)
    once = ["Could not look up the authorities of callers"]
    assert logged == [once, [], once, [], once]


_NO_CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"


@pytest.mark.parametrize("content", ["", "no PEM", _NO_CERTIFICATE])
async def test_authorities_that_are_none_are_refused(
    cluster: DevCluster, tmp_path: Path, content: str
) -> None:
    file = tmp_path / "ca.crt"
    file.write_text(content, encoding="ascii")
    settings = SecureSettings("127.0.0.1", trust=TrustSettings(client_ca_file=file))
    with pytest.raises(CannotAuthenticate, match=r"ca\.crt: want PEM certificates"):
        async with endpoints(cluster, settings):
            pass
