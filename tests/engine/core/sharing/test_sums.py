"""The sums of queues: exact after any changes, whatever the tree becomes meanwhile."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.core.sharing.amounts import LARGEST
from engine.core.sharing.sums import VECTORS, Contribution, PodPhase, QueueSums, Sums
from engine.core.sharing.tree import ROOT, GivenQueue, QueueTree, build_tree


def _tree(*paths: str) -> QueueTree:
    return build_tree(GivenQueue(path, is_path=True) for path in paths)


def _amounts(sums: Sums, vector: str) -> dict[str, int]:
    return {resource: amount for resource, amount in sums.of(vector).items() if resource != "pods"}


def test_how_many_pods_there_are_is_an_amount_too() -> None:
    """Quotas limit it as they limit any other."""
    sums = QueueSums(_tree("a/b"))
    sums.put("1", Contribution("a/b", PodPhase.WAITING, {}))
    sums.put("2", Contribution("a/b", PodPhase.ALLOCATED, {}, is_preemptible=False))
    assert sums["a"].of("requested") == {"pods": 2}
    assert sums["a"].of("nonpreemptible") == {"pods": 1}


def test_a_pod_counts_in_its_queue_and_in_those_above() -> None:
    sums = QueueSums(_tree("a/b", "a/c"))
    sums.put("1", Contribution("a/b", PodPhase.WAITING, {"cpu": 3}))
    sums.put("2", Contribution("a/c", PodPhase.ALLOCATED, {"cpu": 2, "gpu": 1}))
    assert _amounts(sums["a/b"], "waiting") == {"cpu": 3}
    assert _amounts(sums["a"], "requested") == {"cpu": 5, "gpu": 1}
    assert _amounts(sums[ROOT], "allocated") == {"cpu": 2, "gpu": 1}
    assert sums[ROOT].pod_count == 2
    sums.put("1", None)
    assert _amounts(sums["a"], "requested") == {"cpu": 2, "gpu": 1}
    assert sums["a/b"].of("requested") == {}


def test_requested_does_not_change_when_a_pod_is_placed() -> None:
    sums = QueueSums(_tree("a"))
    seen = []
    for phase in (PodPhase.WAITING, PodPhase.CLAIMED, PodPhase.ALLOCATED, PodPhase.LEAVING):
        sums.put("1", Contribution("a", phase, {"cpu": 3}))
        vectors = sums["a"]
        assert _amounts(vectors, "requested") == {"cpu": 3}
        seen.append(
            [name for name in ("waiting", "claimed", "allocated", "leaving") if vectors.of(name)]
        )
    assert seen == [["waiting"], ["waiting", "claimed"], ["allocated"], ["allocated", "leaving"]]


def test_what_is_not_preemptible_is_of_what_is_allocated() -> None:
    sums = QueueSums(_tree("a"))
    sums.put("1", Contribution("a", PodPhase.WAITING, {"cpu": 3}, is_preemptible=False))
    assert sums["a"].of("nonpreemptible") == {}
    sums.put("1", Contribution("a", PodPhase.ALLOCATED, {"cpu": 3}, is_preemptible=False))
    assert _amounts(sums["a"], "nonpreemptible") == {"cpu": 3}


def test_a_pod_of_a_queue_that_comes_later_counts_then() -> None:
    sums = QueueSums(_tree("a"))
    sums.put("1", Contribution("b", PodPhase.ALLOCATED, {"cpu": 3}))
    assert sums[ROOT].of("allocated") == {}
    sums.use(_tree("a", "b"))
    assert _amounts(sums["b"], "allocated") == {"cpu": 3}
    sums.use(_tree("a"))
    with pytest.raises(KeyError):
        _ = sums["b"]
    assert sums[ROOT].of("allocated") == {}


def test_amounts_beyond_the_largest_are_shown_as_it_and_leave_nothing_behind() -> None:
    sums = QueueSums(_tree("a"))
    for uid in "123":
        sums.put(uid, Contribution("a", PodPhase.ALLOCATED, {"cpu": LARGEST}))
    assert _amounts(sums["a"], "allocated") == {"cpu": LARGEST}
    for uid in "123":
        sums.put(uid, None)
    assert sums["a"].of("allocated") == {}


TREES = [_tree("a/b", "a/c", "d"), _tree("a", "d/e/f"), _tree(), _tree("a/b/g", "a/c")]
PATHS = ["a", "a/b", "a/b/g", "a/c", "d", "d/e/f", "nowhere", ROOT]


class Lives(RuleBasedStateMachine):
    """Pods come, change and go while the tree is edited."""

    def __init__(self) -> None:
        super().__init__()
        self.sums = QueueSums(TREES[0])
        self.pods: dict[str, Contribution] = {}

    @rule(
        uid=st.sampled_from("123456"),
        contribution=st.none()
        | st.builds(
            Contribution,
            queue=st.sampled_from(PATHS),
            phase=st.sampled_from(PodPhase),
            amounts=st.dictionaries(st.sampled_from(["cpu", "gpu"]), st.integers(0, 4)),
            is_preemptible=st.booleans(),
        ),
    )
    def put(self, uid: str, contribution: Contribution | None) -> None:
        self.sums.put(uid, contribution)
        self.pods.pop(uid, None)
        if contribution is not None:
            self.pods[uid] = contribution

    @rule(tree=st.sampled_from(TREES))
    def edit(self, tree: QueueTree) -> None:
        self.sums.use(tree)

    @invariant()
    def is_exact(self) -> None:
        self.sums.check_invariants()
        for path in self.sums.tree.queues:
            below = [
                one
                for one in self.pods.values()
                if one.queue in self.sums.tree.queues
                and (path == ROOT or one.queue == path or one.queue.startswith(f"{path}/"))
            ]
            total = sum(one.amounts.get("cpu", 0) for one in below)
            assert self.sums[path].of("requested").get("cpu", 0) == total
            asked = [
                one.amounts["cpu"]
                for one in below
                if one.phase in VECTORS["waiting"] and one.amounts.get("cpu")
            ]
            for amount in range(6):
                found = self.sums.waits_for_at_most(path, "cpu", amount)
                assert found == (min(asked, default=9) <= amount)


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
