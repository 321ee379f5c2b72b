"""Projections: the part of a pod, node or cluster that a hook reads, as canonical JSON.

Owns turning objects into the text that a hook is given. Two objects with the same projection are
the same to the hook, so its answer for one is its answer for the other: that is what every reuse
in `verdicts` rests on. A hook gets nothing beyond its projection; a field that the analysis missed
is therefore an error in the hook, never a stale answer.
"""

import copy
import functools
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.core.caching.snapshot import Snapshot
from engine.core.model.fact import Facts
from engine.core.model.node import Node
from engine.core.model.node_info import NodeInfo
from engine.language.effects import AGES
from engine.lib.change_log import ChangeLog
from engine.policy.view_fields import ClusterFacts, ViewField, Wanted
from engine.policy.views import VIEWS

_encoder = msgspec.json.Encoder(order="deterministic")
_encode: Callable[[Any], bytes] = _encoder.encode
_PATH = re.compile(r"^(?P<field>\w+)\[(?P<key>.*)\]$", re.DOTALL)

EVERYTHING = "*"

#: A field by its name, and the keys of it that are wanted; None for all.
Part: TypeAlias = tuple[str, ViewField, tuple[str, ...] | None]

_NUMBERS = itertools.count()

# How many changes of a column are remembered at least.
_LOG_SIZE = 16_384


class _Member:
    """One member of a node's projections, `"requested":{"cpu":1}`.

    Several columns share one, and a changed node is projected for each of them in turn: so the last
    text is kept. `_last` is replaced as a whole, for concurrent readers.
    """

    __slots__ = ("_extract", "_last", "_name", "_wanted")

    def __init__(self, name: str, field: ViewField, wanted: tuple[str, ...] | None) -> None:
        self._name = _encode(name) + b":"
        self._extract = field.extract
        self._wanted = wanted
        self._last: tuple[Any, bytes] = (None, b"")

    def of(self, item: Any, facts: ClusterFacts) -> bytes:
        """The member for *item*, which never changes."""
        last = self._last
        if last[0] is item:
            return last[1]
        value = _narrowed(self._extract(item, facts), self._wanted)
        text = self._name + _encode(value)
        self._last = item, text
        return text


class _PodTexts:
    """Members of the projections of the pod that was projected last, by field.

    Most hooks are given some of the same fields, and one pod after the other is asked about. Of one
    pod alone: what is long in it is not kept for longer than that. `_last` is replaced as a whole,
    for concurrent readers.
    """

    def __init__(self) -> None:
        self._last: tuple[Any, dict[tuple[str, tuple[str, ...] | None], bytes]] = (None, {})

    def of(self, part: Part, item: Any, facts: ClusterFacts) -> bytes:
        """The member of *part* for the pod *item*, which alone it is about."""
        last = self._last
        if last[0] is not item:
            last = self._last = item, {}
        name, field, wanted = part
        text = last[1].get((name, wanted))
        if text is None:
            value = _encode(_narrowed(field.extract(item, facts), wanted))
            text = last[1][name, wanted] = b'"' + name.encode() + b'":' + value
        return text


_pod_texts = _PodTexts()


def _narrowed(value: Any, wanted: tuple[str, ...] | None) -> Any:
    return value if wanted is None else {key: value[key] for key in wanted if key in value}


@functools.lru_cache(maxsize=1024)
def _member(name: str, field: ViewField, wanted: tuple[str, ...] | None) -> _Member:
    return _Member(name, field, wanted)


def _cut(part: Part, names: Collection[str]) -> Part:
    name, field, keys = part
    if field.wanted is None or keys is not None:
        return part
    return name, field, tuple(sorted({*field.wanted.always, *names}))


