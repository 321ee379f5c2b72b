"""The pod classes that were decided lately, with what is known of them.

Owns how many are kept: they are bounded by the memory of their vectors. Pods that differ in what
only pre-filters, pre-scores and counters read, such as a label of each, are in one class if those
said the same.
"""

import itertools
from collections import OrderedDict
from typing import Final

from engine.model.pod import Pod
from engine.scheduling.pod_class import PodClass

_CAPACITY_BYTES: Final = 96 << 20
# How many kinds of pods are remembered with their class.
_MOST_KEYS: Final = 8192


class PodClasses:
    """The classes seen lately, bounded by the memory of their vectors."""

    def __init__(self) -> None:
        # By what their hooks are given; and that by the key of the pods.
        self._classes: OrderedDict[tuple[object, ...], PodClass] = OrderedDict()
        self._inputs: dict[tuple[object, ...], tuple[object, ...]] = {}

    def get(self, key: tuple[object, ...]) -> PodClass | None:
        """The class of *key*, now the most recently used."""
        inputs = self._inputs.get(key)
        found = None if inputs is None else self._classes.get(inputs)
        if found is not None and inputs is not None:
            self._classes.move_to_end(inputs)
        return found

    def put(self, key: tuple[object, ...], pod_class: PodClass) -> PodClass:
        """Remember *pod_class*, or the one whose hooks are given the same; returns that."""
        inputs = (key[0], *pod_class.inputs)  # of one profile
        if len(self._inputs) >= _MOST_KEYS:
            self._inputs.clear()
        self._inputs[key] = inputs
        known = self._classes.setdefault(inputs, pod_class)
        self._classes.move_to_end(inputs)
        return known

    def examples(self, most: int) -> list[Pod]:
        """A pod of each of the *most* classes used last, the latest first."""
        classes = itertools.islice(reversed(self._classes.values()), most)
        return [c.example for c in classes if c.example is not None]

    def trim(self) -> None:
        """Drop the least recently used classes beyond the bound (the newest always stays)."""
        total = sum(c.nbytes for c in self._classes.values())
        while (total > _CAPACITY_BYTES or len(self._classes) > 8192) and len(self._classes) > 1:
            _, dropped = self._classes.popitem(last=False)
            total -= dropped.nbytes

    def __len__(self) -> int:
        return len(self._classes)
