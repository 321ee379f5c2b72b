"""Binds a pod to a node through the API server, and makes sure of the outcome.

Owns one thing: after `Binder.bind` returns the pod is on that node, and after it raises the pod is
not on that node through us. "Exactly once" rests on four properties:

- The API server refuses to bind a pod that has a node, so of any number of requests for a pod at
  most one takes effect. Requests may therefore be repeated.
- Each request carries the pod's uid. A pod that was deleted and made again under the same name is
  another pod, and a late request cannot bind it.
- All requests of one call name the same node. If an earlier one, whose answer was lost, takes
  effect after all, the next one gets a conflict and a read shows the pod on that very node.
- An inconclusive answer (a broken connection, a time-out, a server error) is never taken for
  a refusal: the pod is read until the API server has answered, and until then the node's resources
  stay assumed. Only a pod that was read as unbound is given up.

What remains is a request that reaches the API server after the read that gave up on it. Then the
pod is bound, the watch shows it, and the cache counts it there like a pod that was bound by another
scheduler; it is not bound twice.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec
import structlog

from engine.core.model.pod import Pod
from engine.io.kube.client import ApiClient
from engine.io.kube.errors import ApiError, Conflict, NotFound, Unauthorized
from engine.io.kube.resources import PODS
from engine.lib.clock import Clock
from engine.lib.deep_json import UNREADABLE
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="binder")

REQUEST_TIMEOUT: Final = 10.0
#: A write other than a binding is tried this often if it may succeed a little later.
MOST_TRIES: Final = 5
#: For how long a binding without effect is repeated before the pod goes back to the queue: longer
#: than a rolling restart of one API server takes, shorter than a person would wait.
GIVE_UP_AFTER: Final = 30.0
# The first waits are those of kube-scheduler, which tries four times.
_FIRST_WAIT: Final = 0.01
_FACTOR: Final = 5.0
_JITTER: Final = 0.1
_LONGEST_WAIT: Final = 5.0

Sleep = Callable[[float], Awaitable[None]]
Read = TypeVar("Read")


class BindingError(Exception):
    """The pod was not bound to the node that was chosen for it."""

    @property
    def cause(self) -> str:
        """The word for it in metrics."""
        return type(self).__name__


class PodIsGone(BindingError):
    """The pod was deleted, is being deleted, or another pod has taken its name."""


class BoundElsewhere(BindingError):
    """The pod is bound to another node, not by this scheduler's decision."""

    def __init__(self, message: str, node: str) -> None:
        super().__init__(message)
        self.node = node


class BindingRefused(BindingError):
    """The API server rejects the binding, or must not be called; the pod was read as unbound."""

    @property
    def cause(self) -> str:
        """The kind of the server's answer, if there is one."""
        return type(self.__cause__ or self).__name__


class _Metadata(msgspec.Struct, rename="camel", frozen=True):
    uid: str = ""
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct, rename="camel", frozen=True):
    node_name: str | None = None


