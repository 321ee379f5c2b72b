"""What counters take of memory and time; what they count is in `tests/properties`."""

import tracemalloc
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from engine.core.caching import counter_parts, own_terms
from engine.core.caching.cache import Cache
from engine.core.caching.counters import Counters, PodChanges
from engine.core.model.objects import Namespace, ObjectMeta
from engine.core.model.pod import Pod
from tests.builders import ZONE, make_node, make_pod


def _of_app(name: str, topology: str = ZONE) -> dict[str, Any]:
    """A counter of the pods of one app."""
    selector = {"labels": {"app": name}, "expressions": []}
    return {
        "kind": "pods",
        "topology": topology,
        "terms": [{"selector": selector, "namespaces": ["default"], "namespace_selector": None}],
        "among": None,
        "keys": [],
        "weight": 1,
        "terminating": False,
    }


def test_kinds_of_pods_that_a_counter_does_not_count_take_none_of_its_memory() -> None:
    """With 5,500 pods that each had a label of its own, as those of jobs do, it was half a GiB."""
    cache = Cache()
    cache.add_node(make_node("node", zone="a"))
    for number in range(400):
        cache.add_pod(make_pod(f"p{number}", node="node", labels={"app": f"app-{number}"}))
    counters = Counters()
    counters.refresh(cache.snapshot())
    present = np.ones(1, np.bool_)
    tracemalloc.start()
    for number in range(100):
        column = counters.column(f"{number}".encode(), [_of_app(f"app-{number}")], present)
        assert not column.is_empty
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 100 * 10_000


def test_label_keys_that_pods_made_up_are_let_go() -> None:
    """Each was followed for ever, at a cost of memory by node and of time by decision."""
    cache = Cache()
    for number in range(50):
        cache.add_node(make_node(f"n{number}", zone="a"))
    cache.add_pod(make_pod("web", node="n0", labels={"app": "web"}))
    counters = Counters(capacity=50, most_held=200)
    present = np.ones(50, np.bool_)
    tracemalloc.start()
    try:
        for number in range(3_000):
            if number % 100 == 0:
                counters.refresh(cache.snapshot())
                column = counters.column(b"web", [_of_app("web")], present)
                assert column.total == 1 + number // 200
                if number % 200 == 100:
                    cache.add_pod(make_pod(f"w{number}", node="n1", labels={"app": "web"}))
            keys = [f"example.com/{number}", f"example.com/{number + 1}"]
            part = _of_app("web", keys[0]) | {"keys": keys}
            counters.column(f"{number}".encode(), [part], present)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1 << 20


@pytest.mark.parametrize("keys", [60, 1])
def test_no_more_topologies_are_followed_than_counters_in_use_ask_for(keys: int) -> None:
    """Each counter has its own counts of a topology, which cost memory for every node."""
    cache = Cache()
    cache.add_node(make_node("node", zone="a"))
    counters, present = Counters(capacity=50, most_held=8), np.ones(1, np.bool_)
    for number in range(60):
        if number % 4 == 0:
            counters.refresh(cache.snapshot())
            assert len(counters._columns) <= 2 * 8 + 4
            assert len(counters._counters) <= 2 * 8 + 4
        part = _of_app("web", f"key-{number % keys}")
        counters.column(f"{number}".encode(), [part], present)


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, str]]:
    """The labels that selectors are compared with."""
    found: list[Mapping[str, str]] = []

    def noting(compare: Callable[[Any, Mapping[str, str]], bool]) -> Callable[..., bool]:
        def compared(selector: Any, labels: Mapping[str, str]) -> bool:
            found.append(labels)
            return compare(selector, labels)

        return compared

    for module in (counter_parts, own_terms):
        monkeypatch.setattr(module, "is_selected", noting(module.is_selected))
    return found