class Projector:
    """Encodes objects of one view as JSON of a fixed set of their fields.

    *paths* are those of `analysis.Reads`: `labels` is the whole field, `labels[disk]` one key of
    it, `*` everything but the manifest. Facts come without their age unless `AGES` is among the
    paths: a hook that does not look at ages is not asked again as time passes. Cost: one
    extraction per field and one encoding.

    `parts` are the attributes of a NodeInfo that the projection depends on, besides the node
    object; `is_placed`: there are such. `wanted` are the fields of which a pod wants some entries;
    they are whole but in what `cut_to` gives.
    """

    def __init__(self, view: str, paths: Iterable[str]) -> None:
        fields = VIEWS[view]
        self.paths = frozenset(paths)
        keys: dict[str, set[str] | None] = {}
        named: dict[str, set[str]] = {}
        for path in self.paths - {AGES}:
            if path == EVERYTHING:
                keys.update({name: None for name in fields if name != "manifest"})
                continue
            match = _PATH.match(path)
            if match is None:
                keys[path] = None
                continue
            named.setdefault(match["field"], set()).add(match["key"])
            if (narrowed := keys.setdefault(match["field"], set())) is not None:
                narrowed.add(match["key"])
        # Of these the whole has nothing in it but what is named.
        keys.update({name: wanted for name, wanted in named.items() if fields[name].is_asked})
        self.is_shared = any(fields[name].is_shared for name in keys)
        self.parts = tuple(sorted({part for name in keys for part in fields[name].parts}))
        self.is_placed = bool(self.parts)
        self._parts: list[Part] = [
            (name, fields[name], None if wanted is None else tuple(sorted(wanted)))
            for name, wanted in sorted(keys.items())
        ]
        self.wanted = {
            name: (field, field.wanted)
            for name, field, wanted in self._parts
            if field.wanted is not None and wanted is None
        }
        # What is the same as long as the node object is, apart from what placements change.
        self._fixed = [
            (name, field, wanted)
            for name, field, wanted in self._parts
            if view == "node" and not (field.parts or field.is_shared or field.fills)
        ]
        self._moving = [part for part in self._parts if part not in self._fixed]
        self._members: tuple[_Member, ...] | None = None
        if view == "node" and not any(f.is_shared or f.fills for _, f, _ in self._moving):
            self._members = tuple(_member(*part) for part in self._moving)
        self._is_of_pod = view == "pod"
        self._has_ages = AGES in self.paths
        # Of facts, by field: if they are of several pods, what is shown of missing ones, and which
        # are not shown.
        self._facts: dict[str, tuple[bool, dict[str, Any], set[str]]] = {}
        for name in sorted(keys):
            if fields[name].fills:
                is_nested = fields[name].type.startswith("dict[str, dict[")
                empty: Any = {} if is_nested else None
                missing = dict.fromkeys(sorted(named.get(name, ())), empty)
                left_out = fields[name].if_named.keys() - missing.keys()
                self._facts[name] = is_nested, missing, left_out

    def cut_to(self, names: Collection[str]) -> "Projector":
        """One that gives of the fields that are `wanted` only what is always, and of these names.

        An object that has none of the names looks the same to all that are cut so.
        """
        made = copy.copy(self)
        made._fixed = [_cut(part, names) for part in self._fixed]
        made._moving = [_cut(part, names) for part in self._moving]
        if self._members is not None:
            # Of names they are not worth keeping: pods make them up.
            made._members = None if names else tuple(_member(*part) for part in made._moving)
        return made

    def project(self, item: Any, facts: ClusterFacts) -> bytes:
        """The JSON object of this projector's fields of *item*; the order is the projector's."""
        return self.join(self.fixed(item, facts), item, facts)

    def fixed(self, item: Any, facts: ClusterFacts) -> bytes:
        """The members about the node object itself, each with a comma behind it."""
        if not self._fixed:
            return b""
        return _encode(self._values(self._fixed, item, facts))[1:-1] + b","

    def join(self, fixed: bytes, item: Any, facts: ClusterFacts) -> bytes:
        """The projection of *item*, whose `fixed` members are known."""
        if not self._moving:
            return b"{" + fixed[:-1] + b"}"
        if self._members is not None:
            return b"{" + fixed + b",".join([one.of(item, facts) for one in self._members]) + b"}"
        if self._is_of_pod:
            return b"{" + b",".join([self._of_pod(one, item, facts) for one in self._moving]) + b"}"
        values = self._values(self._moving, item, facts)
        for name in self._facts:
            values[name] = self._shown(name, values[name])
        return b"{" + fixed + _encode(values)[1:]

    def _of_pod(self, part: Part, pod: Any, facts: ClusterFacts) -> bytes:
        """The member of *part* for *pod*."""
        name, field, wanted = part
        if not field.changed_by:
            return _pod_texts.of(part, pod, facts)
        value = _narrowed(field.extract(pod, facts), wanted)
        if name in self._facts:
            value = self._shown(name, value)
        return b'"' + name.encode() + b'":' + _encode(value)

    def project_all(
        self, items: Sequence[Any], facts: ClusterFacts
    ) -> tuple[list[bytes], list[bytes]]:
        """What `fixed` and `project` say of each of *items*, at less than half their cost."""
        fixed = self._members_of(self._fixed, items, facts)
        moving = self._members_of(self._moving, items, facts)
        pairs = zip(fixed, moving, strict=True)
        return fixed, [b"{" + (first + rest)[:-1] + b"}" for first, rest in pairs]

    def _members_of(
        self, parts: Sequence[Part], items: Sequence[Any], facts: ClusterFacts
    ) -> list[bytes]:
        """By item, the members of *parts*, each with a comma behind it."""
        members = []
        for name, field, wanted in parts:
            values = [field.extract(item, facts) for item in items]
            if wanted is not None:
                values = [_narrowed(value, wanted) for value in values]
            if name in self._facts:
                values = [self._shown(name, value) for value in values]
            head = _encode(name) + b":"
            lines = _encoder.encode_lines(values).split(b"\n")  # texts have none of their own
            members.append([head + line + b"," for line in lines[:-1]])
        return [b"".join(each) for each in zip(*members, strict=True)] or [b""] * len(items)

    @staticmethod
    def _values(parts: Sequence[Part], item: Any, facts: ClusterFacts) -> dict[str, Any]:
        return {
            name: field.extract(item, facts)
            if wanted is None
            else _narrowed(field.extract(item, facts), wanted)
            for name, field, wanted in parts
        }

    def _shown(self, name: str, found: Any) -> dict[str, Any]:
        """What a hook is shown of facts, the missing ones included."""
        is_nested, missing, left_out = self._facts[name]
        if is_nested:
            return missing | {key: self._plain(facts) for key, facts in found.items()}
        if left_out:
            found = {key: fact for key, fact in found.items() if key not in left_out}
        return missing | self._plain(found)

    def _plain(self, facts: Facts) -> dict[str, Any]:
        return {name: fact.plain(with_age=self._has_ages) for name, fact in facts.items()}


