"""The structs of numbers that hooks are given: an element of `counts`, and `over`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_EVERYWHERE: Final = ("pre_filter", "filter", "pre_score", "score")
_PER_NODE: Final = ("filter", "score")
_SCORE: Final = ("score",)


@dataclass(frozen=True, slots=True)
class SummaryField:
    """One field: its type text, what it is, and which hooks are given it.

    A counter's field `is_of_nodes` if a further node can change it, with the same pods; those of
    counters of nodes all are.
    """

    type: str
    doc: str
    hooks: tuple[str, ...]
    is_of_nodes: bool = True


#: Of a counter. Before any node is looked at only `is_empty` is known; which nodes are feasible is
#: known once all filters were asked.
COUNT: Final[Mapping[str, SummaryField]] = {
    "here": SummaryField(
        "int?", "the count in this node's domain; None if the node is in none", _PER_NODE
    ),
    "min": SummaryField("int", "the lowest count of any domain", _PER_NODE),
    "max": SummaryField("int", "the highest count of any domain", _PER_NODE),
    "total": SummaryField("int", "the sum over all domains", _PER_NODE, is_of_nodes=False),
    "domains": SummaryField("int", "how many domains there are", _PER_NODE),
    "is_empty": SummaryField(
        "bool", "nothing was counted anywhere", _EVERYWHERE, is_of_nodes=False
    ),
    "feasible_domains": SummaryField("int", "how many domains the nodes that fit are in", _SCORE),
    "feasible_nodes": SummaryField("int", "how many nodes that fit are in a domain", _SCORE),
    "feasible_outside": SummaryField("int", "how many nodes that fit are in none", _SCORE),
}
#: Of `over`, which `normalize` is given.
OVER: Final[Mapping[str, SummaryField]] = {
    "min": SummaryField("int", "the lowest score of this policy for this pod", ("normalize",)),
    "max": SummaryField("int", "the highest score of this policy for this pod", ("normalize",)),
    "count": SummaryField("int", "how many nodes have a score", ("normalize",)),
}


#: By the parameter of the hook.
SUMMARIES: Final[Mapping[str, Mapping[str, SummaryField]]] = {"counts": COUNT, "over": OVER}


def counter_fields(hook: str) -> tuple[str, ...]:
    """The fields of a counter that *hook* is given."""
    return tuple(name for name, field in COUNT.items() if hook in field.hooks)
