"""VolumeBinding: a pod goes where its claims' volumes are, or can be.

Owns the decision for every claim of a pod: bound claims fix the nodes; those that wait for their
first consumer get a volume on the chosen node, one that exists or one that is made. What a pod was
reserved is assumed at once, so that the next decision does not give it away again; it is written
by `binding.volume_binder` before the pod is bound.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import msgspec

from engine.core.caching.assumed_objects import AssumedObjects
from engine.core.caching.attachments import CLAIMS, CLASSES, CSI_NODES, VOLUMES
from engine.core.caching.objects import ObjectStore, object_key
from engine.core.caching.snapshot import Snapshot
from engine.core.framework.status import Code, Status
from engine.core.model.csi_migration import MigrationError, migrated_plugin, reachable_from
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.model.pod_volumes import ClaimUse
from engine.core.model.quantity import QuantityError
from engine.core.model.selectors import SelectorError
from engine.core.model.storage import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    ClaimReference,
    PersistentVolume,
    PersistentVolumeClaim,
)
from engine.core.scheduling.placement import PreBindError
from engine.core.scheduling.plugins.volume_matching import ClaimCandidates, Reach, Reaches, is_for
from engine.core.scheduling.plugins.volume_plan import VolumePlan, VolumeWriter
from engine.core.scheduling.plugins.volume_provisioning import Provisioning
from engine.core.scheduling.plugins.volume_scoring import (
    Point,
    storage_of_bindings,
    storage_of_provisions,
    storage_score,
)
from engine.core.scheduling.runtime_plugin import Arguments, RuntimePlugin
from engine.policy.arguments import EMPTIEST_FIRST

NAME: Final = "VolumeBinding"
BIND_TIMEOUT_SECONDS: Final = 600.0

_NO_VOLUME: Final = "node(s) didn't find available persistent volumes to bind"
_WRONG_NODE: Final = "node(s) didn't match PersistentVolume's node affinity"
_NO_STORAGE: Final = "node(s) did not have enough free storage"
_NO_SUCH_VOLUME: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_NOT_BOUND: Final = "pod has unbound immediate PersistentVolumeClaims"


@dataclass(slots=True)
class _BoundVolume:
    """The volume of a bound claim, and from where it is reached; None if there is no volume."""

    volume: PersistentVolume | None
    reach: Reach | None
    plugin: str = ""  # the in-tree one, of a volume that is migrated


_Binding = tuple[PersistentVolume, PersistentVolumeClaim]


@dataclass(frozen=True, slots=True)
class _Found:
    """What a pod's claims would get on a node.

    As for kube-scheduler, a claim that two of the pod's volumes name wants two volumes to choose
    from; it is given one (`plan`).
    """

    bindings: list[_Binding]
    provisions: list[PersistentVolumeClaim]

    def plan(self) -> VolumePlan:
        """The first of what each claim would get: a volume that is there rather than a new one."""
        chosen: dict[str, _Binding] = {}
        for volume, claim in self.bindings:
            chosen.setdefault(object_key(claim), (volume, claim))
        made = {object_key(claim): claim for claim in self.provisions}
        provisions = tuple(claim for key, claim in made.items() if key not in chosen)
        return VolumePlan(tuple(chosen.values()), provisions)


@dataclass(slots=True)
class _PodClaims:
    """A pod's claims as one cycle sees them.

    `reserved` is what is to be written; `assumed` what this pod, and no other, has assumed of it.
    `labels` are all that a node's volumes depend on, so nodes that have them alike are looked at
    once (`known`) and scored once (`scores`); None if they depend on the node's name as well.
    """

    objects: ObjectStore
    volumes: AssumedObjects
    claims: AssumedObjects
    snapshot: Snapshot
    timeout: float
    shape: Sequence[Point]
    bound: list[_BoundVolume] = field(default_factory=list)
    waiting: list[ClaimCandidates] = field(default_factory=list)  # smallest request first
    selected: list[PersistentVolumeClaim] = field(default_factory=list)
    provisioning: dict[str, Provisioning] = field(default_factory=dict)
    labels: tuple[str, ...] | None = None
    known: dict[tuple[str | None, ...], _Found | Status] = field(default_factory=dict)
    scores: dict[tuple[str | None, ...], int] = field(default_factory=dict)
    reserved: VolumePlan | None = None
    assumed: list[tuple[AssumedObjects, Any]] = field(default_factory=list)

    @property
    def is_waiting(self) -> bool:
        """True if one of the claims gets its volume together with the pod's node."""
        return bool(self.waiting or self.selected)


