"""Tables of cases, drawn cases and properties: each holds, fails and says so as it should."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.policy.bundle import build_bundle
from engine.policy.errors import PolicyErrors
from engine.testing.drawing import draw, runs_of, shown, shrunk, simpler, simplest
from engine.testing.fixtures import DirectoryFiles
from engine.testing.runner import PolicyTestResult, PolicyTestRunner, describe, discover, run_tests

LOADS = """
load("@std/generators.star", "any_bool", "any_built", "any_cluster", "any_float", "any_int")
load("@std/generators.star", "any_list", "any_node", "any_of", "any_pod")
load("@std/testing.star", "asserts", "cases", "cluster", "judge", "load_data", "make_node")
load("@std/testing.star", "make_pod")
"""
POLICY = """
def filter(pod, node):
    return "too small" if node.allocatable["cpu"] < 1000 else None

def score(pod, node):
    return len(node.name)
"""


def run(
    test: str, policy: str = POLICY, *, seed: int = 0, root: Path | None = None
) -> list[PolicyTestResult]:
    bundle = build_bundle({"x.star": policy, "x_test.star": LOADS + test})
    files = None if root is None else (lambda _: DirectoryFiles(root))
    return list(run_tests(bundle, discover(bundle), files=files, seed=seed))


def only(test: str, policy: str = POLICY, *, seed: int = 0) -> PolicyTestResult:
    (result,) = run(test, policy, seed=seed)
    return result


# --- tables ----------------------------------------------------------------------------------

CHECK = """
def _check(node, want):
    asserts.scores(cluster(make_node(node)), make_pod(), {node: want})
"""


def test_every_case_of_a_table_is_a_test_with_its_own_name() -> None:
    results = run(
        CHECK
        + """
test_golden = cases(_check, {
    "short": {"node": "a", "want": 1},
    "wrong": {"node": "bb", "want": 3},
    "long": {"node": "cccc", "want": 4},
})
"""
    )
    assert [(r.name, r.passed) for r in results] == [
        ("test_golden[short]", True),
        ("test_golden[wrong]", False),
        ("test_golden[long]", True),
    ]
    assert (results[1].got, results[1].want, results[1].line) == ('{"bb": 2}', '{"bb": 3}', 8)
    assert {result.line for result in results if result.passed} == {10}


def test_cases_can_be_lists_single_values_and_data_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "golden.csv").write_text("name,node,want\nshort,a,1\nlong,cccc,4\n")
    results = run(
        CHECK
        + """
def _fits(cpu):
    asserts.fits(cluster(make_node(cpu = cpu)), make_pod())

test_listed = cases(_check, [{"name": "x", "node": "a", "want": 1}])
test_plain = cases(_fits, {"one": 1, "none": 0})
test_file = cases(_check, load_data("golden.csv"))
""",
        root=tmp_path,
    )
    assert [(r.name, r.passed) for r in results] == [
        ("test_listed[x]", True),
        ("test_plain[one]", True),
        ("test_plain[none]", False),
        ("test_file[short]", True),
        ("test_file[long]", True),
    ]


@pytest.mark.parametrize(
    ("table", "want"),
    [
        pytest.param("{}", "want at least one case", id="none"),
        pytest.param("[{'node': 'a'}]", "want dicts with a text as `name`", id="no name"),
        pytest.param("[{'name': 'a'}, {'name': 'a'}]", "a second case `a`", id="twice"),
        pytest.param("{1: 2}", "want texts as names, got 1", id="number"),
        pytest.param("'x.yaml'", "want a dict of cases, or a list of dicts", id="a path"),
    ],
)
def test_a_table_that_makes_no_sense_fails(table: str, want: str) -> None:
    result = only(CHECK + f"test_it = cases(_check, {table})\n")
    assert not result.passed
    assert want in result.message
    assert result.line == 9


@pytest.mark.parametrize(
    ("case", "want"),
    [
        ({"node": "a", "wants": 1}, "Missing parameter `want` for call to `x_test.star._check`"),
        ({"node": "a", "want": 1, "pod": 2}, "Found `pod` extra named parameter(s) for call to"),
    ],
)
def test_a_case_with_other_arguments_says_which_it_gives(case: dict[str, Any], want: str) -> None:
    """`Missing parameter` was all, and not that the case has `wants`."""
    result = only(CHECK + f"test_it = cases(_check, {{'one': {case!r}}})\n")
    assert result.message.startswith(want)
    assert result.message.endswith("; the case gives " + ", ".join(f"`{name}`" for name in case))


@pytest.mark.parametrize(
    ("made", "want"),
    [
        ("make_node(labels = 'a=b')", 'make_node: node `node`: labels: want a dict, got "a=b"'),
        ("make_node('a', facts = 3)", "make_node: node `a`: facts: want a dict, got 3"),
        ("make_node(taints = 'a')", 'make_node: node `node`: taints: want a list, got "a"'),
        ("make_pod(tolerations = 'a')", 'make_pod: pod `pod`: tolerations: want a list, got "a"'),
        ("make_pod(requests = [])", "make_pod: pod `pod`: requests: want a dict, got []"),
        ("make_pod(labels = None, affinity = None, node_selector = None)", ""),
        ("make_node(annotations = None, taints = ())", ""),
        ("cluster(facts = [])", "cluster: facts: want a dict, got []"),
        (
            "cluster(make_node('a', pods = ['b']))",
            'cluster: node `a`: pods: want pods, as `make_pod(...)` gives them, got "b"',
        ),
        (
            "asserts.fits(cluster(make_node()), make_pod(), args = 4)",
            "args: want a dict of arguments by name, got 4",
        ),
    ],
)
def test_a_builder_says_what_it_wants(made: str, want: str) -> None:
    """It was ``Operation `|` not supported for types `dict` and `string` ``."""
    assert only(f"def test_it():\n    asserts.true({made})\n").message == want


def test_a_value_that_is_called_a_test_and_is_none_fails() -> None:
    result = only("test_it = 5\n")
    assert (result.passed, "want `test_it = cases(function, table)`" in result.message) == (
        False,
        True,
    )


def test_one_case_can_be_run_alone() -> None:
    test = CHECK + 'test_it = cases(_check, {"a": {"node": "a", "want": 1}, "b": {}})\n'
    bundle = build_bundle({"x.star": POLICY, "x_test.star": LOADS + test})
    runner = PolicyTestRunner(bundle)
    (table,) = discover(bundle)
    assert [str(case) for case in runner.expand(table)] == [
        "x_test.star::test_it[a]",
        "x_test.star::test_it[b]",
    ]
    assert [runner.run(case).passed for case in runner.expand(table)] == [True, False]


# --- drawn cases -----------------------------------------------------------------------------


def test_a_property_that_holds_passes_and_is_tried_as_often_as_asked() -> None:
    result = only(
        """
