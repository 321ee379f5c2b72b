"""Queues: which pods are in them, what their sums are, and what they are given."""

from typing import Any

import pytest

from engine.core.kernel.events import ObjectChanged, QueueObjectChanged, RevisionSwitched
from engine.core.model import objects as api
from engine.core.model.objects import from_plain
from engine.policy.bundle import build_bundle
from engine.policy.errors import PolicyErrors
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.queue_world import FAIR, QueueWorld, tree_files
from tests.engine.core.kernel.random_life import FILES, RandomLife
from tests.engine.core.kernel.small_world import World

TEAMS = {"research": {"weight": 3}, "research/vision": {}, "web": {}}
ONE = {"cpu": 1000}


def _pod(name: str, queue: str, **more: Any) -> Any:
    labels = {"queue": queue, **more.pop("labels", {})}
    return make_pod(name, cpu=1, labels=labels, **more)


def test_a_pod_counts_in_its_queue_and_those_above_from_arrival_to_end() -> None:
    world = QueueWorld(queues=TEAMS)
    world.add(_pod("a", "research/vision"))
    assert world.sums("research/vision", "waiting") == ONE
    assert world.sums("research", "requested") == ONE
    world.add_node(make_node("n", cpu=4))
    world.turns(10)  # assumed: it counts before the API server says so
    assert world.sums("research/vision") == world.sums("") == ONE
    assert world.sums("research/vision", "waiting") == {}
    world.end_binding(0, succeeds=True)
    assert world.sums("research") == ONE
    bound = world.known["a"]
    world.change(_pod("a", "research/vision", uid=bound.uid, node="n", terminating=True))
    assert world.sums("research", "leaving") == world.sums("research") == ONE
    world.delete("a")
    assert world.sums("") == world.sums("", "requested") == {}


def test_a_binding_that_fails_makes_the_pod_wait_again() -> None:
    world = QueueWorld(queues=TEAMS)
    world.add_node(make_node("n", cpu=4))
    world.add(_pod("a", "web"))
    world.turns(10)
    world.end_binding(0, succeeds=False)
    assert world.sums("web") == {}
    assert world.sums("web", "waiting") == ONE


def test_a_pod_moves_with_its_label_and_not_with_anything_else() -> None:
    world = QueueWorld(queues=TEAMS)
    pod = _pod("a", "web")
    world.add(pod)
    world.change(_pod("a", "research/vision", uid=pod.uid))
    assert world.sums("web", "waiting") == {}
    assert world.sums("research/vision", "waiting") == ONE


def test_pods_of_other_schedulers_count_too() -> None:
    """Else the monitor would show a cluster that another scheduler fills as empty."""
    world = QueueWorld(queues=TEAMS)
    world.add_node(make_node("n", cpu=4))
    world.add(_pod("a", "web", scheduler_name="another", node="n"))
    world.add(_pod("b", "web", scheduler_name="another"))
    assert world.sums("web") == world.sums("web", "waiting") == ONE


def test_what_is_not_given_back_is_summed_up_apart() -> None:
    world = QueueWorld(queues=TEAMS)
    world.add_node(make_node("n", cpu=4))
    world.add(_pod("a", "web", node="n", labels={"keep": "1"}))
    world.add(_pod("b", "web", node="n"))
    assert world.sums("web") == {"cpu": 2000}
    assert world.sums("web", "nonpreemptible") == ONE


@pytest.mark.parametrize(
    ("unknown", "where"),
    [("hold", None), ("count", ""), ("web", "web")],
)
def test_a_pod_of_a_queue_that_is_not_there(unknown: str, where: str | None) -> None:
    world = QueueWorld(queues=TEAMS, unknown=unknown)
    pod = _pod("a", "elsewhere")
    world.add(pod)
    assert world.kernel.shares.queue_of(pod.uid) == where
    assert world.sums("", "waiting") == ({} if where is None else ONE)
    outside = make_pod("b", cpu=1)
    world.add(outside)
    assert world.kernel.shares.queue_of(outside.uid) is None, "it names no queue"