class _Rejected(Exception):
    """The pod cannot be placed anywhere as its claims are."""


class _ClassIncomplete(Exception):
    """A storage class does not say when its claims are bound."""

    def __init__(self, name: str) -> None:
        super().__init__(f'VolumeBindingMode not set for StorageClass "{name}"')
        self.name = name


class _InvalidClaim(Exception):
    """A claim whose selector or amount makes no sense."""

    def __init__(self, key: str, error: ValueError) -> None:
        self.subject = f"persistentvolumeclaim {key}"
        field = "selector" if isinstance(error, SelectorError) else "requests.storage"
        super().__init__(f"{self.subject}: {field}: {error}")


class VolumeBinding(RuntimePlugin):
    """The plugin.

    Args:
        objects: The store of the running scheduler: only there is anything assumed. None for
            decisions that are not carried out.
        writer: What writes to the API; None if nothing is carried out.
    """

    name: ClassVar[str] = NAME
    needs_filter: ClassVar[bool] = True

    def __init__(
        self, objects: ObjectStore | None = None, writer: VolumeWriter | None = None
    ) -> None:
        self._objects = objects
        self._writer = writer
        self._reaches = Reaches()
        if objects is not None:
            self._assumed_volumes = AssumedObjects(objects, VOLUMES)
            self._assumed_claims = AssumedObjects(objects, CLAIMS)
            objects.listen(VOLUMES, self._assumed_volumes.changed)
            objects.listen(CLAIMS, self._assumed_claims.changed)

    # --- the pod ---------------------------------------------------------------------------

    def pre_filter(self, pod: Pod, snapshot: Snapshot, arguments: Arguments) -> Any:
        """Sort the pod's claims; reject the pod if one of them makes it hopeless."""
        uses = [(v.name, v.use) for v in pod.volumes if isinstance(v.use, ClaimUse)]
        if not uses:
            return None
        try:
            for _, use in uses:
                self._check(pod, use, snapshot.objects)
            return self._sort([use.key for _, use in uses], snapshot, arguments)
        except _Rejected as error:
            return Status(Code.UNRESOLVABLE, (str(error),), NAME)
        except _ClassIncomplete as error:
            subject = f"storageclass {error.name}"
            return Status(Code.ERROR, (str(error),), NAME, "InvalidVolume", subject)
        except _InvalidClaim as error:
            return Status(Code.ERROR, (str(error),), NAME, "InvalidVolume", error.subject)

    def _check(self, pod: Pod, use: ClaimUse, objects: ObjectStore) -> None:
        name = use.key.partition("/")[2]
        claim: PersistentVolumeClaim | None = objects.get(CLAIMS, use.key)
        if claim is None and use.owner_uid:
            raise _Rejected(
                "waiting for ephemeral volume controller to create the "
                f'persistentvolumeclaim "{name}"'
            )
        if claim is None:
            raise _Rejected(f'persistentvolumeclaim "{name}" not found')
        if claim.status.phase == "Lost":
            raise _Rejected(
                f'persistentvolumeclaim "{name}" bound to non-existent '
                f'persistentvolume "{claim.spec.volume_name}"'
            )
        if claim.metadata.deletion_timestamp is not None:
            raise _Rejected(f'persistentvolumeclaim "{name}" is being deleted')
        if use.owner_uid and claim.controller_uid != use.owner_uid:
            raise _Rejected(f"PVC {use.key} was not created for pod {pod.key} (pod is not owner)")

    def _sort(self, keys: Sequence[str], snapshot: Snapshot, arguments: Arguments) -> Any:
        state = self._state(snapshot, arguments)
        delayed: list[PersistentVolumeClaim] = []
        is_immediate = False
        for key in dict.fromkeys(keys):
            claim: PersistentVolumeClaim | None = state.claims.get(key)
            assert claim is not None, f"claim `{key}` was there a moment ago"
            if claim.is_bound:
                state.bound.append(self._bound_volume(claim, state))
            elif claim.spec.volume_name or not _waits(claim, state.objects):
                is_immediate = True
            else:
                delayed.append(claim)
        if is_immediate:
            raise _Rejected(_NOT_BOUND)
        candidates: dict[str, ClaimCandidates] = {}
        for claim in delayed:
            state.provisioning[object_key(claim)] = Provisioning(claim, state.objects)
            if SELECTED_NODE in claim.metadata.annotations:
                state.selected.append(claim)
            else:
                stored = _candidates(state.objects, claim)
                volumes: list[Any] = [state.volumes.get(v.metadata.name) for v in stored]
                key = object_key(claim)
                try:
                    candidates[key] = ClaimCandidates(claim, volumes, self._reaches)
                except (SelectorError, QuantityError) as error:
                    raise _InvalidClaim(key, error) from error
        state.waiting += [candidates[key] for key in keys if key in candidates]
        state.waiting.sort(key=lambda candidates: candidates.requested)
        self._reaches.trim(2 * state.objects.count(VOLUMES) + 1024)
        state.labels = _labels_looked_at(state)
        return state

    def _state(self, snapshot: Snapshot, arguments: Arguments) -> _PodClaims:
        objects = snapshot.objects
        timeout = arguments.get(
            "bindTimeoutSeconds", arguments.get("bind_timeout_seconds", BIND_TIMEOUT_SECONDS)
        )
        if objects is self._objects:
            volumes, claims = self._assumed_volumes, self._assumed_claims
        else:
            volumes, claims = AssumedObjects(objects, VOLUMES), AssumedObjects(objects, CLAIMS)
        shape = arguments.get("shape", EMPTIEST_FIRST)
        return _PodClaims(objects, volumes, claims, snapshot, float(timeout), shape)

    def _bound_volume(self, claim: PersistentVolumeClaim, state: _PodClaims) -> _BoundVolume:
        volume: PersistentVolume | None = state.volumes.get(claim.spec.volume_name)
        if volume is None:
            return _BoundVolume(None, None)
        return _BoundVolume(volume, self._reaches.of(volume), migrated_plugin(volume))

    # --- a node ----------------------------------------------------------------------------

    def kind_of(self, state: Any) -> Hashable | None:
        """From where the volumes are reached, if they are all bound."""
        if not isinstance(state, _PodClaims) or state.is_waiting:
            return None
        try:
            reached = [_reached_from(bound) for bound in state.bound]
        except MigrationError:
            return None
        is_migrated = any(bound.plugin for bound in state.bound)
        generation = state.objects.generation(CSI_NODES) if is_migrated else 0
        return generation, msgspec.json.encode(reached)

    def filter(self, state: Any, info: NodeInfo) -> Status | None:
        """Every bound volume is reached from the node; for every other claim there is one."""
        found = self._found(state, info)
        return found if isinstance(found, Status) else None

    def _found(self, state: _PodClaims, info: NodeInfo) -> _Found | Status:
        key = _key(state, info)
        found = state.known.get(key)
        if found is None:
            found = state.known[key] = self._look(state, info)
        return found

    def _look(self, state: _PodClaims, info: NodeInfo) -> _Found | Status:
        """What the claims get on the node, or why one of them gets nothing."""
        labels = _labels(info)
        try:
            problem = self._problem_of_bound(state, info, labels)
        except MigrationError as error:
            names = [b.volume.metadata.name for b in state.bound if b.volume and b.plugin]
            subject = f"persistentvolume {', '.join(names)}"
            text = f"could not translate pv: {error}"
            return Status(Code.ERROR, (text,), NAME, "InvalidVolume", subject)
        reasons = [_WRONG_NODE] if problem == _WRONG_NODE else []
        bindings: list[_Binding] = []
        to_make: list[PersistentVolumeClaim] = list(state.selected)
        if any(c.metadata.annotations[SELECTED_NODE] != info.name for c in state.selected):
            reasons.append(_NO_VOLUME)
        else:
            taken: set[str] = set()
            for candidates in state.waiting:
                volume = candidates.choose(labels, taken)
                if volume is None:
                    to_make.append(candidates.claim)
                else:
                    taken.add(volume.metadata.name)
                    bindings.append((volume, candidates.claim))
            reasons += _problem_of_making(to_make, state, labels)
        if problem == _NO_SUCH_VOLUME:
            reasons.append(problem)
        if reasons:
            return Status(Code.UNRESOLVABLE, tuple(reasons), NAME)
        return _Found(bindings, to_make)

    def _problem_of_bound(
        self, state: _PodClaims, info: NodeInfo, labels: Mapping[str, str]
    ) -> str | None:
        for bound in state.bound:
            if bound.volume is None or bound.reach is None:
                return _NO_SUCH_VOLUME
            reach = bound.reach
            if bound.plugin:
                csi_node = state.objects.get(CSI_NODES, info.name)
                plugins = frozenset() if csi_node is None else csi_node.migrated_plugins
                reach = Reach(reachable_from(bound.volume, plugins))
            if not reach.includes(labels):
                return _WRONG_NODE
        return None

    # --- scores ----------------------------------------------------------------------------

    def has_scores(self, state: Any) -> bool:
        """Bound claims count for nothing: they have their storage wherever the pod goes."""
        return isinstance(state, _PodClaims) and state.is_waiting

    def score(self, state: Any, infos: Sequence[NodeInfo]) -> Sequence[int]:
        """By the storage that is left once the claims have got theirs; the most is best."""
        if not self.has_scores(state):
            return [0] * len(infos)
        scores = state.scores
        raw = []
        for info in infos:
            key = _key(state, info)
            score = scores.get(key)
            if score is None:
                score = scores[key] = self._score(state, info)
            raw.append(score)
        return raw

    def _score(self, state: _PodClaims, info: NodeInfo) -> int:
        found = self._found(state, info)
        if isinstance(found, Status):
            return 0  # an extender may say that it is feasible
        if found.bindings:
            classes = storage_of_bindings(found.bindings)
        else:
            labels = _labels(info)
            classes = storage_of_provisions(
                [
                    (claim, state.provisioning[object_key(claim)].capacity_for(labels))
                    for claim in found.provisions
                ]
            )
        return storage_score(classes, state.shape)

    # --- the reservation -----------------------------------------------------------------------

    def reserve(self, state: Any, pod: Pod, node_name: str) -> Status | None:
        """Assume what the pod's claims get on the node: volumes claimed, nodes selected."""
        if not isinstance(state, _PodClaims) or not state.is_waiting:
            return None
        info = state.snapshot.info(node_name)
        if info is None:
            return Status(Code.UNRESOLVABLE, (_NO_VOLUME,), NAME)
        found = self._look(state, info)  # again: something may have been reserved since
        if isinstance(found, Status):
            return found
        plan = found.plan()
        stale = [
            obj.metadata.name
            for objects, obj in _objects_of(plan, state)
            if objects.get(object_key(obj)) is not obj
        ]
        if stale:
            # Something was reserved for another pod since: what was found may be gone.
            return Status(Code.UNSCHEDULABLE, (f'"{stale[0]}" is out of sync',), NAME)
        bindings = tuple((_claimed(volume, claim), claim) for volume, claim in plan.bindings)
        provisions = tuple(_selected(claim, node_name) for claim in plan.provisions)
        state.reserved = VolumePlan(bindings, provisions)
        for objects, obj in _objects_of(state.reserved, state):
            if objects.get(object_key(obj)) is not obj:
                objects.assume(obj)
                state.assumed.append((objects, obj))
        return None

    def unreserve(self, state: Any, pod: Pod, node_name: str) -> None:
        """Show the objects as they are stored again. What was written already stays written."""
        if not isinstance(state, _PodClaims):
            return
        for objects, obj in state.assumed:
            key = object_key(obj)
            if objects.get(key) is obj:  # else another pod has assumed something else since
                objects.restore(key)
        state.assumed.clear()
        state.reserved = None

    def outlive(self, state: Any) -> None:
        """The pod has gone after it was bound: where nothing is written, its volumes stay claimed.

        Of a volume that is to be made, nothing but the node is known, which may be any again.
        """
        if isinstance(state, _PodClaims):
            for objects, obj in state.assumed:
                key = object_key(obj)
                if isinstance(obj, PersistentVolumeClaim) and objects.get(key) is obj:
                    objects.restore(key)

    async def pre_bind(self, state: Any, pod: Pod, node_name: str) -> None:
        """Write what was reserved, and wait until every claim of it is bound."""
        if not isinstance(state, _PodClaims) or state.reserved is None:
            return
        if self._writer is None:
            raise PreBindError("nothing here writes volumes")
        await self._writer.bind(pod, node_name, state.reserved, state.timeout)


