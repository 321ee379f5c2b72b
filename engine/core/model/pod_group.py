"""A PodGroup object of any version of its API, and a pod group as it stands.

Owns what the fields of a PodGroup mean, in the spelling of each version, and the record that
policies see as `group`; counting the pods of a group is `kernel.pod_groups`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeGuard

import msgspec

from engine.core.framework.behaviors import Behaviors
from engine.core.model.group_words import words_of
from engine.core.model.objects import ObjectMeta, Record
from engine.core.model.pod import Pod
from engine.core.model.times import epoch_seconds

#: Where the cache keeps PodGroup objects: the plural name of the resource.
POD_GROUPS: Final = "podgroups"

#: Its pods can be preempted one by one, or only all together.
SINGLE: Final = "single"
ALL: Final = "all"
DISRUPTION_MODES: Final = (SINGLE, ALL)
# `v1alpha2` has a string where later versions have an object with one of the members above.
_MODES_OF_V1ALPHA2: Final = {"Pod": SINGLE, "PodGroup": ALL}

PREEMPT_LOWER_PRIORITY: Final = "PreemptLowerPriority"
NEVER: Final = "Never"
PREEMPTION_POLICIES: Final = (PREEMPT_LOWER_PRIORITY, NEVER)

_BASIC: Final = "basic"
_GANG: Final = "gang"
_POLICIES: Final = (_BASIC, _GANG)


class GroupClaim(NamedTuple):
    """A device claim of a PodGroup: the name of the entry, and the claim or the template."""

    name: str | None
    claim: str | None
    template: str | None


class PodGroup(Record, frozen=True):
    """A PodGroup of `scheduling.k8s.io`: `v1beta1`, `v1alpha3` or `v1alpha2`.

    What is malformed, or new in a later version of Kubernetes, counts as if it were absent, and
    `problem` says so.
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def min_count(self) -> int:
        """How many of its pods have to be placed together; 0: no gang, they go one by one."""
        count = _member(_member(self.spec, "schedulingPolicy"), _GANG).get("minCount")
        return count if _is_int(count) and count > 0 else 0

    @property
    def disruption_mode(self) -> str:
        """`SINGLE`, which is the default, or `ALL`."""
        mode = self.spec.get("disruptionMode")
        if isinstance(mode, str):
            return _MODES_OF_V1ALPHA2.get(mode, SINGLE)
        return ALL if isinstance(mode, dict) and list(_present(mode)) == [ALL] else SINGLE

    @property
    def priority(self) -> int | None:
        """Its own priority, which admission fills in from its class; not by default in 1.36."""
        priority = self.spec.get("priority")
        return priority if _is_int(priority) else None

    @property
    def preemption_policy(self) -> str:
        """`PREEMPT_LOWER_PRIORITY` or `NEVER`; "": it has none, and its pods' counts."""
        policy = self.spec.get("preemptionPolicy")
        return policy if policy in PREEMPTION_POLICIES else ""

    @property
    def claims(self) -> frozenset[GroupClaim]:
        """The device claims that its pods share; what is malformed is left out."""
        given = self.spec.get("resourceClaims")
        found = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
        fields = ("name", "resourceClaimName", "resourceClaimTemplateName")
        return frozenset(
            GroupClaim(*values)
            for values in ([one.get(field) for field in fields] for one in found)
            if all(value is None or isinstance(value, str) for value in values)
        )

    @property
    def workload(self) -> str:
        """The name of the Workload that it was made from, in its namespace; "" if of none."""
        reference = _member(self.spec, "workloadRef")
        if not reference:  # v1alpha2
            reference = _member(_member(self.spec, "podGroupTemplateRef"), "workload")
        name = reference.get("workloadName")
        return name if isinstance(name, str) else ""

    @property
    def problem(self) -> str:
        """The first of its fields that cannot be followed, with what was expected; "" if none."""
        for found in (
            *self.metadata.unread,
            _policy_problem(self.spec.get("schedulingPolicy")),
            _mode_problem(self.spec.get("disruptionMode")),
            _priority_problem(self.spec.get("priority")),
            _one_of("spec.preemptionPolicy", PREEMPTION_POLICIES, self.spec["preemptionPolicy"])
            if self.spec.get("preemptionPolicy") and not self.preemption_policy
            else "",
        ):
            if found:
                return f"PodGroup `{self.key}`: {found}"
        return ""


def _policy_problem(policy: Any) -> str:
    path = "spec.schedulingPolicy"
    given = list(_present(policy)) if isinstance(policy, dict) else []
    if len(given) != 1 or given[0] not in _POLICIES:
        return _one_of(path, _POLICIES, given)
    body = policy[given[0]]
    if not isinstance(body, dict):
        return f"{path}.{given[0]}: want an object, got `{body}`"
    count = body.get("minCount")
    if given == [_GANG] and not (_is_int(count) and count > 0):
        got = "nothing" if count is None else f"`{count}`"
        return f"{path}.gang.minCount: want an int of at least 1, got {got}"
    return ""


