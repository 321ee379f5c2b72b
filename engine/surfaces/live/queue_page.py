"""The pods that wait, as rows: equal pods of one place and one reason are one.

Owns the order of rows, filters and paging. Pure but for the clock. Rows are made in steps: a queue
of 30,000 pods takes a tenth of a second, and decisions must go on.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from engine.core.framework.reasons import Reason
from engine.core.kernel.kernel import Kernel
from engine.core.kernel.permits import PermitWait
from engine.core.model.pod import Pod
from engine.core.model.times import epoch_seconds
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.queueing.transitions import Place
from engine.lib.clock import Clock
from engine.policy.pod_class import class_of
from engine.surfaces.live.answers import Leader, PlaceCounts, QueuePage, QueueRow
from engine.surfaces.live.moments import Moments, at_text
from engine.surfaces.live.rules import Rules
from engine.surfaces.live.slices import CHUNK, Steps, chunks_of, first_of

#: Rows of a page, at most and by default.
MOST_ROWS: Final = 1_000
ROWS: Final = 100

PERMIT: Final = "permit"
#: The places by their order in the list: what goes next comes first.
PLACES: Final = {
    place: rank
    for rank, place in enumerate(("active", "backoff", "unschedulable", "gated", PERMIT))
}
_NAMES: Final = 10
_PODS_PER_STEP: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFilter:
    """What a page shows; empty fields show everything.

    Attributes:
        readable: The namespaces that the caller may see; None: all.
        offset: Rows before the page.
    """

    namespace: str = ""
    profile: str = ""
    reason: str = ""
    policy: str = ""
    place: str = ""
    readable: Collection[str] | None = None
    limit: int = ROWS
    offset: int = 0


_Key: TypeAlias = tuple[str, str, bytes]
"""What the pods of a row have in common: the place, the reason's token, and the class."""


class _Waiting(NamedTuple):
    """A pod that waits, and in permit for what."""

    queued: QueuedPod
    wait: PermitWait | None = None
    permit: Reason | None = None

    @property
    def place(self) -> str:
        return PERMIT if self.wait is not None else self.queued.place.label

    @property
    def policies(self) -> Collection[str]:
        return self.queued.objectors if self.wait is None else self.wait.policies

    @property
    def reason(self) -> Reason:
        return self.permit or self.queued.reason

    def passes(self, wanted: QueueFilter, place: str) -> bool:
        """True if it is in the page; *place* is its place."""
        pod = self.queued.pod
        return (
            (not wanted.namespace or pod.namespace == wanted.namespace)
            and (not wanted.profile or pod.scheduler_name == wanted.profile)
            and (not wanted.place or place == wanted.place)
            and (wanted.readable is None or pod.namespace in wanted.readable)
            and (not wanted.reason or self.reason.token == wanted.reason)
            and (not wanted.policy or wanted.policy in self.policies)
        )


@dataclass(slots=True)
class _Row:
    """A row while it is put together; `example` is the pod that waits longest."""

    example: _Waiting
    created: str
    pods: int = 0
    attempts: int = 0
    names: list[str] = field(default_factory=list)
    policies: set[str] = field(default_factory=set)
    first: tuple[Any, ...] | None = None  # the smallest order of active pods
    next_try_at: float | None = None

    def add(self, one: _Waiting, created: str, next_try_at: float | None) -> None:
        """Count one more pod."""
        queued = one.queued
        self.pods += 1
        self.attempts = max(self.attempts, queued.attempts)
        if not self.policies.issuperset(one.policies):
            self.policies.update(one.policies)
        if len(self.names) < _NAMES:
            self.names.append(queued.pod.key)
        if created < self.created:
            self.example, self.created = one, created
        if queued.place is Place.ACTIVE and (self.first is None or queued.order < self.first):
            self.first = queued.order
        if next_try_at is not None and (self.next_try_at is None or next_try_at < self.next_try_at):
            self.next_try_at = next_try_at

    @property
    def order(self) -> tuple[Any, ...]:
        """What goes next comes first; then what waits longest."""
        first = () if self.first is None else self.first
        return PLACES[self.example.place], first, self.created


