"""The TLS settings of the secure listener: certificate, versions, ciphers, and whom it trusts.

Owns reading the files again when they are renewed. Each connection gets the newest settings; those
that are open keep theirs.
"""

import fnmatch
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from engine.io.endpoints.self_signed import make_certificate, needs_renewal
from engine.lib.certificates import as_files, first_certificate, show_certificate
from engine.lib.clock import Clock
from engine.lib.files import FILES, Stamp, stamp_of

log = structlog.get_logger(component="endpoints")

PAIR_NAME: Final = "starsched"
VERSIONS: Final = {
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
# Go's names and OpenSSL's. Those of TLS 1.3 cannot be chosen, in Go either.
CIPHERS: Final = {
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA": "ECDHE-ECDSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA": "ECDHE-RSA-DES-CBC3-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA": "ECDHE-RSA-RC4-SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA": "DES-CBC3-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_RC4_128_SHA": "RC4-SHA",
}


class CannotServeTls(Exception):
    """A certificate, key or authority cannot be used; the message names the file."""


@dataclass(frozen=True, slots=True)
class NamedPair:
    """A certificate for clients that ask for one of *names*, which may begin with `*.`."""

    cert_file: Path
    key_file: Path
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """How the secure listener speaks TLS.

    Attributes:
        cert_file, key_file: PEM files; None for a certificate that is made here.
        cert_dir: Where the one that is made here is kept; None: in memory.
        min_version: A key of `VERSIONS`.
        ciphers: Keys of `CIPHERS`; none for OpenSSL's choice.
        named: Further certificates, for some names.
        hosts: Names and addresses for the certificate that is made here.
    """

    cert_file: Path | None = None
    key_file: Path | None = None
    cert_dir: Path | None = None
    min_version: str = "VersionTLS12"
    ciphers: tuple[str, ...] = ()
    named: tuple[NamedPair, ...] = ()
    hosts: tuple[str, ...] = ()


class ServingTls:
    """The settings for the next connection. Raises `CannotServeTls` if a file cannot be used.

    Attributes:
        certificate: What is shown to clients that ask for no special name, as PEM.
    """

    def __init__(self, settings: TlsSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._authorities: frozenset[bytes] = frozenset()
        self._made: tuple[bytes, bytes] | None = None
        self._renew_made()
        self._stamp = self._told = self._files_stamp()
        self.certificate = ""
        self._context = self._load()

    @property
    def context(self) -> ssl.SSLContext:
        """What a new connection is to use."""
        return self._context

    def trust(self, authorities: frozenset[bytes]) -> None:
        """Ask callers for certificates of *authorities* (DER), from the next connection on."""
        if authorities != self._authorities:
            self._authorities = authorities
            self._context = self._load()

    def refresh(self) -> None:
        """Take over files that were renewed; those that cannot be used change nothing."""
        is_new = self._renew_made()
        stamp = self._files_stamp()
        if stamp == self._stamp and not is_new:
            return
        try:
            self._context, self._stamp = self._load(), stamp
        except CannotServeTls as error:
            if stamp != self._told:  # half written, as a rule: read again next time
                log.warning("Could not reload the certificate", reason=str(error))
            self._told = stamp

    # --- certificates ----------------------------------------------------------------------

    def _pair(self) -> tuple[Path | None, Path | None]:
        settings = self._settings
        if settings.cert_file is None and settings.cert_dir is not None:
            stem = settings.cert_dir / PAIR_NAME
            return stem.with_suffix(".crt"), stem.with_suffix(".key")
        return settings.cert_file, settings.key_file

    def _renew_made(self) -> bool:
        """Make a certificate if none was given, and the one made before is missing or old."""
        settings, now = self._settings, self._clock.now()
        if settings.cert_file is not None or settings.key_file is not None:
            return False
        cert_file, key_file = self._pair()
        if cert_file is not None and key_file is not None:
            current = _read_pair(cert_file, key_file)
        else:
            current = self._made[0] if self._made is not None else b""
        if current and not needs_renewal(current, now):
            return False
        made = make_certificate(self._hosts(), now)
        if cert_file is not None and key_file is not None:
            _write_pair(cert_file, key_file, made)
        else:
            self._made = made
        return True

    def _hosts(self) -> list[str]:
        return ["localhost", "127.0.0.1", "::1", socket.gethostname(), *self._settings.hosts]

    def _files_stamp(self) -> Stamp:
        named = self._settings.named
        return stamp_of(
            [*self._pair(), *(file for pair in named for file in (pair.cert_file, pair.key_file))]
        )

    def _load(self) -> ssl.SSLContext:
        if self._made is not None:
            with as_files(*self._made) as (certificate, key):
                context = self._make_context(certificate, key)
                self.certificate = first_certificate(self._made[0])
        else:
            cert_file, key_file = self._pair()
            context = self._make_context(cert_file, key_file)
            self.certificate = first_certificate(cert_file.read_bytes()) if cert_file else ""
        named = [(self._make_context(p.cert_file, p.key_file), p) for p in self._settings.named]
        if named:
            patterns = [
                (pattern, made)
                for made, pair in named
                for pattern in pair.names or _names_of(pair.cert_file)
            ]
            # Full names before wildcards.
            patterns.sort(key=lambda entry: entry[0].startswith("*"))
            context.sni_callback = _choose_by_name(patterns)
        return context

    def _make_context(
        self, cert_file: str | Path | None, key_file: str | Path | None
    ) -> ssl.SSLContext:
        settings = self._settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            if cert_file is None or key_file is None:
                raise ValueError("want a certificate and its private key, got one of them")
            show_certificate(context, cert_file, key_file)
            context.minimum_version = VERSIONS[settings.min_version]
            _choose_ciphers(context, settings.ciphers)
            if self._authorities:
                context.load_verify_locations(cadata=b"".join(self._authorities))
                context.verify_mode = ssl.CERT_OPTIONAL
                # An authority need not be a root, as for every other Kubernetes component.
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise CannotServeTls(f"{cert_file or key_file}: {error}") from error
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as in `kube.config.TlsContext`
        # A session that goes on would not show its certificate to a new authority.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        return context


def _choose_ciphers(context: ssl.SSLContext, names: Iterable[str]) -> None:
    chosen = list(names)
    if not chosen:
        return
    older = [CIPHERS[name] for name in chosen if CIPHERS[name]]
    if older:
        context.set_ciphers(":".join(older))
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3


def _choose_by_name(
    patterns: list[tuple[str, ssl.SSLContext]],
) -> Callable[[ssl.SSLObject, str | None, ssl.SSLContext], None]:
    def choose(connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        for pattern, context in patterns:
            if name is not None and fnmatch.fnmatchcase(name.lower(), pattern.lower()):
                connection.context = context
                return

    return choose


def _names_of(certificate: Path) -> list[str]:
    """The names in a certificate."""
    from cryptography import x509

    try:
        read = x509.load_pem_x509_certificate(certificate.read_bytes())
        names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return []
    return names.get_values_for_type(x509.DNSName)


def _read_pair(cert_file: Path, key_file: Path) -> bytes:
    """The certificate, empty if it or its key is missing."""
    try:
        return cert_file.read_bytes() if key_file.exists() else b""
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise CannotServeTls(f"{cert_file}: {error.strerror}") from error


def _write_pair(cert_file: Path, key_file: Path, made: tuple[bytes, bytes]) -> None:
    try:
        for file, content in zip((cert_file, key_file), made, strict=True):
            FILES.replace(file, content)
    except OSError as error:
        raise CannotServeTls(f"{cert_file.parent}: {error.strerror}") from error
