"""Loads certificates and private keys into a TLS context.

Makes sure that OpenSSL never waits for a passphrase from the terminal. Messages say what is wrong
with PEM of a configuration, and never quote it: it may be a key.
"""

import _ssl
import contextlib
import ssl
from collections.abc import Iterator
from os import PathLike
from typing import Any, Final

from engine.lib.memory_file import memory_file

_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_PRIVATE_KEY: Final = b" PRIVATE KEY-----"


def show_certificate(
    context: ssl.SSLContext,
    cert_file: str | PathLike[str],
    key_file: str | PathLike[str] | None,
) -> None:
    """Have *context* show the certificate of a PEM file; without *key_file*, its key is in it too.

    Raises `OSError` if they cannot be used, also where the key is encrypted; it names the file that
    cannot be read, which OpenSSL's does not.
    """

    def refuse() -> str:
        raise OSError("the private key is encrypted, want one without a passphrase")

    try:
        context.load_cert_chain(cert_file, key_file, password=refuse)
    except OSError:
        for path in (cert_file, key_file):
            if path is not None:
                with open(path, "rb"):
                    pass
        raise


@contextlib.contextmanager
def as_files(*texts: bytes) -> Iterator[list[str]]:
    """Paths of *texts* that only this process can read, for as long as the block takes."""
    with contextlib.ExitStack() as files:
        paths: list[str] = []
        for text in texts:
            file = files.enter_context(memory_file("pem"))
            file.write(text)
            file.seek(0)
            paths.append(f"/dev/fd/{file.fileno()}")
        yield paths


def authorities(pem: bytes) -> str:
    """PEM certificates as OpenSSL takes them. Raises `ValueError` if there are none.

    What is around them may be text in any language, as in the bundles of distributions.
    """
    if _CERTIFICATE not in pem:
        raise ValueError("unable to load root certificates: no PEM certificate in it")
    return pem.decode("ascii", "backslashreplace")


def first_certificate(pem: bytes) -> str:
    """The first certificate of PEM texts, which is the server's own in a chain; "" without one."""
    end = _CERTIFICATE.replace(b"BEGIN", b"END")
    _, begin, rest = pem.partition(_CERTIFICATE)
    body, is_whole, _ = rest.partition(end)
    return (begin + body + end).decode("ascii", "replace") + "\n" if is_whole else ""


def are_certificates(pem: bytes) -> bool:
    """True if *pem* holds certificates and all of them can be loaded."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=authorities(pem))
    except (OSError, ValueError):  # ssl.SSLError is an OSError
        return False
    return True


def key_problem(key: bytes, certificate: bytes | None) -> str:
    """What is wrong with a private key as PEM, or ""; without its certificate, less is seen."""
    want = "want a private key as PEM, in base64 and without a passphrase"
    if _PRIVATE_KEY not in key:
        return want
    if certificate is not None:
        try:
            with as_files(certificate, key) as (certificate_file, key_file):
                show_certificate(
                    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate_file, key_file
                )
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                return "want the private key of the certificate, got that of another"
            return want
        except (OSError, ValueError):
            return want
    return ""


def verified_chain(connection: ssl.SSLObject) -> list[bytes]:
    """The certificates of the other side as DER, its own first and the trusted one last.

    Empty if it has shown none.
    """
    # Public since Python 3.13; before, only the object of OpenSSL has it.
    inner: Any = getattr(connection, "_sslobj", connection)
    return [
        one if isinstance(one, bytes) else one.public_bytes(_ssl.ENCODING_DER)
        for one in inner.get_verified_chain() or ()
    ]
