"""Nominations of nodes for pods."""

from engine.core.queueing.nominator import Nominator
from tests.builders import HOSTNAME, make_pod

RULE = "requiredDuringSchedulingIgnoredDuringExecution"
TERM = {"topologyKey": HOSTNAME}


def test_a_pod_is_nominated_to_one_node_at_a_time() -> None:
    nominator = Nominator()
    pod = make_pod()
    nominator.nominate(pod, "n1")
    nominator.nominate(pod, "n2")
    assert nominator.pods_on("n1") == []
    assert nominator.pods_on("n2") == [pod]
    assert nominator.node_of(pod.uid) == "n2"
    assert nominator.nodes() == ["n2"]
    nominator.check_invariants()


def test_without_a_node_the_status_decides() -> None:
    nominator = Nominator()
    named, unnamed = make_pod("a", nominated="n1"), make_pod("b")
    nominator.nominate(named)
    nominator.nominate(unnamed)
    assert list(nominator) == [named]


def test_an_empty_name_clears_the_nomination() -> None:
    nominator = Nominator()
    pod = make_pod(nominated="n1")
    nominator.nominate(pod)
    nominator.nominate(pod, "")
    assert len(nominator) == 0


def test_a_placed_pod_needs_no_nomination() -> None:
    nominator = Nominator()
    nominator.nominate(make_pod(node="n1", nominated="n1"))
    assert len(nominator) == 0


def test_a_nomination_in_memory_outlives_updates_that_do_not_name_a_node() -> None:
    """The update was sent before the API heard of the nomination."""
    nominator = Nominator()
    old, new = make_pod(uid="u"), make_pod(uid="u", labels={"a": "b"})
    nominator.nominate(old, "n1")
    nominator.update(old, new)
    assert nominator.pods_on("n1") == [new]


def test_an_update_that_speaks_of_a_node_decides() -> None:
    nominator = Nominator()
    old, moved, cleared = (make_pod(uid="u", nominated=n) for n in ("n1", "n2", None))
    nominator.nominate(old)
    nominator.update(old, moved)
    assert nominator.node_of("u") == "n2"
    nominator.update(moved, cleared)
    assert nominator.node_of("u") is None


def test_the_label_keys_of_terms_follow_the_nominations() -> None:
    nominator = Nominator()
    far_from, apart = (
        make_pod(uid=uid, affinity={"podAntiAffinity": {RULE: [{**TERM, **selector}]}})
        for uid, selector in (
            ("u", {"labelSelector": {"matchLabels": {"app": "web", "tier": "front"}}}),
            ("v", {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}),
        )
    )
    nominator.nominate(far_from, "n1")
    nominator.nominate(apart, "n1")
    nominator.nominate(make_pod(uid="plain"), "n1")
    assert nominator.copy().term_keys == nominator.term_keys == {"app", "tier"}
    nominator.nominate(far_from, "n2")
    assert nominator.term_keys == {"app", "tier"}
    nominator.refresh(make_pod(uid="u"))
    assert nominator.term_keys == {"app"}
    nominator.remove("v")
    nominator.check_invariants()
    assert not nominator.term_keys


def test_the_generation_grows_with_nominations_only() -> None:
    nominator = Nominator()
    nominator.remove("unknown")
    nominator.nominate(make_pod())
    assert nominator.generation == 0
    nominator.nominate(make_pod(), "n")
    assert nominator.generation > 0
