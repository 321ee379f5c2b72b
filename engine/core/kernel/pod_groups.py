"""Which pods are in which group, and where the pods of a group are.

Owns membership. Whether a pod has a node is read from the cache each time, so it cannot be stale;
what is wanted of a group is said by its pods' policies and by PodGroup objects.
"""

from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple

from engine.core.caching.cache import Cache
from engine.core.framework.profile import EnabledPolicy
from engine.core.kernel.preemptions import Preemptions
from engine.core.model.pod import Pod
from engine.core.model.pod_group import (
    ALL,
    POD_GROUPS,
    DisruptionUnit,
    GroupTerms,
    PodGroup,
    PodGroupState,
    group_state,
)
from engine.core.queueing.places import Gate
from engine.core.queueing.throttle import Throttle, Work
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.lib.clock import Clock, VirtualClock
from engine.policy.evaluator import PolicyFailure

#: Why a group that its pods name in `spec.schedulingGroup` cannot exist.
NOT_SERVED: Final = (
    "the API server does not serve PodGroups of `scheduling.k8s.io` (`v1beta1`, `v1alpha3`, "
    "`v1alpha2`), or does not let this scheduler list them"
)
# How pods count in the state of their group.
PENDING: Final = "pending"
WAITING: Final = "waiting"
PLACED: Final = "placed"


class GroupKey(NamedTuple):
    """What identifies a group. `instance` is the policy that sees the group."""

    instance: int
    scheduler_name: str
    namespace: str
    name: str


