"""The hooks of the policy language, one entry each, in the order in which a pod meets them.

Owns which parameters a hook may name, which forms its verdict has, and what the documents say of
it; those of a tree of queues are in `tree_hooks`. When hooks are called is the business of
`scheduling`; this module knows no pods.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from engine.language import tree_hooks, verdicts
from engine.language.hook import Hook, HookParameter
from engine.language.verdicts import (
    ANNOTATIONS,
    COUNTERS,
    KEY,
    NOTHING,
    REASON,
    SCORE_BOUND,
    TRUTH,
    int_in,
    made,
    reasons,
    scores,
)

PARAMETERS: Final[Mapping[str, HookParameter]] = {
    "pod": HookParameter("view:pod", "the pod that is decided"),
    "node": HookParameter("view:node", "the node that is evaluated, with what is on it"),
    "cluster": HookParameter("view:cluster", "what is known of the whole cluster"),
    "group": HookParameter(
        "view:group?", "the pod's group, as this policy's `group_of` says; None if it is in none"
    ),
    "nodes": HookParameter("list[view:node]", "all nodes that passed the filters"),
    "victims": HookParameter(
        "list[view:pod]",
        "the pods that would be evicted, in the order of `victim_key`: the most important first",
    ),
    "counts": HookParameter(
        "list[Count]",
        "one struct per counter that `counters` declared; empty if the policy has none",
    ),
    "over": HookParameter(
        "Over",
        "a struct of `min`, `max` and `count` over this policy's scores of all nodes that fit",
    ),
    "state": HookParameter(
        "any",
        "what `pre_filter` or `pre_score` of this policy kept with `state(...)`; None if nothing",
    ),
    "score": HookParameter("int", "one of this policy's scores"),
    "violations": HookParameter("int", "how many disruption budgets that would violate"),
    **tree_hooks.PARAMETERS,
}


_IS_EMPTY: Final = "of each counter only `is_empty`: whether anything was counted anywhere"
_PASSES: Final = "None lets the pod pass, a text says why not"
_WHOLE: Final = "`//` divides to an int; math.round(...) makes one of a float"
_REASONS: Final = Annotated[list[str], msgspec.Meta(min_length=1)]


class _Rejection(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A rejection of a filter: if removing pods could help, why, and the reason token if any."""

    kind: Literal["r", "u"]
    reasons: _REASONS  # type: ignore[valid-type]  # an annotation
    token: str = ""


def _sent(*parts: str) -> str:
    """Starlark for a list of *parts* that leaves the sandbox, with the token of `v` if any."""
    listed = ", ".join(parts)
    return f"[{listed}, v.token] if v.token else [{listed}]"


