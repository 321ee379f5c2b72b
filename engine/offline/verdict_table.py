"""The verdicts of every policy on every node, instead of only the first rejection.

Owns running every filter alone, with the engine's own cycle. A decision stops at the first
rejection of a node; to know what would help, all of them are needed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from engine.caching.snapshot import Snapshot
from engine.framework.profile import Profile
from engine.framework.status import Status
from engine.model.pod import Pod
from engine.policy.bundle import Bundle
from engine.policy.evaluator import Evaluator, PolicyFailure
from engine.queueing.nominator import Nominator
from engine.scheduling.rejections import left_out_by
from engine.scheduling.scheduling_cycle import Scheduler

_POINTS = ("preFilter", "filter")
_HOOKS = ("pre_filter", "filter", "counters")


@dataclass(frozen=True, slots=True)
class VerdictTable:
    """Which policies reject which nodes.

    Attributes:
        nodes: The names of all nodes, sorted.
        rejections: By policy in the profile's order, and node: the rejection. Policies that reject
            no node have an empty mapping.
        failures: Failures of policies.
    """

    nodes: tuple[str, ...]
    rejections: Mapping[str, Mapping[str, Status]]
    failures: tuple[PolicyFailure, ...] = ()

    def rejectors_of(self, node: str) -> tuple[str, ...]:
        """The policies that reject *node*, in order."""
        return tuple(policy for policy, nodes in self.rejections.items() if node in nodes)

    def rejected_only_by(self, policy: str) -> tuple[str, ...]:
        """The nodes that would be feasible without *policy*."""
        others = [nodes for name, nodes in self.rejections.items() if name != policy]
        return tuple(
            node
            for node in self.rejections.get(policy, ())
            if not any(node in nodes for nodes in others)
        )


def ask_each(
    bundle: Bundle, evaluator: Evaluator, pod: Pod, snapshot: Snapshot, nominator: Nominator
) -> VerdictTable:
    """Every filter of the pod's profile, run alone. Raises `KeyError` if it has no profile."""
    profile = {p.scheduler_name: p for p in bundle.profiles}[pod.scheduler_name]
    names = tuple(sorted(info.name for info in snapshot.infos if info is not None and info.node))
    found: dict[str, Mapping[str, Status]] = {}
    failures: list[PolicyFailure] = []
    for name in filter_names(profile):
        alone = replace(bundle, profiles=(_only(profile, name),))
        scheduler = Scheduler(alone, evaluator, has_extenders=False)
        explanation = scheduler.explain(pod, snapshot, nominator)
        diagnosis = explanation.decision.diagnosis
        failures += explanation.decision.failures
        if diagnosis.pre_filter is not None:
            found[name] = dict.fromkeys(names, diagnosis.pre_filter)
        else:
            chosen = explanation.pre_filter_nodes
            outside = () if chosen is None else set(names).difference(chosen)
            found[name] = dict.fromkeys(outside, left_out_by((name,))) | {
                node: status for node, status in explanation.rejected.items() if status.is_rejection
            }
    return VerdictTable(names, found, tuple(failures))


def filter_names(profile: Profile) -> list[str]:
    """Policies and runtime plugins that can reject a node, in the profile's order."""

    def names() -> Iterator[str]:
        for point in ("filter", "preFilter"):
            yield from profile.order.get(point, ())
        for hook in ("filter", "pre_filter"):
            yield from (enabled.policy for enabled in profile.at(hook))

    return list(dict.fromkeys(names()))


def _only(profile: Profile, name: str) -> Profile:
    points = {
        hook: tuple(enabled for enabled in profile.at(hook) if enabled.policy == name)
        for hook in _HOOKS
    }
    order = {
        point: tuple(one for one in profile.order.get(point, ()) if one == name)
        for point in _POINTS
    }
    return replace(
        profile,
        points={hook: enabled for hook, enabled in points.items() if enabled},
        order={point: names for point, names in order.items() if names},
    )