def test_pods_with_labels_of_their_own_are_not_compared_with_every_selector(
    looked_at: list[Mapping[str, str]],
) -> None:
    """A third of the time, where thousands of pods waited for one other pod each."""
    cache = Cache()
    cache.add_node(make_node("node", zone="a"))
    counters, present = Counters(), np.ones(1, np.bool_)
    for number in range(50):
        cache.add_pod(make_pod(f"p{number}", node="node", labels={"app": f"app-{number}"}))
        counters.refresh(cache.snapshot())
        for other in range(number + 1):  # those of before follow the log
            column = counters.column(f"{other}".encode(), [_of_app(f"app-{other}")], present)
            assert column.total == 1
    assert len(looked_at) == 50


def test_counters_that_are_used_stay_and_those_used_longest_ago_go(
    looked_at: list[Mapping[str, str]],
) -> None:
    cache = Cache()
    cache.add_node(make_node("node", zone="a"))
    for app in "abc":
        cache.add_pod(make_pod(app, node="node", labels={"app": app}))
    counters, present = Counters(capacity=2), np.ones(1, np.bool_)
    counters.refresh(cache.snapshot())
    counted = []
    for app in "abacab":
        before = len(looked_at)
        assert counters.column(app.encode(), [_of_app(app)], present).total == 1
        counted.append((app, len(looked_at) > before))
    again = [app for app, is_counted in counted if is_counted]
    assert again == ["a", "b", "c", "b"]


def test_terms_are_compared_once_for_all_pods_that_have_the_same(
    looked_at: list[Mapping[str, str]],
) -> None:
    """As those of a StatefulSet, each of which has a label of its own."""
    cache = Cache()
    cache.add_node(make_node("node", zone="a"))
    away = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": ZONE}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [away]}}
    for number in range(50):
        labels = {"app": "db", "index": str(number)}
        cache.add_pod(make_pod(f"db-{number}", node="node", labels=labels, affinity=affinity))
    counters = Counters()
    counters.refresh(cache.snapshot())
    part = {
        "kind": "terms",
        "of": "required_anti_affinity",
        "weight": 1,
        "pod": {"namespace": "default", "labels": {"app": "db", "index": "50"}},
        "keys": [],
    }
    column = counters.column(b"terms", [part], np.ones(1, np.bool_))
    assert not column.is_empty
    assert len(looked_at) == 1


def test_a_selector_that_cannot_be_read_counts_nothing() -> None:
    cache = Cache()
    cache.add_node(make_node("node", zone="a"))
    cache.add_pod(make_pod("web", node="node", labels={"app": "web"}))
    counters = Counters()
    counters.refresh(cache.snapshot())
    part = _of_app("web")
    part["terms"][0]["selector"]["expressions"] = [{"key": "app", "operator": "Like", "values": []}]
    column = counters.column(b"malformed", [part], np.ones(1, np.bool_))
    assert column.is_empty


def test_counters_of_pods_with_many_terms_do_not_drive_out_the_others() -> None:
    """Their terms, thousands each, would be kept by a thousand counters."""
    cache = Cache()
    cache.add_node(make_node("node", zone="a"))
    counters, present = Counters(), np.ones(1, np.bool_)
    counters.refresh(cache.snapshot())
    counters.column(b"small", [_of_app("web")], present)
    for number in range(30):
        pod = make_pod(f"p{number}", affinity=_away_from(f"{number}-{i}" for i in range(1000)))
        counters.column(f"{number}".encode(), [_of_own(pod)], present)
    counters.refresh(cache.snapshot())
    assert counters._terms == sum(one.many_terms for one in counters._counters.values()) == 4000
    assert b"small" in counters._counters


def _away_from(apps: Iterable[str]) -> dict[str, Any]:
    terms = [{"labelSelector": {"matchLabels": {"app": a}}, "topologyKey": ZONE} for a in apps]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _of_own(pod: Pod) -> dict[str, Any]:
    return {
        "kind": "matches",
        "of": "required_anti_affinity",
        "topology": None,
        "weight": 1,
        "keys": [],
        "among": None,
        "own": own_terms.own_terms(pod),
    }