ENTRIES: Final = (
    Hook(
        name="group_of",
        parameters=("pod",),
        required=1,
        forms=(
            NOTHING,
            made(
                "gang",
                "[v.name, v.min_count, v.priority, v.preemption_policy, v.disruption_mode]",
                tuple[str, int | None, int | None, str | None, str | None],
            ),
        ),
        hints={"string": "gang({v}) names it"},
        lint_hints={"": "`gang(name)` names it"},
        counted_as="Permit",
        called="once per pod",
        returns="`None`: in no group; or `gang(...)`. Without this hook: the group that the pod's "
        "`spec.schedulingGroup` names",
    ),
    Hook(
        name="queue_key",
        parameters=("pod", "group", "cluster"),
        required=1,
        forms=(KEY,),
        plugin_set="queueSort",
        called="when a pod enters the queue, and when a fact or an object that it reads changes",
        returns="int, string, or tuple or list of those: smaller goes first, equals by arrival",
    ),
    Hook(
        name="pre_enqueue",
        parameters=("pod", "group", "cluster"),
        required=1,
        forms=(
            NOTHING,
            REASON,
            *(
                made(
                    one,
                    "[v.reasons[0], v.token] if v.token else v.reasons[0]",
                    str | tuple[str, str],
                    when="len(v.reasons) == 1",
                    is_said=False,
                )
                for one in ("reject", "unresolvable")
            ),
        ),
        lint_hints={"bool": _PASSES, "float": _PASSES},
        plugin_set="preEnqueue",
        called="before a pod may be tried",
        returns="`None`, or a reason: the pod is gated until something changes that the hook reads",
    ),
    Hook(
        name="counters",
        parameters=("pod", "cluster"),
        required=1,
        forms=(COUNTERS,),
        lint_hints={"counter": "a list of one will do: `[count_pods(...)]`"},
        counted_as="PreFilter",
        called="once per pod",
        returns="list of counters (below), or a dict of such lists for `filter` and `score`",
    ),
    Hook(
        name="pre_filter",
        parameters=("pod", "cluster", "counts"),
        required=1,
        forms=(
            NOTHING,
            made("reject", _sent('"reject"', '"r"', "v.reasons")),
            made("unresolvable", _sent('"reject"', '"u"', "v.reasons")),
            made("skip", '["skip"]'),
            made(
                "only_nodes",
                '["only", v.names] if v.state == None else ["only", v.names, pack(v.state)]',
            ),
            made("state", '["state", pack(v.state)]'),
        ),
        hints={"string": "reject({v}) rejects the pod"},
        lint_hints={"": '`reject("why")` rejects the pod, None lets it pass'},
        plugin_set="preFilter",
        given={"counts": _IS_EMPTY},
        called="once per pod",
        returns="`None`, `reject(...)`, `unresolvable(...)`, `skip()`, `only_nodes(...)` or "
        "`state(...)`",
    ),
    Hook(
        name="filter",
        parameters=("pod", "node", "state", "counts", "cluster"),
        required=2,
        is_per_node=True,
        forms=(
            NOTHING,
            reasons(("a reason", "a list of reasons"), "r", _Rejection),
            made("unresolvable", _sent('"u"', "v.reasons"), _Rejection),
            made("reject", _sent('"r"', "v.reasons"), _Rejection, is_said=False),
        ),
        hints={"[]": "None lets the pod pass: `return reasons or None`"},
        lint_hints={"bool": _PASSES, "float": _PASSES},
        plugin_set="filter",
        called="per node",
        returns="`None`: fits; a reason, a list of reasons or `unresolvable(...)`: does not",
    ),
    Hook(
        name="pre_score",
        parameters=("pod", "cluster", "state", "counts"),
        required=1,
        forms=(NOTHING, made("skip", '["skip"]'), made("state", '["state", pack(v.state)]')),
        plugin_set="preScore",
        given={
            "counts": _IS_EMPTY,
            "state": "what `pre_filter` of this policy kept; None if nothing",
        },
        called="once per pod that fits somewhere",
        returns="`None`, `skip()` or `state(...)`",
    ),
    Hook(
        name="score",
        parameters=("pod", "node", "state", "counts", "cluster"),
        required=2,
        is_per_node=True,
        forms=(
            int_in(
                *(0, 100, "an int"),
                hint="define normalize(score, over), scale by the largest raw score, or clamp to "
                "100",
            ),
            NOTHING,
        ),
        raw_forms=(int_in(-SCORE_BOUND, SCORE_BOUND, "an int"), NOTHING),
        hints={"float": "int(...) or math.round(...) makes an int of a float"},
        lint_hints={"bool": _WHOLE, "float": _WHOLE},
        none_means="a node without a score counts as one with 0",
        plugin_set="score",
        called="per node that fits",
        returns="int (0..100, or any with `normalize`); `None`: no score here, which counts as 0",
    ),
    Hook(
        name="normalize",
        parameters=("score", "over"),
        required=2,
        forms=(int_in(0, 100, hint="scale by over.max, or clamp to 100"),),
        hints={"float": "use // for whole division"},
        counted_as="ScoreExtensionNormalize",
        lint_hints={"bool": _WHOLE, "float": _WHOLE},
        plugin_set="score",
        called="per distinct score",
        returns="int in 0..100",
    ),
    Hook(
        name="score_all",
        parameters=("pod", "nodes", "state"),
        required=2,
        forms=(scores(0, 100),),
        raw_forms=(scores(-SCORE_BOUND, SCORE_BOUND),),
        plugin_set="score",
        called="once per pod, over all nodes that fit",
        returns="list of ints, one per node; costs a full pass, nothing is reused",
    ),
    Hook(
        name="tie_key",
        parameters=("pod", "node"),
        required=2,
        is_per_node=True,
        forms=(KEY,),
        plugin_set="score",
        called="per node with the highest total, if several have it",
        returns="int, string, or tuple or list of those: the smallest wins",
    ),
    Hook(
        name="annotate",
        parameters=("pod", "node"),
        required=2,
        is_per_node=True,
        forms=(NOTHING, ANNOTATIONS),
        plugin_set="reserve",
        given={"node": "the node that was chosen, as it was before"},
        called="once, for the node that was chosen",
        returns="`None`, or a dict of annotations that the pod gets with its binding",
    ),
    Hook(
        name="permit",
        parameters=("pod", "group"),
        required=2,
        forms=(
            NOTHING,
            made("wait", _sent('"wait"', "v.seconds", "v.reasons[0]")),
            reasons(("a reason",), "reject", list[Any]),
            made("reject", _sent('"reject"', "v.reasons"), is_said=False),
            made("unresolvable", _sent('"reject"', "v.reasons"), is_said=False),
        ),
        lint_hints={"bool": _PASSES, "float": _PASSES},
        plugin_set="permit",
        called="once a node is chosen, and again when the group changes",
        returns="`None`: may be bound; `wait(...)`; or a reason, a list of reasons: may not",
    ),
    Hook(
        name="victim_key",
        parameters=("pod",),
        required=1,
        forms=(NOTHING, KEY),
        none_means="a pod without a key is never evicted",
        plugin_set="postFilter",
        given={"pod": "a pod on the node, of lower priority than the one that wants to go there"},
        called="per pod that could be evicted for a more urgent one",
        returns="`None`: is never evicted; int, string, or tuple or list of those: the smallest is "
        "spared first",
    ),
    Hook(
        name="candidate_key",
        parameters=("node", "victims", "violations"),
        required=2,
        forms=(KEY,),
        plugin_set="postFilter",
        given={"node": "a node on which evicting `victims` makes enough capacity free"},
        called="per node where evicting pods frees enough capacity, if there are several",
        returns="int, string, or tuple or list of those: the smallest wins",
    ),
    *tree_hooks.ENTRIES,
)

