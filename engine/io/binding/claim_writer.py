"""Writes device claims: allocations, the pods that may use them, and what is released again.

Owns the requests and what a lost answer or a changed claim means for them. Every write carries the
uid of the claim, and the version that the decision went by where the decision depends on it: a
claim that changed is read again, and only what can still be done is done.
"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog

from engine.core.caching.cache import Cache
from engine.core.model.claim_decoding import decode_claim
from engine.core.model.devices import (
    CLAIM_FINALIZER,
    AllocationResult,
    ConsumerReference,
    ResourceClaim,
)
from engine.core.model.pod import Pod
from engine.core.scheduling.placement import PreBindError
from engine.io.binding.binder import Backoff, always_allowed, until_answered
from engine.io.binding.event_recorder import NORMAL, EventRecorder, Occurrence, pod_reference
from engine.io.binding.waiting import waiting_for_others, why_in_vain
from engine.io.kube.client import MERGE_PATCH, ApiClient
from engine.io.kube.errors import ApiError, Conflict, Invalid, NotFound
from engine.io.kube.resources import PODS, RESOURCE_CLAIMS
from engine.lib.clock import Clock
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="claim_writer")

REQUEST_TIMEOUT: Final = 10.0
MOST_TRIES: Final = 6
#: Seconds after which a wait looks again although no claim has changed: time passes too, and
#: nodes and pods go.
POLL_SECONDS: Final = 1.0

Json = dict[str, Any]


@dataclass(slots=True)
class _Turn:
    """The pods that reserve one claim now, and the claim as the last of them has left it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    pods: int = 0
    newest: ResourceClaim | None = None