def test_the_pods_of_a_queue_are_listed_and_those_of_none_counted() -> None:
    world = QueueWorld(queues=TEAMS)
    world.add_node(make_node("n", cpu=4))
    for name, queue in (("a", "web"), ("b", "web"), ("c", "elsewhere")):
        world.add(_pod(name, queue, **({"node": "n"} if name == "a" else {})))
    shares = world.kernel.shares
    found = {pod.name: (added.phase.value, added.amounts) for pod, added in shares.pods_of("web")}
    assert found == {"a": ("allocated", ONE), "b": ("waiting", ONE)}
    assert shares.pods_of("research") == []
    assert (shares.outside, shares.policy) == (1, "fair")
    assert shares.state("web").sums.pod_count == 2
    with pytest.raises(KeyError):
        shares.state("elsewhere")


def test_problems_name_pods_of_readable_namespaces_only() -> None:
    failing = FAIR.replace('pod.labels.get("queue")', 'pod.labels["queue"]')
    world = QueueWorld(failing, queues=TEAMS)
    world.add(make_pod("a", namespace="shop", cpu=1))
    shares = world.kernel.shares
    assert [text.partition(":")[0] for text in shares.problems()] == ["shop/a is in no queue"]
    assert shares.problems({"shop"}) == shares.problems()
    assert shares.problems({"other"}) == []
    assert shares.problem_namespaces() == {"shop"}


def test_queues_that_pods_name_and_that_are_not_there_are_problems() -> None:
    world = QueueWorld(queues=TEAMS)
    shares = world.kernel.shares
    for number in range(4):
        world.add(make_pod(f"a{number}", namespace="shop", cpu=1, labels={"queue": "wbe"}))
    world.add(make_pod("b", cpu=1, labels={"queue": "else" * 30}))
    world.add(make_pod("c", cpu=1))
    assert shares.problems() == [
        "queue `wbe` is not there, and 4 pods name it: shop/a0, shop/a1, shop/a2",
        f"queue `{'else' * 20}` is not there, and 1 pod names it: default/b",
    ]
    assert shares.problem_namespaces() == {"shop", "default"}
    hidden = shares.problems({"other"})
    assert [text.rpartition(" ")[2] for text in hidden] == ["it", "it"], "no pod is named"
    world.delete("b")
    world.delete("a0")
    (problem,) = shares.problems({"shop"})
    assert problem == "queue `wbe` is not there, and 3 pods name it: shop/a1, shop/a2, shop/a3"
    for number in range(30):
        world.add(_pod(f"d{number}", f"none{number:02}"))
    assert shares.problems()[-1] == "11 more queues that pods name are not there"
    assert len(shares.problems()) == 21


def test_a_queue_that_comes_is_no_problem_any_more() -> None:
    world = QueueWorld(objects=[{"apiVersion": "example.com/v1", "kind": "Queue"}])
    world.add(_pod("a", "web"))
    assert len(world.kernel.shares.problems()) == 1
    world.put_queue("web", {})
    world.settle()
    assert world.kernel.shares.problems() == []
    world.put_queue("web", None)
    world.settle()
    assert world.kernel.shares.problems() == [
        "queue `web` is not there, and 1 pod names it: default/a"
    ]


def test_shares_go_by_weight_and_follow_demand_and_nodes() -> None:
    world = QueueWorld(queues=TEAMS)
    for number in range(20):
        world.add(_pod(f"r{number}", "research/vision", gates=["example.com/wait"]))
        world.add(_pod(f"w{number}", "web", gates=["example.com/wait"]))
    world.add_node(make_node("n", cpu=8, memory=0))
    want = {"": {"cpu": 8000}, "research": {"cpu": 6000}, "web": {"cpu": 2000}}
    found = world.shares()
    assert {path: {"cpu": (found[path] or {})["cpu"]} for path in want} == want
    assert (found["research/vision"] or {})["cpu"] == 6000
    world.update_node(make_node("n", cpu=8), make_node("n", cpu=8, unschedulable=True))
    assert (world.shares()["web"] or {}) == {}, "what is cordoned is not divided"