#: Every hook by its name.
HOOKS: Final[Mapping[str, Hook]] = {hook.name: hook for hook in ENTRIES}

# The fields of KubeSchedulerConfiguration's `plugins`; those that no hook is for, too.
_PLUGIN_SETS: Final = (
    *("preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "podGroupPostFilter"),
    *("preScore", "score", "reserve", "permit", "preBind", "bind", "postBind"),
)
#: By such a field, the hooks that it switches on.
PLUGIN_SETS: Final[Mapping[str, tuple[str, ...]]] = {
    field: tuple(hook.name for hook in ENTRIES if hook.plugin_set == field)
    for field in _PLUGIN_SETS
}

#: Functions whose names start so say which nodes a counter counts on; they are hooks, too.
AMONG_PREFIX: Final = "among_"
AMONG: Final = Hook(
    name=AMONG_PREFIX,
    parameters=("pod", "node", "state", "cluster"),
    required=1,
    is_per_node=True,
    forms=(TRUTH,),
    counted_as="PreFilter",
    called="per node that a counter might count on",
    returns="True if pods on it count",
)


def is_hook(name: str) -> bool:
    """True if a function of this name at top level is a hook."""
    return name in HOOKS or name.startswith(AMONG_PREFIX)


def hook_of(name: str) -> Hook:
    """The entry of the hook *name*. Raises KeyError if there is none."""
    return AMONG if name.startswith(AMONG_PREFIX) else HOOKS[name]


# Further parameters of the checks of single hooks.
_MORE: Final = {"score_all": ", count", "counters": ", functions"}


def checks_text() -> str:
    """The Starlark module with a check for each hook: `check_score`, `check_raw_score`, ..."""
    parts = [verdicts.shared_text()]
    for hook in (*ENTRIES, AMONG):
        more = _MORE.get(hook.name, "")
        if hook is AMONG:
            parts.append(verdicts.check_text("among", "hook", hook.forms, {}, ", hook"))
            continue
        literal = f'"{hook.name}"'
        parts.append(verdicts.check_text(hook.name, literal, hook.forms, hook.hints, more))
        if hook.raw_forms:
            name = f"raw_{hook.name}"
            parts.append(verdicts.check_text(name, literal, hook.raw_forms, hook.hints, more))
    return "\n".join(parts)
