"""Which minor version of kube-scheduler is answered like: that of the API server.

Owns asking the API server, when, and what is said of the outcome. What differs between versions is
`core.framework.behaviors`'.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Final

import structlog

from engine.core.caching.objects import ObjectStore
from engine.core.framework.behaviors import (
    NEWEST,
    NO_GATES,
    OLDEST,
    RELEASED,
    behaviors_of,
    minor_of,
)
from engine.core.kernel.events import Event, VersionChanged
from engine.io.kube.client import ApiClient
from engine.io.kube.errors import ApiError
from engine.io.watching.informer import Informer
from engine.lib.background import cancelled

log = structlog.get_logger(component="emulation")

#: Of the request for the version, in seconds: a start does not wait longer for it.
_PATIENCE: Final = 5.0


class Emulation:
    """Follows the version of the API server, unless it is given what is answered like.

    Args:
        client: The API server.
        objects: The store whose `behaves` is decided by.
        report: Takes another version, as an event.
        given: The minor version that is answered like in any case; None: the API server's.
        gates: kube-scheduler's feature gates that are on, of `behaviors.GATES`.
        show: Takes what is answered like, as `1.38`, with the gates that are on.
    """

    def __init__(
        self,
        client: ApiClient,
        objects: ObjectStore,
        report: Callable[[Event], None],
        *,
        given: int | None = None,
        gates: frozenset[str] = NO_GATES,
        show: Callable[[str, Collection[str]], None] = lambda emulated, gates: None,
    ) -> None:
        self._client = client
        self._objects = objects
        self._show = show
        self._report = report
        self._is_given = given is not None
        self._gates = gates
        self._server = ""
        self._watches = -1  # opened when the server was asked last
        self._asking: asyncio.Task[None] | None = None
        self._problem = ""
        objects.behaves = behaviors_of(RELEASED if given is None else given, self._gates)
        self._show(self.version, objects.behaves.gates)

    @property
    def version(self) -> str:
        """What is answered like, as `1.38`."""
        return f"1.{self._objects.behaves.minor}"

    def describe(self) -> dict[str, Any]:
        """What is answered like, and what the API server says it is, for `/policies`."""
        return {"emulated": self.version, "server": self._server, "is_given": self._is_given}

    async def ask(self) -> None:
        """Ask the API server for its version, and answer like it from then on.

        One that does not say it changes nothing.
        """
        if self._is_given:
            return
        try:
            said = await self._client.server_version(timeout=_PATIENCE)
        except ApiError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                log.warning("Cannot read the version", emulated=self.version, reason=self._problem)
            self._watches = -1  # the next second, again
            return
        self._problem = ""
        if said != self._server:
            self._server = said
            self._follow(said)

    def follow(self, informer: Informer[Any]) -> None:
        """Ask again if *informer* has opened a watch since: another API server may have answered.

        A control plane is upgraded while its clients stay; they notice by their connections alone.
        """
        watches = informer.counts.watches
        is_asking = self._asking is not None and not self._asking.done()
        if self._is_given or is_asking or watches == self._watches:
            return
        self._watches = watches
        self._asking = asyncio.ensure_future(self.ask())

    async def close(self) -> None:
        """End what is under way."""
        await cancelled([self._asking] if self._asking is not None else [])

    def _follow(self, said: str) -> None:
        minor = minor_of(said)
        if minor is None:
            log.warning("Not a version of Kubernetes", server=said, emulated=self.version)
            return
        self._report(VersionChanged(minor, self._gates))
        self._show(self.version, self._objects.behaves.gates)
        say = log.info if OLDEST <= minor <= NEWEST else log.warning
        say("Answering like this version of Kubernetes", server=said, emulated=self.version)
