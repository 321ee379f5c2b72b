"""The pods that the scheduler knows, waiting or placed: found by what people remember of them.

Owns what is compared with what is looked for, and paging. Made in steps, as the queue's page.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from engine.core.kernel.kernel import Kernel
from engine.core.model.pod import Pod
from engine.lib.clock import Clock
from engine.surfaces.live.answers import FoundPod, Leader, PodsPage
from engine.surfaces.live.moments import at_text
from engine.surfaces.live.owner import owner_text
from engine.surfaces.live.slices import Steps, first_of

#: Rows of a page, at most and by default.
MOST_ROWS: Final = 1_000
ROWS: Final = 100

_PODS_PER_STEP: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFilter:
    """Which pods are wanted; empty fields take every pod.

    Attributes:
        text: Words, each of which is a part of the pod's `namespace/name`, its owner, its node or
            one of its labels (`key=value`), whatever the case.
        node: Where they are.
        owner: `Kind/name` of the controller.
    """

    text: str = ""
    namespace: str = ""
    node: str = ""
    owner: str = ""

    def takes(self, pod: Pod, node: str) -> bool:
        """True if *pod*, which is on *node*, is wanted."""
        if (
            (self.namespace and pod.namespace != self.namespace)
            or (self.node and node != self.node)
            or (self.owner and owner_text(pod) != self.owner)
        ):
            return False
        words = self.text.casefold().split()
        if not words:
            return True
        labels = (f"{name}={value}" for name, value in pod.labels.items())
        known = "\n".join((pod.key, owner_text(pod), node, *labels)).casefold()
        return all(word in known for word in words)


@dataclass(frozen=True, slots=True)
class Match:
    """A pod that is wanted, and where it is: a node, or a place of the queue."""

    pod: Pod
    node: str
    place: str
    reason: str = ""


def matches(kernel: Kernel, wanted: PodFilter) -> Steps[list[Match]]:
    """The pods that *wanted* takes; those that wait come first."""
    found = []
    for number, queued in enumerate(() if wanted.node else kernel.queue.waiting_pods()):
        if number % _PODS_PER_STEP == 0:
            yield
        if wanted.takes(queued.pod, ""):
            found.append(Match(queued.pod, "", queued.place.label, queued.reason.token))
    for info in list(kernel.cache.infos()):
        if wanted.node and info.name != wanted.node:
            continue
        for number, pod in enumerate(info.pods.values()):
            if number % _PODS_PER_STEP == 0:
                yield
            if wanted.takes(pod, info.name):
                place = "placed" if kernel.cache.is_assumed(pod.uid) else "bound"
                found.append(Match(pod, info.name, place))
    return found


def pods_page(
    kernel: Kernel,
    found: list[Match],
    *,
    revision: str,
    leader: Leader,
    clock: Clock,
    readable: Collection[str] | None = None,
    offset: int = 0,
    limit: int = ROWS,
) -> Steps[PodsPage]:
    """A page of the pods that were *found*, those of *readable* namespaces (None: all)."""
    shown = [one for one in found if readable is None or one.pod.namespace in readable]
    ends_at = offset + limit
    rows = yield from first_of(shown, _order, offset, ends_at)
    return PodsPage(
        revision=revision,
        at=at_text(clock.now()),
        leader=leader,
        total=len(shown),
        next=str(ends_at) if ends_at < len(shown) else None,
        rows=tuple(_row(kernel, one) for one in rows),
    )


def _order(one: Match) -> tuple[bool, str]:
    return bool(one.node), one.pod.key


def _row(kernel: Kernel, one: Match) -> FoundPod:
    pod = one.pod
    created = pod.created_at
    return FoundPod(
        pod=pod.key,
        place=one.place,
        node=one.node,
        owner=owner_text(pod),
        profile=pod.scheduler_name,
        reason=one.reason,
        queue=kernel.shares.queue_of(pod.uid) or "",
        requests={name: amount for name, amount in pod.requests.items() if amount},
        since=at_text(created) if created else None,
    )
