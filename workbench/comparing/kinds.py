"""The kinds of differences that commands name: one vocabulary for all of them, and its words.

Owns the words. Those that a running scheduler counts are `engine.comparing.difference`'s.
"""

from typing import Final

from engine.comparing.difference import FAILED, MOVED, NEWLY_PENDING, NEWLY_PLACED, OTHER_VICTIMS

NEWLY_GATED, NEWLY_UNGATED = "newly_gated", "newly_ungated"
NEWLY_GONE, NEWLY_EVICTED = "newly_gone", "newly_evicted"
OTHER_ORDER, OTHER_REASON = "other_order", "other_reason"
WITHOUT_PROFILE = "without_profile"
OTHER_VERDICT, OTHER_GATE, OTHER_PERMIT = "verdict", "gate", "permit"
OTHER_GROUP, OTHER_SCORES, OTHER_TIE = "group", "scores", "tie"
OTHER_ANNOTATIONS = "annotations"

#: Of what becomes of a pod: each kind with its words, the gravest first.
OF_OUTCOMES: Final = {
    FAILED: "a policy fails",
    NEWLY_PENDING: "now pending",
    NEWLY_GONE: "now gone without a node",
    NEWLY_EVICTED: "now evicted",
    NEWLY_GATED: "now gated",
    OTHER_VICTIMS: "other victims",
    MOVED: "moved",
    NEWLY_PLACED: "now placed",
    NEWLY_UNGATED: "no longer gated",
    OTHER_ORDER: "other order",
    OTHER_REASON: "pending for another reason",
}

#: Of what hooks say of a pod, whatever becomes of it; the gravest first.
OF_ANSWERS: Final = (
    WITHOUT_PROFILE,  # one set has no profile of the pod's `schedulerName`
    FAILED,  # a policy of one set fails
    OTHER_VERDICT,  # one accepts a node that the other rejects
    OTHER_GATE,  # one does not let the pod be tried
    OTHER_PERMIT,  # placed pods are approved, wait or are rejected
    OTHER_GROUP,  # the group that the pod is in
    OTHER_ORDER,  # which of two pods goes first
    OTHER_SCORES,  # which of two nodes is better
    OTHER_TIE,  # which of equally good nodes is taken
    OTHER_VICTIMS,  # which pods are evicted, and on which node
    OTHER_ANNOTATIONS,  # what the pod gets with its binding
    OTHER_REASON,  # both reject, for another reason
)