def _mode_problem(mode: Any) -> str:
    path = "spec.disruptionMode"
    if mode is None or mode == "":
        return ""
    if isinstance(mode, str):
        return "" if mode in _MODES_OF_V1ALPHA2 else _one_of(path, _MODES_OF_V1ALPHA2, mode)
    given = list(_present(mode)) if isinstance(mode, dict) else []
    if len(given) == 1 and given[0] in DISRUPTION_MODES:
        return ""
    return _one_of(path, DISRUPTION_MODES, given)


def _priority_problem(priority: Any) -> str:
    if priority is None or _is_int(priority):
        return ""
    return f"spec.priority: want an int, got `{priority}`"


def _one_of(path: str, wanted: Collection[str], given: Any) -> str:
    """*path* does not have one of the *wanted* values."""
    got = " and ".join(f"`{one}`" for one in ([given] if isinstance(given, str) else given))
    return f"{path}: want one of {', '.join(f'`{one}`' for one in wanted)}, got {got or 'nothing'}"


def _present(members: Mapping[str, Any]) -> list[str]:
    """The names of the members that are not null."""
    return [name for name, value in members.items() if value is not None]


def _member(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object *name* of an object; empty if there is none."""
    value = of.get(name)
    return value if isinstance(value, dict) else {}


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


class GroupTerms(NamedTuple):
    """What the policy of a pod says about the pod's group; None: what the PodGroup says.

    Attributes:
        min_count, priority, preemption_policy, disruption_mode: As of `PodGroupState`.
    """

    min_count: int | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    disruption_mode: str | None = None


@dataclass(frozen=True, slots=True)
class PodGroupState:
    """A group of pods that are placed together.

    Attributes:
        name: Its name; groups of different namespaces and schedulers are different groups.
        exists: False while its pods name a PodGroup object that is not there.
        min_count: How many of its pods have to be placed together; 0: they go one by one.
        created_at: When its PodGroup, or else the oldest of its pods was made (epoch seconds).
        priority: What `group_of` gives, or else that of its PodGroup, or if that has none either
            the highest among its pods.
        preemption_policy: `PreemptLowerPriority`, `Never`, or "": that of its pods.
        disruption_mode: `SINGLE` or `ALL`: whether its pods are preempted one by one or together.
        workload: The Workload that its PodGroup was made from, or "".
        problem: Why its PodGroup is not there or cannot be followed, or "".
        shortage: What its pods wait for as long as they are fewer than `min_count`.
        is_bound_at_once: Its pods do not wait for each other once all of them were decided about.
        pending: How many pods have no node; those that are being deleted do not count.
        waiting: How many have a node and wait in permit.
        placed: How many permit approved, those on their nodes included.
    """

    name: str
    exists: bool = True
    min_count: int = 0
    created_at: float = 0.0
    priority: int = 0
    preemption_policy: str = ""
    disruption_mode: str = SINGLE
    workload: str = ""
    problem: str = ""
    shortage: str = ""
    is_bound_at_once: bool = False
    pending: int = 0
    waiting: int = 0
    placed: int = 0

    @property
    def pod_count(self) -> int:
        """How many pods it has."""
        return self.pending + self.waiting + self.placed


def group_state(
    namespace: str,
    name: str,
    terms: Sequence[GroupTerms],
    pods: Sequence[Pod],
    found: PodGroup | None,
    behaves: Behaviors,
) -> PodGroupState:
    """The group *name*, without where its *pods* are.

    If the pods' policies say different things, the greatest number and the strictest word count.

    Args:
        namespace, name: Its name.
        terms: What the policy of each pod says; a group is that of a PodGroup if one of them
            leaves `min_count` to it.
        pods: Its pods.
        found: The PodGroup of this name, if there is one.
        behaves: What differs between minor versions of Kubernetes.
    """
    words = words_of(behaves)
    needs_object = any(one.min_count is None for one in terms)
    group = found if needs_object and found is not None else None
    min_counts = [one.min_count for one in terms if one.min_count is not None]
    priorities = [one.priority for one in terms if one.priority is not None]
    policies = {one.preemption_policy for one in terms} - {None}
    modes = {one.disruption_mode for one in terms} - {None}
    if group is not None:
        min_counts.append(group.min_count)
        if not priorities and group.priority is not None:
            priorities = [group.priority]
        policies = policies or {group.preemption_policy}
        modes = modes or {group.disruption_mode}
    created_at = 0.0 if group is None else epoch_seconds(group.metadata.creation_timestamp)
    problem = "" if group is None else group.problem
    if needs_object and found is None:
        problem = words.missing.format(group=name)
    return PodGroupState(
        name,
        exists=found is not None or not needs_object,
        min_count=max(min_counts, default=0),
        created_at=created_at or min((pod.created_at for pod in pods), default=0.0),
        priority=max(priorities or [pod.priority for pod in pods], default=0),
        preemption_policy=next(
            (one for one in (NEVER, *PREEMPTION_POLICIES) if one in policies), ""
        ),
        disruption_mode=ALL if ALL in modes else SINGLE,
        workload="" if group is None else group.workload,
        problem=problem,
        shortage=words.shortage.format(namespace=namespace, group=name),
        is_bound_at_once=behaves.groups_need_no_permit,
    )


class DisruptionUnit(NamedTuple):
    """The placed pods of a group that is preempted as a whole, and the group's priority."""

    pods: tuple[Pod, ...]
    priority: int
