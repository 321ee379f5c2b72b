"""Which kinds of objects a decision depends on: whether it can be made while some are unknown.

Owns the derivation; no list of it is kept:

- a hook depends on what is behind the fields that the analysis found it to read: a field of a pod
  on the kinds that making it for *this* pod looks at, one of nodes, the cluster or the group on the
  kinds that can change it (`ViewField.changed_by`), counters on the labels of namespaces;
- a plugin of the runtime that has something to say about the pod depends on the kinds of its
  queueing hints;
- preemption depends on disruption budgets, and on what the hooks that choose victims read.

A hook that a pre-filter switched off for the pod is not asked, so nothing depends on what it reads.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from engine.core.caching.objects import ApiObject, ObjectStore, Value, object_key
from engine.core.caching.snapshot import Snapshot
from engine.core.framework.profile import EnabledPolicy, Profile
from engine.core.framework.reasons import CLUSTER_READS
from engine.core.framework.status import Code, Status
from engine.core.model.event_kinds import KINDS, PLURALS
from engine.core.model.pod import Pod
from engine.core.queueing.hints import INTERESTS
from engine.core.queueing.places import Gate
from engine.core.scheduling import disruption_budgets
from engine.core.scheduling.counted import CountedHook
from engine.core.scheduling.feasibility import RuntimeUse
from engine.core.scheduling.hook_use import HookUse
from engine.core.scheduling.pod_class import PodClass
from engine.core.scheduling.pod_hooks import PodHooks
from engine.core.scheduling.runtime_plugin import RuntimePlugin
from engine.core.scheduling.unread_objects import ALWAYS, held_by
from engine.core.scheduling.victims import PLUGIN
from engine.policy.analysis import Reads
from engine.policy.bundle import Bundle
from engine.policy.view_events import ANYTHING, fields_of, resources_behind
from engine.policy.views import VIEWS

#: What only preemption asks.
_OF_PREEMPTION: Final = frozenset({"victim_key", "candidate_key"})


class Dependencies:
    """What decisions by the policies of *bundle* depend on; *hooks* know the groups of pods."""

    def __init__(self, bundle: Bundle, hooks: PodHooks) -> None:
        self._bundle = bundle
        self._hooks = hooks

    def missing(
        self,
        profile: Profile,
        pod: Pod,
        pod_class: PodClass,
        uses: Iterable[RuntimeUse],
        snapshot: Snapshot,
    ) -> Status | None:
        """Why *pod* cannot be decided while some kinds are unknown; None: it depends on none.

        *uses* are the plugins of the runtime that have something to say about it.
        """
        unknown = snapshot.objects.unknown
        for plural in ALWAYS:
            if plural in unknown:
                return _held("every decision", plural, unknown)
        for user, plural in self._read(profile, pod, pod_class, uses, snapshot) if unknown else ():
            if plural in unknown:
                return _held(user, plural, unknown)
        if snapshot.objects.unread:
            for enabled, field in self._fields(profile):
                looked_at = _looked_at(field, pod, snapshot)
                if looked_at.unread:
                    return held_by(enabled.policy, looked_at.unread)
        return None

    def kinds(
        self,
        profile: Profile,
        pod: Pod,
        pod_class: PodClass,
        uses: Iterable[RuntimeUse],
        snapshot: Snapshot,
    ) -> set[str]:
        """The plural names of what the decision about *pod* depends on; see `missing`."""
        return {plural for _, plural in self._read(profile, pod, pod_class, uses, snapshot)}

    def gate(self, profile: Profile, pod: Pod, gate: Gate, snapshot: Snapshot) -> Gate:
        """*gate*, or one that says what it depends on and cannot be read: that is why it is shut.

        A claim or a group that is not known need not be missing.
        """
        unknown = snapshot.objects.unknown
        for plural in self._behind_gate(profile, pod, gate.plugin, snapshot) if unknown else ():
            if plural in unknown:
                held = _held(gate.plugin, plural, unknown)
                return Gate(gate.plugin, held.message, held.token)
        return gate

    def _behind_gate(
        self, profile: Profile, pod: Pod, policy: str, snapshot: Snapshot
    ) -> Iterator[str]:
        plugin = self._hooks.plugins.get(policy)
        if plugin is not None:
            yield from of_plugin(plugin)
        for enabled in profile.at("pre_enqueue"):
            if enabled.policy != policy:
                continue
            reads = self._reads(policy, "pre_enqueue")
            for field in sorted(fields_of("pod", reads.pod)):
                yield from sorted(_looked_at(field, pod, snapshot).kinds)
            yield from _behind(reads, ["cluster"])
            if "group" in reads.params and self._hooks.group_of(enabled, pod, snapshot) is not None:
                yield from sorted({PLURALS["PodGroup"], *_behind(reads, ["group"])})

    def missing_for_preemption(self, profile: Profile, snapshot: Snapshot) -> Status | None:
        """Why no victims can be chosen while some kinds are unknown; None: they can."""
        unknown = snapshot.objects.unknown
        for user, plural in self.of_preemption(profile):
            if plural in unknown:
                return _held(user, plural, unknown)
        return None

    def of_preemption(self, profile: Profile) -> Iterator[tuple[str, str]]:
        """What choosing victims depends on: who, and the plural name."""
        yield PLUGIN, disruption_budgets.KIND
        for hook in sorted(_OF_PREEMPTION):
            for enabled in profile.at(hook):
                reads = self._reads(enabled.policy, hook)
                for plural in _behind(reads, VIEWS):
                    yield enabled.policy, plural

    def _reads(self, policy: str, hook: str) -> Reads:
        return self._bundle.policies[policy].hooks.get(hook, Reads())

    def _fields(self, profile: Profile) -> Iterator[tuple[EnabledPolicy, str]]:
        """The fields of the pod that are read, each once, with the first that reads it."""
        made: set[str] = set()
        for hook, all_enabled in profile.points.items():
            if hook in _OF_PREEMPTION:
                continue
            for enabled in all_enabled:
                fields = fields_of("pod", self._reads(enabled.policy, hook).pod) - made
                made |= fields
                yield from ((enabled, field) for field in sorted(fields))

    def _read(
        self,
        profile: Profile,
        pod: Pod,
        pod_class: PodClass,
        uses: Iterable[RuntimeUse],
        snapshot: Snapshot,
    ) -> Iterator[tuple[str, str]]:
        # 1. What is read of the pod, and of all else but nodes, by hooks that are always asked.
        made: dict[str, frozenset[str]] = {}
        for hook, all_enabled in profile.points.items():
            if hook in _OF_PREEMPTION:
                continue
            for enabled in all_enabled:
                reads = self._reads(enabled.policy, hook)
                for field in sorted(fields_of("pod", reads.pod)):
                    if field not in made:
                        made[field] = _looked_at(field, pod, snapshot).kinds
                    for plural in sorted(made[field]):
                        yield enabled.policy, plural
                # `tie_key` and `annotate` are asked whatever the pre-filters said.
                views = ["cluster", *(["node"] if hook in ("tie_key", "annotate") else [])]
                for plural in _behind(reads, views):
                    yield enabled.policy, plural
                is_grouped = "group" in reads.params
                if is_grouped and self._hooks.group_of(enabled, pod, snapshot) is not None:
                    for plural in {PLURALS["PodGroup"], *_behind(reads, ["group"])}:
                        yield enabled.policy, plural
        # 2. What is read of nodes, by the hooks that are asked about this pod.
        asked: Sequence[HookUse | CountedHook] = (
            *pod_class.filters,
            *pod_class.scores,
            *pod_class.counted_filters,
            *pod_class.counted_scores,
            *pod_class.whole_scores,
        )
        for use in asked:
            for plural in _behind(self._reads(use.enabled.policy, use.hook), ("node",)):
                yield use.enabled.policy, plural
        # 3. The plugins of the runtime.
        for one in uses:
            for plural in of_plugin(one.plugin):
                yield one.plugin.name, plural


def of_plugin(plugin: RuntimePlugin) -> list[str]:
    """The plural names of what a plugin of the runtime depends on."""
    kinds = {interest.resource for interest in INTERESTS.get(plugin.name, ())} | plugin.also_reads
    return sorted(PLURALS[kind] for kind in kinds if kind in PLURALS)


def _behind(reads: Reads, views: Iterable[str]) -> list[str]:
    """The plural names of what is behind the fields that are read of *views*, and the counters."""
    kinds: set[str] = set()
    for view in views:
        kinds |= resources_behind(view, fields_of(view, reads.of(view)))
    if "counts" in reads.params:
        kinds.add("Namespace")  # which pods a counter counts
    if ANYTHING in kinds:
        return sorted(KINDS)
    return sorted(PLURALS[kind] for kind in kinds if kind in PLURALS)


class _LookedAt(NamedTuple):
    """What making a field of a pod looks at: kinds of objects, and those that cannot be read."""

    kinds: frozenset[str] = frozenset()
    unread: Mapping[tuple[str, str], ApiObject] = {}


def _looked_at(field: str, pod: Pod, snapshot: Snapshot) -> _LookedAt:
    """What making *field* of this pod looks at."""
    known = VIEWS["pod"].get(field)
    if known is None:
        return _LookedAt(frozenset(KINDS))
    if not any(kind in PLURALS for kind in known.changed_by):
        return _LookedAt()
    store = _Noting(snapshot.objects)
    facts = Snapshot(store)
    facts.volume_users = snapshot.volume_users
    known.extract(pod, facts)
    return _LookedAt(frozenset(store.looked_at), store.found_unread)


class _Noting(ObjectStore):
    """A view of *objects* that notes which kinds are looked at, and what of that is unread."""

    def __init__(self, objects: ObjectStore) -> None:
        super().__init__()
        self.behaves = objects.behaves
        self._objects = objects
        self.looked_at: set[str] = set()
        self.found_unread: dict[tuple[str, str], ApiObject] = {}

    def _found(self, kind: str, found: list[Any]) -> list[Any]:
        self.looked_at.add(kind)
        if self._objects.unread:
            unread = [obj for obj in found if obj.metadata.unread]
            self.found_unread |= {(kind, object_key(obj)): obj for obj in unread}
        return found

    def get(self, kind: str, key: str) -> Any | None:
        """As `ObjectStore.get`."""
        found = self._objects.get(kind, key)
        self._found(kind, [] if found is None else [found])
        return found

    def indexed(self, kind: str, by: Value, value: str) -> list[Any]:
        """As `ObjectStore.indexed`."""
        return self._found(kind, self._objects.indexed(kind, by, value))

    def list(self, kind: str, namespace: str | None = None) -> list[Any]:
        """As `ObjectStore.list`."""
        return self._found(kind, self._objects.list(kind, namespace))

    def count(self, kind: str) -> int:
        """As `ObjectStore.count`."""
        self.looked_at.add(kind)
        return self._objects.count(kind)

    def generation(self, kind: str) -> int:
        """As `ObjectStore.generation`."""
        self.looked_at.add(kind)
        return self._objects.generation(kind)


def _held(user: str, plural: str, unknown: Mapping[str, str]) -> Status:
    text = f"{user} depends on what cannot be read: {unknown[plural]}"
    return Status(Code.UNRESOLVABLE, (text,), CLUSTER_READS, "ClusterNotReadable")
