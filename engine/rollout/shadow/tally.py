"""Counts what a shadow compares.

Owns the measures: written by its thread, read by others.
"""

import copy
import re
import threading
from typing import Final

from engine.comparing.difference import Difference
from engine.core.model.pod import Pod
from engine.rollout.measures import ShadowMeasures

#: Examples that are kept.
MOST_EXAMPLES: Final = 5
#: Namespaces, and classes of pods, that are counted separately.
MOST_NAMES: Final = 1_000
OTHERS: Final = "others"

#: Resources that nearly every pod requests.
_USUAL: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
_NUMBER: Final = re.compile(r"[-._]?[0-9]+$")


def class_of(pod: Pod) -> str:
    """What people know the pod by: `namespace/Kind/name` of its owner, or of its name's stem."""
    owner = pod.controller
    if owner is not None:
        return f"{pod.namespace}/{owner.kind}/{owner.name}"
    return f"{pod.namespace}/Pod/{_NUMBER.sub('', pod.name) or pod.name}"


def classes_of(pod: Pod) -> tuple[str, ...]:
    """The classes whose pods are judged together, in words: what the pod is, not its labels."""
    owner = pod.controller
    return (
        f"namespace {pod.namespace}",
        f"priority {pod.priority}",
        f"profile {pod.scheduler_name}",
        f"owner {owner.kind}" if owner is not None else "no owner",
        *(f"requests {name}" for name in pod.requests if name not in _USUAL),
    )


class Tally:
    """The measures of one shadow; any thread may read them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._measures = ShadowMeasures()

    def measures(self) -> ShadowMeasures:
        """A copy of the measures."""
        with self._lock:
            return copy.deepcopy(self._measures)

    def skip(self, why: str, count: int = 1) -> None:
        """Count decisions that are not compared."""
        with self._lock:
            _count(self._measures.skipped, why, count)

    def drifted(self, why: str, count: int = 1) -> None:
        """Count decisions that differ, and may do so because something has changed since."""
        with self._lock:
            _count(self._measures.skipped, why, count)
            self._measures.unsure += count

    def compared(self, victims: int = 0) -> None:
        """Count a compared decision: the candidate would evict *victims* pods more."""
        with self._lock:
            self._measures.compared += 1
            self._measures.victims += victims

    def placed(self, pod: Pod, *, is_moved: bool) -> None:
        """Count a compared decision with a node on both sides, *is_moved* if not the same one."""
        with self._lock:
            self._measures.placed += 1
            for name in classes_of(pod):
                _count(self._measures.placed_by_class, name)
                if is_moved:
                    _count(self._measures.moved_by_class, name)

    def timed(self, seconds: float, before: float) -> None:
        """Count what one decision took: the candidate, and the policies in force."""
        with self._lock:
            self._measures.count_time(seconds, before)

    def wants_example(self, kind: str) -> bool:
        """True if another difference of this *kind* would be an example."""
        kinds = [example.kind for example in self._measures.examples]
        return len(kinds) < MOST_EXAMPLES or kind not in kinds

    def differs(self, kind: str, pod: Pod, policy: str, example: Difference[str] | None) -> None:
        """Count a difference, by whose rule makes it and whom it concerns."""
        with self._lock:
            measures = self._measures
            _count(measures.counts, kind)
            if policy:
                _count(measures.by_policy, policy)
            _count(measures.by_namespace, pod.namespace)
            _count(measures.by_class, class_of(pod))
            if example is not None:
                _keep(measures.examples, example)


def _count(counts: dict[str, int], name: str, count: int = 1) -> None:
    if name not in counts and len(counts) >= MOST_NAMES:
        name = OTHERS
    counts[name] = counts.get(name, 0) + count


def _keep(examples: list[Difference[str]], example: Difference[str]) -> None:
    """Add *example*; once there are enough, it takes the place of one whose kind has several."""
    if len(examples) < MOST_EXAMPLES:
        examples.append(example)
        return
    kinds = [one.kind for one in examples]
    if example.kind not in kinds:
        most = max(kinds, key=kinds.count)
        at = len(kinds) - 1 - kinds[::-1].index(most)
        examples[at] = example
