"""Who sends a request, and what may be shown to it.

A caller is asked about namespaces, never about its groups: rules are the API server's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

ANONYMOUS_NAME: Final = "system:anonymous"
_UNAUTHENTICATED: Final = "system:unauthenticated"
AUTHENTICATED: Final = "system:authenticated"


@dataclass(frozen=True, slots=True)
class User:
    """A user as the API server describes one; `extra` is sorted, so that equal users are equal."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def authenticated(self) -> "User":
        """The same user as a member of the group of all that proved who they are."""
        if AUTHENTICATED in self.groups:
            return self
        return User(self.name, self.uid, (*self.groups, AUTHENTICATED), self.extra)


#: A request without credentials.
ANONYMOUS: Final = User(ANONYMOUS_NAME, groups=(_UNAUTHENTICATED,))

#: Whether pods of a namespace may be listed; "" stands for all namespaces.
MayRead = Callable[[str], Awaitable[bool]]


class Caller:
    """The sender of a request.

    Args:
        user: Who it is; None on the local listener, which does not ask.
        may_read: Whether it may list the pods of a namespace.
    """

    def __init__(self, user: User | None, may_read: MayRead) -> None:
        self.user = user
        self._may_read = may_read

    @property
    def is_local(self) -> bool:
        """True if the request came by the local listener, which shows everything."""
        return self.user is None

    async def may_read(self, namespace: str) -> bool:
        """True if rows of *namespace* may be shown: the caller may list pods there."""
        return await self._may_read("") or await self._may_read(namespace)

    async def readable(self, namespaces: Iterable[str]) -> frozenset[str]:
        """Those of *namespaces* whose rows may be shown. One question if the caller reads all."""
        wanted = sorted(set(namespaces))
        if await self._may_read(""):
            return frozenset(wanted)
        answers = await asyncio.gather(*map(self._may_read, wanted))
        return frozenset(name for name, may in zip(wanted, answers, strict=True) if may)


async def _everything(_namespace: str) -> bool:
    return True


#: The caller of the local listener.
LOCAL: Final = Caller(None, _everything)