def test_what_is_passed_up_is_summed_by_name() -> None:
    world = QueueWorld(queues={"a/b": {"weight": 2}, "a/c": {"weight": 3}, "a": {"weight": 10}})
    world.settle()
    states = {one.queue.path: one for one in world.kernel.shares.states()}
    assert states["a"].standing.up == {"weights": {"n": 5}}
    assert states[""].standing.up == {"weights": {"n": 15}}


def test_queues_of_objects_come_change_and_go() -> None:
    world = QueueWorld(objects=[{"apiVersion": "example.com/v1", "kind": "Queue"}])
    pod = _pod("a", "also-vision")
    world.add(pod)
    assert world.kernel.shares.queue_of(pod.uid) is None
    world.put_queue("vision", {"parent": "research", "has": {"weight": 4}})
    world.settle()
    (problem,) = world.kernel.shares.problems()[:1]
    assert "is under `research`, which is not there" in problem
    world.put_queue("research", {})
    world.settle()
    assert world.kernel.shares.queue_of(pod.uid) == "research/vision", "by its other name"
    assert world.kernel.shares.problems() == []
    assert world.sums("research", "waiting") == ONE
    world.put_queue("vision", {"parent": "", "has": {"weight": 4}})
    world.settle()
    assert world.kernel.shares.queue_of(pod.uid) == "vision"
    assert world.sums("research", "waiting") == {}
    world.put_queue("vision", None)
    world.settle()
    assert world.kernel.shares.queue_of(pod.uid) is None


def test_an_object_that_the_policy_cannot_read_keeps_its_last_queue() -> None:
    world = QueueWorld(objects=[{"apiVersion": "example.com/v1", "kind": "Queue"}])
    world.put_queue("vision", {"has": {"weight": 4}})
    world.settle()
    world.report(_broken("vision"))
    world.settle()
    assert "vision" in world.kernel.shares.tree.queues
    (problem,) = world.kernel.shares.problems()
    assert problem.startswith("Queue vision: ")
    assert "fair.star:" in problem
    world.put_queue("vision", {"has": {"weight": "four", "colour": "red"}})
    world.settle()
    (problem,) = world.kernel.shares.problems()
    assert "weight: want an int, got 'four'" in problem
    assert "has no attribute `colour`" in problem
    assert world.kernel.shares.tree.queues["vision"].attributes["weight"] == 1


def test_an_amount_that_a_hook_computed_is_taken_as_it_is() -> None:
    """`quantity("500m", "cpu")` is 500, which is no quantity of 500 cores."""
    world = QueueWorld(objects=[{"apiVersion": "example.com/v1", "kind": "Queue"}])
    world.put_queue("vision", {"has": {"limit": {"cpu": 500, "memory": "1Ki", "gpu": "2"}}})
    world.settle()
    limit = world.kernel.shares.tree.queues["vision"].attributes["limit"]
    assert limit == {"cpu": 500, "memory": 1024, "gpu": 2}


def _broken(name: str) -> QueueObjectChanged:
    return QueueObjectChanged("Queue", name, {"metadata": {"name": name}})


def test_queues_by_labels_of_namespaces() -> None:
    by_label = FAIR[: FAIR.index("def queue_of")] + FAIR[FAIR.index("def passes_up") :]
    world = QueueWorld(by_label, namespaces={"label": "queue", "annotations": "queue/"})
    pod = make_pod("a", namespace="vision", cpu=1)
    world.add(pod)
    assert world.kernel.shares.queue_of(pod.uid) is None
    manifest = {
        "metadata": {
            "name": "vision",
            "labels": {"queue": "research.vision"},
            "annotations": {"queue/weight": "4", "queue/limit": '{"cpu": "2"}', "other": "x"},
        }
    }
    namespace = from_plain(api.Namespace, manifest)
    world.report(ObjectChanged("namespaces", None, namespace))
    world.settle()
    assert world.kernel.shares.queue_of(pod.uid) == "research/vision"
    attributes = world.kernel.shares.tree.queues["research/vision"].attributes
    assert attributes == {"weight": 4, "limit": {"cpu": 2000}, "tier": ""}
    manifest["metadata"]["labels"] = {}
    world.report(ObjectChanged("namespaces", namespace, from_plain(api.Namespace, manifest)))
    world.settle()
    assert world.kernel.shares.queue_of(pod.uid) is None


