"""The hooks that govern a tree of queues: they see queues, and no pods or nodes but to name theirs.

Owns their entries, and the fields that every queue has in them.
"""

from collections.abc import Mapping
from typing import Final

from engine.language.hook import Hook, HookParameter
from engine.language.verdicts import NOTHING, PATH, QUEUES, VECTORS, made

#: What a hook sees of a queue, whatever tree it is in; the attributes of the tree come with them.
QUEUE_FIELDS: Final[Mapping[str, tuple[str, str]]] = {
    "name": ("str", "the last part of its path"),
    "path": ("str", 'its path from the root, with slashes; "" for the root'),
    "is_leaf": ("bool", "True if no queue is under it"),
    "is_root": ("bool", "True for the root"),
    "allocated": ("dict[str, int]", "what its pods on nodes request"),
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
}

PARAMETERS: Final[Mapping[str, HookParameter]] = {
    "object": HookParameter("any", "an object that the QueueTree names, as structs"),
    "queue": HookParameter("any", "a queue of the tree: its sums, and its attributes by name"),
    "parent": HookParameter("any", "a queue that has others under it"),
    "children": HookParameter("any", "the queues right under it, in order of their names"),
}

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
)
