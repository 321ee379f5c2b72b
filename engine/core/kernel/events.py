"""The events that the kernel handles: one record for each kind.

Owns the records. What each of them means is `kernel`'s and `cluster`'s.
"""

import enum
from collections.abc import Collection, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from engine.core.kernel.scheduler_selector import Canary
from engine.core.model.fact import Facts, NodeFacts
from engine.core.model.pod import Pod
from engine.core.scheduling.extenders import Answer
from engine.core.scheduling.placement import Placement
from engine.core.scheduling.scheduling_cycle import Scheduler

PODS: Final = "pods"
NODES: Final = "nodes"


class ObjectChanged(msgspec.Struct, frozen=True):
    """An object appeared (`old` is None), changed, or is gone (`new` is None).

    `plural` is its resource name (`pods`, `services`). `old` is the version reported last; for an
    object that is gone too. Pods that have finished count as gone.
    """

    plural: str
    old: Any | None
    new: Any | None


class QueueObjectChanged(msgspec.Struct, frozen=True):
    """An object that adds queues to the tree appeared, changed, or is gone (`object` is None).

    `kind` is one of those that the QueueTree names; `key` is `namespace/name`, or the name.
    """

    kind: str
    key: str
    object: Any | None


class QueueAdjusted(msgspec.Struct, frozen=True):
    """The queue of `path` has these attributes instead of what its sources give, from now on.

    Only asked of copies of a cluster: what if they were edited?
    """

    path: str
    attributes: Mapping[str, Any]


class UsageRestored(msgspec.Struct, frozen=True):
    """What queues used was saved `age` seconds ago: billionths of the cluster by path and resource.

    It is taken up if the policies in force keep it.
    """

    saved: Mapping[str, Mapping[str, int]]
    age: float


class NodeFactsChanged(msgspec.Struct, frozen=True):
    """Other facts are known of a node, which need not exist yet."""

    name: str
    facts: NodeFacts


class PodFactsChanged(msgspec.Struct, frozen=True):
    """Other facts are known of the pod `namespace/name`."""

    key: str
    facts: Facts


class OtherFactsChanged(msgspec.Struct, frozen=True):
    """These are all facts of the cluster, of pods by type, and of pods by key."""

    cluster: Facts
    types: Mapping[str, Facts]
    pods: Mapping[str, Facts]


class PodTypeLabelsChanged(msgspec.Struct, frozen=True):
    """These labels say of which type a pod is."""

    labels: tuple[str, ...]


class PodGroupsServed(msgspec.Struct, frozen=True):
    """The API server has PodGroups in `api_version` from now on; "": in none that is known."""

    api_version: str


class VersionChanged(msgspec.Struct, frozen=True):
    """The API server is of Kubernetes 1.`minor` from now on; answers follow it.

    `gates` are the feature gates that are on, as before.
    """

    minor: int
    gates: Collection[str] = ()


class ReadabilityChanged(msgspec.Struct, frozen=True):
    """These resources cannot be read any more, by plural name, each with the reason for people.

    What is known of them is too old to decide by.
    """

    unknown: Mapping[str, str]


class FactsReported(msgspec.Struct, frozen=True):
    """Facts changed a moment ago, so rejected pods may fit now. `is_age`: they only grew older."""

    is_age: bool = False


class RevisionSwitched(msgspec.Struct, frozen=True):
    """The policies of `scheduler` decide from now on."""

    scheduler: Scheduler


class CanaryChanged(msgspec.Struct, frozen=True):
    """A candidate decides for some pods from now on, or for others than before; None: for none."""

    canary: Canary | None


class LeadershipAcquired(msgspec.Struct, frozen=True):
    """This process decides from now on; until then it only kept up with the cluster."""


class TurnBegan(msgspec.Struct, frozen=True):
    """A turn of decisions begins; changes of groups since the last one are processed first."""


class TimePassed(msgspec.Struct, frozen=True):
    """Time has passed; to be reported when `Kernel.wakes_at` is reached."""


class Bound(msgspec.Struct, frozen=True):
    """The API server has accepted a placement."""

    placement: Placement


class BindingFailed(msgspec.Struct, frozen=True):
    """A placement was not bound, for `reason`. Not `is_reported`: the pod is gone or bound."""

    placement: Placement
    reason: str
    is_reported: bool = True


class BindingGivenUp(msgspec.Struct, frozen=True):
    """This process has stopped waiting for a binding; whether the pod is bound is unknown."""

    placement: Placement


class WaitingPodPreempted(msgspec.Struct, frozen=True):
    """The pod of `uid`, which waits in permit, gives its node to a more important pod."""

    uid: str


class PreemptionEnd(enum.Enum):
    """How the eviction of the victims for a pod ended."""

    #: All victims are terminating or gone, or the pod does not need their capacity any more.
    DONE = "done"
    #: The same, and no event follows: the last victim was not bound yet and went back to the queue.
    IN_MEMORY = "in_memory"
    #: The API server could not be reached, or this process must not ask it: retried at once.
    INTERRUPTED = "interrupted"
    #: The API server refused. The pod waits out its backoff, since the same may happen again.
    REFUSED = "refused"


class PreemptionEnded(msgspec.Struct, frozen=True):
    """The eviction of victims for `preemptor` on `node` has ended."""

    preemptor: Pod
    node: str
    end: PreemptionEnd = PreemptionEnd.DONE


class Stopped(msgspec.Struct, frozen=True):
    """No decision follows. Pods that wait in permit stay pending."""


class Reply(msgspec.Struct, frozen=True):
    """What extenders answered to a question that `Kernel.decide` yielded, and when that arrived."""

    answer: Answer
    at: float


Event: TypeAlias = (
    ObjectChanged
    | QueueObjectChanged
    | QueueAdjusted
    | UsageRestored
    | NodeFactsChanged
    | PodFactsChanged
    | OtherFactsChanged
    | PodTypeLabelsChanged
    | PodGroupsServed
    | VersionChanged
    | ReadabilityChanged
    | FactsReported
    | RevisionSwitched
    | CanaryChanged
    | LeadershipAcquired
    | TurnBegan
    | TimePassed
    | Bound
    | BindingFailed
    | BindingGivenUp
    | WaitingPodPreempted
    | PreemptionEnded
    | Stopped
)
