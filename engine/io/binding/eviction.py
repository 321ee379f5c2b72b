"""Evicts a victim of a preemption, once, however many preemptors need its node.

Owns what users see of it, and the requests to the API server. A victim that is not bound yet is
sent back to the queue in memory; others get a condition and are deleted with their own grace
period.
"""

import asyncio
import enum
import functools
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog

from engine.core.model.pod import Pod
from engine.io.binding.binder import MOST_TRIES, Backoff
from engine.io.binding.event_recorder import NORMAL, EventRecorder, Occurrence, pod_reference
from engine.io.kube.client import ApiClient
from engine.io.kube.errors import ApiError, Conflict, Invalid, NotFound
from engine.io.kube.resources import PODS
from engine.lib import printable
from engine.lib.clock import Clock
from engine.lib.deep_json import UNREADABLE

log = structlog.get_logger(component="eviction")

PREEMPTED_REASON: Final = "Preempted"
DISRUPTION_TARGET: Final = "DisruptionTarget"
PREEMPTION_BY_SCHEDULER: Final = "PreemptionByScheduler"

REQUEST_TIMEOUT: Final = 10.0
#: How long to wait for the watch to show what the API server has answered.
SEEN_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.01

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a pod is evicted.

    Attributes:
        preemptor: The pod that needs the node.
        node: Where.
        profile, revision: Of the decision.
        check: Raises if the preemption must not go on; called before every request.
        group: The PodGroup that needs the capacity, by its uid; "": the pod alone.
        given_back: Of victims, by uid, that go because their queue gives back, and not because they
            are less important: which queue to which, for people.
    """

    preemptor: Pod
    node: str
    profile: str
    revision: str
    check: Callable[[], None]
    group: str = ""
    given_back: Mapping[str, str] = field(default_factory=dict)


class Evicted(enum.Enum):
    """How a victim was evicted."""

    #: By a deletion, which the watch will show.
    BY_API = enum.auto()
    #: It was not bound yet and went back to the queue.
    IN_MEMORY = enum.auto()
    #: Not by this call.
    BY_OTHERS = enum.auto()


class _Eviction:
    """One victim on its way out: `under way --> ended`, and then it goes or it does not."""

    __slots__ = ("ended", "is_going")

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.is_going = False


class _Metadata(msgspec.Struct, frozen=True):
    uid: str = ""


class _PodState(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


_decode_state = msgspec.json.Decoder(_PodState).decode


class Evictor:
    """Evicts pods, each once.

    A victim, by uid: `stays --evict--> under way --> going`; `under way --failure--> stays`;
    `going --forget--> stays`, once the watch has shown it.

    Args:
        client: The API server.
        events: What users of the victims see.
        clock: Dates conditions.
        is_going: True if the watch has shown that the pod with a uid is terminating or gone.
        send_back: Sends the assumed, not yet bound pod with a uid back to the queue; False if there
            is none, or it is too late.
        sleep, rng: Wait between tries, and for how long.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        events: EventRecorder,
        clock: Clock,
        is_going: Callable[[str], bool],
        send_back: Callable[[str], bool],
        sleep: Sleep = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self._client = client
        self._events = events
        self._clock = clock
        self._is_going = is_going
        self._send_back = send_back
        self._sleep = sleep
        self._rng = rng or client.rng
        # Two preemptors on one node may both need the same pod to go: one eviction is enough.
        self._evictions: dict[str, _Eviction] = {}

    async def evict(self, victim: Pod, cause: Cause) -> Evicted:
        """Evict *victim*. On return it is terminating or gone, or back in the queue.

        `forget` it when the watch has shown that. Raises what `cause.check` raises, and `ApiError`
        if the API server refuses, or does not answer for too long.
        """
        while (known := self._evictions.get(victim.uid)) is not None:
            await known.ended.wait()
            if known.is_going:
                return Evicted.BY_OTHERS
        if self._is_going(victim.uid):
            return Evicted.BY_OTHERS  # since it was chosen
        eviction = self._evictions[victim.uid] = _Eviction()
        try:
            how = await self._evict(victim, cause)
            eviction.is_going = True
        finally:
            eviction.ended.set()
            if not eviction.is_going:
                del self._evictions[victim.uid]
        return how

    async def wait_until_seen(self, victims: Sequence[Pod]) -> None:
        """Wait until the watch shows that *victims* are going, at most `SEEN_SECONDS`."""
        give_up_at = self._clock.monotonic() + SEEN_SECONDS
        while self._clock.monotonic() < give_up_at:
            if all(self._is_going(victim.uid) for victim in victims):
                return
            await self._sleep(_POLL_SECONDS)

    def forget(self, uid: str) -> None:
        """The watch shows that the victim is terminating, or that is not waited for any more."""
        self._evictions.pop(uid, None)

    async def _evict(self, victim: Pod, cause: Cause) -> Evicted:
        cause.check()
        by = f"podgroup {cause.group}" if cause.group else f"pod {cause.preemptor.uid}"
        note = f"Preempted by {by} on node {cause.node}"
        if given_back := cause.given_back.get(victim.uid):
            note += f": {given_back}"
        is_in_memory = self._send_back(victim.uid)
        if is_in_memory:
            note += " (in kube-scheduler memory)."
        elif not await self._delete(victim, cause):
            return Evicted.BY_API
        log.info(
            "Preempted pod",
            pod=victim.key,
            node=cause.node,
            preemptor=cause.preemptor.key,
            **({"reason": given_back} if given_back else {}),
            in_memory=is_in_memory,
            profile=cause.profile,
            revision=cause.revision,
        )
        self._events.record(
            pod_reference(victim),
            Occurrence(
                kind=NORMAL,
                reason=PREEMPTED_REASON,
                action="Preempting",
                note=note,
                controller=cause.profile,
                revision=cause.revision,
            ),
            repeats=is_in_memory,
            related=pod_reference(cause.preemptor),
        )
        return Evicted.IN_MEMORY if is_in_memory else Evicted.BY_API

    async def _delete(self, victim: Pod, cause: Cause) -> bool:
        """Give *victim* a condition that says why, and delete it. False if it was gone already."""
        condition = self._condition(victim, cause)
        if condition is not None:
            patch = {"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}}
            say = functools.partial(
                self._client.patch,
                PODS,
                victim.name,
                msgspec.json.encode(patch),
                victim.namespace,
                subresource="status",
                timeout=REQUEST_TIMEOUT,
            )
            if not await self._send(say, victim, cause):
                return False
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": victim.uid},
        }
        delete = functools.partial(
            self._client.delete,
            PODS,
            victim.name,
            victim.namespace,
            body=msgspec.json.encode(options),
            timeout=REQUEST_TIMEOUT,
        )
        return await self._send(delete, victim, cause)

    def _condition(self, victim: Pod, cause: Cause) -> dict[str, Any] | None:
        """The condition that says why the pod is evicted; None if the pod has it already."""
        kind = "podgroup" if cause.group else "pod"
        why = (
            cause.given_back.get(victim.uid)
            or f"preempting to accommodate a higher priority {kind}"
        )
        message = printable.message(f"{cause.profile}: {why}")
        condition: dict[str, Any] = {
            "type": DISRUPTION_TARGET,
            "status": "True",
            "reason": PREEMPTION_BY_SCHEDULER,
            "message": message,
        }
        known = next(
            (c for c in victim.manifest.status.conditions if c.type == DISRUPTION_TARGET), None
        )
        if known is not None and known.status == "True":
            if (known.reason, known.message) == (PREEMPTION_BY_SCHEDULER, message):
                return None
        else:
            now = datetime.fromtimestamp(self._clock.now(), UTC)
            condition["lastTransitionTime"] = now.strftime("%Y-%m-%dT%H:%M:%SZ")
            condition["lastProbeTime"] = None
        generation = victim.manifest.metadata.generation
        if generation:
            condition["observedGeneration"] = generation
        return condition

    async def _send(
        self, request: Callable[[], Awaitable[bytes]], victim: Pod, cause: Cause
    ) -> bool:
        """Send *request* about *victim*, again while that may help. False if the victim is gone.

        Both requests may be carried out twice: a lost answer is no reason to look first.
        """
        backoff: Backoff | None = None
        for tries in range(1, MOST_TRIES + 1):
            try:
                await request()
                return True
            except NotFound:
                return False
            except ApiError as error:
                failure = error
            # Another pod's uid is a conflict for a deletion, and invalid for a patch.
            if isinstance(failure, Conflict | Invalid) and await self._is_gone(victim):
                return False
            if tries == MOST_TRIES or not may_pass(failure):
                raise failure
            backoff = backoff or Backoff(self._rng)
            await self._sleep(backoff.next(failure.retry_after))
            cause.check()
        raise AssertionError("unreachable")

    async def _is_gone(self, victim: Pod) -> bool:
        """True if *victim* is no more, or another pod has its name; False if that is not known."""
        try:
            raw = await self._client.get(
                PODS, victim.name, victim.namespace, timeout=REQUEST_TIMEOUT
            )
            return _decode_state(raw).metadata.uid != victim.uid
        except NotFound:
            return True
        except (ApiError, *UNREADABLE):
            return False


def may_pass(error: ApiError) -> bool:
    """True if the victim may be evicted a little later."""
    return isinstance(error, Conflict) or error.may_pass
