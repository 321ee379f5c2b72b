"""The hooks that govern a tree of queues: they see queues, and no pods or nodes but to name theirs.

Owns their entries, and the fields that every queue and every request has in them.
"""

from collections.abc import Mapping
from typing import Final

from engine.language.hook import Hook, HookParameter
from engine.language.verdicts import NOTHING, PATH, QUEUES, TURN_KEY, VECTORS, int_in, made

#: The field that a queue has only if its tree keeps it.
USAGE: Final = "usage"

#: What a hook sees of a queue, whatever tree it is in; the attributes of the tree come with them.
QUEUE_FIELDS: Final[Mapping[str, tuple[str, str]]] = {
    "name": ("str", "the last part of its path"),
    "path": ("str", 'its path from the root, with slashes; "" for the root'),
    "is_leaf": ("bool", "True if no queue is under it"),
    "is_root": ("bool", "True for the root"),
    "allocated": (
        "dict[str, int]",
        "what its pods on nodes request, and what is `claimed`, but for what the request that is "
        "asked about claims itself",
    ),
    "leaving": ("dict[str, int]", "of that, what pods request that are being deleted or evicted"),
    "nonpreemptible": (
        "dict[str, int]",
        "of `allocated`, what `member(...)` said is not given back",
    ),
    "waiting": ("dict[str, int]", "what its pods without a node request"),
    "claimed": ("dict[str, int]", "of that, what pods request for which others are evicted"),
    "requested": ("dict[str, int]", "`allocated` and `waiting` together"),
    "pods": ("int", "how many pods it has, with those that wait"),
    "up": (
        "dict[str, dict[str, int]]",
        "what `passes_up` of the queues right below it gave, summed by name",
    ),
    "share": (
        "dict[str, int]",
        "what `shares` gave it; of the root, what all nodes offer that are not cordoned",
    ),
    USAGE: (
        "dict[str, int]",
        "what it had of what all nodes offer, averaged over the past with a half-life, in "
        "thousandths; only if the tree has `usage`",
    ),
    "above": (
        "list",
        "the queues above it, the nearest first, the root last",
    ),
}

#: What hooks see of a request, which is a pod, or a group of pods that start together.
REQUEST_FIELDS: Final[Mapping[str, tuple[str, str]]] = {
    "resources": ("dict[str, int]", "what its pods request together; `pods` is how many"),
    "least": (
        "dict[str, int]",
        "of that, what as many pods of a group request as start together; of a pod, all",
    ),
    "pods": ("int", "how many pods it has"),
    "priority": ("int", "its priority"),
    "preemptible": ("bool", "False if `member(...)` said that it is not given back"),
    "created_at": ("int", "when it was made, of a group its oldest pod; seconds since the epoch"),
    "group": ("str", 'the name of the group; "" for a pod by itself'),
    "queues": (
        "list",
        "of `head` alone: the queues from its leaf up to the one that is asked about",
    ),
}

#: What the hook `reclaim` sees of who takes, and of who gives.
TAKER_FIELDS: Final[Mapping[str, tuple[str, str]]] = {
    "request": ("request", "what would be started"),
    "queue": ("queue", "its leaf"),
    "branch": ("queue", "the queue on its side right below the one that both are under"),
    "queues": ("list[queue]", "those from the leaf up to the branch"),
    "path": ("list[queue]", "those from the leaf up to the root"),
}
VICTIM_FIELDS: Final[Mapping[str, tuple[str, str]]] = {
    "resources": ("dict[str, int]", "what it requests; `pods` is how many pods go together"),
    "priority": ("int", "its priority; of a group the highest"),
    "preemptible": ("bool", "False if `member(...)` said that it is not given back"),
    "running_seconds": ("int", "for how long it has run that the scheduler knows of"),
    "queue": ("queue", "its leaf"),
    "branch": ("queue", "the queue on its side right below the one that both are under"),
    "queues": ("list[queue]", "those from the leaf up to the branch"),
    "above": ("list[queue]", "those above its leaf, up to the root"),
}

