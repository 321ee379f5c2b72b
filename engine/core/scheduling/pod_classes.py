"""The pod classes that were decided lately, with what is known of them.

Owns how many are kept: they are bounded by the memory of their vectors, and by the bytes of the
pods that they were made for.
"""

import itertools
from collections import OrderedDict
from typing import Final

from engine.core.model.pod import Pod
from engine.core.scheduling.pod_class import PodClass
from engine.core.scheduling.pod_fields import MOST_BYTES, size_of
from engine.policy.verdicts import LARGE

# At 5,000 nodes that is 120 classes. A pod of a class that was forgotten takes a millisecond more.
_CAPACITY_BYTES: Final = 48 << 20
_MOST_CLASSES: Final = 2048

# Classes are counted again after so many new ones: the size of one is known once it was used.
_TRIM_EVERY: Final = 32


class PodClasses:
    """The classes seen lately, bounded by their memory.

    Attributes:
        pod_bytes: Bytes of the pods of those that are kept.
    """

    def __init__(self) -> None:
        self.pod_bytes = 0
        self._classes: OrderedDict[tuple[object, ...], PodClass] = OrderedDict()
        self._made = 0

    def get(self, key: tuple[object, ...]) -> PodClass | None:
        """The class of *key*, now the most recently used."""
        found = self._classes.get(key)
        if found is not None:
            self._classes.move_to_end(key)
        return found

    def put(self, key: tuple[object, ...], pod_class: PodClass) -> None:
        """Remember *pod_class*, unless it is `LARGE`."""
        if read_bytes(key) + pod_class.term_bytes > LARGE:
            return
        self._classes[key] = pod_class
        self.pod_bytes += _pod_bytes(key, pod_class)
        while self.pod_bytes > MOST_BYTES and len(self._classes) > 1:
            self._drop_oldest()
        self._made += 1
        if self._made % _TRIM_EVERY == 0:
            self.trim()

    def examples(self, most: int) -> list[Pod]:
        """A pod of each of the *most* classes used last, the latest first."""
        classes = itertools.islice(reversed(self._classes.values()), most)
        return [c.example for c in classes if c.example is not None]

    def trim(self) -> None:
        """Drop the least recently used classes beyond the bound (the newest always stays)."""
        total = sum(c.nbytes for c in self._classes.values())
        while len(self._classes) > 1 and (
            total > _CAPACITY_BYTES or len(self._classes) > _MOST_CLASSES
        ):
            total -= self._drop_oldest().nbytes

    def _drop_oldest(self) -> PodClass:
        key, dropped = self._classes.popitem(last=False)
        self.pod_bytes -= _pod_bytes(key, dropped)
        return dropped

    def __len__(self) -> int:
        return len(self._classes)


def _pod_bytes(key: tuple[object, ...], pod_class: PodClass) -> int:
    """The bytes of what policies read of the pods of a class, and of its example."""
    raw = b"" if pod_class.example is None else pod_class.example.raw or b""
    return len(raw) + read_bytes(key)


def read_bytes(key: tuple[object, ...]) -> int:
    """The bytes of what policies read of the pods of a class."""
    return size_of(key)