def test_it():
    seen = []
    def check(n, x, b, c, ns, pod):
        seen.append(n)
        asserts.true(3 <= n and n <= 9 and 0.5 <= x and x <= 2.5 and type(b) == "bool")
        asserts.true(c in ("a", "b") and len(ns) <= 2 and pod["kind"] == "Pod")
    asserts.for_any(
        check, runs = 40, n = any_int(3, 9), x = any_float(0.5, 2.5), b = any_bool(),
        c = any_of("a", "b"), ns = any_list(any_int(0, 1), most = 2), pod = any_pod(),
    )
    asserts.equal(len(seen), 40)
    asserts.equal(sorted({n: None for n in seen}), [3, 4, 5, 6, 7, 8, 9])
"""
    )
    assert result.passed, describe(result)
    assert result.example == ""


def test_what_fails_is_made_as_simple_as_it_can_be() -> None:
    result = only(
        """
def test_it():
    def check(nodes, wanted, pod):
        asserts.fits(nodes, pod) if wanted > 17 else None
    asserts.for_any(
        check,
        nodes = any_cluster(cpu = any_of("4", "500m", "2"), zone = any_of("z1", "z2"), most = 5),
        wanted = any_int(0, 100), pod = any_pod(cpu = any_int(0, 900, "m")),
    )
"""
    )
    assert not result.passed
    assert result.message == "nodes that fit"
    assert result.example == (
        'nodes = [(cpu = "500m", zone = "z1")], wanted = 18, pod = (cpu = "0m")'
    )
    # The sides are those of the simple case too.
    assert result.got == '{"node-0": "Unschedulable: too small"}'
    assert describe(result).endswith(f"for {result.example}")


def test_a_seed_gives_the_same_cases_again_and_another_gives_others() -> None:
    test = """
def test_it():
    seen = []
    def check(n):
        seen.append(n)
    asserts.for_any(check, runs = 5, n = any_int(0, 1000000))
    asserts.equal(seen, [])
"""
    first, again, other = (only(test, seed=seed).got for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_a_case_found_with_a_seed_is_found_with_it_when_run_alone() -> None:
    """Draws depend on the test and the seed, not on the tests before it."""
    test = "def test_a():\n    asserts.for_any(lambda n: None, n = any_int(0, 9))\n"
    rare = """
def test_b():
    asserts.for_any(lambda n: asserts.true(n % 7 != 3, "rare"), n = any_int(0, 1000))
