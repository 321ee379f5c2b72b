"""The options of the endpoints: listeners, TLS, authentication, authorization.

They are kube-scheduler's, with its defaults; `--local-port` is ours.
"""

import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from engine.io.endpoints.authentication import ProxyHeaders
from engine.io.endpoints.authorization import OPEN_PATHS
from engine.io.endpoints.caller_trust import TrustSettings
from engine.io.endpoints.server import ReviewClients, SecureSettings
from engine.io.endpoints.serving_tls import CIPHERS, VERSIONS, NamedPair, TlsSettings
from engine.io.kube.client import ApiClient
from engine.surfaces.cli.durations import DURATION

Command = TypeVar("Command", bound=Callable[..., Any])

SECURE_PORT: Final = 10259
_MOST_PORT: Final = 65535


class PortType(click.ParamType[int | None]):
    """A port: None for `0`, which switches a listener off, and 0 for `any`."""

    name = "port"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        """The port to bind; an invalid text ends the command."""
        text = str(value)
        if text == "any":
            return 0
        if not text.isascii() or not text.isdigit() or int(text) > _MOST_PORT:
            self.fail(f"want a port, 0 for none or `any` for a free one, got `{text}`", param, ctx)
        return int(text) or None


class ListType(click.ParamType[tuple[str, ...]]):
    """Names with commas between them."""

    name = "list"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """The names; one that is empty ends the command."""
        if not isinstance(value, str):
            return tuple(value)
        names = tuple(name.strip() for name in value.split(",")) if value else ()
        if "" in names:
            self.fail(f"want names with commas between them, got `{value}`", param, ctx)
        return names