PARAMETERS: Final[Mapping[str, HookParameter]] = {
    "object": HookParameter("any", "an object that the QueueTree names, as structs"),
    "queue": HookParameter("any", "a queue of the tree: its sums, and its attributes by name"),
    "parent": HookParameter("any", "a queue that has others under it"),
    "children": HookParameter("any", "the queues right under it, in order of their names"),
    "head": HookParameter("any", "the request that goes first in the queue"),
    "total": HookParameter("any", "what all nodes offer that are not cordoned, as a vector"),
    "request": HookParameter("any", "the request that would be tried next"),
    "path": HookParameter("any", "the queues that it is in, its leaf first, the root last"),
    "taker": HookParameter("any", "the request that has no room, with its queues"),
    "victim": HookParameter("any", "a pod on a node, or a group that goes as one, with its queues"),
}

#: The queues of a question, each once. What has one of these names, parameter or field of one, is a
#: place among them, or a list of places; and these parameters are structs.
ALL_QUEUES: Final = "all_queues"
QUEUE: Final = ("queue", "branch", "parent")
LIST_OF_QUEUES: Final = ("queues", "path", "above", "children")
STRUCTS: Final = ("head", "request", "taker", "victim")

_VECTOR: Final = "vector (amounts by resource)"

ENTRIES: Final = (
    Hook(
        name="queues",
        parameters=("object",),
        required=1,
        forms=(QUEUES,),
        counted_as="QueueTree",
        called="once per object that a QueueTree names under `objects`, and when it changes",
        returns="list of `queue(...)` and `alias(...)`: what the object adds to the tree",
    ),
    Hook(
        name="queue_of",
        parameters=("pod",),
        required=1,
        forms=(NOTHING, PATH, made("member", "[v.queue, v.preemptible]", tuple[str, bool])),
        counted_as="QueueTree",
        called="once per kind of pod",
        returns="`None`: in no queue; the path, name or alias of a queue; or `member(...)`",
    ),
    Hook(
        name="passes_up",
        parameters=("queue",),
        required=1,
        forms=(VECTORS,),
        counted_as="QueueTree",
        called="per queue, those below it first, when one of its sums or attributes changes",
        returns=f"dict of a {_VECTOR} by name; the queue above has the sums of them in `up`",
    ),
    Hook(
        name="shares",
        parameters=("parent", "children"),
        required=2,
        forms=(VECTORS,),
        counted_as="QueueTree",
        called="per queue with others under it, from the root down, at most once in `refresh`",
        returns=f"dict of a {_VECTOR} by the name of the child: what each may have",
    ),
    Hook(
        name="turn_key",
        parameters=("queue", "head", "total"),
        required=1,
        forms=(TURN_KEY,),
        counted_as="QueueTree",
        called="per queue that has a request to try, when something changes that it reads of them",
        returns="int, string, `ratio(...)`, or tuple or list of those: among the queues under the "
        "same one, the smallest goes next",
    ),
    Hook(
        name="admit",
        parameters=("request", "path"),
        required=2,
        forms=(
            NOTHING,
            made(
                "hold",
                '["hold", v.reason, v.token, v.at, v.short, v.whole_queue]',
                tuple[str, str, str, str, tuple[str, int] | None, bool],
            ),
        ),
        hints={"string": "hold({v}) has it wait"},
        lint_hints={"": '`hold("why")` has it wait, None lets it be tried'},
        counted_as="QueueTree",
        called="per request that is next in its queue, before it is tried",
        returns="`None`: is tried; or `hold(...)`: waits",
    ),
    Hook(
        name="reclaim",
        parameters=("taker", "victim", "total"),
        required=2,
        forms=(NOTHING, int_in(0, 9, "a stage (an int in 0..9)")),
        none_means="it is not to be taken",
        counted_as="QueueTree",
        called="when a request has no room, per kind of pod that others have on nodes, and again "
        "after each that would go",
        returns="`None`: is not to be taken; 0..9: may be, those of a lower stage first",
    ),
    Hook(
        name="giver_key",
        parameters=("queue", "taker", "total"),
        required=1,
        forms=(TURN_KEY,),
        counted_as="QueueTree",
        called="per queue that has something to give, and again after each pod that would go",
        returns="int, string, `ratio(...)`, or tuple or list of those: among the queues under the "
        "same one, the smallest gives next",
    ),
)