def test_shares_that_name_a_queue_which_is_not_there_are_a_problem() -> None:
    world = QueueWorld(
        FAIR[: FAIR.index("def shares")]
        + 'def shares(parent, children):\n    return {"web": {"cpu": 1}, "wbe": {}}\n',
        queues={"web": {}, "research": {}},
    )
    assert world.shares() == {"": {}, "web": {"cpu": 1}, "research": {}}
    assert world.kernel.shares.problems() == [
        "shares() of the root gives nothing to `research` and gives a share to `wbe`"
    ]


def test_a_policy_that_fails_leaves_the_last_shares_and_says_so() -> None:
    first = "    share = {q.name: {} for q in children}\n"
    division = "    1 // (3000 - parent.requested.get('cpu', 0))\n"
    failing = FAIR.replace(first, first + division)
    world = QueueWorld(failing, queues={"web": {}})
    world.add_node(make_node("n", cpu=8))
    for number in range(2):
        world.add(_pod(f"w{number}", "web", gates=["example.com/wait"]))
    before = world.shares()["web"]
    world.add(_pod("w3", "web", gates=["example.com/wait"]))
    assert world.shares()["web"] == before
    (problem,) = world.kernel.shares.problems()
    assert "queue `root`: " in problem
    assert "shares() failed" in problem
    world.add(_pod("w4", "web", gates=["example.com/wait"]))
    assert world.shares()["web"] != before
    assert world.kernel.shares.problems() == []


def test_how_long_a_queue_was_short_of_its_share() -> None:
    world = QueueWorld(queues={"web": {}, "research": {}})
    world.add_node(make_node("n", cpu=4))
    for number in range(4):
        world.add(_pod(f"r{number}", "research", node="n"))
    world.settle()
    world.add(_pod("w", "web"))
    world.settle()
    world.clock.advance(60)
    world.settle()
    states = {one.queue.path: one for one in world.kernel.shares.states()}
    assert states["web"].starved == pytest.approx(60, abs=1)
    assert states["research"].borrowed == pytest.approx(60, abs=1)
    assert states["research"].starved == 0
    world.delete("r0")
    world.turns(10)
    world.settle()
    world.clock.advance(60)
    world.settle()
    states = {one.queue.path: one for one in world.kernel.shares.states()}
    assert states["web"].starved < 75, "it has what it wants"


def test_an_edit_of_the_tree_leaves_how_long_its_queues_were_short() -> None:
    world = QueueWorld(queues={"web": {}, "research": {}, "old": {}})
    world.add_node(make_node("n", cpu=4))
    for number in range(4):
        world.add(_pod(f"r{number}", "research", node="n"))
    world.add(_pod("w", "web"))
    world.settle()
    world.clock.advance(60)
    world.settle()

    def edit(**queues: Any) -> dict[str, tuple[float, float]]:
        edited = QueueWorld(queues=queues)
        world.report(RevisionSwitched(edited.scheduler))
        world.settle()
        states = world.kernel.shares.states()
        return {one.queue.path: (round(one.starved), round(one.borrowed)) for one in states}

    same = {"web": (60, 0), "research": (0, 60), "": (0, 0)}
    assert edit(web={"weight": 3}, research={}, new={}) == {**same, "new": (0, 0)}
    world.clock.advance(60)
    assert edit(web={}, research={})["web"] == (120, 0), "it is short still"
    assert edit(research={}) == {"": (0, 0), "research": (0, 120)}
    assert edit(web={}, research={})["web"] == (0, 0), "another queue, of the name of one before"


