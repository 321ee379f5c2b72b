"""What preemption keeps of placed pods, so that it looks at each only once.

Owns how long such a value holds. What is made of them is `victims`' and `preemption`'s.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

from engine.caching.snapshot import Snapshot
from engine.model.pod import Pod
from engine.model.resources import Amounts
from engine.policy.projections import EVERYTHING, Projector
from engine.policy.views import POD_FIELDS, ViewField

Value = TypeVar("Value")

# Pods of which something is kept; more than a cluster holds on a few thousand nodes.
_MOST_PODS: Final = 200_000

# Types of fields whose values tell as much as their text.
_SCALARS: Final = frozenset({"int", "int?", "str", "str?", "bool"})

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
        # By the identities of a pod's sums, which are kept: pods that ask for the same share them.
        self._numbers: dict[tuple[int, int], tuple[int, Amounts, Amounts]] = {}
        self._next = 0  # a number never means something else later

    def of(self, pods: Sequence[Pod]) -> list[int] | None:
        """What each of *pods* holds; None if one of them holds more than amounts.

        Whether a host port or a volume is free without a pod depends on who else has it.
        """
        self._known.trim()
        numbers = []
        for pod in pods:
            number = self._known.get(pod)
            if number is None:
                number = self._number(pod)
                self._known.put(pod, number)
            if number < 0:
                return None
            numbers.append(number)
        return numbers

    def _number(self, pod: Pod) -> int:
        if pod.host_ports or pod.volumes:
            return -1
        sums = pod.running_requests, pod.running_nonzero_requests
        key = id(sums[0]), id(sums[1])
        known = self._numbers.get(key)
        if known is None:
            if len(self._numbers) >= _MOST_PODS:
                self._numbers.clear()
            known = self._numbers[key] = self._next, *sums
            self._next += 1
        return known[0]


class Texts:
    """What a hook is shown of pods: the projection of each, found once."""

    def __init__(self, projector: Projector) -> None:
        self._projector = projector
        self._holds_on = is_about_pod_alone(projector.paths)
        self._known: PerPod[bytes] = PerPod()
        # Pods whose fields are equal share a text, so that equal texts are mostly one object.
        self._fields: list[ViewField] | None = None
        fields = [POD_FIELDS.get(path) for path in sorted(projector.paths)]
        if all(field is not None and field.type in _SCALARS for field in fields):
            self._fields = [field for field in fields if field is not None]
        self._of_values: dict[tuple[Any, ...], bytes] = {}

    def begin(self) -> None:
        """To be called before each use: forget what does not hold on, or is too much."""
        if not self._holds_on:
            self._known, self._of_values = PerPod(), {}
        self._known.trim()
        if len(self._of_values) > _MOST_PODS:
            self._of_values.clear()

    def of(self, pod: Pod, facts: Snapshot) -> bytes:
        """The projection of *pod*."""
        text = self._known.get(pod)
        if text is None:
            text = self._project(pod, facts)
            self._known.put(pod, text)
        return text

    def _project(self, pod: Pod, facts: Snapshot) -> bytes:
        if self._fields is None:
            return self._projector.project(pod, facts)
        values = tuple([field.extract(pod, facts) for field in self._fields])
        text = self._of_values.get(values)
        if text is None:
            text = self._of_values[values] = self._projector.project(pod, facts)
        return text
