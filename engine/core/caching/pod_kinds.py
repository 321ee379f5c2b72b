"""The placed pods by kind and node; a kind is all pods that no counter can distinguish.

Owns the kinds and the log of their changes; a counter follows the log instead of the pods. Where
each pod has a label of its own there are as many kinds as pods, so a counter that begins looks up
those that it may count (`kind_index`).
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

from engine.core.caching.kind_index import Label, LabelIndex, TermIndex
from engine.core.caching.own_terms import NO_TERMS, OwnTerms, own_terms
from engine.core.caching.snapshot import Snapshot
from engine.core.model.pod import Pod
from engine.core.model.resources import Amounts
from engine.lib.change_log import ChangeLog


@dataclass(frozen=True, slots=True)
class PodKind:
    """What counters may look at of a pod; pods of one kind are counted alike.

    `own` are its affinity terms, `terms` a name for them: the same for kinds that differ in
    something else. `requests` are what it takes of its node.
    """

    namespace: str
    labels: Mapping[str, str]
    is_terminating: bool
    own: OwnTerms
    terms: bytes
    requests: Amounts


def _kind_key(pod: Pod) -> tuple[Any, ...]:
    labels = tuple(sorted(pod.labels.items()))
    requests = tuple(sorted(pod.running_requests.items()))
    return pod.namespace, labels, pod.is_terminating, own_terms(pod).name, requests


def _pod_kind(pod: Pod, key: tuple[Any, ...]) -> PodKind:
    own = OwnTerms(own_terms(pod).affinity, pod.namespace) if key[3] else NO_TERMS
    return PodKind(pod.namespace, pod.labels, key[2], own, key[3], pod.running_requests)


class PodKinds:
    """How many pods of each kind are on each node, with a log of the changes.

    Kinds without pods are forgotten once they outnumber the rest; large ones at once, since the
    creators of pods decide how large one is.
    """

    _LOG_SIZE: Final = 65_536
    _MOST_KINDS: Final = 4096
    # Labels, terms and requests together.
    _LARGE: Final = 64
    # New kinds between two looks for those without pods.
    _TRIM_EVERY: Final = 1024

    def __init__(self) -> None:
        self.kinds: dict[int, PodKind] = {}
        self.slots_of: dict[int, dict[int, int]] = {}  # kind -> slot -> pods
        self.with_terms = TermIndex()  # the kinds that have affinity terms
        self.labeled = LabelIndex()
        # (kind, slot, pods more or less)
        self._changes: ChangeLog[tuple[int, int, int]] = ChangeLog(self._LOG_SIZE)
        self._ids: dict[tuple[Any, ...], int] = {}
        self._keys: dict[int, tuple[Any, ...]] = {}
        self._next_id = 0
        self._trim_at = 0
        # By slot: uid -> (pod, kind), of which version of the node's pods, and if no copy has it.
        self._pods: list[dict[str, tuple[Pod, int]]] = []
        self._versions: list[int] = []
        self._is_own: list[bool] = []
        self._history: object = None
        self._generation = -1

    def copy(self) -> "PodKinds":
        """Kinds of their own that know the same, at the same position."""
        made = PodKinds()
        made.kinds, made._keys, made._ids = self.kinds.copy(), self._keys.copy(), self._ids.copy()
        made.slots_of = {kind: slots.copy() for kind, slots in self.slots_of.items()}
        made.with_terms = self.with_terms.copy()  # what is `labeled` is filed when it is asked for
        made._changes = self._changes.copy()
        made._next_id, made._trim_at = self._next_id, self._trim_at
        made._pods, made._versions = self._pods.copy(), self._versions.copy()
        self._is_own = [False] * len(self._pods)
        made._is_own = self._is_own.copy()
        made._history, made._generation = self._history, self._generation
        return made

    @property
    def position(self) -> int:
        """The end of the log; see `changes_since`."""
        return self._changes.end

    def changes_since(self, position: int) -> list[tuple[int, int, int]] | None:
        """The (kind, slot, difference) after *position*; None if the log is too short."""
        return self._changes.since(position)

    def refresh(self, snapshot: Snapshot) -> None:
        """Bring the kinds up to *snapshot*."""
        continues = snapshot.continues(self._history, self._generation)
        if continues and snapshot.generation == self._generation:
            return
        changed: Sequence[int] | None = None
        if continues:
            changed = snapshot.changed_since(self._generation)
        elif self._history is not None:
            self._restart()
        while len(self._pods) < len(snapshot.infos):
            self._pods.append({})
            self._versions.append(-1)
            self._is_own.append(True)
        for slot in range(len(snapshot.infos)) if changed is None else changed:
            self._refresh_slot(slot, snapshot)
        self._history, self._generation = snapshot.history, snapshot.generation
        self._trim()

    def _refresh_slot(self, slot: int, snapshot: Snapshot) -> None:
        """Cost: the pods that came, changed or went, if the node knows which those are."""
        info = snapshot.infos[slot]
        pods: Mapping[str, Pod] = {}
        changed = None
        if info is not None:
            pods, changed = info.pods, info.pods_since(self._versions[slot])
        if changed is None:
            changed = [*pods, *(uid for uid in self._pods[slot] if uid not in pods)]
        self._versions[slot] = -1 if info is None else info.pods_version
        if not changed:
            return
        if not self._is_own[slot]:
            self._pods[slot], self._is_own[slot] = self._pods[slot].copy(), True
        known = self._pods[slot]
        for uid in changed:
            before, pod = known.get(uid), pods.get(uid)
            if pod is None:
                if before is not None:
                    del known[uid]
                    self._add(before[1], slot, -1)
            elif before is None or before[0] is not pod:
                kind = self._kind_of(pod)
                known[uid] = (pod, kind)
                if before is None or before[1] != kind:
                    self._add(kind, slot, 1)
                    if before is not None:
                        self._add(before[1], slot, -1)

    def having(self, label: Label) -> AbstractSet[int]:
        """The kinds with *label*."""
        return self.labeled.having(label, ((kind, one.labels) for kind, one in self.kinds.items()))

    def kind_of(self, slot: int, pod: Pod) -> tuple[int | None, PodKind]:
        """The kind of a pod that is on the node of *slot*, or might be; None: a new kind."""
        known = self._pods[slot].get(pod.uid) if slot < len(self._pods) else None
        if known is not None and known[0] is pod:
            return known[1], self.kinds[known[1]]
        key = _kind_key(pod)
        kind = self._ids.get(key)
        return kind, _pod_kind(pod, key) if kind is None else self.kinds[kind]

    def _kind_of(self, pod: Pod) -> int:
        key = _kind_key(pod)
        kind = self._ids.get(key)
        if kind is None:
            kind = self._ids[key] = self._next_id
            self._next_id += 1
            self._keys[kind] = key
            self.kinds[kind] = _pod_kind(pod, key)
            self.slots_of[kind] = {}
            self.labeled.add(kind, pod.labels)
            if key[3]:
                self.with_terms.add(kind, self.kinds[kind].own.affinity)
        return kind

    def _add(self, kind: int, slot: int, difference: int) -> None:
        slots = self.slots_of[kind]
        count = slots.get(slot, 0) + difference
        if count:
            slots[slot] = count
        else:
            del slots[slot]
        self._changes.note((kind, slot, difference))
        if not slots and self._is_large(kind):
            # A reader that meets it in the log has counted its pods, or finds none to count.
            self._forget(kind)

    def _is_large(self, kind: int) -> bool:
        one = self.kinds[kind]
        return len(one.labels) + one.own.count() + len(one.requests) > self._LARGE

    def _forget(self, kind: int) -> None:
        """Forget a kind without pods."""
        self.labeled.remove(kind, self.kinds[kind].labels)
        self.with_terms.remove(kind)
        del self.slots_of[kind], self.kinds[kind]
        del self._ids[self._keys.pop(kind)]

    def _restart(self) -> None:
        """Another snapshot: nothing that was counted holds, and every reader must start over."""
        self._pods.clear()
        self._versions.clear()
        self._is_own.clear()
        for slots in self.slots_of.values():
            slots.clear()
        self._changes.restart()

    def _trim(self) -> None:
        if self._next_id < self._trim_at:
            return
        self._trim_at = self._next_id + self._TRIM_EVERY
        if len(self.kinds) > self._MOST_KINDS:
            gone = [kind for kind, slots in self.slots_of.items() if not slots]
            if 2 * len(gone) > len(self.kinds):
                # A reader may still meet a forgotten kind in the log: start the log over.
                for kind in gone:
                    self._forget(kind)
                self._changes.restart()
