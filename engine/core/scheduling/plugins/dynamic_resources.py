"""DynamicResources: a pod goes where the devices of its claims are, or can be had.

Owns the decision for every claim of a pod: an allocated one fixes the nodes, any other gets devices
on the chosen node. What is reserved for a pod is taken from then on; the claim writer writes it
before the pod is bound. Which devices a claim gets is found in `scheduling.devices`.
"""

import functools
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar, Final

import msgspec

from engine.core.caching.objects import ObjectStore
from engine.core.caching.snapshot import Snapshot
from engine.core.framework.behaviors import Behaviors
from engine.core.framework.reason_kinds import INTERNAL_ERROR, SEARCH_TOO_LONG
from engine.core.framework.status import Code, Status
from engine.core.model.devices import (
    MOST_SUB_REQUESTS,
    AllocationResult,
    DeviceRequest,
    ResourceClaim,
)
from engine.core.model.node import Node
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.model.pod_group import POD_GROUPS, PodGroup
from engine.core.model.selectors import matches_node_selector, node_selector_problem
from engine.core.scheduling.devices.allocated import AllocatedDevices
from engine.core.scheduling.devices.claims import CLAIMS, Claims
from engine.core.scheduling.devices.conditions import (
    PreparationFailed,
    is_overdue,
    is_ready,
    waits_for_devices,
)
from engine.core.scheduling.devices.extended import (
    CLAIM_NAME,
    RequestMapping,
    ResourceClasses,
    claim_for,
    with_requests,
)
from engine.core.scheduling.devices.planning import OutOfSteps, Steps
from engine.core.scheduling.devices.pod_claims import (
    ClaimNotReady,
    group_name,
    pod_claims,
    uses_by_group,
)
from engine.core.scheduling.devices.pools import Pool, SliceIndex
from engine.core.scheduling.devices.requests import (
    AllocationError,
    NodeUnsuitable,
    PoolUnusable,
    alternatives,
    claim_subject,
    wants_all,
)
from engine.core.scheduling.devices.results import allocation_of
from engine.core.scheduling.devices.search import ClaimChoice, Search
from engine.core.scheduling.devices.taint_rules import TAINT_RULES
from engine.core.scheduling.placement import PreBindError
from engine.core.scheduling.plugins.claim_plan import ClaimReturns, ClaimWriter
from engine.core.scheduling.plugins.dynamic_resources_state import NodeAnswer, PodState
from engine.core.scheduling.runtime_plugin import Arguments, PostFilterResult, RuntimePlugin
from engine.lib.clock import Clock, SystemClock

NAME: Final = "DynamicResources"
SLICES: Final = "resourceslices"
CLASSES: Final = "deviceclasses"
OPTIONAL_OPERATIONS: Final = "DRAOptionalNodeOperations"

FILTER_TIMEOUT_SECONDS: Final = 10.0
BINDING_TIMEOUT_SECONDS: Final = 600.0
#: How many steps of a search stand for a second of the filter's time-out: a decision depends on
#: what it is about, not on how busy the machine is. Less than the second on any machine, because
#: the loop that decides does nothing else meanwhile.
STEPS_PER_SECOND: Final = 100_000
_NOT_AVAILABLE: Final = Status(
    Code.UNRESOLVABLE, ("resourceclaim not available on the node",), NAME
)
_POOL_INCOMPLETE: Final = "all devices of a resource pool are asked for, and it is being updated"
_POOL_INVALID: Final = "all devices of a resource pool are asked for, and it is invalid"
#: A pod's searches on all nodes together may take this many time-outs. What selectors said is
#: remembered, so a pod that was cut off gets further the next time.
MOST_TIMEOUTS: Final = 3