class PodGroups:
    """The groups of all known pods, as the policies in force see them.

    Costs nothing for pods of profiles in which no policy looks at groups. `group_of` is asked
    between two decisions; where it fails, or is throttled, the throttle has it asked again later.

    Args:
        cache: Pods with a node, and PodGroup objects.
        throttle: Says when `group_of` may be asked; None: a new one.
        clock: Time; one that stands still: no policy takes long.
        preemptions: Which pods are evicted at the moment; None: no pod is.
    """

    def __init__(
        self,
        cache: Cache,
        *,
        throttle: Throttle | None = None,
        clock: Clock | None = None,
        preemptions: Preemptions | None = None,
    ) -> None:
        self._cache = cache
        self._preemptions = Preemptions() if preemptions is None else preemptions
        self._clock = VirtualClock() if clock is None else clock
        self._throttle = Throttle(self._clock) if throttle is None else throttle
        self._unsaid: dict[str, Pod] = {}  # by uid, the pods whose groups are not known
        self._failures: dict[str, PolicyFailure] = {}  # the last one of each profile
        cache.objects.listen(POD_GROUPS, self._object_changed)
        self._waiting: set[str] = set()
        # State by group, with the cache's generation that it was counted at; and what of it
        # does not follow placements.
        self._counted: dict[GroupKey, tuple[int, PodGroupState]] = {}
        self._wanted: dict[GroupKey, PodGroupState] = {}
        self._are_served = True
        self._scheduler: Scheduler | None = None
        self._grouping: dict[str, tuple[EnabledPolicy, ...]] = {}
        self._permitting: frozenset[int] = frozenset()
        self._members: dict[GroupKey, dict[str, Pod]] = {}
        self._named: dict[tuple[str, str], dict[GroupKey, None]] = {}  # by namespace and name
        self._gates: dict[GroupKey, dict[str, Gate]] = {}  # by uid, the gates of single pods
        # uid -> its groups, each with what the pod's policy says about it.
        self._keys: dict[str, dict[GroupKey, GroupTerms]] = {}
        self._changes: dict[GroupKey, bool] = {}
        self._held: dict[GroupKey, PodGroupState] | None = None
        #: The queue that each group entered last; kept here because it goes with the group.
        self.queue_of: dict[GroupKey, str] = {}

    # --- membership --------------------------------------------------------------------------

    def use(self, scheduler: Scheduler, pods: Callable[[], Iterable[Pod]]) -> None:
        """See groups as *scheduler*'s policies do; *pods* are all known, newer versions last."""
        self._scheduler = scheduler
        grouping = scheduler.hooks.grouping()
        self._grouping = {name: found for name, found in grouping.items() if found}
        self._permitting = frozenset(
            enabled.instance
            for profile in scheduler.bundle.profiles
            for enabled in profile.at("permit")
        )
        self._members.clear()
        self._named.clear()
        self._gates.clear()
        self._keys.clear()
        self._changes.clear()
        self._counted.clear()
        self._wanted.clear()
        self._unsaid.clear()
        self.queue_of.clear()
        scheduler.hooks.groups = self.state_of
        scheduler.use_units(self.disrupted_as_one)
        if self._grouping:
            # Most pods are in no group, and all of them are gone through between two decisions.
            asked = {
                name
                for name, found in self._grouping.items()
                if any(map(scheduler.hooks.names_groups, found))
            }
            chosen = {}
            for pod in pods():
                spec = pod.manifest.spec
                if spec.scheduling_group is not None or spec.scheduler_name in asked:
                    chosen[pod.uid] = pod
            for pod in chosen.values():
                self.put(pod)
            self._changes.clear()

    def put(self, pod: Pod) -> None:
        """Add a pod, or its new version."""
        grouping = self._grouping.get(pod.scheduler_name)
        if grouping is None or self._scheduler is None:
            return
        is_in_no_group = self._scheduler.hooks.is_in_no_group
        if pod.uid not in self._keys and all(is_in_no_group(one, pod) for one in grouping):
            return
        if self._throttled(pod) is not None:
            return
        now: dict[GroupKey, GroupTerms] = {}
        failures: list[PolicyFailure] = []
        started = self._clock.monotonic()
        for enabled in grouping:
            said = self._group_verdict(enabled, pod)
            if isinstance(said, list):
                now[_key(enabled, pod, said[0])] = GroupTerms(*said[1:])
            elif said is not None:
                failures.append(said)
        if failures:
            seconds = self._clock.monotonic() - started
            self._unsaid[pod.uid] = pod
            self._failures[pod.scheduler_name] = failures[0]
            self._throttle.hook_failed(Work.GROUP, pod, failures, seconds)
        else:
            self._unsaid.pop(pod.uid, None)
            self._throttle.succeeded(Work.GROUP, pod)
        before = self._keys.get(pod.uid, {})
        for key in before.keys() - now.keys():
            self._leave(pod.uid, key)
        for key, terms in now.items():
            counted = self._counted.get(key) if self._is_one_more(key, terms, pod) else None
            if counted is None:
                self._recount(key)
            if key not in self._members:
                self._members[key] = {}
                self._named.setdefault((key.namespace, key.name), {})[key] = None
            known = self._members[key].get(pod.uid)
            self._members[key][pod.uid] = pod
            if counted is not None:
                self._count_one_more(key, counted, pod)
            if pod.node_name:
                self._open_gate(pod.uid, key)
            if known is None or before[key] != terms or _differ(known, pod):
                self._change(key, is_membership=True)
            elif known.node_name != pod.node_name:
                self._change(key, is_membership=False)
        if now:
            self._keys[pod.uid] = now

    def remove(self, uid: str) -> tuple[GroupKey, ...]:
        """Forget a pod that is gone; returns the groups that it was in."""
        keys = tuple(self._keys.get(uid, ()))
        for key in keys:
            self._leave(uid, key)
        self._unsaid.pop(uid, None)
        return keys

    def ask_again(self, uid: str) -> bool:
        """Ask for the group of a pod again; False if the pod is gone, or its group known."""
        pod = self._unsaid.get(uid)
        if pod is not None:
            self.put(pod)
        return pod is not None

    def _throttled(self, pod: Pod) -> PolicyFailure | None:
        """The failure of another pod's group that keeps *pod* from being asked about for now."""
        if self._throttle.why_throttled(Work.GROUP, pod) is None:
            return None
        self._unsaid[pod.uid] = pod
        return self._failures[pod.scheduler_name]

    def _leave(self, uid: str, key: GroupKey) -> None:
        members = self._members[key]
        del members[uid]
        self._open_gate(uid, key)
        if not members:
            del self._members[key]
            self.queue_of.pop(key, None)
            named = self._named[key.namespace, key.name]
            del named[key]
            if not named:
                del self._named[key.namespace, key.name]
        keys = self._keys[uid]
        del keys[key]
        if not keys:
            del self._keys[uid]
        self._recount(key)
        self._change(key, is_membership=True)

    def _is_one_more(self, key: GroupKey, terms: GroupTerms, pod: Pod) -> bool:
        """True if a group that *pod* joins stays as it is, but for the number of its pods.

        So a group of thousands whose pods come one by one is not counted again for each.
        """
        members, wanted = self._members.get(key), self._wanted.get(key)
        if not members or wanted is None or pod.uid in members:
            return False
        return (
            terms == self._keys[next(iter(members))][key]
            and pod.priority <= wanted.priority
            and pod.created_at >= wanted.created_at
        )

    def _count_one_more(self, key: GroupKey, counted: tuple[int, PodGroupState], pod: Pod) -> None:
        generation, state = counted
        counts_as = self._counts_as(pod.uid, pod)
        if counts_as:
            more = {counts_as: getattr(state, counts_as) + 1}
            self._counted[key] = generation, replace(state, **more)

    def _recount(self, key: GroupKey) -> None:
        self._counted.pop(key, None)
        self._wanted.pop(key, None)

    def _change(self, key: GroupKey, *, is_membership: bool) -> None:
        self._changes[key] = is_membership or self._changes.get(key, False)

    def _object_changed(self, before: Any | None, after: Any | None) -> None:
        meta = (before if after is None else after).metadata  # type: ignore[union-attr]  # one is
        for key in self._named.get((meta.namespace, meta.name), ()):
            self._recount(key)
            self._change(key, is_membership=True)

    @property
    def are_served(self) -> bool:
        """True if the API server has PodGroups, as far as is known."""
        return self._are_served

    def set_served(self, are_served: bool) -> None:
        """Note whether the API server has PodGroup objects at all."""
        if are_served == self._are_served:
            return
        self._are_served = are_served
        self.judge_again()

    def judge_again(self) -> None:
        """Forget what is said of every group: what it goes by has changed."""
        for key in self._members:
            self._recount(key)
            self._change(key, is_membership=True)

    def set_waiting(self, uid: str, is_waiting: bool) -> None:
        """Note that a pod that has a node waits in permit, or does not any more."""
        if is_waiting:
            self._waiting.add(uid)
        else:
            self._waiting.discard(uid)
        for key in self._keys.get(uid, ()):
            self._counted.pop(key, None)

    def gate_of(self, pod: Pod, own: Gate | None) -> Gate | None:
        """What keeps *pod* from being tried, if *own* keeps it alone; its group goes as one.

        A group whose first such pod is gated, or whose last one is not any more, has changed. It
        does not wait for a pod that is being deleted.
        """
        key = self.tried_in(pod.uid)
        if key is None:
            return own
        if own is None:
            self._open_gate(pod.uid, key)
            return next(iter(self._gates.get(key, {}).values()), None)
        if pod.is_terminating or self._is_about_groups(own[0], key):
            self._open_gate(pod.uid, key)
            return own
        gates = self._gates.setdefault(key, {})
        if not gates:
            self._change(key, is_membership=True)
        gates[pod.uid] = own
        return own

    def _open_gate(self, uid: str, key: GroupKey) -> None:
        gates = self._gates.get(key)
        if gates is not None and gates.pop(uid, None) is not None and not gates:
            del self._gates[key]
            self._change(key, is_membership=True)

    def _is_about_groups(self, policy: str, key: GroupKey) -> bool:
        """True if *policy* gates pods for what their groups are like, so that it gates all."""
        return any(
            enabled.policy == policy and enabled.instance == key.instance
            for enabled in self._grouping.get(key.scheduler_name, ())
        )

    def take_changes(self) -> dict[GroupKey, bool]:
        """The groups that changed since the last call; True: not only in who has a node."""
        changes, self._changes = self._changes, {}
        return changes

    # --- reading -----------------------------------------------------------------------------

    @property
    def waiting(self) -> Set[str]:
        """The uids of all pods that wait in permit."""
        return self._waiting

    @property
    def has_changes(self) -> bool:
        """True if `take_changes` would return a group."""
        return bool(self._changes)

    def keys_of(self, uid: str) -> tuple[GroupKey, ...]:
        """The groups of a pod, one for each policy that puts it in one."""
        return tuple(self._keys.get(uid, ()))

    def permit_keys_of(self, uid: str) -> list[GroupKey]:
        """The pod's groups as seen by the policies that have a `permit` hook."""
        return [key for key in self._keys.get(uid, ()) if key.instance in self._permitting]

    def tried_in(self, uid: str) -> GroupKey | None:
        """The group that the pod is tried with: of those above, the first."""
        for key in self._keys.get(uid, ()):
            if key.instance in self._permitting:
                return key
        return None

    def is_incomplete(self, uid: str) -> bool:
        """True if the pod is tried with a group whose PodGroup was not seen."""
        key = self.tried_in(uid)
        if key is None or self._keys[uid][key].min_count is not None:
            return False
        return self.object_of(key) is None

    def namesakes(self, key: GroupKey) -> list[GroupKey]:
        """The groups of that name in its namespace as other profiles see them."""
        named = self._named.get((key.namespace, key.name), ())
        return [other for other in named if other.scheduler_name != key.scheduler_name]

    def members_of(self, key: GroupKey) -> list[Pod]:
        """Every pod of a group, in the order they were first seen."""
        return list(self._members.get(key, {}).values())

    def disrupted_as_one(self) -> list[DisruptionUnit]:
        """The groups that are preempted as a whole, as far as their pods count on nodes.

        A group whose pods are all on their way out is not among them: to take the place of one of
        them disrupts it no further.
        """
        units: dict[tuple[str, str, str], DisruptionUnit] = {}
        for key in self._members:
            wanted = self._wanted_of(key)
            if wanted.disruption_mode != ALL:
                continue
            placed = [self._cache.get_pod(uid) for uid in self._members[key]]
            pods = tuple(pod for pod in placed if pod is not None)
            if not all(pod.is_terminating or self._preemptions.is_evicted(pod.uid) for pod in pods):
                # Policies of one profile may see the same group.
                name = (key.scheduler_name, key.namespace, key.name)
                units[name] = DisruptionUnit(pods, wanted.priority)
        return list(units.values())

    def follows_object(self, key: GroupKey) -> bool:
        """True if a pod of the group leaves it to the PodGroup how many belong together."""
        return any(self._keys[uid][key].min_count is None for uid in self._members.get(key, ()))

    def object_of(self, key: GroupKey) -> PodGroup | None:
        """The PodGroup of the group's name, if there is one."""
        found: PodGroup | None = self._cache.objects.get(POD_GROUPS, f"{key.namespace}/{key.name}")
        return found

    def has_priority(self, key: GroupKey) -> bool:
        """False if the group's priority is only that of its pods."""
        terms = (self._keys[uid][key] for uid in self._members.get(key, ()))
        if any(one.priority is not None for one in terms):
            return True
        found = self.object_of(key)
        return found is not None and found.priority is not None

    def waiting_in(self, key: GroupKey) -> list[str]:
        """The uids of a group's pods that wait in permit, in the order they were first seen."""
        return self._members_that(key, WAITING)

    def pending_in(self, key: GroupKey) -> list[str]:
        """The uids of a group's pods that want a node and have none, in the same order."""
        return self._members_that(key, PENDING)

    def pending_pods(self, key: GroupKey) -> list[Pod]:
        """The same as pods."""
        members = self._members.get(key, {})
        return [members[uid] for uid in self.pending_in(key)]

    def _members_that(self, key: GroupKey, are: str) -> list[str]:
        members = self._members.get(key, {})
        return [uid for uid, pod in members.items() if self._counts_as(uid, pod) == are]

    def _counts_as(self, uid: str, pod: Pod) -> str:
        """As which number of its group's state the pod counts; "" if it counts as none."""
        if uid in self._waiting:
            return WAITING
        if pod.node_name or self._cache.get_pod(uid) is not None:
            return PLACED
        return "" if pod.is_terminating else PENDING

    def state_of(self, enabled: EnabledPolicy, pod: Pod) -> PodGroupState | PolicyFailure | None:
        """Where the group of *pod* stands as *enabled* sees it; None: it is in none."""
        if self._scheduler is not None and self._scheduler.hooks.is_in_no_group(enabled, pod):
            return None
        throttled = self._throttled(pod)
        if throttled is not None:
            return throttled
        started = self._clock.monotonic()
        said = self._group_verdict(enabled, pod)
        if isinstance(said, PolicyFailure):
            # A part of a scheduling cycle, which reports it.
            self._unsaid[pod.uid] = pod
            self._failures[pod.scheduler_name] = said
            self._throttle.charge(Work.GROUP, pod, [said], self._clock.monotonic() - started)
            return said
        return None if said is None else self.state(_key(enabled, pod, said[0]))

    def state_for(self, enabled: EnabledPolicy, pod: Pod) -> PodGroupState | PolicyFailure | None:
        """The same for a policy that is not in force: as the one of its name sees the group."""
        for known in self._grouping.get(pod.scheduler_name, ()):
            if known.policy == enabled.policy:
                return self.state_of(known, pod)
        return None

    def state(self, key: GroupKey) -> PodGroupState:
        """Where the group stands. Cost: a look at each of its pods if something has changed."""
        if self._held is not None and key in self._held:
            return self._held[key]
        generation = self._cache.pods_generation
        known = self._counted.get(key)
        if known is not None and known[0] == generation:
            return known[1]
        state = self._count(key)
        if key in self._members:  # nothing would have it forgotten after its last pod
            self._counted[key] = (generation, state)
        if self._held is not None:
            self._held[key] = state
        return state

    def _count(self, key: GroupKey) -> PodGroupState:
        wanted = self._wanted_of(key)
        counts = dict.fromkeys((PENDING, WAITING, PLACED, ""), 0)
        for uid, pod in self._members.get(key, {}).items():
            counts[self._counts_as(uid, pod)] += 1
        return replace(
            wanted, pending=counts[PENDING], waiting=counts[WAITING], placed=counts[PLACED]
        )

    def _wanted_of(self, key: GroupKey) -> PodGroupState:
        wanted = self._wanted.get(key)
        if wanted is None:
            wanted = self._want(key)
            if key in self._members:
                self._wanted[key] = wanted
        return wanted

    def _want(self, key: GroupKey) -> PodGroupState:
        """What is known of a group without a look at where its pods are."""
        members = self._members.get(key, {})
        terms = [self._keys[uid][key] for uid in members]
        found = self.object_of(key)
        behaves = self._cache.objects.behaves
        pods = list(members.values())
        state = group_state(key.namespace, key.name, terms, pods, found, behaves)
        return state if state.exists or self._are_served else replace(state, problem=NOT_SERVED)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside, every question is answered for the same moment, each group counted once."""
        self._held = {}
        try:
            yield
        finally:
            self._held = None

    def _group_verdict(self, enabled: EnabledPolicy, pod: Pod) -> Any:
        if self._scheduler is None:
            return None
        return self._scheduler.hooks.group_of(enabled, pod, self._cache.snapshot())


def _key(enabled: EnabledPolicy, pod: Pod, name: str) -> GroupKey:
    return GroupKey(enabled.instance, pod.scheduler_name, pod.namespace, name)


def _differ(before: Pod, after: Pod) -> bool:
    return before.is_terminating != after.is_terminating or before.priority != after.priority
