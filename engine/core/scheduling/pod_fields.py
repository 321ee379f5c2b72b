"""What pods have in the fields that hooks read: pods with the same are alike for those hooks.

Owns the projections of a pod's specification, which most pods share, and the bound of what is kept
for kinds of pods: users make both, as many and as large as they like.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from engine.core.caching.snapshot import Snapshot
from engine.core.model.pod import Pod
from engine.policy.pod_views import POD_FIELDS, spec_text
from engine.policy.projections import Projector
from engine.policy.verdicts import LARGE

Key = tuple[object, ...]
"""What pods have in common that are treated alike; what is long in it are bytes."""

V = TypeVar("V")

#: Small answers that one memo remembers. One with a key of a hundred bytes takes 430: 28 MB.
MOST_ANSWERS: Final = 65_536
#: Bytes of one store whose size the creators of pods, or policies, decide.
MOST_BYTES: Final = 16 << 20
# What an entry of a `BoundedMemo` takes besides its key and its value.
_BYTES_OF_ENTRY: Final = 4096


def size_of(key: Key) -> int:
    """The bytes of what is long in *key*."""
    return sum(len(part) for part in key if isinstance(part, bytes))


class BoundedMemo(Generic[V]):
    """Values by key that are all forgotten when they have become too large together.

    A `LARGE` one is not kept: what it took would stay taken when its pod is gone.
    """

    def __init__(self) -> None:
        self._known: dict[Key, V] = {}
        self._bytes = 0
        self.get: Final = self._known.get

    def put(self, key: Key, value: V, size: int = 0) -> V:
        """Keep *value*, which takes *size* bytes besides its key; returns it."""
        size += _BYTES_OF_ENTRY + size_of(key)
        if size > LARGE:
            return value
        if self._bytes + size > MOST_BYTES:
            self._known.clear()
            self._bytes = 0
        self._known[key] = value
        self._bytes += size
        return value


@dataclass(frozen=True, slots=True, eq=False)
class Fields:
    """Fields of a pod and of the cluster that some hooks read, those of its specification apart."""

    of_spec: Projector
    of_pod: Projector
    of_cluster: Projector

    @classmethod
    def of(cls, pod: Collection[str], cluster: Collection[str]) -> "Fields":
        """The fields of these paths."""
        specified = frozenset(path for path in pod if _is_spec(path))
        return cls(
            Projector("pod", specified),
            Projector("pod", frozenset(pod) - specified),
            Projector("cluster", frozenset(cluster)),
        )


class PodReader:
    """Projects fields of pods."""

    def __init__(self) -> None:
        self._specified: BoundedMemo[bytes] = BoundedMemo()  # by fields and text

    def read(self, fields: Fields, pod: Pod, snapshot: Snapshot) -> Key:
        """What *pod* and the cluster have in *fields*."""
        # Most pods have the specification of one that came before.
        key = fields, spec_text(pod)
        specified = self._specified.get(key)
        if specified is None:
            specified = fields.of_spec.project(pod, snapshot)
            self._specified.put(key, specified, len(specified))
        others = fields.of_pod.project(pod, snapshot)
        return specified, others, fields.of_cluster.project(snapshot, snapshot)


def _is_spec(path: str) -> bool:
    """True if the field of *path* is the same for pods with the same `spec_text`."""
    field = POD_FIELDS.get(path.partition("[")[0])
    return field is not None and field.is_spec
