"""What preemption sees of placed pods: what they hold, and what hooks are shown of them.

Owns that pods which are alike in this share one value. Nothing is kept for each pod: a node that
was tried is not looked at again before it changes.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from engine.core.caching.snapshot import Snapshot
from engine.core.model.pod import Pod
from engine.core.model.resources import Amounts
from engine.core.scheduling.pod_fields import MOST_ANSWERS
from engine.policy.pod_views import POD_FIELDS
from engine.policy.projections import Projector
from engine.policy.view_events import fields_of, resources_behind
from engine.policy.view_fields import ViewField

# Types of fields whose values say as much as their text.
_PLAIN: Final = frozenset({"int", "int?", "str", "str?", "bool"})


def is_about_pod_alone(paths: Iterable[str]) -> bool:
    """True if what a hook reads of a pod stays the same as long as the pod does."""
    return not resources_behind("pod", fields_of("pod", paths))


class ResourceUse:
    """What a pod takes of its node's amounts, as a number that pods share which take the same."""

    def __init__(self) -> None:
        # By the identities of a pod's sums, which are kept here with the number, so that no other
        # object can get the identity of one of them: pods that ask for the same share them.
        self._numbers: dict[tuple[int, int], tuple[int, Amounts, Amounts]] = {}
        self._next = 0  # a number never means something else later

    def of(self, pods: Sequence[Pod]) -> list[int] | None:
        """What each of *pods* holds; None if one of them holds more than amounts.

        Whether a host port or a volume is free without a pod depends on which other pods use it.
        """
        numbers = []
        for pod in pods:
            if pod.host_ports or pod.volumes:
                return None
            numbers.append(self._number(pod))
        return numbers

    def _number(self, pod: Pod) -> int:
        sums = pod.running_requests, pod.running_nonzero_requests
        key = id(sums[0]), id(sums[1])
        known = self._numbers.get(key)
        if known is None:
            if len(self._numbers) >= MOST_ANSWERS:
                self._numbers.clear()
            known = self._numbers[key] = self._next, *sums
            self._next += 1
        return known[0]


class ProjectionCache:
    """What a hook is shown of pods, as JSON.

    Pods whose fields are plain and equal share a text, which is then written once.
    """

    def __init__(self, projector: Projector) -> None:
        # Writing each text again takes 17 % more CPU per preemption on 5,000 full nodes.
        self._projector = projector
        fields = [POD_FIELDS.get(path) for path in sorted(projector.paths)]
        known = [field for field in fields if field is not None and field.type in _PLAIN]
        self._fields: list[ViewField] | None = known if len(known) == len(fields) else None
        self._of_values: dict[tuple[Any, ...], bytes] = {}

    def of(self, pod: Pod, facts: Snapshot) -> bytes:
        """The projection of *pod*."""
        if self._fields is None:
            return self._projector.project(pod, facts)
        values = tuple([field.extract(pod, facts) for field in self._fields])
        text = self._of_values.get(values)
        if text is None:
            if len(self._of_values) >= MOST_ANSWERS:
                self._of_values.clear()
            text = self._of_values[values] = self._projector.project(pod, facts)
        return text
