"""What the hooks of a bundle read and want, worked out once for each profile and each hook.

Owns the questions that depend on the policies alone. Which pods are alike in what is read here, and
what hooks are asked with for one of them, is `pod_classifier`'s.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from engine.core.framework.profile import EnabledPolicy, Profile
from engine.core.scheduling.hook_use import Prepared
from engine.core.scheduling.pod_fields import Fields
from engine.language.summaries import COUNT
from engine.policy.analysis import Reads
from engine.policy.bundle import Bundle
from engine.policy.projections import EVERYTHING, Projector
from engine.policy.view_fields import Wanted

# The hooks that are asked about the pod before any node, those asked by a class, and all.
_BEFORE_NODES: Final = ("pre_filter", "pre_score")
PER_NODE: Final = ("filter", "score", "score_all")
_CLASS_HOOKS: Final = (*_BEFORE_NODES, "counters", *PER_NODE)

#: The hooks that are given which counters are empty, and the hook whose counters those are.
GIVEN_COUNTS: Final = (("pre_filter", "filter"), ("pre_score", "score"))

# How many sets of policies whose hooks are skipped for a pod are remembered, by profile.
_MOST_SKIPPED: Final = 1024


class HookReads:
    """What one hook of a policy reads.

    Attributes:
        reads: What the analysis found.
        is_counted: It is given counters.
        wanted: What it reads of nodes that the pod names; nothing if it is not one of a class.
    """

    def __init__(self, hook: str, reads: Reads) -> None:
        self.reads = reads
        self.is_counted = "counts" in reads.params
        self._projectors: dict[str, Projector] = {}
        self.wanted: Sequence[Wanted] = ()
        if hook in PER_NODE and not self.is_counted:
            found = self.projector("node").wanted.values()
            self.wanted = tuple(dict.fromkeys(wanted for _, wanted in found))

    @property
    def counter_fields(self) -> frozenset[str]:
        """The fields of a counter that it may read."""
        fields = frozenset(COUNT)
        return fields if EVERYTHING in self.reads.counts else self.reads.counts & fields

    def projector(self, view: str) -> Projector:
        """What makes the JSON that the hook is given of a pod, node, group or cluster."""
        projector = self._projectors.get(view)
        if projector is None:
            projector = self._projectors[view] = Projector(view, self.reads.of(view))
        return projector


class PolicyReads:
    """What one policy reads, by hook.

    Attributes:
        normalizes: It has a hook `normalize`.
        reads_count: That hook may look at `over.count`.
    """

    def __init__(self, hooks: Mapping[str, Reads]) -> None:
        self.hooks: Final = {hook: HookReads(hook, reads) for hook, reads in hooks.items()}
        normalize = hooks.get("normalize")
        self.normalizes = normalize is not None
        self.reads_count = normalize is not None and not normalize.over.isdisjoint(
            {EVERYTHING, "count"}
        )


class ProfileReads:
    """What the hooks of one profile read, as the sets of fields by which it distinguishes pods.

    Attributes:
        everything: What all hooks read that a class is made with: pods with the same are alike.
        before_nodes: Of that, what pre-filters and pre-scores read.
        wanted: What its hooks read of nodes that the pod names.
        is_counting: A hook is given counters.
        positions: The place of each policy and runtime plugin in the order of the filters.
    """

    def __init__(self, profile: Profile, policies: Mapping[str, PolicyReads]) -> None:
        self._profile = profile
        self._policies = policies
        self._of_class: dict[tuple[frozenset[str], frozenset[str]], Fields | None] = {}
        self.everything = self._fields(_CLASS_HOOKS, self._counting_reads())
        self.before_nodes = self._fields(_BEFORE_NODES)
        per_node = [self._of(e, hook) for hook in PER_NODE for e in profile.at(hook)]
        self.wanted = tuple(dict.fromkeys(one for of_hook in per_node for one in of_hook.wanted))
        self.is_counting = any(
            self._of(e, hook).is_counted
            for pair in GIVEN_COUNTS
            for hook in pair
            for e in profile.at(hook)
        )
        order = profile.order.get("filter") or [e.policy for e in profile.at("filter")]
        self.positions: Mapping[str, int] = {name: place for place, name in enumerate(order)}

    def of_class(self, prepared: Prepared) -> Fields | None:
        """What the per-node hooks read that are not skipped; None if they are given counters."""
        key = prepared.skipped, prepared.skipped_scores
        if key not in self._of_class:
            if len(self._of_class) >= _MOST_SKIPPED:
                self._of_class.clear()
            self._of_class[key] = self._fields_of_class(prepared)
        return self._of_class[key]

    def _fields_of_class(self, prepared: Prepared) -> Fields | None:
        left_out = {
            "filter": prepared.skipped,
            "score": prepared.skipped_scores,
            "score_all": prepared.skipped_scores,
        }
        is_counted = any(
            self._of(enabled, hook).is_counted
            for hook in PER_NODE
            for enabled in self._profile.at(hook)
            if enabled.policy not in left_out[hook]
        )
        return None if is_counted else self._fields(PER_NODE, (), left_out)

    def _fields(
        self,
        hooks: Iterable[str],
        others: Iterable[Reads] = (),
        left_out: Mapping[str, Collection[str]] = MappingProxyType({}),
    ) -> Fields:
        """What *hooks* read, but for the policies that are *left_out* of each, and *others*."""
        reads = [
            self._of(enabled, hook).reads
            for hook in hooks
            for enabled in self._profile.at(hook)
            if enabled.policy not in left_out.get(hook, ())
        ]
        reads += others
        return Fields.of(
            {path for one in reads for path in one.pod},
            {path for one in reads for path in one.cluster},
        )

    def _counting_reads(self) -> list[Reads]:
        """What the policies read to say what is counted, and among which nodes."""
        # Whichever of these hooks is enabled, alone too, has the policy asked for its counters.
        enabled = {
            e.policy for pair in GIVEN_COUNTS for hook in pair for e in self._profile.at(hook)
        }
        found = [
            of_hook.reads
            for policy in enabled
            for name, of_hook in self._policies[policy].hooks.items()
            if name == "counters" or name.startswith("among_")
        ]
        return [*found, Reads(pod=frozenset({"namespace"}))] if found else found

    def _of(self, enabled: EnabledPolicy, hook: str) -> HookReads:
        return self._policies[enabled.policy].hooks[hook]


def reads_of(bundle: Bundle) -> tuple[dict[str, PolicyReads], dict[str, ProfileReads]]:
    """What each policy of *bundle* reads, by its name, and each profile, by `scheduler_name`."""
    policies = {name: PolicyReads(policy.hooks) for name, policy in bundle.policies.items()}
    profiles = {p.scheduler_name: ProfileReads(p, policies) for p in bundle.profiles}
    return policies, profiles
