"""The pods that wait, as rows: those of one place, one reason and one group are one.

Owns what a group is, the order of rows, filters and paging. Pure but for the clock. Rows are
made in steps: a queue of 30,000 pods takes a tenth of a second, and decisions must go on.
"""

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
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
from engine.surfaces.live.answers import (
    Leader,
    PlaceCounts,
    QueuePage,
    QueueRow,
    RequestRange,
)
from engine.surfaces.live.moments import Moments, at_text
from engine.surfaces.live.owner import owner_text
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
#: As a filter of owners or reasons: the pods that have none.
NONE: Final = "none"
CLASS: Final = "class"
#: What the pods of a row have in common in addition to their place and reason.
GROUPS: Final[Mapping[str, Callable[[Pod], bytes]]] = {
    CLASS: class_of,
    "workload": partial(class_of, with_requests=False),
    "owner": lambda pod: f"{pod.namespace}/{owner_text(pod)}".encode(),
    "namespace": lambda pod: pod.namespace.encode(),
    "reason": lambda _pod: b"",
}
#: What rows can be sorted by; with a minus in front of it, the other way round.
_SORTS: Final[Mapping[str, Callable[["_Row"], Any]]] = {
    "next": lambda row: row.order,
    "pods": lambda row: row.pods,
    "pod": lambda row: row.example.queued.pod.key,
    "reason": lambda row: row.example.reason.token,
    "place": lambda row: PLACES[row.example.place],
    "waiting": lambda row: row.created,
    "tries": lambda row: row.attempts,
    "next_try": lambda row: (row.next_try_at is None, row.next_try_at or 0.0),
}
SORTS: Final = tuple(sign + name for name in _SORTS for sign in ("", "-"))
_NAMES: Final = 10
#: Values of a filter that are suggested.
_VALUES: Final = 50
_PODS_PER_STEP: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFilter:
    """What a page shows; empty fields show everything.

    Attributes:
        pod: A part of the name.
        owner: `Kind/name` of the controller, or `NONE`.
        reason: A token, or `NONE`.
        readable: The namespaces that the caller may see; None: all.
        by: One of `GROUPS`.
        sort: One of `SORTS`.
        offset: Rows before the page.
    """

    pod: str = ""
    namespace: str = ""
    owner: str = ""
    profile: str = ""
    reason: str = ""
    policy: str = ""
    place: str = ""
    readable: Collection[str] | None = None
    by: str = CLASS
    sort: str = "next"
    limit: int = ROWS
    offset: int = 0


_Key: TypeAlias = tuple[str, str, bytes]
"""What the pods of a row have in common: the place, the reason's token, and the group."""