class DynamicResources(RuntimePlugin):
    """The plugin.

    Args:
        objects: The store of the running scheduler: only there is anything reserved. None for
            decisions that are not carried out.
        writer: What writes to the API; None if nothing is carried out.
        clock: For the time-out of devices that must be prepared.
        returns: What takes back what claims were given, where there is no *writer*.
    """

    name: ClassVar[str] = NAME
    # To hints, a change of a rule is one of the slices whose devices it means.
    also_reads: ClassVar[frozenset[str]] = frozenset({"DeviceTaintRule"})

    def __init__(
        self,
        objects: ObjectStore | None = None,
        writer: ClaimWriter | None = None,
        clock: Clock | None = None,
        returns: ClaimReturns | None = None,
    ) -> None:
        self._objects = objects
        self._writer = writer
        self._returns: ClaimReturns | None = returns if writer is None else writer
        self._clock = clock or SystemClock()
        self._claims = Claims(objects, follow=True) if objects is not None else None
        self._slices: tuple[ObjectStore, tuple[int, int, Behaviors], SliceIndex] | None = None
        self._classes: tuple[ObjectStore, int, ResourceClasses] | None = None

    # --- the pod -----------------------------------------------------------------------------

    def pre_enqueue(self, pod: Pod, snapshot: Snapshot) -> str | None:
        """Why a claim of the pod keeps it from being tried."""
        if not pod.manifest.spec.resource_claims:
            return None
        objects = snapshot.objects
        try:
            pod_claims(
                pod,
                self._known(objects),
                with_group=objects.behaves.shares_claims_of_groups,
            )
        except ClaimNotReady as error:
            return str(error)
        return None

    def pre_filter(self, pod: Pod, snapshot: Snapshot, arguments: Arguments) -> Any:
        """Find the pod's claims; reject the pod if one of them makes it hopeless."""
        objects = snapshot.objects
        wanted: dict[str, int] = {}
        if objects.count(CLASSES):
            wanted = self._resource_classes(objects).requested(pod)
        if not pod.manifest.spec.resource_claims and not wanted:
            return None
        known = self._known(objects)
        try:
            claims = pod_claims(pod, known, with_group=objects.behaves.shares_claims_of_groups)
        except ClaimNotReady as error:
            return _rejected(str(error))
        extended_index = None
        if wanted:
            extended_index = len(claims)
            claims.append(known.extended_claim_of(pod.uid) or claim_for(pod))
        if not claims:
            return None
        seconds = _seconds(arguments, "filter_timeout", FILTER_TIMEOUT_SECONDS)
        state = PodState(
            pod=pod,
            snapshot=snapshot,
            claims=claims,
            known=known,
            slices=self._slice_index(objects),
            classes=self._resource_classes(objects),
            class_of=lambda name: objects.get(CLASSES, name),
            filter_seconds=seconds,
            binding_seconds=_seconds(arguments, "binding_timeout", BINDING_TIMEOUT_SECONDS),
            steps_left=_steps(seconds) * MOST_TIMEOUTS,
            devices_at=known.devices.changes.end,
            extended_index=extended_index,
            extended_resources=wanted,
        )
        if objects.behaves.shares_claims_of_groups and (name := group_name(pod)):
            state.group = name
            group: PodGroup | None = objects.get(POD_GROUPS, f"{pod.namespace}/{name}")
            if group is not None:
                state.by_group = uses_by_group(pod, group)
        if objects.unread:
            _look_up_unread(state, objects)
        for index, claim in enumerate(claims):
            problem = self._examine(state, index, claim, objects)
            if problem is not None:
                return problem
            names = _named_nodes(claim.allocation or state.shared.get(index))
            if names is not None:
                state.named[index] = names
        if known.problems and state.sought():
            return _uncounted(known.problems, objects)
        return state

    def _examine(
        self, state: PodState, index: int, claim: ResourceClaim, objects: ObjectStore
    ) -> Status | None:
        """What makes *claim* hopeless now, or None."""
        if claim.allocation is not None:
            selector = claim.allocation.node_selector
            if selector is not None:
                malformed = node_selector_problem(selector)
                if malformed is not None:
                    return _failed(
                        f"resource claim {claim.key}: nodeSelector of its allocation: {malformed}",
                        claim_subject(claim.key),
                    )
                state.reaches[index] = selector
            return None
        reservation = state.known.reservation_of(claim.metadata.uid)
        if reservation is not None:
            # The first of its pods to be bound writes it, so no pod waits for another's binding.
            state.shared[index] = reservation.allocation
            return None
        if index == state.extended_index:
            return None
        for request in claim.spec.devices.requests:
            problem = _class_problem(claim, request, objects)
            if problem is not None:
                return problem
        return None

    # --- the nodes ---------------------------------------------------------------------------

    def filter(self, state: PodState, info: NodeInfo) -> Status | None:
        """Whether the allocated claims reach the node, and the others can get devices there."""
        node = info.node
        if node is None:
            return _rejected("node not found")
        extended, mappings, problem = self._extended_on(state, node)
        if problem is not None:
            return problem
        if extended is None and not state.user_claims:
            return None
        unavailable = self._unavailable(state, node)
        for index, allocation in state.shared.items():
            if _lacks_operations(allocation, node):
                return _rejected(
                    f"resource claim {state.claims[index].key} allocation requires "
                    f"{OPTIONAL_OPERATIONS} feature on the node"
                )
        answer: NodeAnswer | None = None
        if state.unallocated():
            found = self._allocate(state, node, extended, mappings)
            if isinstance(found, Status):
                return found
            answer = found
        if unavailable:
            state.unavailable.update(unavailable)
            return _NOT_AVAILABLE
        if answer is not None:
            state.answers[node.name] = answer
        return None

    def only_nodes(self, state: PodState) -> tuple[Collection[str], Status] | None:
        """Those that all allocations name, if there is nothing to search for on others."""
        skips = any(allocation.skips_node_operations for allocation in state.shared.values())
        if state.sought() or skips or not state.named:
            return None
        return frozenset.intersection(*state.named.values()), _NOT_AVAILABLE

    def leave_out(self, state: PodState, names: Iterator[str]) -> None:
        """Note which claims kept the pod from them."""
        missing = {i: on for i, on in state.named.items() if i not in state.unavailable}
        for name in names:
            found = {index for index, on in missing.items() if name not in on}
            state.unavailable |= found
            missing = {i: on for i, on in missing.items() if i not in found} if found else missing
            if not missing:
                return

    def kind_of(self, state: PodState) -> Hashable | None:
        """What is asked for and where the devices are, if nothing is allocated yet."""
        extended = state.extended_claim
        if (
            state.known is not self._claims
            or state.shared
            or any(claim.allocation is not None for claim in state.claims)
            or (extended is not None and extended.metadata.name != CLAIM_NAME)
            or self.has_scores(state)
        ):
            return None
        objects, spec = state.snapshot.objects, state.pod.manifest.spec
        containers = () if extended is None else (spec.init_containers, spec.containers)
        named: list[str] = []
        if objects.behaves.unusable_pools_reject_nodes and any(map(_asks_for_all, state.claims)):
            named = [claim.key for claim in state.claims]  # what rejects a node names the claim
        return (
            objects.generation(CLASSES),
            state.filter_seconds,
            msgspec.json.encode(([claim.spec for claim in state.user_claims], containers, named)),
        )

    def equivalence_key(self, state: PodState, info: NodeInfo) -> Hashable | None:
        """The devices that the node reaches but for their names, what is taken, what it offers."""
        node = info.node
        if node is None:
            return None
        pools = state.slices.pools(node)
        look = state.looks.get(id(pools))
        if look is None:
            look = state.looks[id(pools)] = _look(pools, state.known.devices)
        if not look:
            return None
        offered = [node.allocatable.get(name) for name in state.extended_resources]
        return look, tuple([None if amount is None else amount > 0 for amount in offered])

    def position(self, state: PodState) -> tuple[int, int]:
        """How far the logs of devices and of slices are followed."""
        return state.known.devices.changes.end, state.slices.position

    def changed_since(self, state: PodState, position: tuple[int, int]) -> Collection[str] | None:
        """The nodes whose pools are others, or of whose pools other devices are taken."""
        pools = state.known.devices.changes.since(position[0])
        changed = state.slices.changes.since(position[1])
        if pools is None or changed is None or state.slices.position < position[1]:
            return None
        names = set(changed)
        for pool in set(pools):
            of_pool = state.slices.nodes_of(pool)
            if of_pool is None:
                return None
            names.update(of_pool)
        return names

    def _extended_on(
        self, state: PodState, node: Node
    ) -> tuple[ResourceClaim | None, tuple[RequestMapping, ...], Status | None]:
        """The claim for extended resources as *node* needs it, or why the node will not do."""
        claim = state.extended_claim
        if claim is None:
            return None, (), None
        if claim.metadata.name != CLAIM_NAME:
            # Made by an earlier attempt, which failed: it is deleted after the filters.
            return None, (), _rejected("cannot schedule extended resource claim")
        by_devices = []
        for name in state.extended_resources:
            offered = node.allocatable.get(name)
            if state.classes.get(name) is not None and not offered:
                by_devices.append(name)
            elif offered is None:
                return None, (), _rejected("cannot fit resource")
        if not by_devices:
            return None, (), None
        resources = tuple(by_devices)
        made = state.extended_for.get(resources)
        if made is None:
            made = with_requests(claim, state.pod, resources, state.classes)
            state.extended_for[resources] = made
        return *made, None

    def _unavailable(self, state: PodState, node: Node) -> list[int]:
        """The claims that are allocated where *node* is not, or will not become usable."""
        unavailable = []
        for index, claim in enumerate(state.claims):
            selector = state.reaches.get(index)
            shared = state.shared.get(index)
            if shared is not None:
                selector = shared.node_selector
            is_elsewhere = selector is not None and not matches_node_selector(
                selector, node.labels, node.name
            )
            if is_elsewhere or _lacks_operations(claim.allocation, node):
                unavailable.append(index)
            elif claim.allocation is not None and waits_for_devices(claim):
                try:
                    is_late = not is_ready(claim) and is_overdue(
                        claim, self._clock.now(), state.binding_seconds
                    )
                except PreparationFailed:
                    is_late = True
                if is_late:
                    unavailable.append(index)
        return unavailable

    def _allocate(
        self,
        state: PodState,
        node: Node,
        extended: ResourceClaim | None,
        mappings: tuple[RequestMapping, ...],
    ) -> NodeAnswer | Status:
        """What the claims that have nothing yet get on *node*."""
        indexes = [i for i in state.sought() if i != state.extended_index or extended is not None]
        claims = [
            extended if i == state.extended_index and extended is not None else state.claims[i]
            for i in indexes
        ]
        try:
            choices = self._choices(state, node, claims, extended)
            if choices is None:
                return _rejected("cannot allocate all claims")
            found = {
                index: allocation_of(claim, choice, node.name)
                for index, claim, choice in zip(indexes, claims, choices, strict=True)
            }
        except PoolUnusable as error:
            if state.snapshot.objects.behaves.unusable_pools_reject_nodes:
                return _rejected(str(error))
            return _rejected(_POOL_INCOMPLETE if error.is_incomplete else _POOL_INVALID)
        except NodeUnsuitable as error:
            return _rejected(str(error))
        except OutOfSteps:
            return _failed(
                f"node {node.name}: timed out trying to allocate devices",
                claim_subject(*(claim.key for claim in claims)),
                SEARCH_TOO_LONG,
            )
        except AllocationError as error:
            return _failed(str(error), error.subject, error.token)
        return NodeAnswer({**found, **state.shared}, extended, mappings)

    def _choices(
        self,
        state: PodState,
        node: Node,
        claims: Sequence[ResourceClaim],
        extended: ResourceClaim | None,
    ) -> list[ClaimChoice] | None:
        pools = state.slices.pools(node)
        # Nodes that reach the same pools have the same answer, unless devices choose their nodes
        # themselves. They share one tuple of pools, which is cheap to look up.
        key = (id(pools), id(extended))
        may_share = not any(pool.has_choosy_devices for pool in pools)
        if may_share and key in state.searches:
            return state.searches[key]
        steps = Steps(min(_steps(state.filter_seconds), max(state.steps_left, 0)))
        before = steps.left
        try:
            choices = Search(
                node,
                pools,
                claims,
                class_of=state.class_of,
                allocated=state.known.devices,
                steps=steps,
            ).run()
        finally:
            state.steps_left -= before - max(steps.left, 0)
        if may_share:
            state.searches[key] = choices
        return choices

    # --- scores and what to do when nothing fits ---------------------------------------------

    def has_scores(self, state: PodState | None) -> bool:
        """Nodes differ in what they are worth only if a request has alternatives."""
        return state is not None and any(
            request.first_available
            for claim in state.claims
            for request in claim.spec.devices.requests
        )

    def score(self, state: PodState | None, infos: Sequence[NodeInfo]) -> Sequence[int] | None:
        """More for alternatives that come earlier in their requests."""
        if state is None:
            return [0] * len(infos)
        return [self._score(state, info) for info in infos]

    def _score(self, state: PodState, info: NodeInfo) -> int:
        answer = state.answers.get(info.name)
        if answer is None:
            return 0
        total = 0
        for index, claim in enumerate(state.claims):
            allocation = claim.allocation or answer.allocations.get(index)
            if allocation is None:
                continue
            used = {result.request for result in allocation.devices.results}
            for request in claim.spec.devices.requests:
                for place, alternative in enumerate(request.first_available):
                    if f"{request.name}/{alternative.name}" in used:
                        total += MOST_SUB_REQUESTS - place
        return total

    def normalize(self, scores: Sequence[int]) -> Sequence[int]:
        """Raw scores as 0..100, the highest being 100."""
        highest = max(scores, default=0)
        return [100 * score // highest for score in scores] if highest else scores

    def post_filter(
        self, state: Any, pod: Pod, rejected: Mapping[str, Status], snapshot: Snapshot
    ) -> PostFilterResult | None:
        """Give up one allocation that stands in the way and that no other pod uses."""
        if state is None:
            return None
        known: PodState = state
        for index in sorted(known.unavailable):
            claim = known.claims[index]
            users = [consumer.uid for consumer in claim.status.reserved_for]
            is_unused = users in ([], [pod.uid]) or (
                len(users) == 1
                and known.user_of(claim) in claim.status.reserved_for
                and not _has_placed_pod(known.group, pod, snapshot)
            )
            if index != known.extended_index and is_unused:
                return PostFilterResult(
                    "deallocation of ResourceClaim completed", self._deallocation(claim)
                )
        extended = known.extended_claim
        if extended is not None and extended.metadata.name != CLAIM_NAME:
            return PostFilterResult("deletion of ResourceClaim completed", self._deletion(extended))
        return None

    def _deallocation(self, claim: ResourceClaim) -> Any:
        returns = self._returns
        return None if returns is None else lambda: returns.deallocate(claim)

    def _deletion(self, claim: ResourceClaim) -> Any:
        returns = self._returns
        return None if returns is None else lambda: returns.delete(claim)

    # --- reservations and writing ----------------------------------------------------------------

    def reserve(self, state: PodState, pod: Pod, node_name: str) -> Status | None:
        """Take the devices that were found on the node."""
        unallocated = state.sought()
        if not unallocated and not state.shared:
            return None
        answer = state.answers.get(node_name)
        info = state.snapshot.info(node_name)
        if answer is None and info is not None:  # the pod's kind was known to fit there
            problem = self.filter(state, info)
            if problem is not None:
                return problem
            answer = state.answers.get(node_name)
        elif answer is not None and not self._are_free(state, answer):
            return _rejected("devices were allocated to another claim meanwhile")
        if answer is None:
            if all(i == state.extended_index for i in unallocated):
                return None  # the node has its extended resources without devices
            return _failed("claim allocation not found for node", "", INTERNAL_ERROR)
        for index, allocation in answer.allocations.items():
            uid = state.claims[index].metadata.uid
            if index in state.shared and state.known.reservation_of(uid) is None:
                continue  # written meanwhile: this pod only has to be added
            newest = state.known.get(state.claims[index].key)
            if newest is not None and newest.metadata.uid == uid and newest.allocation is not None:
                continue  # allocated meanwhile, by another scheduler
            state.known.reserve(uid, allocation, pod.uid)
        return None

    def _are_free(self, state: PodState, answer: NodeAnswer) -> bool:
        """True if the devices are still free after the decision waited for an extender."""
        if state.known.devices.changes.end == state.devices_at:
            return True
        is_kept = state.snapshot.objects.behaves.shares_keep_devices
        for index, allocation in answer.allocations.items():
            if index in state.shared:
                continue
            if state.known.reservation_of(state.claims[index].metadata.uid) is not None:
                return False
            for result in allocation.devices.results:
                device = (result.driver, result.pool, result.device)
                if result.admin_access:
                    continue
                devices = state.known.devices
                if devices.is_owned(device):
                    return False
                if is_kept and result.share_id is None and devices.is_shared(device):
                    return False
        return True

    def unreserve(self, state: PodState, pod: Pod, node_name: str) -> None:
        """Release what was reserved, and the use of what was written."""
        for index, claim in enumerate(state.claims):
            state.known.withdraw(claim.metadata.uid, pod.uid)
            written = state.written.get(index)
            if index == state.extended_index:
                if written is not None and self._returns is not None:
                    forget = functools.partial(state.known.forget, written.key)
                    self._returns.start_delete(written, forget)
                continue
            newest = written or state.known.get(claim.key) or claim
            is_used = newest.allocation is not None and newest.is_reserved_for(pod.uid)
            if is_used and self._returns is not None:
                self._returns.start_release(pod, newest)
        state.written.clear()

    async def pre_bind(self, state: PodState, pod: Pod, node_name: str) -> None:
        """Write allocations and reservations, and wait for devices that must be prepared."""
        writer = self._writer
        if writer is None:
            return
        answer = state.answers.get(node_name) or NodeAnswer({})
        for index, claim in enumerate(state.claims):
            if index == state.extended_index:
                await self._write_extended(writer, state, answer, index)
                continue
            newest = state.known.get(claim.key) or claim
            if newest.metadata.uid != claim.metadata.uid:
                raise PreBindError(f"claim {claim.key} was replaced in the meantime")
            before, now = claim.allocation, newest.allocation
            if before is not None and now is not None and not before.is_same(now):
                # The node was chosen for the devices that it had.
                raise PreBindError(f"claim {claim.key} got allocated elsewhere in the meantime")
            allocation = answer.allocations.get(index) if claim.allocation is None else None
            is_held = functools.partial(state.known.is_reserved, claim.metadata.uid)
            group = state.user_of(newest)
            written = await writer.reserve(pod, newest, allocation, is_held, group)
            state.written[index] = written
            state.known.wrote(written, claim.metadata.uid if allocation is not None else "")
        await self._wait_for_devices(writer, state, pod, node_name)

    async def _write_extended(
        self, writer: ClaimWriter, state: PodState, answer: NodeAnswer, index: int
    ) -> None:
        """Make the claim for extended resources, if the node serves them with devices."""
        allocation = answer.allocations.get(index)
        if answer.extended is None or allocation is None:
            return
        created = await writer.create(answer.extended)
        state.written[index] = created  # from here on it must be deleted if anything fails
        written = await writer.reserve(state.pod, created, allocation)
        state.written[index] = written
        state.known.wrote(written, answer.extended.metadata.uid, is_new=True)
        await writer.write_extended_resource_status(
            state.pod, written, [m.plain() for m in answer.mappings]
        )

    async def _wait_for_devices(
        self, writer: ClaimWriter, state: PodState, pod: Pod, node_name: str
    ) -> None:
        waiting = [claim for claim in state.written.values() if waits_for_devices(claim)]
        if not waiting:
            return
        known, now, seconds = state.known, self._clock.now, state.binding_seconds

        def are_ready() -> bool:
            for claim in waiting:
                newest = known.get(claim.key)
                if newest is None or newest.allocation is None:
                    raise PreBindError(f"claim {claim.key} is no longer allocated")
                try:
                    if not is_ready(newest):
                        if is_overdue(newest, now(), seconds):
                            raise PreBindError(
                                f"device binding timeout: claim={claim.metadata.name}"
                            )
                        return False
                except PreparationFailed as error:
                    raise PreBindError(str(error)) from error
            return True

        if not await writer.wait(pod, node_name, are_ready, seconds):
            raise PreBindError("device binding timeout: context deadline exceeded")

    # --- what is kept ------------------------------------------------------------------------

    def _known(self, objects: ObjectStore) -> Claims:
        if self._claims is not None and objects is self._objects:
            self._claims.follow_version()
            return self._claims
        return Claims(objects, follow=False)

    def _slice_index(self, objects: ObjectStore) -> SliceIndex:
        behaves = objects.behaves
        made_of = objects.generation(SLICES), objects.generation(TAINT_RULES), behaves
        kept = self._slices
        if kept is not None and kept[0] is objects and kept[1] == made_of:
            return kept[2]
        index = SliceIndex(
            objects.list(SLICES),
            objects.list(TAINT_RULES),
            kept[2] if kept is not None else None,
            behaves=behaves,
        )
        self._slices = (objects, made_of, index)
        return index

    def _resource_classes(self, objects: ObjectStore) -> ResourceClasses:
        generation = objects.generation(CLASSES)
        kept = self._classes
        if kept is not None and kept[0] is objects and kept[1] == generation:
            return kept[2]
        classes = ResourceClasses(objects.list(CLASSES))
        self._classes = (objects, generation, classes)
        return classes


def _look_up_unread(state: PodState, objects: ObjectStore) -> None:
    """Look up what the pod's claims depend on and name by no key, so that it is noted.

    Of a claim whose allocation cannot be read, any device may be the one that it holds.
    """
    for resource in state.extended_resources:
        device_class = state.classes.get(resource)
        if device_class is not None:
            objects.get(CLASSES, device_class.metadata.name)
    if any(claim.allocation is None for claim in state.claims):
        for (kind, key), claim in objects.unread.items():
            if kind == CLAIMS and any("status" in field for field in claim.metadata.unread):
                objects.get(CLAIMS, key)


def _uncounted(problems: Mapping[str, str], objects: ObjectStore) -> Status:
    """The failure of every pod that needs devices, because of claims with such *problems*."""
    for key in problems:
        objects.get(CLAIMS, key)  # so that it is noted: the pod waits for them
    text = min(problems.values())
    if len(problems) > 1:
        text += f" (and {len(problems) - 1} more claims with invalid consumed capacity)"
    return _failed(f"gather allocation state: {text}", claim_subject(*sorted(problems)))


def _has_placed_pod(group: str, member: Pod, snapshot: Snapshot) -> bool:
    """Whether a pod of the PodGroup *group*, which *member* is of, has a node."""
    return any(
        group_name(pod) == group and pod.namespace == member.namespace
        for info in snapshot.infos
        if info is not None
        for pod in info.pods.values()
    )


def _asks_for_all(claim: ResourceClaim) -> bool:
    return any(map(wants_all, chain.from_iterable(map(alternatives, claim.spec.devices.requests))))


def _lacks_operations(allocation: AllocationResult | None, node: Node) -> bool:
    """Whether *allocation* needs a node that can do without preparing a device, unlike *node*."""
    return (
        allocation is not None
        and allocation.skips_node_operations
        and OPTIONAL_OPERATIONS not in node.declared_features
    )


def _rejected(reason: str) -> Status:
    return Status(Code.UNRESOLVABLE, (reason,), NAME)


def _named_nodes(allocation: AllocationResult | None) -> frozenset[str] | None:
    """The nodes that *allocation* is for, if it says them by name."""
    selector = None if allocation is None else allocation.node_selector
    if selector is None:
        return None
    names: set[str] = set()
    for term in selector.node_selector_terms:
        if term.match_expressions or len(term.match_fields) != 1:
            return None
        (field,) = term.match_fields
        if (field.key, field.operator, len(field.values)) != ("metadata.name", "In", 1):
            return None
        names.update(field.values)
    return frozenset(names)


def _failed(reason: str, subject: str, token: str = "InvalidClaim") -> Status:
    return Status(Code.ERROR, (reason,), NAME, token, subject)


def _seconds(arguments: Arguments, name: str, default: float) -> float:
    value = arguments.get(name, default)
    return float(value) if isinstance(value, int | float) else default


def _look(pools: Sequence[Pool], allocated: AllocatedDevices) -> tuple[Hashable, ...]:
    """Equal for pools in which every search comes to the same; empty if that is not known."""
    found: list[Hashable] = []
    for pool in pools:
        # Of pools that are not sound, errors name them.
        if pool.is_incomplete or pool.problem or pool.others or pool.has_choosy_devices:
            return ()
        ids = [device.id for part in pool.slices for device in part.devices]
        found.append((tuple([part.look for part in pool.slices]), allocated.taken_of(ids)))
    return (len(pools), *found)


def _steps(seconds: float) -> int:
    """The steps that a time-out stands for; 0, which is no time-out, counts as a minute."""
    return int((seconds if seconds > 0 else 60.0) * STEPS_PER_SECOND)


def _class_problem(
    claim: ResourceClaim, request: DeviceRequest, objects: ObjectStore
) -> Status | None:
    """Why a request cannot be met by any device there will be, or None."""
    if request.exactly is not None:
        wanted = [(request.name, request.exactly.device_class_name)]
    elif request.first_available:
        wanted = [
            (f"{request.name}/{alternative.name}", alternative.device_class_name)
            for alternative in request.first_available
        ]
    else:
        return _rejected(
            f"resource claim {claim.key}, request {request.name}: unknown request type"
        )
    for name, class_name in wanted:
        if not class_name:
            return _failed(f"request {name}: unsupported request type", claim_subject(claim.key))
        if objects.get(CLASSES, class_name) is None:
            return _rejected(f"request {name}: device class {class_name} does not exist")
    return None