def test_guarantees_that_cannot_be_kept_are_problems() -> None:
    queues = {
        "a": {"limit": {"cpu": 3}},
        "a/x": {"limit": {"cpu": 2}},
        "a/y": {"limit": {"cpu": 2, "memory": "1Gi"}},
        "b": {},
        "b/z": {"limit": {"cpu": 4}},
    }
    world = QueueWorld(queues=queues, guarantees="limit")
    world.settle()
    of_a = "queue `a` is guaranteed 3 cpu (`limit`), those below it 4 cpu together"
    assert world.kernel.shares.problems() == [of_a], "of no nodes nothing is known yet"
    world.add_node(make_node("n", cpu=6, memory="2Gi"))
    of_all = "queues are guaranteed 7 cpu together (`limit`), nodes offer 6 cpu"
    assert set(world.kernel.shares.problems()) == {of_a, of_all}
    world.add_node(make_node("m", cpu=1))
    assert world.kernel.shares.problems() == [of_a]
    assert QueueWorld(queues=queues).kernel.shares.problems() == [], "it is a limit there"
    with pytest.raises(PolicyErrors, match="reads no attribute `weight` of amounts"):
        build_bundle(tree_files(queues=queues, guarantees="weight"))


def _starved(world: QueueWorld) -> set[str]:
    world.settle()
    return {one.queue.path for one in world.kernel.shares.states() if one.standing.lacks}


def test_a_queue_does_not_lack_what_is_too_little_for_each_of_its_pods() -> None:
    """Half of five cores is two pods of a core: the half core that is left starves nobody."""
    world = QueueWorld(queues={"a/x": {}, "a/y": {}, "b": {}})
    world.add_node(make_node("n", cpu=5, memory=0))
    for number in range(2):
        world.add(_pod(f"a{number}", "a/x", node="n"))
        world.add(_pod(f"b{number}", "b", node="n"))
    world.add(_pod("a-waits", "a/x", gates=["example.com/wait"]))
    world.add(_pod("b-waits", "b", gates=["example.com/wait"]))
    assert _starved(world) == set()
    world.add(make_pod("small", cpu="500m", labels={"queue": "a/y"}, gates=["example.com/wait"]))
    assert _starved(world) == {"a", "a/y"}, "it would fit"
    world.delete("small")
    assert _starved(world) == set()


def test_the_root_has_nobody_to_lack_anything_of() -> None:
    world = QueueWorld(queues={"a": {}})
    world.add_node(make_node("n", cpu=4, memory=0))
    world.add(_pod("a", "a", gates=["example.com/wait"]))
    assert _starved(world) == {"a"}
    world.clock.advance(60)
    world.settle()
    root = world.kernel.shares.state("")
    assert (root.starved, root.borrowed) == (0, 0)


def test_without_a_tree_nothing_is_kept() -> None:
    world = World()
    world.add(_pod("a", "web"))
    assert not world.kernel.shares.is_on
    assert world.kernel.shares.tree.queues.keys() == {""}


@pytest.mark.parametrize("first", range(0, 16, 4))
def test_sums_are_those_of_the_pods_whatever_happens(first: int) -> None:
    """Every step of a random life computes them again; a process that starts now has the same."""
    tree = tree_files(
        FAIR.replace('pod.labels.get("queue")', 'pod.labels.get("team")'),
        queues={"x": {"weight": 2}, "x/y": {}},
        unknown="x",
    )
    files = {**FILES, "fair.star": tree["fair.star"], "tree.yaml": tree["tree.yaml"]}
    seen = set[str]()
    for seed in range(first, first + 4):
        life = RandomLife(seed, files)
        life.live(80)
        life.end_what_is_under_way()
        # Nominations, which `claimed` goes by, a new process does not know.
        found = [_lasting(one) for one in (life, life.started_again())]
        assert found[0] == found[1], seed
        seen |= {path for path, vectors in found[0].items() if any(vectors.values())}
    assert seen == {"", "x"}


def _lasting(world: World) -> dict[str, dict[str, dict[str, int]]]:
    names = ("allocated", "leaving", "nonpreemptible", "requested", "waiting")
    states = world.kernel.shares.states()
    return {one.queue.path: {name: one.sums.of(name) for name in names} for one in states}