class NodeColumn:
    """The projection of every node for one set of fields, as small integers by slot.

    `ids[slot]` indexes `values`; -1 where the slot has no node. Ids stay valid until `compact`
    renumbers them, which happens when dead projections outnumber the living ones by far. The owner
    of the column says which slots to look at (`scheduling.node_columns`). `changes` are the slots
    whose node got another id, some of them twice.

    Where a pod wants entries of its own (`Projector.wanted`), this is how nodes look without them,
    and `WantedColumn` how they look to that pod. *optional* says which nodes have such.
    """

    __slots__ = (
        "_cut", "_cut_fixed", "_fixed", "_index", "_nodes",
        "changes", "epoch", "ids", "number", "optional", "projector", "values",
    )  # fmt: skip

    def __init__(
        self,
        projector: Projector,
        optional: "OptionalEntries | None" = None,
        names: Collection[str] = (),
    ) -> None:
        self.projector = projector
        self.optional = optional
        self._cut = projector if optional is None else projector.cut_to(names)
        self.ids: NDArray[np.intp] = np.empty(0, np.intp)
        self.values: list[bytes] = []
        self.number = next(_NUMBERS)  # of `values`, which only grow as long as it is the same
        self._index: dict[bytes, int] = {}
        # By slot: the node object that was last projected, and the members about it alone.
        self._nodes: list[Node | None] = []
        self._fixed: list[bytes] = []
        self._cut_fixed: dict[int, tuple[Node, bytes]] = {}  # the same where there are optional
        self.epoch = 0  # grows when ids are renumbered: whatever is indexed by them must follow
        self.changes: ChangeLog[int] = ChangeLog(_LOG_SIZE)

    @property
    def store(self) -> "NodeColumn":
        """The column whose ids these are."""
        return self

    def reuse_from(self, other: "NodeColumn") -> None:
        """Copy the projections of *other*, a column of the same fields; for an empty column."""
        self.ids = other.ids.copy()
        self.values, self._index = other.values.copy(), other._index.copy()
        self.number = next(_NUMBERS)
        self._nodes, self._fixed = other._nodes.copy(), other._fixed.copy()
        self.changes.restart()

    def update(self, snapshot: Snapshot, slot: int) -> None:
        """Project the node of *slot* again; the others are as they were."""
        info = snapshot.infos[slot]
        if self.optional is not None:
            self.optional.note(slot, info, snapshot)
        if info is None or info.node is None:
            known = -1
            self._nodes[slot] = None
            self._cut_fixed.pop(slot, None)
        else:
            known = self._id_of(self._project(slot, info, snapshot))
        if self.ids.item(slot) != known:
            self.ids[slot] = known
            self.changes.note(slot)

    def update_all(self, snapshot: Snapshot) -> None:
        """Project every node again, and extend the column to new slots."""
        infos = snapshot.infos
        size = len(self.ids)
        if size < len(infos):
            size = max(len(infos), 2 * size)
        before = np.full(size, -1, np.intp)
        before[: len(self.ids)] = self.ids
        nodes = {i: info for i, info in enumerate(infos) if info is not None and info.node}
        slots, present = list(nodes), list(nodes.values())
        fixed, values = self.projector.project_all(present, snapshot)
        if self.optional is not None:
            self.optional.note_all(snapshot)
            for place, slot in enumerate(slots):
                if slot in self.optional.at:
                    values[place] = self._cut.project(present[place], snapshot)
        self.ids = np.full(size, -1, np.intp)
        self.ids[slots] = [self._id_of(value) for value in values]
        self.changes.extend(np.flatnonzero(self.ids != before).tolist())
        self._nodes, self._fixed = [None] * size, [b""] * size
        if self.projector.is_placed:
            for slot, info, text in zip(slots, present, fixed, strict=True):
                self._nodes[slot], self._fixed[slot] = info.node, text

    def _id_of(self, value: bytes) -> int:
        found = self._index.get(value)
        if found is None:
            found = self._index[value] = len(self.values)
            self.values.append(value)
        return found

    @property
    def version(self) -> int:
        """Grows by one with each node that gets another id."""
        return self.changes.end

    def _project(self, slot: int, info: NodeInfo, snapshot: Snapshot) -> bytes:
        if self.optional is None or slot not in self.optional.at:
            return self.whole(slot, info, snapshot)
        node = info.node
        assert node is not None
        known = self._cut_fixed.get(slot)
        if known is None or known[0] is not node:
            known = self._cut_fixed[slot] = node, self._cut.fixed(info, snapshot)
        return self._cut.join(known[1], info, snapshot)

    def whole(self, slot: int, info: NodeInfo, snapshot: Snapshot) -> bytes:
        """The projection of the node of *slot* with all its entries."""
        projector = self.projector
        if not projector.is_placed:
            return projector.project(info, snapshot)
        if self._nodes[slot] is not info.node:
            self._nodes[slot], self._fixed[slot] = info.node, projector.fixed(info, snapshot)
        return projector.join(self._fixed[slot], info, snapshot)

    def value_at(self, slot: int) -> bytes:
        """The projection of the node in *slot*, which must hold one."""
        return self.values[self.ids.item(slot)]

    def id_if(self, slot: int, info: NodeInfo, snapshot: Snapshot) -> int:
        """The id that the node of *slot* would have with *info*. Valid until the next `compact`.

        *info* is about the node object of *snapshot*, with other pods.
        """
        if not self.projector.is_placed:
            return int(self.ids[slot])
        return self._id_of(self._project(slot, info, snapshot))

    def compact(self) -> NDArray[np.int64] | None:
        """Drop projections that no node has, if that is worth it.

        Returns the old ids in their new order, for tables to follow, or None if nothing changed.
        Dead projections are kept for a while on purpose: a node that loses a pod returns to a
        projection that it had before.
        """
        if len(self.values) <= 4096:
            return None
        living = np.flatnonzero(np.bincount(self.ids[self.ids >= 0], minlength=1))
        if len(self.values) <= 4 * len(living):
            return None
        renumbered = np.full(len(self.values) + 1, -1, np.intp)
        renumbered[living] = np.arange(len(living), dtype=np.intp)
        self.ids = renumbered[self.ids]  # -1 picks the extra last entry, which is -1
        self.values = [self.values[i] for i in living]
        self._index = {value: i for i, value in enumerate(self.values)}
        self.epoch += 1
        self.number = next(_NUMBERS)
        return living


