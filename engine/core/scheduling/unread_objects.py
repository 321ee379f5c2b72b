"""What an object costs of which a part cannot be read: a decision, a node, or an eviction.

Owns who depends on such an object. It is there, so it does not count as absent; but nothing is
decided by what it seems to leave out:

- a pod whose decision looks such an object up, by its key, waits for it (`held_by`);
- a node that it says something about takes no more pods (`closed_nodes`), and those on it count;
- no pod of its namespace is evicted while a disruption budget may cover it (`Protection`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from engine.core.caching.objects import ApiObject, ObjectStore, object_key
from engine.core.framework.reasons import CLUSTER_READS
from engine.core.framework.status import Code, Status
from engine.core.model.event_kinds import KINDS
from engine.core.model.pod import Pod
from engine.core.scheduling.disruption_budgets import KIND as BUDGETS

TOKEN: Final = "ObjectNotReadable"
# The node that an object is about, for the kinds that are about one.
_NODE_OF: Final[Mapping[str, Callable[[Any], str]]] = {
    "nodes": lambda node: str(node.metadata.name),
    "pods": lambda pod: str(pod.spec.node_name),
    "csinodes": lambda csi_node: str(csi_node.metadata.name),
    "volumeattachments": lambda attachment: str(attachment.spec.node_name),
}
#: Every decision depends on these.
ALWAYS: Final = ("nodes", "pods")
_KINDS: Final[Mapping[str, str]] = {**KINDS, "nodes": "Node", "pods": "Pod"}


def said_of(plural: str, obj: ApiObject) -> str:
    """``PodDisruptionBudget `shop/web` cannot be read: spec.selector: want ...``."""
    fields = "; ".join(obj.metadata.unread)
    return f"{_KINDS[plural]} `{object_key(obj)}` cannot be read: {fields}"


def held_by(user: str, unread: Mapping[tuple[str, str], ApiObject]) -> Status:
    """Why a pod waits whose decision depends on the objects *unread*; *user* looks at them."""
    texts = [said_of(plural, obj) for (plural, _), obj in sorted(unread.items())]
    text = f"{user} depends on what cannot be read: {'; '.join(texts)}"
    return Status(Code.UNRESOLVABLE, (text,), CLUSTER_READS, TOKEN)


def closed_nodes(objects: ObjectStore, read: Callable[[], Collection[str]]) -> dict[str, Status]:
    """Why nodes take no pod whose decision reads the kinds *read*, by their names."""
    closed: dict[str, Status] = {}
    about = [key for key in objects.unread if key[0] in _NODE_OF]
    kinds: Collection[str] = ALWAYS
    if any(plural not in ALWAYS for plural, _ in about):
        kinds = {*ALWAYS, *read()}
    for plural, key in sorted(about):
        if plural in kinds:
            obj = objects.unread[plural, key]
            text = f"node(s) cannot be judged: {said_of(plural, obj)}"
            status = Status(Code.UNRESOLVABLE, (text,), CLUSTER_READS, TOKEN)
            closed.setdefault(_NODE_OF[plural](obj), status)
    return closed


class Protection:
    """The pods that disruption budgets may cover which cannot be read: all of their namespaces."""

    def __init__(self, budgets: Sequence[ApiObject]) -> None:
        self._budgets = budgets
        self._namespaces = frozenset(budget.metadata.namespace for budget in budgets)

    @classmethod
    def of(cls, objects: ObjectStore) -> "Protection":
        """That of the budgets in *objects*."""
        return cls([obj for (plural, _), obj in objects.unread.items() if plural == BUDGETS])

    def __bool__(self) -> bool:
        return bool(self._budgets)

    def covers(self, pod: Pod) -> bool:
        """Whether *pod* must not be evicted for now."""
        return pod.namespace in self._namespaces

    @property
    def status(self) -> Status:
        """Said of a node where a pod would fit if such pods went."""
        said = "; ".join(sorted(said_of(BUDGETS, budget) for budget in self._budgets))
        text = f"node(s) would fit only without pods that a budget may cover: {said}"
        return Status(Code.UNRESOLVABLE, (text,), CLUSTER_READS, TOKEN)
