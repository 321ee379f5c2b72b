"""How hooks read facts: narrowed by name, with their age only where it is asked for."""

import pytest

from engine.core.caching.cache import Cache
from engine.core.model.fact import Fact, NodeFacts
from engine.core.model.node_info import NodeInfo
from engine.language.effects import AGES
from engine.policy.analysis import analyse, time_reads
from engine.policy.bundle import build_bundle
from engine.policy.check import check_files
from engine.policy.projections import Projector
from tests.builders import make_node, make_pod

FACTS = NodeFacts(
    {"load": Fact(0.5, "0.5", 20), "heat": Fact(None, "NaN", None)},
    {"reward": {"web": Fact(1, "1", 5)}},
)
SNAPSHOT = Cache().snapshot()


def _node_reads(body: str) -> frozenset[str]:
    return analyse({"x.star": f"def filter(pod, node):\n    {body}\n"}, "x.star")["filter"].node


def _projected(*paths: str) -> bytes:
    info = NodeInfo("a", make_node("a")).with_facts(FACTS)
    return Projector("node", paths).project(info, SNAPSHOT)


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param('return node.facts["load"].value', {"facts[load]"}, id="a value"),
        pytest.param('return node.facts.get("load")', {"facts[load]"}, id="get"),
        pytest.param(
            'return node.facts["load"].age_seconds', {"facts[load]", AGES}, id="a value and its age"
        ),
        pytest.param(
            'return getattr(node.facts["load"], "age_seconds", 0)',
            {"facts[load]", AGES},
            id="an age by getattr",
        ),
        pytest.param(
            'return getattr(node.facts["load"], pod.name)',
            {"facts[load]", AGES},
            id="some attribute or other",
        ),
        pytest.param(
            'f = node.facts["load"]\n    g = lambda x: x.age_seconds\n    return g(f)',
            {"facts[load]", AGES},
            id="an age through a helper",
        ),
        pytest.param(
            'g = getattr\n    return g(node.facts["load"], "age_seconds", 0)',
            {"facts[load]", AGES},
            id="an age by getattr under another name",
        ),
        pytest.param(
            'return (lambda g, x: g(x))(dir, node.facts["load"])',
            {"facts[load]", AGES},
            id="dir handed on",
        ),
        pytest.param(
            'return hasattr(*[node.facts["load"], "age_seconds"])',
            {"facts[load]", AGES},
            id="an age by hasattr with a star",
        ),
        pytest.param(
            "return [node.facts[n] for n in pod.labels]", {"facts"}, id="names that are computed"
        ),
        pytest.param(
            'return node.facts["load"], node.facts[pod.name]',
            {"facts", "facts[load]"},
            id="a name that is known beside one that is not",
        ),
        pytest.param(
            'return node.facts["load"], [{"n": node}]',
            {"*", "facts[load]"},
            id="a name that is known beside the whole node",
        ),
        pytest.param(
            'return node.pod_facts["reward"].get(pod.type)',
            {"pod_facts[reward]"},
            id="facts of pairs",
        ),
        pytest.param("return struct(age_seconds = 1).age_seconds", set(), id="no fact at all"),
    ],
)
def test_a_hook_reads_the_facts_that_it_names(body: str, want: set[str]) -> None:
    assert _node_reads(body) == want


def test_a_getattr_that_a_loaded_file_hands_out_may_meet_a_fact() -> None:
    """Such a hook was told no ages, and took each fact for one whose age nobody knows."""
    text = 'load("y.star", "T")\ndef score(pod, node):\n    return T.g(node.facts["a"], pod.name)\n'
    files = {"x.star": text, "y.star": "T = struct(g = getattr)\n"}
    assert analyse(files, "x.star")["score"].node == {"facts[a]", AGES}


def test_a_fact_comes_without_its_age_unless_that_is_read() -> None:
    assert _projected("facts[load]") == b'{"facts":{"load":{"text":"0.5","value":0.5}}}'
    assert _projected("facts[load]", AGES) == (
        b'{"facts":{"load":{"age_seconds":20,"text":"0.5","value":0.5}}}'
    )


def test_a_fact_that_is_missing_is_none() -> None:
    assert _projected("facts[cold]") == b'{"facts":{"cold":null}}'
    assert _projected("facts", "facts[cold]").startswith(b'{"facts":{"cold":null,"heat":')
    assert b'"cold":null' in _projected("*", "facts[cold]")
    assert _projected("pod_facts[cold]") == b'{"pod_facts":{"cold":{}}}'


