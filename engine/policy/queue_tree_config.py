"""The QueueTree document as it is written.

Owns its fields and what they may be. What the queues of it are is known only with the policy that
governs them, see `queue_tree`.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from engine.policy.documents import Field, Object, checked, entry, integer, listed, record

HOLD: Final = "hold"
COUNT: Final = "count"

_NOT_NEGATIVE: Final = checked(
    Field.duration, lambda time: time >= timedelta(0), want="want a duration of at least 0"
)


@dataclass(frozen=True, slots=True)
class ObjectSource:
    """A kind of objects of the API that the hook `queues` makes queues of."""

    api_version: str = entry(Field.text, "", is_required=True)
    kind: str = entry(Field.text, "", is_required=True)


@dataclass(frozen=True, slots=True)
class NamespaceSource:
    """Queues by the labels of namespaces.

    Attributes:
        label: A namespace with this label is in the queue that it names; dots part the levels.
        annotations: What the names of annotations begin with that give the queue attributes.
    """

    label: str = entry(Field.text, "", is_required=True)
    annotations: str = entry(Field.text, "")


def _written(found: Field) -> tuple[tuple[str, Field], ...]:
    members = found.object()
    return tuple((name, members[name]) for name in members.names)


@dataclass(frozen=True, slots=True)
class _Shares:
    refresh: timedelta = entry(_NOT_NEGATIVE, timedelta(milliseconds=100))


# Readings more frequent than that would cost more than an order by the past is worth.
_SAMPLED: Final = checked(
    Field.duration, lambda time: time >= timedelta(seconds=1), want="want a duration of at least 1s"
)


def _half_life(found: Field) -> timedelta | None:
    time, least = found.duration(), timedelta(milliseconds=1)
    if time is not None and time < least:
        want = "want a duration of at least 1ms"
        found.wrong(f"{want}, got {found.shown()}: usage would always be 0")
        return least  # it is not missing, too
    return time


@dataclass(frozen=True, slots=True)
class UsageRule:
    """How what queues used in the past is kept.

    Attributes:
        half_life: After so long without anything, half is left.
        sampling: How often policies see what it is by now.
    """

    half_life: timedelta = entry(_half_life, timedelta(hours=1), is_required=True)
    sampling: timedelta = entry(_SAMPLED, timedelta(seconds=5))


@dataclass(frozen=True, slots=True)
class ReclaimLimits:
    """What no policy may exceed when pods are evicted for a queue.

    Attributes:
        victims_per_minute: For each queue that takes; one request may take more if it is the first.
        min_runtime: Seconds for which a pod is not taken after it started, nor anything from a
            queue that got it from the taker.
    """

    victims_per_minute: int = entry(integer(1), 60)
    min_runtime: float = entry(
        lambda found: None if (time := _NOT_NEGATIVE(found)) is None else time.total_seconds(),
        300.0,
    )


@dataclass(frozen=True, slots=True)
class QueueTreeConfig:
    """A decoded document; its queues are read once its policy is known.

    Attributes:
        policy: The policy whose hooks govern the tree.
        args: The policy's arguments, as in a profile's pluginConfig.
        queues: What is written of each queue, by its path.
        objects, namespaces: Where further queues come from.
        unknown: What becomes of pods of a queue that is not there: `hold`, `count` (in the root),
            or the path of the queue that they are in.
        guarantees: The attribute by which queues are guaranteed amounts; "": none.
        shares: How often shares are computed at most.
        usage: How what queues used in the past is kept; None: it is not.
        limits: The runtime's own, of evictions.
        place: The document.
    """

    place: Field
    policy: str = entry(Field.text, "", is_required=True)
    args: Field | None = entry(lambda found: found, None)
    queues: tuple[tuple[str, Field], ...] = entry(_written, ())
    objects: tuple[ObjectSource, ...] = entry(listed(record(ObjectSource)), ())
    namespaces: NamespaceSource | None = entry(record(NamespaceSource), None)
    unknown: str = entry(Field.text, HOLD)
    guarantees: str = entry(Field.text, "")
    shares: _Shares = entry(record(_Shares), factory=_Shares)
    usage: UsageRule | None = entry(record(UsageRule), None)
    limits: ReclaimLimits = entry(record(ReclaimLimits), factory=ReclaimLimits)


def check_queue_tree(made: QueueTreeConfig, members: Object) -> None:
    """Report what is wrong with values that are right alone."""
    if not (made.queues or made.objects or made.namespaces):
        members.place("queues").wrong(
            "want queues: written out under `queues`, read from `objects`, or from `namespaces`"
        )
