"""Makes the certificate of a server that is given none, as kube components do.

No client can verify it: it keeps answers from being read on the way, and no more.
"""

import datetime
import ipaddress
from collections.abc import Iterable
from typing import Final

LIFETIME: Final = datetime.timedelta(days=365)
#: A new one is made when no more than this is left.
RENEWED_BEFORE: Final = datetime.timedelta(days=90)
# Clocks of clients may be slow.
_EARLIER: Final = datetime.timedelta(hours=1)
_NAME: Final = "starsched"


def make_certificate(hosts: Iterable[str], now: float) -> tuple[bytes, bytes]:
    """Certificate and key as PEM, for *hosts* (names and addresses), good from *now* on."""
    # Imported where it is needed: most processes are given a certificate or serve none.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAME)])
    start = datetime.datetime.fromtimestamp(now, datetime.UTC)
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - _EARLIER)
        .not_valid_after(start + LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return certificate.public_bytes(serialization.Encoding.PEM), secret


def needs_renewal(certificate: bytes, now: float) -> bool:
    """True if *certificate* (PEM) was made here and is about to expire, or cannot be read."""
    from cryptography import x509

    try:
        read = x509.load_pem_x509_certificate(certificate)
    except ValueError:
        return True
    ends_soon = read.not_valid_after_utc - RENEWED_BEFORE
    is_ours = read.issuer == read.subject
    return is_ours and ends_soon < datetime.datetime.fromtimestamp(now, datetime.UTC)
