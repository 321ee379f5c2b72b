"""The named places in a scheduling attempt, and the hooks that policies define for them.

Owns names only. Order within a cycle is the order of this file.
"""

from typing import Final

# Hooks that a policy file may define, by what they are called for.
POD_HOOKS: Final = frozenset(
    {"queue_key", "pre_enqueue", "pre_filter", "counters", "pre_score", "score_all", "permit"}
    | {"group_of"}
)
NODE_HOOKS: Final = frozenset({"filter", "score", "tie_key", "annotate"})
OTHER_HOOKS: Final = frozenset({"normalize", "victim_key", "candidate_key"})
HOOKS: Final = POD_HOOKS | NODE_HOOKS | OTHER_HOOKS

# Parameters that each hook may name, in order; the first `required` ones must be there.
HOOK_PARAMETERS: Final[dict[str, tuple[tuple[str, ...], int]]] = {
    "group_of": (("pod",), 1),
    "queue_key": (("pod", "group"), 1),
    "pre_enqueue": (("pod", "group"), 1),
    "pre_filter": (("pod", "cluster", "counts"), 1),
    "counters": (("pod",), 1),
    "filter": (("pod", "node", "state", "counts", "cluster"), 2),
    "pre_score": (("pod", "cluster", "state", "counts"), 1),
    "score": (("pod", "node", "state", "counts", "cluster"), 2),
    "normalize": (("score", "over"), 2),
    "score_all": (("pod", "nodes", "state"), 2),
    "permit": (("pod", "group"), 2),
    "victim_key": (("pod",), 1),
    "candidate_key": (("node", "victims", "violations"), 2),
    "tie_key": (("pod", "node"), 2),
    "annotate": (("pod", "node"), 2),
}

# KubeSchedulerConfiguration's `plugins` fields, with the hooks that each switches on.
PLUGIN_SETS: Final[dict[str, tuple[str, ...]]] = {
    "preEnqueue": ("pre_enqueue",),
    "queueSort": ("queue_key",),
    "preFilter": ("pre_filter",),
    "filter": ("filter",),
    "postFilter": ("victim_key", "candidate_key"),
    "preScore": ("pre_score",),
    "score": ("score", "normalize", "score_all", "tie_key"),
    "reserve": ("annotate",),
    "permit": ("permit",),
    "preBind": (),
    "bind": (),
    "postBind": (),
}
