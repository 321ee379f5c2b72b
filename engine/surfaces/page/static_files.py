"""The files that a browser loads: ours, and the libraries that `static/libraries.toml` names.

Owns their bytes, types and addresses. An address contains the hash of the content, so a browser
keeps a file for good and never shows an old one after an upgrade.
"""

import hashlib
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

import msgspec

#: Where they are served.
PREFIX: Final = "/static/"

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Library(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of another project: where it is from, its licence, its hash."""

    file: str
    package: str
    version: str
    path: str
    licence: str
    licence_file: str
    sha256: str


@dataclass(frozen=True)
class StaticFile:
    """A file as it is served."""

    name: str
    body: bytes
    content_type: str
    address: str


def libraries() -> list[Library]:
    """What `static/libraries.toml` says."""
    table = tomllib.loads((_folder() / "libraries.toml").read_text(encoding="utf-8"))
    return msgspec.convert(table["library"], list[Library])


@cache
def static_files() -> dict[str, StaticFile]:
    """The files that are served, by name."""
    found: dict[str, StaticFile] = {}
    for entry in _folder().iterdir():
        suffix = "." + entry.name.rpartition(".")[2]
        if suffix in _TYPES:
            body = entry.read_bytes()
            digest = hashlib.sha256(body).hexdigest()[:12]
            address = f"{PREFIX}{digest}/{entry.name}"
            found[entry.name] = StaticFile(entry.name, body, _TYPES[suffix], address)
    return found


def address_of(name: str) -> str:
    """The address of the file *name*. Raises `KeyError` if there is none."""
    return static_files()[name].address


def _folder() -> resources.abc.Traversable:
    return resources.files("engine.surfaces.page") / "static"