def _reached_from(bound: _BoundVolume) -> object:
    """All that decides which nodes reach the volume; raises `MigrationError`."""
    if bound.volume is None:
        return None
    in_tree = reachable_from(bound.volume, frozenset())
    if not bound.plugin:
        return in_tree, ""
    return in_tree, bound.plugin, reachable_from(bound.volume, frozenset({bound.plugin}))


def _labels_looked_at(state: _PodClaims) -> tuple[str, ...] | None:
    """The labels of a node on which everything depends; None if its name or driver matter too."""
    if state.selected or any(bound.plugin for bound in state.bound):
        return None
    parts: list[Reach | ClaimCandidates | Provisioning] = [
        *(bound.reach for bound in state.bound if bound.reach is not None),
        *state.waiting,
        *state.provisioning.values(),
    ]
    return tuple(sorted(frozenset().union(*(part.labels for part in parts))))


def _labels(info: NodeInfo) -> Mapping[str, str]:
    return {} if info.node is None else info.node.labels


def _key(state: _PodClaims, info: NodeInfo) -> tuple[str | None, ...]:
    """The same for nodes that are alike for the claims."""
    return (info.name,) if state.labels is None else tuple(map(_labels(info).get, state.labels))


def _problem_of_making(
    claims: Sequence[PersistentVolumeClaim], state: _PodClaims, labels: Mapping[str, str]
) -> list[str]:
    for claim in claims:
        provisioning = state.provisioning[object_key(claim)]
        if not provisioning.may_be_made_for(labels):
            return [_NO_VOLUME]
        if not provisioning.has_capacity_for(labels):
            return [_NO_STORAGE]
    return []


