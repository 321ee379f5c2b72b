"""What preemption keeps of placed pods, so that it looks at each only once.

Owns how long such a value holds. What is made of them is `victims`' and `preemption`'s.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Generic, TypeVar

from engine.model.pod import Pod
from engine.policy.projections import EVERYTHING

Value = TypeVar("Value")

# Pods of which something is kept; more than a cluster holds on a few thousand nodes.
_MOST_PODS: Final = 200_000

#: Fields of a pod that say something else when other objects or facts change.
ABOUT_MORE: Final = frozenset(
    {
        "namespace_labels",
        "spread_selector",
        "volumes",
        "device_resources",
        "type",
        "facts",
        EVERYTHING,
    }
)


def is_about_pod_alone(paths: Iterable[str]) -> bool:
    """True if what a hook reads of a pod stays the same as long as the pod does."""
    return ABOUT_MORE.isdisjoint(path.partition("[")[0] for path in paths)


class PerPod(Generic[Value]):
    """A value for each pod, as long as it is the same version of the pod."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, tuple[Pod, Value]] = {}

    def get(self, pod: Pod) -> Value | None:
        """The value of *pod*; None if there is none."""
        known = self._known.get(pod.uid)
        return known[1] if known is not None and known[0] is pod else None

    def put(self, pod: Pod, value: Value) -> None:
        """Keep *value* for this version of *pod*."""
        self._known[pod.uid] = pod, value

    def trim(self) -> None:
        """Keep memory bounded: forget all if they are too many."""
        if len(self._known) > _MOST_PODS:
            self._known.clear()


class Holdings:
    """What a pod takes of its node's amounts, as a number that pods share which take the same."""

    def __init__(self) -> None:
        self._known: PerPod[int] = PerPod()
        self._numbers: dict[tuple[object, ...], int] = {}
        self._next = 0  # a number never means something else later

    def of(self, pods: Sequence[Pod]) -> dict[str, int] | None:
        """By uid, what each of *pods* holds; None if one holds more than amounts.

        Whether a host port or a volume is free without a pod depends on who else has it.
        """
        self._known.trim()
        found = {}
        for pod in pods:
            number = self._known.get(pod)
            if number is None:
                number = self._number(pod)
                self._known.put(pod, number)
            if number < 0:
                return None
            found[pod.uid] = number
        return found

    def _number(self, pod: Pod) -> int:
        if pod.host_ports or pod.volumes:
            return -1
        amounts = (
            *pod.running_requests.items(),
            None,
            *pod.running_nonzero_requests.items(),
        )
        known = self._numbers.get(amounts)
        if known is None:
            if len(self._numbers) >= _MOST_PODS:
                self._numbers.clear()
            known = self._numbers[amounts] = self._next
            self._next += 1
        return known
