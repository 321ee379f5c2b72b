"""Which kinds of pods a counter may count: by a label that they have, or that their terms ask for.

Owns the indexes. What is found may still not match; what is not found cannot.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Generic, TypeVar

from engine.core.model.objects import Affinity, PodAffinityTerm
from engine.core.model.selectors import label_keys

K = TypeVar("K")
V = TypeVar("V")
Label = tuple[str, str]

# A dict takes some 100 bytes an entry; one with so many times as much is worth a copy.
_SPARSE: Final = 400
_FEW: Final = 1024

# Label keys by which kinds are filed; a cluster has few that selectors ask for.
_MOST_KEYS: Final = 64


class LabelIndex:
    """Kinds by their value of each label key that was asked for lately."""

    def __init__(self) -> None:
        self._by_key: dict[str, dict[str, dict[int, None]]] = {}

    def add(self, kind: int, labels: Mapping[str, str]) -> None:
        """File a new kind."""
        for key, by_value in self._by_key.items():
            if key in labels:
                by_value.setdefault(labels[key], {})[kind] = None

    def remove(self, kind: int, labels: Mapping[str, str]) -> None:
        """Leave out a kind that is forgotten."""
        for key, by_value in self._by_key.items():
            if key in labels:
                _leave_out(by_value, labels[key], kind)

    def having(
        self, label: Label, labels_of: Iterable[tuple[int, Mapping[str, str]]]
    ) -> AbstractSet[int]:
        """The kinds with *label*; *labels_of* has all kinds, for a key that is new here."""
        key, value = label
        by_value = self._by_key.get(key)
        if by_value is None:
            if len(self._by_key) >= _MOST_KEYS:
                del self._by_key[next(iter(self._by_key))]
            by_value = self._by_key[key] = {}
            for kind, labels in labels_of:
                if key in labels:
                    by_value.setdefault(labels[key], {})[kind] = None
        return by_value.get(value, {}).keys()


class TermKeys(Generic[K]):
    """The label keys that the affinity terms of pods, or of kinds of them, name."""

    def __init__(self) -> None:
        self._of: dict[K, set[str]] = {}
        self._count: dict[str, int] = {}

    def copy(self) -> "TermKeys[K]":
        """Keys of its own."""
        made = TermKeys[K]()
        made._of, made._count = self._of.copy(), self._count.copy()
        return made

    def add(self, one: K, affinity: Affinity) -> None:
        """Count what *affinity* names for *one*, which is new."""
        self._of[one] = keys = term_keys(affinity)
        for key in keys:
            self._count[key] = self._count.get(key, 0) + 1

    def remove(self, one: K) -> None:
        """Leave *one* out, if it is here."""
        for key in self._of.pop(one, ()):
            self._count[key] -= 1
            if not self._count[key]:
                del self._count[key]
        self._count = _shrunk(self._count)

    @property
    def named(self) -> AbstractSet[str]:
        """All of them: pods with equal values of them are selected alike."""
        return self._count.keys()


class TermIndex:
    """Kinds with affinity terms, by a label that each of the terms asks for.

    `keys` are the label keys that the terms name.
    """

    def __init__(self) -> None:
        self.keys = TermKeys[int]()
        self._labels: dict[int, tuple[Label | None, ...]] = {}
        # None: terms that name no label. Most labels are one kind's, which may have thousands.
        self._kinds: dict[Label | None, int | dict[int, None]] = {}

    def copy(self) -> "TermIndex":
        """An index of its own."""
        made = TermIndex()
        made._labels = self._labels.copy()
        made.keys = self.keys.copy()
        made._kinds = {
            label: kinds if isinstance(kinds, int) else kinds.copy()
            for label, kinds in self._kinds.items()
        }
        return made

    def add(self, kind: int, affinity: Affinity) -> None:
        """File a new kind that has *affinity*."""
        labels = dict.fromkeys(map(_asked_label, terms_of(affinity)))
        self._labels[kind] = tuple(labels)
        for label in labels:
            known = self._kinds.get(label)
            if known is None:
                self._kinds[label] = kind
            elif isinstance(known, int):
                self._kinds[label] = {known: None, kind: None}
            else:
                known[kind] = None
        self.keys.add(kind, affinity)

    def remove(self, kind: int) -> None:
        """Leave out a kind that is forgotten, if it is here."""
        for label in self._labels.pop(kind, ()):
            known = self._kinds[label]
            if not isinstance(known, int):
                del known[kind]
            if isinstance(known, int) or not known:
                del self._kinds[label]
        self._kinds = _shrunk(self._kinds)
        self.keys.remove(kind)

    def matching(self, labels: Mapping[str, str]) -> set[int]:
        """The kinds of which a term may select a pod with *labels*."""
        found = set[int]()
        for label in (None, *labels.items()):
            kinds = self._kinds.get(label)
            if isinstance(kinds, int):
                found.add(kinds)
            elif kinds is not None:
                found.update(kinds)
        return found


def first_label(labels: Mapping[str, str]) -> Label | None:
    """One of the labels that a selector names, which all have that it selects; None: no label."""
    return next(iter(labels.items()), None)


def _asked_label(term: PodAffinityTerm) -> Label | None:
    selector = term.label_selector
    return None if selector is None else first_label(selector.match_labels)


def term_keys(affinity: Affinity) -> set[str]:
    """The label keys of other pods that the terms of *affinity* name."""
    return set().union(*(label_keys(term.label_selector) for term in terms_of(affinity)))


def _leave_out(index: dict[K, dict[int, None]], key: K, kind: int) -> None:
    kinds = index[key]
    del kinds[kind]
    if not kinds:
        del index[key]


def _shrunk(index: dict[K, V]) -> dict[K, V]:
    """*index*; a copy if it is nearly empty and was large: a dict does not give memory back."""
    return dict(index) if sys.getsizeof(index) > _SPARSE * (len(index) + _FEW) else index


def terms_of_kind(affinity: Affinity, kind: str) -> Sequence[tuple[PodAffinityTerm, int]]:
    """The terms of *kind*, as `count_terms` names them, each with its weight."""
    rules = affinity.pod_anti_affinity if "anti" in kind else affinity.pod_affinity
    if rules is None:
        return ()
    if kind.startswith("required"):
        return [(term, 1) for term in rules.required]
    return [(p.pod_affinity_term, p.weight) for p in rules.preferred]


def terms_of(affinity: Affinity) -> Iterator[PodAffinityTerm]:
    """All terms about other pods, required and preferred."""
    for rules in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if rules is not None:
            yield from rules.required
            yield from (preferred.pod_affinity_term for preferred in rules.preferred)