class AddressType(click.ParamType[str]):
    """An IP address; an empty text stands for all addresses."""

    name = "ip"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The address; an invalid one ends the command."""
        try:
            return str(ipaddress.ip_address(value)) if value else "0.0.0.0"
        except ValueError:
            self.fail(f"want an IP address, got `{value}`", param, ctx)


class NamedPairType(click.ParamType[NamedPair]):
    """`CERT,KEY` or `CERT,KEY:NAME,NAME`."""

    name = "pair"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> NamedPair:
        """The files and names; an invalid text ends the command."""
        files, _, names = str(value).partition(":")
        cert, comma, key = files.partition(",")
        if not cert or not comma or not key:
            self.fail(f"want CERT,KEY or CERT,KEY:NAME,NAME, got `{value}`", param, ctx)
        return NamedPair(Path(cert), Path(key), tuple(filter(None, names.split(","))))


_FILE: Final = click.Path(path_type=Path, exists=True, dir_okay=False)


def _flag(name: str, kind: Any, text: str, **more: Any) -> Callable[[Command], Command]:
    return click.option(name, type=kind, help=text, **more)


_LISTENERS: Final = (
    _flag(
        "--secure-port",
        PortType(),
        "Port of the endpoints over HTTPS, with authentication and authorization; 0 for none, "
        "`any` for a free one.",
        default=str(SECURE_PORT),
        show_default=True,
    ),
    _flag(
        "--bind-address",
        AddressType(),
        "IP address to serve the secure port on; 0.0.0.0 or :: for all, of both families.",
        default="0.0.0.0",
        show_default=True,
    ),
    click.option(
        "--permit-port-sharing",
        is_flag=True,
        help="Let other processes listen on the secure port, too.",
    ),
    _flag(
        "--local-port",
        PortType(),
        "Port of the same endpoints on 127.0.0.1 over HTTP, without authentication, for `kubectl "
        "port-forward`; 0 for none, `any` for a free one. Every process of the host can read it "
        "where the pod shares the host's network.",
        default="0",
        show_default=True,
    ),
)
_TLS_FILES: Final = (
    _flag(
        "--tls-cert-file",
        _FILE,
        "PEM file with the certificate of the secure port and its chain. Default: one that is "
        "made at the start.",
    ),
    _flag("--tls-private-key-file", _FILE, "PEM file with the certificate's key."),
    _flag(
        "--client-ca-file",
        _FILE,
        "PEM file with the authorities of client certificates. Default: those that the API server "
        "publishes.",
    ),
)
_TLS: Final = (
    _flag(
        "--cert-dir",
        click.Path(path_type=Path, file_okay=False),
        "Directory to keep the certificate in that is made at the start. Default: in memory.",
    ),
    _flag(
        "--tls-min-version",
        click.Choice(list(VERSIONS)),
        "Oldest version of TLS that is spoken. Default: VersionTLS12.",
    ),
    _flag(
        "--tls-cipher-suites",
        ListType(),
        "Cipher suites up to TLS 1.2, by Go's names. Default: OpenSSL's choice.",
        default="",
    ),
    _flag(
        "--tls-sni-cert-key",
        NamedPairType(),
        "A further certificate and key, CERT,KEY or CERT,KEY:NAME,NAME, for clients that ask for "
        "one of its names. Can be given several times.",
        multiple=True,
    ),
)
_DELEGATION: Final = (
    _flag(
        "--authentication-kubeconfig",
        _FILE,
        "Kubeconfig of the API server that knows callers. Default: the scheduler's own.",
    ),
    click.option(
        "--authentication-skip-lookup",
        is_flag=True,
        help="Do not look up the authorities of callers in the cluster.",
    ),
    click.option(
        "--authentication-tolerate-lookup-failure/--no-authentication-tolerate-lookup-failure",
        default=True,
        help="Start although the authorities of callers cannot be looked up. Default: yes.",
    ),
    _flag(
        "--authentication-token-webhook-cache-ttl",
        DURATION,
        "How long the API server's answer about a token is good.",
        default="10s",
        show_default=True,
    ),
    _flag(
        "--requestheader-client-ca-file",
        _FILE,
        "PEM file with the authorities of front proxies, which name the user in headers. Default: "
        "what the API server publishes, with its headers and names.",
    ),
    _flag(
        "--requestheader-allowed-names",
        ListType(),
        "Common names of front proxies. Default: all with a certificate.",
        default="",
    ),
    _flag(
        "--requestheader-username-headers",
        ListType(),
        "Headers with the name of the user.",
        default="x-remote-user",
        show_default=True,
    ),
    _flag("--requestheader-uid-headers", ListType(), "Headers with the user's uid.", default=""),
    _flag(
        "--requestheader-group-headers",
        ListType(),
        "Headers with the user's groups.",
        default="x-remote-group",
        show_default=True,
    ),
    _flag(
        "--requestheader-extra-headers-prefix",
        ListType(),
        "What headers with more about the user begin with.",
        default="x-remote-extra-",
        show_default=True,
    ),
    _flag(
        "--authorization-kubeconfig",
        _FILE,
        "Kubeconfig of the API server that knows the rights of callers. Default: the scheduler's "
        "own.",
    ),
    _flag(
        "--authorization-always-allow-paths",
        ListType(),
        "Paths that are open to everybody; one that ends in `*` stands for all that begin so.",
        default=",".join(OPEN_PATHS),
        show_default=True,
    ),
    _flag(
        "--authorization-webhook-cache-authorized-ttl",
        DURATION,
        "How long the API server's permission is good.",
        default="10s",
        show_default=True,
    ),
    _flag(
        "--authorization-webhook-cache-unauthorized-ttl",
        DURATION,
        "How long the API server's refusal is good.",
        default="10s",
        show_default=True,
    ),
)


def endpoint_options(*, with_tls_files: bool = True) -> Callable[[Command], Command]:
    """Add the options to a command; without those for files if it has them for its own."""

    def add(function: Command) -> Command:
        files = _TLS_FILES if with_tls_files else ()
        for option in reversed((*_LISTENERS, *files, *_TLS, *_DELEGATION)):
            function = option(function)
        return function

    return add


def chosen_secure(options: dict[str, Any], *, client_ca: bool = True) -> SecureSettings | None:
    """The secure listener as the flags say; None for none. Raises `UsageError`.

    Without *client_ca*, `--client-ca-file` is not about these endpoints.
    """
    port: int | None = options["secure_port"]
    if port is None:
        return None
    cert, key = options["tls_cert_file"], options["tls_private_key_file"]
    if (cert is None) != (key is None):
        raise click.UsageError("want both --tls-cert-file and --tls-private-key-file, or neither")
    if unknown := [name for name in options["tls_cipher_suites"] if name not in CIPHERS]:
        raise click.UsageError(f"--tls-cipher-suites: no suite `{unknown[0]}`")
    host: str = options["bind_address"]
    return SecureSettings(
        host=host,
        port=port,
        shares_port=options["permit_port_sharing"],
        tls=TlsSettings(
            cert_file=cert,
            key_file=key,
            cert_dir=options["cert_dir"],
            min_version=options["tls_min_version"] or "VersionTLS12",
            ciphers=options["tls_cipher_suites"],
            named=options["tls_sni_cert_key"],
            hosts=() if ipaddress.ip_address(host).is_unspecified else (host,),
        ),
        trust=TrustSettings(
            client_ca_file=options["client_ca_file"] if client_ca else None,
            proxy_ca_file=options["requestheader_client_ca_file"],
            headers=ProxyHeaders(
                username=options["requestheader_username_headers"],
                uid=options["requestheader_uid_headers"],
                group=options["requestheader_group_headers"],
                extra_prefixes=options["requestheader_extra_headers_prefix"],
                allowed_names=options["requestheader_allowed_names"],
            ),
            skips_lookup=options["authentication_skip_lookup"],
            tolerates_failure=options["authentication_tolerate_lookup_failure"],
        ),
        token_seconds=options["authentication_token_webhook_cache_ttl"],
        allowed_seconds=options["authorization_webhook_cache_authorized_ttl"],
        denied_seconds=options["authorization_webhook_cache_unauthorized_ttl"],
        open_paths=options["authorization_always_allow_paths"],
    )


async def chosen_reviewers(options: dict[str, Any], own: ApiClient | None) -> ReviewClients:
    """Who knows callers, as the flags say, else *own*. Raises `KubeConfigError`.

    The caller closes those that are not *own*.
    """
    clients: dict[str, ApiClient | None] = {}
    try:
        for about in ("authentication", "authorization"):
            file: Path | None = options[f"{about}_kubeconfig"]
            clients[about] = own if file is None else await ApiClient.from_kubeconfig(file)
    except BaseException:
        for client in clients.values():
            if client is not None and client is not own:
                await client.close()
        raise
    return ReviewClients(**clients)
