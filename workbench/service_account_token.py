"""Short-lived tokens of a ServiceAccount, asked of the API server (TokenRequest).

Owns when the next one is asked for. A token is kept in memory, and in no message.
"""

import asyncio
from typing import Final

import msgspec

from engine.io.kube.client import ApiClient
from engine.io.kube.errors import ServerError
from engine.io.kube.resources import SERVICE_ACCOUNTS
from engine.lib.deep_json import UNREADABLE

#: The shortest life that the API server gives.
_SECONDS: Final = 600
#: The part of its life after which a token is replaced: as kubelets do.
_USED: Final = 0.8


class _Spec(msgspec.Struct, rename="camel"):
    expiration_seconds: int = _SECONDS


class _Status(msgspec.Struct):
    token: str


class _TokenRequest(msgspec.Struct):
    status: _Status
    spec: _Spec = msgspec.field(default_factory=_Spec)


class ServiceAccountToken:
    """The `Authorization` header of a ServiceAccount.

    The token is for the API server's own audience: the scheduler has it reviewed there, and names
    no other.

    Args:
        client: The API server; its user needs the right to create `serviceaccounts/token`.
        namespace, name: The ServiceAccount.
        seconds: The life of a token; the API server may give another one.
    """

    def __init__(
        self, client: ApiClient, namespace: str, name: str, seconds: int = _SECONDS
    ) -> None:
        self._client = client
        self._namespace, self._name = namespace, name
        self._seconds = seconds
        self._header = ""
        self._until = 0.0
        self._lock = asyncio.Lock()

    async def authorization(self, *, rejected: str | None = None) -> str:
        """The header's value; with *rejected*, another one than that. Raises `ApiError`."""
        async with self._lock:
            is_over = self._client.clock.monotonic() >= self._until
            if not self._header or is_over or rejected == self._header:
                await self._ask()
            return self._header

    async def _ask(self) -> None:
        asked_at = self._client.clock.monotonic()
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": self._seconds},
        }
        answer = await self._client.create(
            SERVICE_ACCOUNTS,
            msgspec.json.encode(body),
            self._namespace,
            name=self._name,
            subresource="token",
        )
        try:
            made = msgspec.json.decode(answer, type=_TokenRequest)
        except UNREADABLE:
            # Not `from error`: what could not be read may have a token in it.
            raise ServerError("want a TokenRequest, got something else") from None
        self._header = f"Bearer {made.status.token}"
        self._until = asked_at + _USED * made.spec.expiration_seconds
