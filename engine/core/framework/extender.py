"""An extender: another program that takes part in decisions over HTTP.

Owns the record of what is configured for one. Reading it from a configuration is
`policy.extenders`', sending requests `kube.extender_client`'s.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from engine.lib.short import shortened

#: Stands for the extenders where a policy or plugin is named.
EXTENDER: Final = "Extender"
DEFAULT_TIMEOUT: Final = timedelta(seconds=5)


# Of an error's text, which comes into pods' conditions and into the log.
_ERROR_LENGTH: Final = 900


class ExtenderError(Exception):
    """An extender gave no usable answer; the text is kube-scheduler's, cut if it is long."""

    def __init__(self, text: str) -> None:
        super().__init__(shortened(text, _ERROR_LENGTH))


class MalformedAnswer(ExtenderError):
    """A body is not what the protocol wants; the text does not say whose it is."""


@dataclass(frozen=True, slots=True)
class ExtenderTls:
    """How to talk TLS to an extender. Of a file and data for the same thing, data counts.

    `insecure`: the server's certificate is not checked, as kube-scheduler does for
    `enableHTTPS` without an authority too.
    """

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = b""
    key_data: bytes = field(default=b"", repr=False)
    ca_data: bytes = b""


@dataclass(frozen=True, slots=True)
class Extender:
    """One entry of `extenders`. A verb that is empty is not called.

    `enable_https` is what was written; `tls` says what it means. `timeout` None means that a
    request may take for ever. `resources` are the managed resources;
    an extender that manages none is asked about every pod.
    """

    url_prefix: str = field(repr=False)
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    bind_verb: str = ""
    weight: int = 0
    tls: ExtenderTls = field(default_factory=ExtenderTls)
    enable_https: bool = False
    timeout: timedelta | None = DEFAULT_TIMEOUT
    node_cache_capable: bool = False
    resources: frozenset[str] = frozenset()
    ignored_resources: tuple[str, ...] = ()
    ignorable: bool = False

    @property
    def name(self) -> str:
        """Its URL as everybody may see it: without the user and the password that it may hold."""
        parts = urlsplit(self.url_prefix)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