class _Values(NamedTuple):
    """What filters compare of a pod, by the names of the filters."""

    namespace: str
    owner: str
    profile: str
    reason: str
    policy: tuple[str, ...]


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

    @property
    def values(self) -> _Values:
        pod = self.queued.pod
        return _Values(
            pod.namespace,
            owner_text(pod),
            pod.scheduler_name,
            self.reason.token,
            tuple(sorted(self.policies)),
        )

    def passes(self, wanted: QueueFilter, place: str) -> bool:
        """True if it is in the page; *place* is its place."""
        pod = self.queued.pod
        return (
            (not wanted.namespace or pod.namespace == wanted.namespace)
            and (not wanted.profile or pod.scheduler_name == wanted.profile)
            and (not wanted.place or place == wanted.place)
            and (wanted.readable is None or pod.namespace in wanted.readable)
            and (not wanted.pod or wanted.pod in pod.name)
            and (not wanted.owner or (owner_text(pod) or NONE) == wanted.owner)
            and (not wanted.reason or (self.reason.token or NONE) == wanted.reason)
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
    # By resource: the least, the most, the sum, and how many pods request it.
    requests: dict[str, list[int]] = field(default_factory=dict)
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
        for name, amount in queued.pod.requests.items():
            known = self.requests.get(name)
            if known is None:
                self.requests[name] = [amount, amount, amount, 1]
            else:
                least, most, total, of = known
                known[:] = min(least, amount), max(most, amount), total + amount, of + 1
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
        # For each of GROUPS, by uid: the version of the pod and its group.
        self._known: dict[str, dict[str, tuple[Pod, bytes]]] = {name: {} for name in GROUPS}

    def page(self, wanted: QueueFilter, leader: Leader) -> Steps[QueuePage]:
        """The page that *wanted* describes."""
        # 1. The rows that pass the filters.
        rows: dict[_Key, _Row] = {}
        active: list[QueuedPod] = []
        values: Counter[_Values] = Counter()
        waiting = self._kernel.queue.waiting_pods()
        for number, one in enumerate(chain(map(_Waiting, waiting), self._in_permit())):
            if number % _PODS_PER_STEP == 0:
                yield
            if one.queued.place is Place.ACTIVE:
                active.append(one.queued)
            place = one.place
            if place in PLACES and one.passes(wanted, place):  # it may have been tried meanwhile
                self._add(rows, one, place, wanted.by)
                values[one.values] += 1
        self._forget(waiting)
        # 2. Those of the page, in order.
        ends_at = wanted.offset + wanted.limit
        order, is_reversed = _order_of(wanted.sort)
        first = yield from first_of(
            list(rows.items()), order, wanted.offset, ends_at, is_reversed=is_reversed
        )
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
            values=_most_frequent(values),
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
        self._add(rows, one, one.place, CLASS)
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

    def _add(self, rows: dict[_Key, _Row], one: _Waiting, place: str, by: str) -> None:
        pod = one.queued.pod
        key = place, one.reason.token, self._group_of(pod, by)
        created = pod.manifest.metadata.creation_timestamp or ""
        row = rows.get(key)
        if row is None:
            row = rows[key] = _Row(one, created)
        until = one.wait.until if one.wait else self._kernel.queue.next_try_at(one.queued)
        row.add(one, created, until)

    def _group_of(self, pod: Pod, by: str) -> bytes:
        """The group of *pod*, computed once."""
        groups = self._known[by]
        known = groups.get(pod.uid)
        if known is not None and known[0] is pod:
            return known[1]
        group = GROUPS[by](pod)
        groups[pod.uid] = pod, group
        return group

    def _forget(self, waiting: Sequence[QueuedPod]) -> None:
        """Forget the groups of pods that do not wait any more, once they are many."""
        for by, groups in self._known.items():
            if len(groups) > 2 * len(waiting) + CHUNK:
                uids = {queued.uid for queued in waiting}
                self._known[by] = {uid: one for uid, one in groups.items() if uid in uids}

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
            owner=owner_text(pod),
            profile=pod.scheduler_name,
            place=one.place,
            position=position,
            since=None if created is None else at_text(created),
            waited_seconds=round(waited, 3),
            attempts=row.attempts,
            requests={
                name: RequestRange(least if of == row.pods else 0, most, total)
                for name, (least, most, total, of) in row.requests.items()
            },
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


def _order_of(sort: str) -> tuple[Callable[[tuple[_Key, _Row]], tuple[Any, ...]], bool]:
    """The order *sort* of rows, and whether it is reversed."""
    value_of = _SORTS[sort.removeprefix("-")]
    return (lambda item: (value_of(item[1]), item[0])), sort.startswith("-")


def _most_frequent(values: Mapping[_Values, int]) -> dict[str, tuple[str, ...]]:
    """By filter, the values that most pods have."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in _Values._fields}
    for of, pods in values.items():
        for name, value in zip(_Values._fields, of, strict=True):
            for one in (value,) if isinstance(value, str) else value:
                counts[name][one] += pods
    return {
        name: tuple(value for value, _ in count.most_common(_VALUES) if value)
        for name, count in counts.items()
    }


def _id(key: _Key) -> str:
    """The same for the same kind of pods."""
    place, token, alike = key
    return hashlib.blake2b(f"{place}/{token}/".encode() + alike, digest_size=9).hexdigest()
