"""Who gives back in a small tree by a shipped policy, planned as the kernel plans it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engine.core.scheduling.reclaim import Candidate, Reclaim
from engine.core.scheduling.tree_hooks import Giver, Request, TreeHooks
from engine.core.scheduling.tree_shares import TreeShares
from engine.core.sharing.amounts import Amounts
from engine.core.sharing.sums import QueueSums


@dataclass(frozen=True, slots=True)
class Running:
    """A pod on a node.

    Attributes:
        name: For people; of two pods that are equal the one with the smaller name gives first.
        queue: The path of its queue.
        amounts: What it requests.
        started_at: Those that started last give first.
    """

    name: str
    queue: str
    amounts: Amounts
    started_at: int = 0
    priority: int = 0
    preemptible: bool = True


def victims(
    hooks: TreeHooks,
    sums: QueueSums,
    shares: TreeShares,
    total: Amounts,
    running: Mapping[str, Running],
    *,
    request: Request,
    leaf: str,
    fits: Callable[[Sequence[Running]], bool],
) -> list[str]:
    """The names of those that go for *request* of *leaf*, sorted; *running* are by their uids."""
    candidates = []
    for uid, pod in running.items():
        resources = tuple(sorted({**pod.amounts, "pods": 1}.items()))
        giver = Giver(resources, pod.priority, pod.preemptible, 0)
        order = (pod.priority, -pod.started_at, pod.name)
        candidates.append(Candidate((uid,), pod.queue, giver, order))

    def has_nodes(gone: Sequence[Candidate]) -> bool:
        return fits([running[one.uids[0]] for one in gone])

    reclaim = Reclaim(hooks, sums, shares, total, request=request, leaf=leaf)
    plan = reclaim.plan([candidates], has_nodes)
    assert plan.failure is None, plan.failure
    return sorted(running[one.uids[0]].name for one in plan.victims)
