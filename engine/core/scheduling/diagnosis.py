"""Why a pod fits nowhere, in kube-scheduler's words.

Owns counting reasons over nodes and the text of the event and the condition. Reasons come from
policies; nothing here decides.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec

from engine.core.framework import reasons
from engine.core.framework.reasons import Reason
from engine.core.framework.status import Status

NO_NODES = "no nodes available to schedule pods"


class Diagnosis(msgspec.Struct, frozen=True):
    """What kept a pod from every node.

    `pre_filter` is set when a pre-filter rejected the pod before any node was looked at.
    `rejections` counts nodes by the status of the first policy that rejected them.
    `post_filter` is what preemption had to say, if it was asked.
    `narrowed_by` are the policies whose pre-filters left nodes out, each for its own reasons.
    `kept_by` are those that keep pods whose eviction would help, with the number of nodes.
    `refused_by` are those that no eviction would satisfy: once their verdict changes, one may help.
    `held`: why no pods are evicted for it, although that would help; then it is the cause.
    `node_blind` are the policies of users whose rejections do not depend on the node.
    """

    node_count: int
    pre_filter: Status | None = None
    rejections: Mapping[Status, int] = msgspec.field(default_factory=dict)
    post_filter: str = ""
    narrowed_by: tuple[str, ...] = ()
    kept_by: Mapping[str, int] = msgspec.field(default_factory=dict)
    refused_by: frozenset[str] = frozenset()
    node_blind: frozenset[str] = frozenset()
    held: Status | None = None

    @property
    def rejectors(self) -> frozenset[str]:
        """The policies that rejected the pod or a node, or keep evictions from helping."""
        names = {*(status.plugin for status in self.rejections), *self.narrowed_by, *self.kept_by}
        names |= self.refused_by
        if self.pre_filter is not None:
            names.add(self.pre_filter.plugin)
        if self.held is not None:
            names.add(self.held.plugin)
        return frozenset(names)

    @property
    def reason(self) -> Reason:
        """The dominant cause."""
        if self.node_count == 0:
            return reasons.NO_NODES
        whole = self.held or self.pre_filter
        found = self.rejections if whole is None else {whole: 1}
        return reasons.dominant(found.items(), self.node_blind) or reasons.BACKING_OFF

    def message(self) -> str:
        """The text of the event, as kube-scheduler's FitError.

        Entries are sorted as strings: `10 Insufficient cpu` comes before `2 Too many pods`. A
        node with several reasons counts once for each.
        """
        if self.node_count == 0:
            return NO_NODES
        text = f"0/{self.node_count} nodes are available:"
        if self.pre_filter is not None:
            text += f" {self.pre_filter.message}."
        elif self.rejections:
            counted: Counter[str] = Counter()
            for status, nodes in self.rejections.items():
                for reason in status.reasons:
                    counted[reason] += nodes
            entries = sorted(f"{nodes} {reason}" for reason, nodes in counted.items())
            if entries:
                text += f" {', '.join(entries)}."
        if self.held is not None:
            text += f" {self.held.message}."
        return f"{text} {self.post_filter}" if self.post_filter else text
