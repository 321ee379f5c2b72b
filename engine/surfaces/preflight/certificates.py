"""Whether certificates, keys and authorities in files can be used, and for how long.

Owns reading their dates. Messages never quote a file: it may be a key.
"""

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from engine.lib.certificates import authorities, show_certificate
from engine.surfaces.preflight.findings import Finding, State

#: A certificate that ends sooner is worth a note.
SOON: Final = timedelta(days=14)
_CHECK: Final = "certificate"


def certificate(cert_file: Path, key_file: Path | None, now: float) -> Finding:
    """The certificate of a PEM file with its key; without *key_file* that is in it, too."""
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        show_certificate(context, cert_file, key_file)
        first = next(_periods(cert_file.read_bytes()))
    except (OSError, ValueError, StopIteration) as error:
        key = "" if key_file is None else f" with the key {key_file}"
        return Finding(_CHECK, f"{cert_file}{key}", State.MISSING, _reason(error))
    return _dated(str(cert_file), [first], now)


def trusted(file: Path, now: float) -> Finding:
    """The authorities of a PEM file, of which one has to be good."""
    try:
        raw = file.read_bytes()
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=authorities(raw))
        periods = list(_periods(raw))
    except (OSError, ValueError) as error:
        return Finding(_CHECK, str(file), State.MISSING, _reason(error))
    return _dated(str(file), periods, now)


def _periods(pem: bytes) -> Iterator[tuple[datetime, datetime]]:
    """From when until when each certificate of *pem* is good."""
    # Imported late: it takes a while, and only commands that look at certificates need it.
    from cryptography import x509

    for one in x509.load_pem_x509_certificates(pem):
        yield one.not_valid_before_utc, one.not_valid_after_utc


def _dated(subject: str, periods: list[tuple[datetime, datetime]], now: float) -> Finding:
    """The finding about certificates of which one has to be good at *now*, in Unix seconds."""
    moment = datetime.fromtimestamp(now, UTC)
    good = [end for begin, end in periods if begin <= moment < end]
    if good:
        end = max(good)
        state = State.NOTE if end - moment < SOON else State.OK
        return Finding(_CHECK, subject, state, f"good until {end:%Y-%m-%d %H:%M} UTC")
    begin, end = max(periods, key=lambda period: period[1])
    if moment < begin:
        return Finding(_CHECK, subject, State.MISSING, f"good only from {begin:%Y-%m-%d %H:%M} UTC")
    return Finding(_CHECK, subject, State.MISSING, f"expired at {end:%Y-%m-%d %H:%M} UTC")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return "the key is that of another certificate"
    if isinstance(error, OSError) and error.strerror and not isinstance(error, ssl.SSLError):
        return error.strerror.lower()
    return str(error) or "no certificate in it"