class _PodState(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


_decode_state = msgspec.json.Decoder(_PodState).decode


class Backoff:
    """Delays between tries of a request: 10 ms, 50 ms, ... up to 5 s, and up to a tenth of each."""

    __slots__ = ("_random", "_wait")

    def __init__(self, rng: random.Random) -> None:
        self._random = rng
        self._wait = _FIRST_WAIT

    def next(self, retry_after: float | None = None) -> float:
        """Seconds to wait before the next try; at least the server's Retry-After."""
        wait = self._wait
        self._wait = min(_LONGEST_WAIT, wait * _FACTOR)
        return (retry_after or 0.0) + wait * (1.0 + _JITTER * self._random.random())


def always_allowed() -> bool:
    """The default of `may_act`: no other replica can lead."""
    return True


class Binder:
    """Binds pods, each exactly once.

    Args:
        client: The API server.
        clock: Measures how long a binding has been tried.
        metrics: Counts retries.
        sleep: Waits between tries.
        rng: Jitter of the waits.
        may_act: False when another replica may be leading: then no binding is sent.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        clock: Clock,
        metrics: Metrics,
        sleep: Sleep = asyncio.sleep,
        rng: random.Random | None = None,
        may_act: Callable[[], bool] = always_allowed,
    ) -> None:
        self._client = client
        self._clock = clock
        self._metrics = metrics
        self._sleep = sleep
        self._rng = rng or client.rng
        self._may_act = may_act

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Put *pod* on *node_name*; on return it is there.

        Raises:
            PodIsGone: There is no such pod any more.
            BoundElsewhere: It is on another node.
            BindingRefused: The API server refuses for good, or for too long; or the lease may have
                run out, and the next leader may have used the node's resources otherwise.

        While the outcome is unknown and cannot be read, this waits rather than raises: giving up
        would free the node's resources under a pod that may be there.
        """
        await self.finish(pod, node_name, None)

    def send(self, pod: Pod, node_name: str) -> "asyncio.Future[bytes] | None":
        """Send the first request of `bind` at once, without a task; None if that cannot be done.

        If the future has a result, *pod* is on *node_name*. An exception is inconclusive:
        pass the future to `finish`, which finds out.
        """
        # The decision, too, may have outlasted the lease.
        if not self._may_act():
            return None
        return self._client.bind_now(
            pod.namespace,
            pod.name,
            pod.uid,
            node_name,
            annotations=pod.added_annotations,
            timeout=REQUEST_TIMEOUT,
        )

    async def finish(self, pod: Pod, node_name: str, sent: "asyncio.Future[bytes] | None") -> None:
        """Finish a `bind` whose first request may have been *sent* already (None: it was not)."""
        started = self._clock.monotonic()
        backoff: Backoff | None = None
        while True:
            # Checked before each request: preparing a volume, or a wait, may outlast the lease.
            if sent is None:
                self.check_may_act()
            try:
                first, sent = sent, None
                await self._request(pod, node_name, first)
                return
            except NotFound as error:
                raise PodIsGone(f"pod `{pod.key}` is gone: {error.message}") from error
            except Conflict as error:
                # The pod has a node, perhaps by an earlier request; or it is not what it was.
                if await self.is_bound(pod, node_name):
                    return
                raise BindingRefused(str(error)) from error
            except ApiError as error:
                failure = error
                if not error.may_pass:
                    raise BindingRefused(str(error)) from error
                if error.may_have_taken_effect and await self.is_bound(pod, node_name):
                    return
            # Here the pod is known to be unbound.
            if self._clock.monotonic() - started >= GIVE_UP_AFTER:
                raise BindingRefused(f"gave up: {failure}") from failure
            if backoff is None:
                backoff = Backoff(self._rng)
            self._metrics.binding_retries.labels(type(failure).__name__).inc()
            log.debug("Binding again", pod=pod.key, node=node_name, reason=str(failure))
            await self._sleep(backoff.next(failure.retry_after))

    def check_may_act(self) -> None:
        """Raise `BindingRefused` if another replica may be leading by now."""
        if not self._may_act():
            raise BindingRefused("the lease may have run out")

    async def _request(
        self, pod: Pod, node_name: str, sent: "asyncio.Future[bytes] | None"
    ) -> None:
        if sent is not None:
            try:
                await sent
                return
            except Unauthorized:
                pass  # nothing was carried out; what follows renews the credential
        await self._client.bind(
            pod.namespace,
            pod.name,
            pod.uid,
            node_name,
            annotations=pod.added_annotations,
            timeout=REQUEST_TIMEOUT,
        )

    async def is_bound(self, pod: Pod, node_name: str) -> bool:
        """True if *pod* is on *node_name*, False if on none; asks until it knows.

        Raises `PodIsGone` or `BoundElsewhere` when that is the answer.
        """

        async def read() -> _PodState:
            raw = await self._client.get(PODS, pod.name, pod.namespace, timeout=REQUEST_TIMEOUT)
            return _decode_state(raw)

        try:
            state = await until_answered(
                read,
                Backoff(self._rng),
                self._sleep,
                lambda: self._metrics.binding_retries.labels("unknown_outcome").inc(),
                pod=pod.key,
                node=node_name,
            )
        except NotFound as error:
            raise PodIsGone(f"pod `{pod.key}` is gone: {error.message}") from error
        if state.metadata.uid != pod.uid:
            raise PodIsGone(
                f"pod `{pod.key}` was replaced: want uid `{pod.uid}`, got `{state.metadata.uid}`"
            )
        if state.spec.node_name == node_name:
            return True
        if state.spec.node_name:
            raise BoundElsewhere(
                f"pod `{pod.key}` is on node `{state.spec.node_name}`, want `{node_name}`",
                state.spec.node_name,
            )
        if state.metadata.deletion_timestamp is not None:
            raise PodIsGone(f"pod `{pod.key}` is being deleted")
        return False


async def until_answered(
    read: Callable[[], Awaitable[Read]],
    backoff: Backoff,
    sleep: Sleep,
    asked_again: Callable[[], object] = lambda: None,
    **about: object,
) -> Read:
    """What *read* returns, asked until it does; raises `NotFound` alone.

    For a write of unknown outcome: what it would have taken stays taken meanwhile. *asked_again* is
    called before each repetition, and *about* says in the log what was written.
    """
    write = log.warning
    while True:
        try:
            return await read()
        except NotFound:
            raise
        except (ApiError, *UNREADABLE) as error:
            asked_again()
            write("Outcome of a write is unknown; asking again", **about, reason=str(error))
            write = log.debug  # once; a server may be away for hours
            await sleep(backoff.next(getattr(error, "retry_after", None)))