def test_kinds_of_large_pods_are_forgotten_with_their_pods() -> None:
    """4,096 kinds were kept, and the creators of pods decide how large one is.

    A counter that reads of a forgotten kind in the log goes on with what it counted of it.
    """
    cache = Cache()
    cache.add_node(make_node("node", zone="a"))
    counters, present = Counters(), np.ones(1, np.bool_)
    many = {f"label-{i}": "x" for i in range(100)}
    for number in range(10):
        large = make_pod(f"large-{number}", node="node", labels={"app": "web", **many})
        small = make_pod(f"small-{number}", node="node", labels={"app": "web"})
        cache.add_pod(large)
        cache.add_pod(small)
        if number % 2:
            counters.refresh(cache.snapshot())
            assert counters.column(b"web", [_of_app("web")], present).total == number + 2
        cache.remove_pod(large)
        counters.refresh(cache.snapshot())
        assert counters.column(b"web", [_of_app("web")], present).total == number + 1
        assert len(counters._kinds.kinds) == 1


@pytest.mark.parametrize(
    ("added", "removed", "empty", "here"),
    [
        pytest.param((), ("web",), True, 0, id="the one that it counts goes"),
        pytest.param(("web-2",), (), False, 2, id="another one comes"),
        pytest.param(("web-2",), ("web",), False, 1, id="one comes and one goes"),
        pytest.param((), ("other",), False, 1, id="one that it does not count goes"),
    ],
)
def test_a_dry_run_of_pods_that_come_and_go_counts_as_if_they_had(
    added: tuple[str, ...], removed: tuple[str, ...], empty: bool, here: int
) -> None:
    cache = Cache()
    cache.add_node(make_node("node", zone="a"))
    labels = {"web": {"app": "web"}, "web-2": {"app": "web"}, "other": {"app": "other"}}
    pods = {name: make_pod(name, node="node", labels=found) for name, found in labels.items()}
    for name in ("web", "other"):
        cache.add_pod(pods[name])
    counters = Counters()
    counters.refresh(cache.snapshot())
    parts = [_of_app("web")]
    column = counters.column(b"web", parts, np.ones(1, np.bool_))
    changes = PodChanges(0, [pods[name] for name in added], [pods[name] for name in removed])
    info = cache.node_info("node")
    assert info is not None
    row = counters.row(b"web", parts, column, changes, info)
    assert (row.is_empty, row.here) == (empty, here)


def test_a_pod_matters_to_a_count_of_nodes_if_it_takes_what_they_must_have_left() -> None:
    """Else one trial of an eviction stood for nodes of other zones, where it ends otherwise."""
    cache = Cache()
    cache.add_node(make_node("n", zone="a"))
    counters = Counters()
    counters.refresh(cache.snapshot())
    part: dict[str, Any] = {
        "kind": "nodes",
        "topology": ZONE,
        "selector": None,
        "free": {"cpu": 1000},
        "among": None,
        "keys": [],
        "weight": 1,
        "up_to": None,
    }
    asks, idle = make_pod("asks", node="n", cpu="1"), make_pod("idle", node="n", memory="1Gi")
    assert counters.topologies(b"free", [part], 0, asks) == {ZONE}
    assert counters.topologies(b"free", [part], 0, idle) == set()
    by_pods = [part | {"free": {"pods": 1}}]
    assert counters.topologies(b"pods", by_pods, 0, idle) == {ZONE}


def test_what_one_pod_requests_cannot_overflow_a_sum() -> None:
    """The creators of pods choose amounts up to 2**63 - 1, and policies weights."""
    cache = Cache()
    cache.add_node(make_node("n", zone="a"))
    for number in range(4):
        cache.add_pod(make_pod(f"p{number}", node="n", labels={"app": "web"}, memory="7Ei"))
    counters = Counters()
    counters.refresh(cache.snapshot())
    part = _of_app("web") | {"resource": "memory", "weight": 1 << 31}
    assert counters.column(b"web", [part], np.ones(1, np.bool_)).total == 4 << 47


