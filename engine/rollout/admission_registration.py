"""How the API server comes to ask this replica: its certificate, and the key of the address.

Owns what is written to the one ValidatingWebhookConfiguration that a flag names. Every replica adds
its certificate to those that are there, and the first one makes the key, so that replicas share
nothing else: no Secret, no file. What is asked, and what is answered, is `admission_webhook`'s.
"""

import asyncio
import base64
import binascii
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
import structlog

from engine.io.kube.client import ApiClient
from engine.io.kube.errors import ApiError, Conflict
from engine.io.kube.resources import WEBHOOKS
from engine.lib.deep_json import UNREADABLE

log = structlog.get_logger(component="admission")

#: Seconds until it is looked whether the object still has what this replica wrote, and after a
#: failure.
_SECONDS: Final = 30.0
_AGAIN_SECONDS: Final = 5.0
_LOST_SECONDS: Final = 0.5
#: Certificates in the object. Those of replicas that are gone prove nothing any more, and which
#: these are is not known: the newest stay, and a replica that misses its own adds it again.
MOST_CERTIFICATES: Final = 16
_PATH: Final = "/admission/"
_KEYED: Final = re.compile(rf"{_PATH}([a-z0-9]{{16,63}})")
_PEM: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL | re.ASCII
)


class _Service(msgspec.Struct, frozen=True):
    path: str = ""


class _Client(msgspec.Struct, frozen=True, rename="camel"):
    service: _Service | None = None
    ca_bundle: str = ""


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    client_config: _Client = _Client()


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Configuration(msgspec.Struct, frozen=True):
    metadata: _Metadata
    webhooks: list[_Webhook] = []


_read = msgspec.json.Decoder(_Configuration).decode


class Registration:
    """Keeps this replica in the ValidatingWebhookConfiguration of a name.

    Args:
        client: The API server.
        name: Of the object; it is never made here.
        certificate: What this replica shows now, as PEM; "" before it listens.
        key: What the API server proves itself by; "": what the object has, or what the first
            replica makes that finds none in it.
        sleep: Waits.

    Attributes:
        key: As it is known by now; "" before.
    """

    def __init__(
        self,
        client: ApiClient,
        name: str,
        certificate: Callable[[], str],
        *,
        key: str = "",
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._name = name
        self._certificate = certificate
        self._given = key
        self._sleep = sleep
        self._complaint = ""
        self.key = key

    async def run(self) -> None:
        """Add what is missing, now and whenever it was taken away."""
        while True:
            try:
                await self.ensure()
            except Conflict:
                await self._sleep(_LOST_SECONDS)  # another replica was faster
            except (ApiError, *UNREADABLE) as error:
                self._complain(str(error))
                await self._sleep(_AGAIN_SECONDS)
            else:
                self._complaint = ""
                await self._sleep(_SECONDS)

    def _complain(self, reason: str) -> None:
        """Once for each reason: until then the API server asks no replica, or not this one."""
        if reason != self._complaint:
            self._complaint = reason
            text = "This replica cannot be registered for edits of the policies"
            log.error(text, webhook=self._name, reason=reason)

    async def ensure(self) -> None:
        """Add what is missing. Raises `ApiError`, and what decoding raises."""
        found = _read(await self._client.get(WEBHOOKS, self._name))
        paths = [hook.client_config.service for hook in found.webhooks]
        if not self._given:
            keys = [_KEYED.fullmatch(service.path) for service in paths if service is not None]
            self.key = next((key[1] for key in keys if key), "") or secrets.token_hex(20)
        changes = [
            {"name": hook.name, "clientConfig": change}
            for hook in found.webhooks
            if (change := self._change(hook.client_config))
        ]
        if changes:
            version = {"resourceVersion": found.metadata.resource_version}
            body = msgspec.json.encode({"metadata": version, "webhooks": changes})
            await self._client.patch(WEBHOOKS, self._name, body)
            log.info("Registered for edits of the policies", webhook=self._name)

    def _change(self, config: _Client) -> dict[str, Any]:
        """What *config* lacks."""
        change: dict[str, Any] = {}
        bundle = with_certificate(config.ca_bundle, self._certificate())
        if bundle != config.ca_bundle:
            change["caBundle"] = bundle
        path = f"{_PATH}{self.key}"
        if config.service is not None and config.service.path != path:
            change["service"] = {"path": path}
        return change


def with_certificate(bundle: str, certificate: str) -> str:
    """The `caBundle` *bundle* with *certificate* (PEM) in it, in base64.

    Of the others the newest stay; text that is no certificate goes.
    """
    try:
        held = _PEM.findall(base64.b64decode(bundle, validate=True).decode("ascii", "replace"))
    except binascii.Error:
        held = []
    ours: Sequence[str] = _PEM.findall(certificate)
    if not ours or ours[0] in held:
        return bundle
    kept = "\n".join([*held, ours[0]][-MOST_CERTIFICATES:]) + "\n"
    return base64.b64encode(kept.encode()).decode()