def _candidates(objects: ObjectStore, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
    """The volumes of the class of *claim*; one that it may get and cannot be read is looked up."""
    found = []
    for volume in objects.indexed(VOLUMES, _by_class, claim.class_name):
        of_claim = volume.spec.claim_ref
        own = (claim.metadata.namespace, claim.metadata.name)
        if not volume.metadata.unread:
            found.append(volume)
        elif of_claim is None or (of_claim.namespace, of_claim.name) == own:
            objects.get(VOLUMES, volume.metadata.name)
    return found


def _waits(claim: PersistentVolumeClaim, objects: ObjectStore) -> bool:
    """True if the claim is bound only once a pod that uses it has a node."""
    found = objects.get(CLASSES, claim.class_name) if claim.class_name else None
    if found is None:
        return False
    if found.volume_binding_mode is None:
        raise _ClassIncomplete(claim.class_name)
    return bool(found.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER)


def _by_class(volume: PersistentVolume) -> str:
    return volume.class_name


def _objects_of(
    plan: VolumePlan, state: _PodClaims
) -> list[tuple[AssumedObjects, PersistentVolume | PersistentVolumeClaim]]:
    """The objects that *plan* changes, each with where it is shown."""
    return [
        *((state.volumes, volume) for volume, _ in plan.bindings),
        *((state.claims, claim) for claim in plan.provisions),
    ]


def _claimed(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """*volume* as it is once it is *claim*'s."""
    meta = claim.metadata
    ref = volume.spec.claim_ref
    if ref is not None and is_for(volume, claim) and ref.uid == meta.uid:
        return volume
    annotations = volume.metadata.annotations
    if not is_for(volume, claim):
        # A volume that was made for the claim stays its maker's; any other is the controller's.
        annotations = {BOUND_BY_CONTROLLER: "yes", **annotations}
    claim_ref = ClaimReference(
        kind="PersistentVolumeClaim",
        api_version="v1",
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )
    replace = msgspec.structs.replace
    return replace(
        volume,
        metadata=replace(volume.metadata, annotations=annotations),
        spec=replace(volume.spec, claim_ref=claim_ref),
    )


def _selected(claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim:
    """*claim* as it is once its volume is to be made for *node_name*."""
    if claim.metadata.annotations.get(SELECTED_NODE) == node_name:
        return claim
    annotations = {**claim.metadata.annotations, SELECTED_NODE: node_name}
    replace = msgspec.structs.replace
    return replace(claim, metadata=replace(claim.metadata, annotations=annotations))