"""
    both, alone = run(test + rare, seed=5)[1], only(rare, seed=5)
    assert (both.example, both.seed) == (alone.example, 5)
    assert both.example == "n = 3"


def test_a_failure_after_the_draws_is_no_case_of_them() -> None:
    result = only(
        "def test_it():\n    asserts.for_any(lambda n: None, n = any_int(0, 9))\n"
        "    fail('later')\n"
    )
    assert (result.passed, result.message, result.example) == (False, "later", "")


@pytest.mark.parametrize(
    ("call", "want"),
    [
        ("asserts.for_any(lambda n: None, runs = 0, n = any_int(0, 1))", "want 1..10,000 runs"),
        ("asserts.for_any(lambda n: None, n = any_int(2, 1))", "any_int: want a low of at most 1"),
        ("any_of()", "any_of: want at least one choice"),
        ("any_list(any_bool(), least = 3, most = 2)", "any_list: want 0 <= least <= most"),
        (
            "asserts.for_any("
            "lambda n: asserts.for_any(lambda m: None, m = any_bool()), n = any_bool())",
            "for_any inside for_any",
        ),
    ],
)
def test_generators_that_make_no_sense_fail(call: str, want: str) -> None:
    result = only(f"def test_it():\n    {call}\n")
    assert not result.passed
    assert want in result.message


def test_a_property_that_takes_too_long_is_stopped() -> None:
    test = """
def test_it():
    asserts.for_any(
        lambda n: asserts.fits(cluster(make_node()), make_pod()), runs = 10000, n = any_int(0, 9))
"""
    bundle = build_bundle({"x.star": POLICY, "x_test.star": LOADS + test})
    (result,) = run_tests(bundle, discover(bundle), seconds=0.3)
    assert (result.passed, result.seconds < 3) == (False, True)
    assert "took longer than 0.3 s" in result.message


def test_only_tests_can_load_generators() -> None:
    text = 'load("@std/generators.star", "any_int")\n' + POLICY + "X = any_int(0, 1)\n"
    with pytest.raises(PolicyErrors, match="only tests can load"):
        build_bundle({"x.star": text})


PLANS = st.recursive(
    st.one_of(
        st.tuples(st.integers(-50, 50), st.integers(0, 50)).map(
            lambda p: {"any": "int", "low": p[0], "high": p[0] + p[1], "unit": ""}
        ),
        st.tuples(st.integers(-5, 5), st.integers(0, 5)).map(
            lambda p: {"any": "float", "low": p[0], "high": p[0] + p[1]}
        ),
        st.just({"any": "bool"}),
        st.integers(1, 4).map(lambda n: {"any": "of", "shown": [str(i) for i in range(n)]}),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, st.integers(0, 2), st.integers(0, 2)).map(
            lambda p: {"any": "list", "of": p[0], "least": p[1], "most": p[1] + p[2]}
        ),
        st.dictionaries(st.sampled_from("abc"), inner).map(lambda of: {"any": "fields", "of": of}),
    ),
    max_leaves=5,
)


@given(plan=PLANS, seed=st.integers(0, 99))
def test_simpler_values_lead_to_the_simplest_and_every_one_can_be_drawn(
    plan: dict[str, Any], seed: int
) -> None:
    """If everything fails the simplest value is left; nothing on the way is out of range."""

    def fits(plan: dict[str, Any], value: Any) -> bool:
        match plan:
            case {"any": "int" | "float", "low": low, "high": high}:
                return bool(low <= value <= high)
            case {"any": "list", "of": of, "least": least, "most": most}:
                assert isinstance(value, list)
                return least <= len(value) <= most and all(fits(of, one) for one in value)
            case {"any": "fields", "of": of}:
                assert isinstance(value, dict)
                return all(fits(of[name], value[name]) for name in of)
        return True

    value = draw(plan, random.Random(seed))
    assert fits(plan, value)
    for less in simpler(plan, value):
        assert fits(plan, less)
        assert less != value
    assert shrunk(plan, value, lambda _: True) == simplest(plan)
    assert shrunk(plan, value, lambda _: False) == value
    assert runs_of(plan, 3, str(seed)) == runs_of(plan, 3, str(seed))
    assert isinstance(shown(plan, value), str)


# --- properties ------------------------------------------------------------------------------

NODES = 'NODES = cluster(make_node("b"), make_node("a", cpu = 2), make_node("c"))\n'
FIRST = """
def score_all(pod, nodes):
    return [100 if i == 0 else 0 for i in range(len(nodes))]
"""
CEILING = """
def filter(pod, node):
    return "too large" if node.allocatable["memory"] > 40 * 1024 * 1024 * 1024 else None