def test_a_dry_run_compares_no_selector_with_pods_of_which_the_outcome_is_known(
    looked_at: list[Mapping[str, str]],
) -> None:
    """Of all victims on all nodes, most are none that a counter counts."""
    cache = Cache()
    cache.add_node(make_node("node", zone="a"))
    labels = {"counted": {"app": "web", "tier": "x"}, "left-out": {"app": "web"}, "other": {}}
    pods = [make_pod(name, node="node", labels=found) for name, found in labels.items()]
    for pod in pods:
        cache.add_pod(pod)
    part = _of_app("web")
    part["terms"][0]["selector"]["labels"]["tier"] = "x"
    counters = Counters()
    counters.refresh(cache.snapshot())
    assert counters.column(b"web", [part], np.ones(1, np.bool_)).total == 1
    looked_at.clear()
    assert [counters.topologies(b"web", [part], 0, pod) for pod in pods] == [{ZONE}, set(), set()]
    assert not looked_at


@pytest.mark.parametrize("what", ["labels", "terms", "requests"])
@pytest.mark.parametrize("many", [False, True])
def test_a_kind_is_large_by_its_labels_its_terms_or_its_requests(what: str, many: bool) -> None:
    """What the creators of pods choose the number of."""
    cache, counters = Cache(), Counters()
    cache.add_node(make_node("node"))
    names = [f"x-{number}" for number in range(70 if many else 7)]
    words: dict[str, Any] = {
        "labels": {"labels": dict.fromkeys(names, "x")},
        "terms": {"affinity": _away_from(names)},
        "requests": {"requests": {f"example.com/{name}": 1 for name in names}},
    }
    pod = make_pod("p", node="node", **words[what])
    cache.add_pod(pod)
    counters.refresh(cache.snapshot())
    cache.remove_pod(pod)
    counters.refresh(cache.snapshot())
    assert len(counters._kinds.kinds) == (not many)
    named = counters.term_labels(make_pod(labels={"app": "web"}))
    assert named == ({"app": "web"} if what == "terms" and not many else {})


_OF_TEAM = {"labels": {"team": "a"}, "expressions": []}
_BY_TEAM: dict[str, Any] = {
    "labelSelector": {"matchLabels": {"app": "web"}},
    "topologyKey": ZONE,
    "namespaceSelector": {"matchLabels": {"team": "a"}},
}
_APART = {
    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_BY_TEAM]},
}


@pytest.mark.parametrize("kind", ["pods", "terms", "matches"])
def test_who_is_selected_by_namespace_follows_the_labels_of_namespaces(kind: str) -> None:
    """Each look at a selector is kept, until a namespace changes."""
    cache, counters = Cache(), Counters()
    cache.add_node(make_node("node", zone="a"))
    words: dict[str, Any] = {"labels": {"app": "web"}}
    cache.add_pod(make_pod("p", "red", node="node", affinity=_APART, **words))
    of_pods = _of_app("web")
    of_pods["terms"][0] |= {"namespaces": [], "namespace_selector": _OF_TEAM}
    incoming = make_pod("q", "red", affinity=_APART, **words)
    part = {
        "pods": of_pods,
        "matches": _of_own(incoming),
        "terms": {
            "kind": "terms",
            "of": "required_anti_affinity",
            "weight": 1,
            "pod": {"namespace": "red", "labels": {"app": "web"}},
            "keys": [],
        },
    }[kind]
    for team, want in (("a", 1), ("b", 0), ("a", 1)):
        meta = ObjectMeta(name="red", labels={"team": team})
        cache.objects.put("namespaces", Namespace(meta))
        counters.refresh(cache.snapshot())
        assert counters.column(b"x", [part], np.ones(1, np.bool_)).total == want