class OptionalEntries:
    """The nodes that have entries which only some pods want; shared by columns of the same fields.

    Attributes:
        at: By slot, what each such entry is in the fields; slots without any are left out.
        changes: The slots where it changed.
    """

    def __init__(self, wanted: Mapping[str, tuple[ViewField, Wanted]]) -> None:
        self._wanted = tuple(wanted.values())
        self._slots_of: dict[str, set[int]] = {}
        self._infos: dict[int, NodeInfo | None] = {}  # as they were noted
        self.at: dict[int, dict[str, tuple[Any, ...]]] = {}
        self.changes: ChangeLog[int] = ChangeLog(_LOG_SIZE)

    def reuse_from(self, other: "OptionalEntries") -> None:
        """Take over what *other* has noted, of the same fields."""
        self._slots_of = {name: slots.copy() for name, slots in other._slots_of.items()}
        self._infos, self.at = other._infos.copy(), other.at.copy()
        self.changes.restart()

    def note(self, slot: int, info: NodeInfo | None, snapshot: Snapshot) -> None:
        """Take the NodeInfo of *slot*."""
        if info is not None and self._infos.get(slot) is info:
            return
        self._infos[slot] = info
        optional: dict[str, tuple[Any, ...]] = {}
        if info is not None and info.node is not None:
            names = set[str]()
            for field, of in self._wanted:
                entries = field.extract(info, snapshot)
                if not entries.keys() <= of.always:
                    names |= entries.keys() - of.always
            if names:
                found = [field.extract(info, snapshot) for field, _ in self._wanted]
                optional = {name: tuple([entries.get(name) for entries in found]) for name in names}
        known = self.at.get(slot, {})
        if optional == known:
            return
        self.changes.note(slot)
        for name in known.keys() - optional.keys():
            self._slots_of[name].discard(slot)
            if not self._slots_of[name]:
                del self._slots_of[name]
        for name in optional.keys() - known.keys():
            self._slots_of.setdefault(name, set()).add(slot)
        if optional:
            self.at[slot] = optional
        else:
            del self.at[slot]

    def note_all(self, snapshot: Snapshot) -> None:
        """Take all NodeInfos of *snapshot*, and no others."""
        infos = snapshot.infos
        for slot in [slot for slot in self.at if slot >= len(infos)]:
            self.note(slot, None, snapshot)
        for slot, info in enumerate(infos):
            self.note(slot, info, snapshot)

    def having(self, names: Iterable[str]) -> set[int]:
        """The slots of the nodes that have an entry of one of *names*."""
        return set().union(*(self._slots_of.get(name, ()) for name in names))


