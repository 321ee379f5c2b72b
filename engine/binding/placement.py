"""What passes between deciding and carrying out: a placement, and the ports of both sides.

Owns the record and the protocols; knows neither policies nor the API server, so that the loop that
decides can be run without either.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol

from engine.model.pod import Pod
from engine.queueing.queued_pod import QueuedPod

#: The reason of the event and of the condition of a pod that has a node and waits for leave.
WAITING_REASON: Final = "WaitingOnPermit"
#: The reason of the event and of the condition of a pod that policies which wasted time throttle.
THROTTLED_REASON: Final = "Throttled"


class PreBindError(Exception):
    """What a placement needs beside the binding could not be made so; the text is the reason."""


class Reserver(Protocol):
    """A plugin that holds something for a placement beyond what the cache counts."""

    name: ClassVar[str]

    def unreserve(self, state: Any, pod: Pod, node_name: str) -> None:
        """Let it go; must not raise."""
        ...

    async def pre_bind(self, state: Any, pod: Pod, node_name: str) -> None:
        """Make it so in the API; returns when the pod may be bound. Raises `PreBindError`."""
        ...


@dataclass(slots=True)
class Placement:
    """A pod with the node that was chosen for it, assumed there and not yet bound.

    `started_at` is when the attempt began (monotonic seconds); `pod` is the copy that the cache
    counts, which names the node. `reserves` are the plugins that hold something for it, each with
    its state, in order: let go in reverse.
    """

    queued: QueuedPod
    pod: Pod
    node: str
    profile: str
    revision: str
    started_at: float
    reserves: tuple[tuple[Reserver, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why an attempt did not end in a binding.

    `rejectors` names the policies that said no; empty for an error. `is_error` separates "fits
    nowhere now" from "something went wrong".
    """

    message: str
    is_error: bool
    rejectors: frozenset[str] = field(default_factory=frozenset)
    #: New nominated node, "" to clear it, None to leave it. Only preemption leaves it.
    nominated_node: str | None = ""
    #: False when there is nobody to tell: the pod is gone or bound.
    is_reported: bool = True


@dataclass(frozen=True, slots=True)
class Preemption:
    """Which pods have to go so that a pod fits on a node, most important first."""

    node: str
    victims: tuple[Pod, ...]


class Outcomes(Protocol):
    """Where the ends of attempts go: queue, metrics, events, conditions, logs."""

    def bound(self, placement: Placement) -> None:
        """The API server has taken the placement."""
        ...

    def not_placed(
        self,
        queued: QueuedPod,
        rejection: Rejection,
        *,
        profile: str,
        revision: str,
        started_at: float,
    ) -> None:
        """The attempt failed; the pod goes back to where it waits, if it still wants a node."""
        ...

    def waiting(self, pod: Pod, text: str, placement: Placement) -> None:
        """The pod has a node and waits for leave, and *text* says for what."""
        ...

    def skipped_deleting(self, pod: Pod, *, profile: str, revision: str) -> None:
        """A pod that is being deleted came up and was not tried."""
        ...


class Bindings(Protocol):
    """Where placements go."""

    def start(self, placement: Placement) -> None:
        """Carry the placement out, without waiting for it."""
        ...

    def run_beside(self, action: Callable[[], Awaitable[None]], pod: Pod) -> None:
        """Carry out what a plugin does about *pod*, without waiting for it."""
        ...


class Preemptions(Protocol):
    """Where preemptions go."""

    def start(self, preemptor: Pod, preemption: Preemption, *, profile: str, revision: str) -> None:
        """Carry the preemption out, without waiting for it."""
        ...

    def is_preempting(self, uid: str) -> bool:
        """True while a preemption for the pod of *uid* is carried out: it must not be tried."""
        ...