"""
LESS = "def score(pod, node):\n    return 100 - node.allocatable['cpu'] // 1000\n"
LABELS = "def score(pod, node):\n    return len(node.labels)\n"


@pytest.mark.parametrize(
    ("policy", "assertion", "message", "got"),
    [
        pytest.param(
            FIRST,
            "same_for_any_node_order(NODES, make_pod())",
            "the order of the nodes changes the decision",
            '"nodes": ["a", "b"]',
            id="order",
        ),
        pytest.param(
            CEILING,
            "never_worse_with_more_room(NODES, make_pod())",
            "a node with more capacity is worse",
            '{"is": "too large", "node": "b", "with": {"memory": "68719476736"}}',
            id="fit",
        ),
        pytest.param(
            LESS,
            "never_worse_with_more_room(NODES, make_pod())",
            "a node with more capacity is worse",
            '{"is": 84, "node": "b", "with": {"cpu": "16000m"}}',
            id="score",
        ),
        pytest.param(
            LABELS,
            "ignores_unknown_labels(NODES, make_pod())",
            "unknown labels change the decision",
            '"total": {"a": 2, "b": 2, "c": 2}',
            id="labels",
        ),
        pytest.param(
            LESS,
            "scores_within(NODES, make_pod(), low = 93)",
            "scores out of range",
            '{"x on b": 92, "x on c": 92}',
            id="range",
        ),
        pytest.param(
            LESS,
            "never_falls(lambda n: judge(cluster(make_node(cpu = n)), make_pod()).total['node'], "
            "[1, 1, 3])",
            "the value falls",
            "{3: 97}",
            id="falls",
        ),
        pytest.param(
            POLICY,
            "never_rises(lambda n: n % 3, [2, 3, 4])",
            "the value rises",
            "{4: 1}",
            id="rises",
        ),
        pytest.param(
            "def filter(pod, node):\n    fail('no')\n",
            "same_for_any_node_order(NODES, make_pod())",
            "the policy fails: x.star:2:",
            "",
            id="failure",
        ),
    ],
)
def test_a_property_that_does_not_hold_says_for_what(
    policy: str, assertion: str, message: str, got: str
) -> None:
    result = only(f"{NODES}def test_it():\n    asserts.{assertion}\n", policy)
    assert not result.passed
    assert message in result.message
    assert got in result.got


@pytest.mark.parametrize(
    ("policy", "assertion"),
    [
        pytest.param(POLICY, "same_for_any_node_order(NODES, make_pod())", id="order"),
        pytest.param(
            POLICY,
            "same_for_any_node_order(cluster(*[make_node(str(i)) for i in range(9)]), make_pod())",
            id="order of many",
        ),
        pytest.param(POLICY, "never_worse_with_more_room(NODES, make_pod())", id="capacity"),
        pytest.param(
            LESS, "never_worse_with_more_room(NODES, make_pod(), scores = False)", id="only fit"
        ),
        pytest.param(POLICY, "ignores_unknown_labels(NODES, make_pod())", id="labels"),
        pytest.param(LESS, "scores_within(NODES, make_pod())", id="range"),
        pytest.param(POLICY, "never_falls(lambda n: n // 2, [1, 2, 3])", id="falls"),
        pytest.param(POLICY, "never_rises(lambda n: -n, [1, 1, 3])", id="rises"),
    ],
)
def test_a_property_that_holds_passes(policy: str, assertion: str) -> None:
    result = only(f"{NODES}def test_it():\n    asserts.{assertion}\n", policy)
    assert result.passed, describe(result)


@pytest.mark.parametrize(
    ("assertion", "want"),
    [
        pytest.param(
            "never_falls(lambda n: n, [])",
            "never_falls: want two inputs or more, in their order, got []",
            id="falls",
        ),
        pytest.param(
            "never_rises(lambda n: n, [1])",
            "never_rises: want two inputs or more, in their order, got [1]",
            id="rises",
        ),
        pytest.param(
            "same_for_any_node_order(cluster(), make_pod())",
            "the cluster has no nodes",
            id="order",
        ),
        pytest.param(
            "never_worse_with_more_room(cluster(), make_pod())",
            "the cluster has no nodes",
            id="capacity",
        ),
        pytest.param(
            "ignores_unknown_labels(cluster(), make_pod())", "the cluster has no nodes", id="labels"
        ),
        pytest.param(
            "scores_within(cluster(), make_pod())", "the cluster has no nodes", id="range"
        ),
    ],
)
def test_a_property_of_nothing_does_not_hold(assertion: str, want: str) -> None:
    """It passed, so a list that came out empty by mistake tested nothing for good."""
    result = only(f"{NODES}def test_it():\n    asserts.{assertion}\n", POLICY)
    assert not result.passed
    assert want in result.message


def test_the_order_of_many_nodes_is_broken_down_to_two() -> None:
    nodes = "NODES = cluster(*[make_node('n%d' % i, pods = [make_pod()]) for i in range(9)])\n"
    result = only(
        f"{nodes}def test_it():\n    asserts.same_for_any_node_order(NODES, make_pod())\n", FIRST
    )
    assert '"nodes": ["n8", "n7"]' in result.got
    assert '"nodes": ["n7", "n8"]' in result.want