def test_what_is_no_number_has_no_value() -> None:
    assert _projected("facts[heat]") == b'{"facts":{"heat":{"text":"NaN","value":null}}}'


def test_the_node_of_a_fact_may_come_after_it() -> None:
    cache = Cache()
    cache.set_node_facts("late", FACTS)
    cache.add_pod(make_pod("p", node="late"))
    cache.add_node(make_node("late"))
    info = cache.snapshot().info("late")
    assert info is not None
    assert info.facts == FACTS
    cache.check_invariants()


def test_a_new_age_alone_gives_a_hook_that_reads_values_nothing_new() -> None:
    cache = Cache()
    cache.add_node(make_node("a"))
    projector = Projector("node", ["facts[load]"])
    seen = set()
    for age in (0, 5, 10):
        cache.set_node_facts("a", NodeFacts({"load": Fact(0.5, "0.5", age)}, {}))
        seen.add(projector.project(cache.snapshot().info("a"), cache.snapshot()))
    assert len(seen) == 1


def test_facts_reach_a_pod_by_its_type_and_by_its_name() -> None:
    cache = Cache()
    cache.set_other_facts(
        cluster={}, types={"web": {"a": Fact(1, "1"), "b": Fact(1, "1")}}, pods={}
    )
    cache.set_pod_facts("default/p", {"b": Fact(2, "2")})
    pod = make_pod("p", labels={"app": "web"})
    got = Projector("pod", ["facts[a]", "facts[b]", "type"]).project(pod, cache.snapshot())
    assert got == (
        b'{"facts":{"a":{"text":"1","value":1},"b":{"text":"2","value":2}},"type":"web"}'
    )


@pytest.mark.parametrize(
    "body",
    ['return "x" if "load" in node.facts else None', 'return node.facts.get("load", 0)'],
)
def test_check_finds_a_fact_that_is_asked_to_be_there(body: str) -> None:
    text = f'"""X."""\n\ndef filter(pod, node):\n    {body}\n'
    (problem,) = check_files({"x.star": text})
    assert problem.line == 4
    assert problem.message == "`node.facts` has an entry for every name that is written here"


def test_check_finds_what_is_asked_for_under_a_name_that_is_not_written() -> None:
    body = 'return "x" if node.pod_annotations.get(ARGS.start, []) else None'
    text = f'"""X."""\n\nARGS = plugin_args(start = "a")\n\ndef filter(pod, node):\n    {body}\n'
    (problem,) = check_files({"x.star": text})
    assert problem.line == 6
    assert problem.message == (
        "`node.pod_annotations` has entries for names that are written here alone"
    )


def test_it_is_known_whether_anybody_reads_ages() -> None:
    young = '"""X."""\n\ndef score(pod, node):\n    return node.facts["x"].age_seconds\n'
    plain = '"""X."""\n\ndef score(pod, node):\n    return node.facts["x"].value\n'
    for text, want in ((young, True), (plain, False)):
        bundle = build_bundle({"x.star": text})
        assert time_reads(bundle.policies.values()).ages is want


def test_it_is_known_which_facts_of_the_clock_are_read() -> None:
    weekend = (
        '"""X."""\n\n_DAY = "weekday"\n\ndef pre_enqueue(pod, cluster):\n'
        '    return None if cluster.facts[_DAY].value > 5 else cluster.facts["date"].text\n'
    )
    of_nodes = '"""Y."""\n\ndef score(pod, node):\n    return node.facts["hour"].value\n'
    bundle = build_bundle({"x.star": weekend, "y.star": of_nodes})
    assert time_reads(bundle.policies.values()).clock == {"weekday", "date"}


def test_hooks_that_look_at_all_facts_are_given_those_of_the_clock_only_by_name() -> None:
    """Otherwise each hour would make their answers worthless."""
    cache = Cache()
    facts = {"price": Fact(3, "3"), "hour": Fact(7, "7", 0), "minute": Fact(5, "5", 0)}
    cache.set_other_facts(cluster=facts, types={}, pods={})
    snapshot = cache.snapshot()
    whole = Projector("cluster", {"facts"}).project(snapshot, snapshot)
    assert whole == b'{"facts":{"price":{"text":"3","value":3}}}'
    named = Projector("cluster", {"facts", "facts[hour]"}).project(snapshot, snapshot)
    assert named == b'{"facts":{"hour":{"text":"7","value":7},"price":{"text":"3","value":3}}}'