class WantedColumn(NodeColumn):
    """A column as the pods see it that want *names*: its ids are those of *store*.

    A node without any such entry looks as it does there, so only the others are projected again.
    Not brought up to date with *store*, but by `follow`, for a pod of the class that it is for.
    """

    __slots__ = ("__weakref__", "_read", "_store", "names")

    def __init__(self, store: NodeColumn, optional: OptionalEntries, names: frozenset[str]) -> None:
        super().__init__(store.projector, optional, names)
        self._store = store
        self.names = names
        self._read = (-1, 0, 0)  # the epoch of *store*, and how far the logs were read

    @property
    def store(self) -> NodeColumn:
        """The column whose ids these are."""
        return self._store

    def follow(self, snapshot: Snapshot) -> None:
        """Bring the ids up to *snapshot*, to which `store` was brought before."""
        store, optional = self._store, self.optional
        assert optional is not None
        read, self._read = self._read, (store.epoch, store.changes.end, optional.changes.end)
        if read == self._read and len(self.ids) == len(store.ids):
            return
        self.values, self._index = store.values, store._index
        self.number, self.epoch = store.number, store.epoch
        slots = None
        if read[0] >= 0:
            moved, offered = store.changes.since(read[1]), optional.changes.since(read[2])
            slots = None if moved is None or offered is None else {*moved, *offered}
        if slots is None or read[0] != store.epoch or len(self.ids) != len(store.ids):
            self.ids = store.ids.copy()
            for slot in optional.having(self.names):
                self.ids[slot] = self._id_at(slot, snapshot)
            if slots is None:
                self.changes.restart()
            else:
                self.changes.extend(slots)
            return
        for slot in slots:
            known = self._id_at(slot, snapshot)
            if self.ids.item(slot) != known:
                self.ids[slot] = known
                self.changes.note(slot)

    def _id_at(self, slot: int, snapshot: Snapshot) -> int:
        """The id of the node of *slot*; -1 without a node."""
        store, optional = self._store, self.optional
        info = snapshot.infos[slot] if slot < len(snapshot.infos) else None
        offered: Mapping[str, Any] | None = None if optional is None else optional.at.get(slot)
        if not offered or info is None or self.names.isdisjoint(offered):
            return store.ids.item(slot)
        if offered.keys() <= self.names:
            return self._id_of(store.whole(slot, info, snapshot))
        return self._id_of(self._cut.project(info, snapshot))

    def id_if(self, slot: int, info: NodeInfo, snapshot: Snapshot) -> int:
        """As of `NodeColumn`."""
        if not self.projector.is_placed:
            return int(self.ids[slot])
        return self._id_of(self._cut.project(info, snapshot))