class QueueRows:
    """Makes pages of the queue of *kernel*; *rules* gives those of the policies in force."""

    def __init__(self, kernel: Kernel, rules: Callable[[], Rules], clock: Clock) -> None:
        self._kernel = kernel
        self._rules = rules
        self._clock = clock
        # By uid, the version of the pod and its class.
        self._classes: dict[str, tuple[Pod, bytes]] = {}

    def page(self, wanted: QueueFilter, leader: Leader) -> Steps[QueuePage]:
        """The page that *wanted* describes."""
        # 1. The rows that pass the filters.
        rows: dict[_Key, _Row] = {}
        active: list[QueuedPod] = []
        waiting = self._kernel.queue.waiting_pods()
        for number, one in enumerate(chain(map(_Waiting, waiting), self._in_permit())):
            if number % _PODS_PER_STEP == 0:
                yield
            if one.queued.place is Place.ACTIVE:
                active.append(one.queued)
            place = one.place
            if place in PLACES and one.passes(wanted, place):  # it may have been tried meanwhile
                self._add(rows, one, place)
        self._forget(waiting)
        # 2. Those of the page, in order.
        ends_at = wanted.offset + wanted.limit
        first = yield from first_of(list(rows.items()), _order, wanted.offset, ends_at)
        shown = dict(first)
        yield
        # 3. Their places among all active pods.
        orders = []
        if any(row.first is not None for row in shown.values()):
            for part in chunks_of(active):
                orders.append(sorted(queued.order for queued in part))
                yield
        moments, rules = Moments(self._clock), self._rules()
        made = []
        for key, row in shown.items():
            made.append(self._made(key, row, orders, moments, rules))
            yield
        return QueuePage(
            revision=rules.bundle.revision,
            at=at_text(moments.now),
            leader=leader,
            counts=self._counts(),
            total_pods=sum(row.pods for row in rows.values()),
            total_rows=len(rows),
            next=str(ends_at) if ends_at < len(rows) else None,
            rows=tuple(made),
        )

    def row_of(self, key: str) -> QueueRow | None:
        """The row of the pod `namespace/name` alone; None if it does not wait."""
        queued = self._kernel.queue.named(key)
        if queued is None:
            return None
        one = _Waiting(queued)
        if queued.uid in self._kernel.permits:
            one = next(each for each in self._in_permit() if each.queued is queued)
        if one.place not in PLACES:
            return None
        rows: dict[_Key, _Row] = {}
        self._add(rows, one, one.place)
        self._forget(self._kernel.queue.waiting_pods())
        ((common, row),) = rows.items()
        return self._made(common, row, [], Moments(self._clock), self._rules())

    def namespaces(self) -> set[str]:
        """The namespaces of all pods that wait, and of those that are nominated."""
        queue = self._kernel.queue
        found = {queued.pod.namespace for queued in queue.waiting_pods()}
        found |= {queued.pod.namespace for queued, _ in self._kernel.permits.waiting()}
        return found | {pod.namespace for pod in queue.nominator}

    # --- parts -------------------------------------------------------------------------------

    def _in_permit(self) -> list[_Waiting]:
        permits = self._kernel.permits
        return [
            _Waiting(queued, permits.wait_of(queued.uid), reason)
            for queued, reason in permits.waiting()
        ]

    def _counts(self) -> PlaceCounts:
        counts = self._kernel.queue.counts()
        known = {name: counts.get(name, 0) for name in PlaceCounts.__struct_fields__}
        return PlaceCounts(**{**known, "in_permit": len(self._kernel.permits)})

    def _add(self, rows: dict[_Key, _Row], one: _Waiting, place: str) -> None:
        pod = one.queued.pod
        key = place, one.reason.token, self._class_of(pod)
        created = pod.manifest.metadata.creation_timestamp or ""
        row = rows.get(key)
        if row is None:
            row = rows[key] = _Row(one, created)
        until = one.wait.until if one.wait else self._kernel.queue.next_try_at(one.queued)
        row.add(one, created, until)

    def _class_of(self, pod: Pod) -> bytes:
        """`class_of` *pod*, computed once."""
        known = self._classes.get(pod.uid)
        if known is not None and known[0] is pod:
            return known[1]
        digest = class_of(pod)
        self._classes[pod.uid] = pod, digest
        return digest

    def _forget(self, waiting: Sequence[QueuedPod]) -> None:
        """Forget the classes of pods that do not wait any more, once they are many."""
        if len(self._classes) > 2 * len(waiting) + CHUNK:
            uids = {queued.uid for queued in waiting}
            self._classes = {uid: one for uid, one in self._classes.items() if uid in uids}

    def _made(
        self,
        key: _Key,
        row: _Row,
        orders: Sequence[Sequence[tuple[Any, ...]]],
        moments: Moments,
        rules: Rules,
    ) -> QueueRow:
        one = row.example
        queued, pod = one.queued, one.queued.pod
        policies = sorted(row.policies)
        position = None
        if row.first is not None and orders:
            position = 1 + sum(bisect_left(chunk, row.first) for chunk in orders)
        created = epoch_seconds(row.created)
        waited = 0.0 if created is None else max(0.0, moments.now - created)
        waits_for = dict.fromkeys(event for name in policies for event in rules.waits_for(name))
        group = self._kernel.groups.tried_in(pod.uid)
        node = self._kernel.queue.nominator.node_of(pod.uid) if one.wait is None else one.wait.node
        return QueueRow(
            row_id=_id(key),
            example=pod.key,
            pods=row.pods,
            names=tuple(row.names),
            namespace=pod.namespace,
            profile=pod.scheduler_name,
            place=one.place,
            position=position,
            since=None if created is None else at_text(created),
            waited_seconds=round(waited, 3),
            attempts=row.attempts,
            next_try_at=moments.text(row.next_try_at),
            waits_for=tuple(waits_for) if queued.place is not Place.ACTIVE else (),
            reason=one.reason.token,
            message=queued.reason_text if one.wait is None else one.wait.text,
            node_helps=one.reason.node_helps,
            policies=tuple(policies),
            nominated_node=node or "",
            group="" if group is None else f"{group.namespace}/{group.name}",
            tried_because=queued.tried_because,
        )


def _order(item: tuple[_Key, _Row]) -> tuple[Any, ...]:
    key, row = item
    return row.order, key


def _id(key: _Key) -> str:
    """The same for the same kind of pods."""
    place, token, alike = key
    return hashlib.blake2b(f"{place}/{token}/".encode() + alike, digest_size=9).hexdigest()
