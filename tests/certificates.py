"""An authority for tests of TLS, and certificates of it."""

import itertools
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives import serialization

# Of files: the ids of objects are used again.
_numbers = itertools.count()


class Authority:
    """Issues certificates as PEM files in *folder*; `file` is its own certificate."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ca = trustme.CA()
        self.file = folder / f"ca-{next(_numbers)}.crt"
        self._ca.cert_pem.write_to_path(str(self.file))

    def issue(self, *names: str, **more: Any) -> tuple[Path, Path]:
        """The files of a certificate for *names* (hosts, addresses or mail), and of its key.

        *more* is what `trustme` takes: `common_name`, `organization_name`, `not_after`.
        """
        issued = self._ca.issue_cert(*names, **more)
        stem = self._folder / f"{names[0]}-{next(_numbers)}"
        certificate, key = Path(f"{stem}.crt"), Path(f"{stem}.key")
        certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(key))
        return certificate, key

    def issue_encrypted(self, *names: str) -> tuple[Path, Path]:
        """The same, with a key that takes a passphrase."""
        certificate, key = self.issue(*names)
        plain = serialization.load_pem_private_key(key.read_bytes(), password=None)
        key.write_bytes(
            plain.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"secret"),
            )
        )
        return certificate, key
