"""Certificates that a TLS context shows, with their private keys.

Owns that nobody is asked for a passphrase: OpenSSL would ask the terminal, and wait.
"""

import ssl
from os import PathLike


def show_certificate(
    context: ssl.SSLContext,
    cert_file: str | PathLike[str],
    key_file: str | PathLike[str] | None,
) -> None:
    """Have *context* show the certificate of a PEM file; without *key_file*, its key is in it too.

    Raises `OSError` if they cannot be used, also where the key is encrypted.
    """

    def refuse() -> str:
        raise OSError("the private key is encrypted, want one without a passphrase")

    context.load_cert_chain(cert_file, key_file, password=refuse)