class DeviceClaimWriter:
    """Writes claims of `resource.k8s.io/v1`.

    Args:
        client: The API server.
        cache: What the watches have brought: a wait looks again when a claim changes.
        clock: Dates allocations and measures waits.
        metrics: Count the claims that are created.
        recorder: Writes events of pods that wait for devices; None writes none.
        may_act: False when another replica may be leading: a pod is given no devices then, and
            nothing is taken back from it.
    """

    def __init__(
        self,
        client: ApiClient,
        cache: Cache,
        *,
        clock: Clock,
        metrics: Metrics,
        recorder: EventRecorder | None = None,
        may_act: Callable[[], bool] = always_allowed,
    ) -> None:
        self._client = client
        self._cache = cache
        self._clock = clock
        self._created = {r: metrics.claims_created(r) for r in ("success", "failure")}
        self._recorder = recorder
        self._may_act = may_act
        self._rng = client.rng
        self._tasks: set[asyncio.Task[Any]] = set()
        # By the uids of the claim and of the pod: those of the tasks that take a reservation back.
        # Without a pod: those that take the whole allocation.
        self._takings: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self._turns: dict[str, _Turn] = {}  # by the claim's uid

    # --- for a pod that has a node -----------------------------------------------------------

    async def create(self, claim: ResourceClaim) -> ResourceClaim:
        """Make a claim of a generated name; returns it as stored. Raises `PreBindError`.

        Not repeated when its answer is lost: a second claim would be made. The first belongs to
        the pod, so the next attempt finds it and deletes it.
        """
        meta = claim.metadata
        body = {
            "apiVersion": RESOURCE_CLAIMS.api_version,
            "kind": RESOURCE_CLAIMS.kind,
            "metadata": {
                "generateName": meta.generate_name,
                "namespace": meta.namespace,
                "annotations": meta.annotations,
                # It is allocated next, and would get it in a request of its own.
                "finalizers": [CLAIM_FINALIZER],
                "ownerReferences": _plain(meta.owner_references),
            },
            "spec": _plain(claim.spec),
        }
        try:
            raw = await self._client.create(
                RESOURCE_CLAIMS, msgspec.json.encode(body), meta.namespace, timeout=REQUEST_TIMEOUT
            )
        except ApiError as error:
            self._created["failure"].inc()
            raise PreBindError(f"create claim for extended resources: {_text(error)}") from error
        self._created["success"].inc()
        return decode_claim(raw)

    async def reserve(
        self,
        pod: Pod,
        claim: ResourceClaim,
        allocation: AllocationResult | None,
        is_held: Callable[[], bool] = always_allowed,
        group: ConsumerReference | None = None,
    ) -> ResourceClaim:
        """Let *pod* use *claim*, and give the claim *allocation* if it has none.

        The user is the pod's PodGroup, if *group* is given: then nothing takes its use back while
        the group has pods, and one that is there already is good for every further pod.

        *is_held* says whether its devices are still free for this claim: after another pod of the
        claim has written it, it may have been deallocated, and they may be another claim's.
        Returns the claim as stored. Raises `PreBindError` if another scheduler has decided
        otherwise meanwhile, or if the API server refuses. While it is unknown whether the
        allocation was written, this waits rather than raises: giving up would free its devices.
        """
        keys = (claim.metadata.uid, pod.uid), (claim.metadata.uid, "")
        takings = [self._takings[key] for key in keys if key in self._takings]
        if takings:
            await asyncio.wait(takings)  # they would take this reservation
        # One that is there already may have been taken back since, or be another scheduler's.
        may_be_old = bool(takings) or claim.is_reserved_for(pod.uid)
        user = group or ConsumerReference(resource="pods", name=pod.name, uid=pod.uid)
        backoff = Backoff(self._rng)
        doing = f"add reservation to claim {claim.key}"
        if allocation is not None:
            doing = f"add allocation and reservation to claim {claim.key}"
        async with self._turn_of(claim) as turn:
            read = self._read
            for tries in range(1, MOST_TRIES + 1):
                try:
                    if tries > 1 or may_be_old:
                        turn.newest = await read(claim)
                    newest = turn.newest or claim
                    turn.newest = await self._reserve_once(user, claim, newest, allocation, is_held)
                    return turn.newest
                except ApiError as error:
                    failure = error
                is_unknown = failure.may_have_taken_effect
                read = self._read_until_answered if is_unknown else self._read
                # After a conflict or a lost answer the claim shows what is left to do.
                if not isinstance(failure, Conflict) and not failure.may_pass:
                    break
                if tries < MOST_TRIES:
                    log.debug("Writing a claim again", claim=claim.key, reason=str(failure))
                    await asyncio.sleep(backoff.next(failure.retry_after))
            if is_unknown:
                with contextlib.suppress(NotFound):
                    turn.newest = await read(claim)
                    if turn.newest.is_reserved_for(user.uid):
                        return turn.newest
            raise PreBindError(f"{doing}: {_text(failure)}") from failure

    @contextlib.asynccontextmanager
    async def _turn_of(self, claim: ResourceClaim) -> AsyncIterator["_Turn"]:
        """Pods that share *claim* reserve it one after the other.

        At once, all but one would be refused, read the claim, and write again.
        """
        uid = claim.metadata.uid
        turn = self._turns.setdefault(uid, _Turn())
        turn.pods += 1
        try:
            async with turn.lock:
                yield turn
        finally:
            turn.pods -= 1
            if not turn.pods:
                del self._turns[uid]

    async def _reserve_once(
        self,
        user: ConsumerReference,
        decided: ResourceClaim,
        claim: ResourceClaim,
        allocation: AllocationResult | None,
        is_held: Callable[[], bool],
    ) -> ResourceClaim:
        if claim.metadata.uid != decided.metadata.uid:
            raise PreBindError(f"claim {claim.key} was replaced in the meantime")
        if claim.metadata.deletion_timestamp is not None:
            raise PreBindError(f"claim {claim.key} got deleted in the meantime")
        chosen = allocation or decided.allocation
        if claim.allocation is None and (allocation is None or not is_held()):
            raise PreBindError(f"claim {claim.key} got deallocated elsewhere in the meantime")
        status: Json = {}
        if allocation is not None and claim.allocation is None:
            if CLAIM_FINALIZER not in claim.metadata.finalizers:
                claim = await self._protect(claim)
            status["allocation"] = _plain(allocation)
            status["allocation"]["allocationTimestamp"] = self._now()
        elif chosen is not None and not chosen.is_same(claim.allocation):
            raise PreBindError(f"claim {claim.key} got allocated elsewhere in the meantime")
        if claim.is_reserved_for(user.uid):
            return claim  # from an earlier attempt, or the answer to this one was lost
        self._check_may_act()  # what the decision went by may have gone meanwhile
        status["reservedFor"] = [_plain(c) for c in (*claim.status.reserved_for, user)]
        return await self._patch(claim, {"status": status}, "status")

    def _check_may_act(self) -> None:
        """Raise `PreBindError` if another replica may lead and hand the devices out."""
        if not self._may_act():
            raise PreBindError("the lease may have run out")

    async def _protect(self, claim: ResourceClaim) -> ResourceClaim:
        """Keep the claim from being deleted while it is allocated."""
        finalizers = [*claim.metadata.finalizers, CLAIM_FINALIZER]
        try:
            return await self._patch(claim, {"metadata": {"finalizers": finalizers}})
        except Invalid as error:
            # Parameters that were stored with spaces between them come back without, which the
            # API server takes for a change of the specification.
            raise PreBindError(f"add finalizer to claim {claim.key}: {_text(error)}") from error

    async def write_extended_resource_status(
        self, pod: Pod, claim: ResourceClaim, mappings: Sequence[dict[str, str]]
    ) -> None:
        """Write into the pod's status which claim serves its extended resources."""
        served = {"resourceClaimName": claim.metadata.name, "requestMappings": list(mappings)}
        body = {
            "metadata": {"uid": pod.uid},
            "status": {"extendedResourceClaimStatus": served},
        }
        send = functools.partial(
            self._client.patch,
            PODS,
            pod.name,
            msgspec.json.encode(body),
            pod.namespace,
            subresource="status",
            timeout=REQUEST_TIMEOUT,
        )
        try:
            await self._repeat(send)
        except ApiError as error:
            raise PreBindError(
                f"update pod {pod.key} ExtendedResourceClaimStatus: {_text(error)}"
            ) from error

    async def wait(
        self, pod: Pod, node_name: str, is_met: Callable[[], bool], seconds: float
    ) -> bool:
        """Ask *is_met* whenever a claim changes; False if it took more than *seconds*.

        What *is_met* raises is raised, and `PreBindError` if the node is gone, to which the API
        server would bind the pod all the same, or the pod.
        """
        if is_met():
            return True
        if self._recorder is not None:
            self._recorder.record(
                pod_reference(pod),
                Occurrence(
                    kind=NORMAL,
                    reason="BindingConditionsPending",
                    action="Scheduling",
                    note=f"waiting for binding conditions for device on node {node_name}",
                    controller=pod.scheduler_name,
                ),
            )
        changed = asyncio.Event()
        end = self._cache.objects.listen(RESOURCE_CLAIMS.plural, lambda *_: changed.set())
        deadline = self._clock.monotonic() + seconds
        try:
            while True:
                changed.clear()
                info = self._cache.node_info(node_name)
                if info is None or info.node is None:
                    raise PreBindError(f'node "{node_name}" not found')
                if (reason := why_in_vain(self._cache, pod)) is not None:
                    raise PreBindError(reason)
                if is_met():
                    return True
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    return False
                try:
                    with waiting_for_others():
                        async with asyncio.timeout(min(left, POLL_SECONDS)):
                            await changed.wait()
                except TimeoutError:
                    continue
        finally:
            end()

    # --- taking back -------------------------------------------------------------------------

    async def deallocate(self, claim: ResourceClaim) -> None:
        """Take the allocation out of a claim that no pod uses; if that fails, the next try may."""
        nothing: Json = {"allocation": None, "reservedFor": None, "devices": None}
        await self._take(
            (claim.metadata.uid, ""),
            lambda: self._try(
                claim,
                "Cannot deallocate a claim",
                self._patch(claim, {"status": nothing}, "status"),
            ),
        )

    async def delete(
        self, claim: ResourceClaim, deleted: Callable[[], object] = lambda: None
    ) -> None:
        """Delete a claim that a scheduler made; if that fails, the next try may.

        *deleted* is called once it is: its devices are its own until then.
        """
        if await self._try(claim, "Cannot delete a claim", self._delete(claim)):
            deleted()

    def start_release(self, pod: Pod, claim: ResourceClaim) -> None:
        """Take *pod* out of the users of *claim*, without waiting for it."""
        self._take(
            (claim.metadata.uid, pod.uid),
            lambda: self._try(claim, "Cannot release a claim", self._release(pod, claim)),
        )

    def start_delete(self, claim: ResourceClaim, deleted: Callable[[], object]) -> None:
        """`delete` without waiting for it."""
        self._start(self.delete(claim, deleted))

    async def drain(self) -> None:
        """Wait for what was started and not waited for."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _take(
        self, key: tuple[str, str], work: Callable[[], Coroutine[Any, Any, Any]]
    ) -> asyncio.Task[Any]:
        """Carry out *work* of `_takings`, if it is not under way already."""
        task = self._takings.get(key)
        if task is None or task.done():
            task = self._takings[key] = self._start(work())
            task.add_done_callback(functools.partial(self._taken, key))
        return task

    def _taken(self, key: tuple[str, str], task: asyncio.Task[Any]) -> None:
        if self._takings.get(key) is task:
            del self._takings[key]

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _try(
        self, claim: ResourceClaim, failure: str, work: Coroutine[Any, Any, Any]
    ) -> bool:
        """True if *work* is done."""
        try:
            await work
        except NotFound:
            pass  # gone, and what it held with it
        except ApiError as error:
            log.warning(failure, claim=claim.key, reason=_text(error))
            return False
        return True

    async def _release(self, pod: Pod, claim: ResourceClaim) -> None:
        # By uid, so that it needs no version of the claim and hits no other pod.
        body = {
            "metadata": {"uid": claim.metadata.uid},
            "status": {"reservedFor": [{"$patch": "delete", "uid": pod.uid}]},
        }
        send = functools.partial(
            self._client.patch,
            RESOURCE_CLAIMS,
            claim.metadata.name,
            msgspec.json.encode(body),
            claim.metadata.namespace,
            subresource="status",
            timeout=REQUEST_TIMEOUT,
        )

        async def send_unless_used() -> None:
            # It would remove the reservation that the next leader has made for the same pod.
            if self._may_act() and not self._is_placed(pod):
                await send()

        await self._repeat(send_unless_used)

    def _is_placed(self, pod: Pod) -> bool:
        """Whether the watch has shown *pod* on a node."""
        return self._cache.get_pod(pod.uid) is not None and not self._cache.is_assumed(pod.uid)

    async def _delete(self, claim: ResourceClaim) -> None:
        newest = await self._read(claim)
        if newest.metadata.uid != claim.metadata.uid:
            return
        if CLAIM_FINALIZER in newest.metadata.finalizers:
            left = [f for f in newest.metadata.finalizers if f != CLAIM_FINALIZER]
            newest = await self._patch(newest, {"metadata": {"finalizers": left}})
        if newest.metadata.deletion_timestamp is not None:
            return
        body = {"preconditions": {"uid": claim.metadata.uid}}
        await self._client.delete(
            RESOURCE_CLAIMS,
            claim.metadata.name,
            claim.metadata.namespace,
            body=msgspec.json.encode(body),
            timeout=REQUEST_TIMEOUT,
        )

    # --- requests ----------------------------------------------------------------------------

    async def _read_until_answered(self, claim: ResourceClaim) -> ResourceClaim:
        return await until_answered(
            lambda: self._read(claim), Backoff(self._rng), asyncio.sleep, claim=claim.key
        )

    async def _read(self, claim: ResourceClaim) -> ResourceClaim:
        meta = claim.metadata
        raw = await self._client.get(
            RESOURCE_CLAIMS, meta.name, meta.namespace, timeout=REQUEST_TIMEOUT
        )
        return decode_claim(raw)

    async def _patch(
        self, claim: ResourceClaim, change: Json, subresource: str | None = None
    ) -> ResourceClaim:
        """Change *claim* if it is still the version that is known; returns it as stored."""
        meta = claim.metadata
        guarded = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = {**change, "metadata": {**guarded, **change.get("metadata", {})}}
        raw = await self._client.patch(
            RESOURCE_CLAIMS,
            meta.name,
            msgspec.json.encode(body),
            meta.namespace,
            subresource=subresource,
            content_type=MERGE_PATCH,
            timeout=REQUEST_TIMEOUT,
        )
        return decode_claim(raw)

    async def _repeat(self, send: Callable[[], Awaitable[object]]) -> None:
        """Send what may be sent twice, again if it may pass."""
        backoff = Backoff(self._rng)
        for tries in range(1, MOST_TRIES + 1):
            try:
                await send()
                return
            except ApiError as error:
                if not error.may_pass or tries == MOST_TRIES:
                    raise
                await asyncio.sleep(backoff.next(error.retry_after))

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _plain(record: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(record))


def _text(error: ApiError) -> str:
    return error.message or str(error)
