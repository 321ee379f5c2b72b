from collections.abc import Iterator

import pytest

from engine.policy.bundle import build_bundle
from engine.policy.errors import PolicyErrors
from engine.testing.runner import PolicyTestResult, describe, discover, failed, run_tests

LOADS = 'load("@std/testing.star", "asserts", "cluster", "judge", "make_node", "make_pod")\n'
POLICY = """
args = plugin_args(limit = 3)

def filter(pod, node):
    return "too long" if len(node.name) > args.limit else None

def score(pod, node):
    return len(node.name)
"""


def _run(test: str, policy: str = POLICY, **other: str) -> list[PolicyTestResult]:
    bundle = build_bundle({"x.star": policy, "x_test.star": LOADS + test, **other}, None)
    return list(run_tests(bundle, discover(bundle)))


def _failure(test: str, policy: str = POLICY) -> PolicyTestResult:
    (result,) = _run(test, policy)
    assert not result.passed
    return result


def test_tests_run_in_the_order_of_the_file() -> None:
    results = _run(
        "def test_b():\n    asserts.equal(1, 1)\n"
        "def helper():\n    fail()\n"
        "def test_a():\n    asserts.true(True)\n"
    )
    assert [(r.name, r.passed, r.line) for r in results] == [
        ("test_b", True, 2),
        ("test_a", True, 6),
    ]


def test_a_failed_assertion_shows_both_sides_and_its_line() -> None:
    result = _failure(
        "def _check(nodes):\n"
        '    asserts.scores(nodes, make_pod(), {"a": 2, "bb": 2})\n'
        "def test_scores():\n"
        '    _check(cluster(make_node("a"), make_node("bb")))\n'
    )
    assert (result.file, result.line, result.message) == ("x_test.star", 3, "scores")
    assert result.got == '{"a": 1, "bb": 2}'
    assert result.want == '{"a": 2, "bb": 2}'
    assert describe(result) == f"scores: got {result.got}, want {result.want}"


@pytest.mark.parametrize(
    "assertion",
    [
        pytest.param('fits(NODES, make_pod(), "a", "bb")', id="fits"),
        pytest.param('rejects(NODES, make_pod(), "too long", "dddd")', id="rejects"),
        pytest.param('feasible(NODES, make_pod(), ["a", "bb"])', id="feasible"),
        pytest.param("considers(NODES, make_pod(), None)", id="considers"),
        pytest.param('scores(NODES, make_pod(), {"a": 1, "bb": 2})', id="scores"),
        pytest.param('prefers(NODES, make_pod(), "bb", "a")', id="prefers"),
        pytest.param('fits(NODES, make_pod(), args = {"limit": 4})', id="args"),
        pytest.param('true("x")', id="true"),
        pytest.param("equal([1], [1])", id="equal"),
    ],
)
def test_an_assertion_that_holds_passes(assertion: str) -> None:
    nodes = 'NODES = cluster(make_node("a"), make_node("bb"), make_node("dddd"))\n'
    (result,) = _run(f"{nodes}def test_it():\n    asserts.{assertion}\n")
    assert result.passed, describe(result)


@pytest.mark.parametrize(
    ("assertion", "want"),
    [
        pytest.param('fits(NODES, make_pod(), "dddd")', "nodes that fit", id="fits"),
        pytest.param('rejects(NODES, make_pod(), "other", "dddd")', "rejections", id="reason"),
        pytest.param(
            'unresolvable(NODES, make_pod(), "too long", "dddd")', "rejections", id="code"
        ),
        pytest.param('feasible(NODES, make_pod(), ["a"])', "feasible nodes", id="feasible"),
        pytest.param('considers(NODES, make_pod(), ["a"])', "nodes left", id="considers"),
        pytest.param('scores(NODES, make_pod(), {"a": 1})', "scores", id="scores"),
        pytest.param('prefers(NODES, make_pod(), "a", "bb")', "order by score", id="prefers"),
        pytest.param('prefers(NODES, make_pod(), "dddd", "a")', "nodes without", id="no score"),
        pytest.param("true(0)", "value", id="true"),
        pytest.param("equal(1, 2)", "values", id="equal"),
        pytest.param('fits(NODES, make_pod(), "none")', "the cluster has no node", id="no node"),
        pytest.param("order([make_pod()], [])", "has no hook `queue_key`", id="order"),
        pytest.param('gated(make_pod(), "x")', "has no hook `pre_enqueue`", id="gate"),
        pytest.param('fits(NODES, make_pod(), args = {"limt": 1})', "limt", id="argument"),
        pytest.param(
            'fits(NODES, make_pod(), profile = "other")', "no profile `other`", id="profile"
        ),
        pytest.param(
            'fits(NODES, make_pod(), args = {}, profile = "default-scheduler")',
            "want `args` or `profile`, got both",
            id="args and profile",
        ),
        pytest.param("fits(cluster({}), make_pod())", "want manifests with a `kind`", id="kind"),
        pytest.param(
            "fits(cluster([make_node()]), make_pod())",
            "cluster: want manifests one by one, got a list: write `cluster(*nodes)`",
            id="a list of nodes",
        ),
        pytest.param(
            'fits(cluster(make_pod("p")), make_pod())', "pod `p` names no node", id="placed pod"
        ),
        pytest.param(
            'fits(cluster(make_node(spec = {"taints": 1})), make_pod())', "node `node`", id="shape"
        ),
        pytest.param(
            'fits(cluster(make_node("a", labels = {"disks": 2})), make_pod())',
            "node `a`: metadata.labels.disks: want `str`, got `2` (int)",
            id="a label that is no text",
        ),
        pytest.param(
            'fits(NODES, make_pod("p", node_selector = {"a.b/c": True}))',
            "pod `default/p`: spec.nodeSelector[a.b/c]: want `str`, got `True` (bool)",
            id="a selector that is no text",
        ),
        pytest.param(
            'fits(cluster({"kind": "Service", "metadata": {"name": "s"}, "spec": 1}), make_pod())',
            "Service `s`: spec: want `object`, got `1` (int)",
            id="another object",
        ),
        pytest.param(
            'fits(cluster("a"), make_pod())', 'want manifests with a `kind`, got "a"', id="a text"
        ),
        pytest.param(
            'fits(cluster(make_node(taints = ["a=b"])), make_pod())',
            'want a taint such as "key=value:NoSchedule", got "a=b"',
            id="a taint without effect",
        ),
        pytest.param(
            'fits(NODES, make_pod(tolerations = ["a:noschedule"]))',
            'want a toleration such as "key=value:NoSchedule" or "key", got "a:noschedule"',
            id="a toleration of another effect",
        ),
        pytest.param(
            'fits(cluster(make_node("a", memory = "4Gb")), make_pod())',
            'node `a`: status.allocatable["memory"]: want a quantity, got `4Gb`',
            id="amount of a node",
        ),
        pytest.param(
            'fits(cluster(make_node(pods = [make_pod("p", cpu = "one")])), make_pod())',
            'pod `default/p`: spec.containers[0].resources.requests["cpu"]: want a quantity',
            id="amount of a placed pod",
        ),
        pytest.param(
            "fits(make_node(), make_pod())",
            "want a cluster, as `cluster(...)` gives it, got a Node",
            id="a node for a cluster",
        ),
        pytest.param(
            "fits(cluster(struct(cluster = NODES)), make_pod())",
            "want a cluster, got what `load_manifests` gives: its `cluster` is one",
            id="fixtures for a cluster",
        ),
        pytest.param("fits(cluster(), make_pod())", "the cluster has no nodes", id="empty"),
        pytest.param(
            'fits(NODES, "p")', 'want a pod, as `make_pod(...)` gives it, got "p"', id="no pod"
        ),
        pytest.param(
            'in_group(make_node(), "g")',
            "want a pod, as `make_pod(...)` gives it, got a Node",
            id="a node for a pod",
        ),
        pytest.param("order(make_pod(), [])", "want a list of pods, got a Pod", id="one pod"),
        pytest.param(
            'gated(make_pod(), "x", group = {"pod_count": 2})',
            'want a group, as `make_group(...)` gives it, got {"pod_count": 2}',
            id="group",
        ),
    ],
)
def test_an_assertion_that_does_not_hold_says_why(assertion: str, want: str) -> None:
    nodes = 'NODES = cluster(make_node("a"), make_node("bb"), make_node("dddd"))\n'
    result = _failure(f"{nodes}def test_it():\n    asserts.{assertion}\n")
    assert want in result.message
    assert result.line == 4


@pytest.mark.parametrize(
    "assertion", ['evicts(NODES, POD, "a", ["x"])', "evicts_nobody(NODES, POD)"]
)
def test_who_is_evicted_is_asked_where_preemption_takes_part(assertion: str) -> None:
    """Alone, a policy evicts nobody whatever its `victim_key` says: `evicts_nobody` held, and
    `evicts` said only that it got none.
    """
    nodes = (
        'NODES = cluster(make_node("a", pods = [make_pod("x")]))\nPOD = make_pod(priority = 1)\n'
    )
    policy = "def filter(pod, node):\n    return 'full'\ndef victim_key(pod):\n    return 1\n"
    result = _failure(f"{nodes}def test_it():\n    asserts.{assertion}\n", policy)
    assert "no preemption takes part here: want a profile that has it" in result.message


@pytest.mark.parametrize(
    ("assertion", "want"),
    [
        ('evicts_nobody(NODES, POD, profile = "default-scheduler")', "nodes that fit"),
        ('evicts(NODES, POD, "a", [], profile = "default-scheduler")', "nodes that fit"),
        ("prefers(NODES, POD)", "want two nodes or more, the best first, got []"),
        ('prefers(NODES, POD, "b")', 'want two nodes or more, the best first, got ["b"]'),
        ('feasible(NODES, POD, "a")', 'want a list of names, such as ["a", "b"], got "a"'),
        ('considers(NODES, POD, "a")', "want a list of names"),
        ('evicts(NODES, POD, "a", "x")', "want a list of names"),
        ('order([POD], "pod", profile = "default-scheduler")', "want a list of names"),
        (
            'fits(cluster(make_node("a", pods = make_pod())), POD)',
            "cluster: node `a`: want a list of pods, got a Pod",
        ),
        (
            'fits(cluster(make_node("a"), facts = {"hour": 8}), POD)',
            'want a dict for `hour`, as in {"cluster": {"hour": 8}}, got 8',
        ),
    ],
)
def test_an_assertion_that_says_nothing_or_is_given_another_type_fails(
    assertion: str, want: str
) -> None:
    """The first four held, or told of another thing; the rest was told in the interpreter's
    words, such as "Operation `(iter)` not supported on type `string`".
    """
    nodes = 'NODES = cluster(make_node("a"), make_node("b"))\nPOD = make_pod()\n'
    result = _failure(f"{nodes}def test_it():\n    asserts.{assertion}\n")
    assert want in result.message


@pytest.mark.parametrize("age", ["-60", '"old"'])
def test_an_age_that_no_fact_has_is_refused(age: str) -> None:
    """It was taken for none, or for 0: the test was about another fact than it said."""
    load = 'load("@std/testing.star", "make_fact")\n'
    result = _failure(f"{load}def test_it():\n    make_fact(3, age_seconds = {age})\n")
    assert result.message == f"make_fact: want an age_seconds of at least 0, got {age}"


def test_a_wrong_argument_is_reported_once() -> None:
    result = _failure(
        'def test_it():\n    asserts.fits(cluster(make_node()), make_pod(), args = {"other": 1})\n',
        "def filter(pod, node):\n    return None\n",
    )
    assert result.message == "other: unknown argument: the policy takes none"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        pytest.param('{"mots": 1}', "unknown argument, did you mean `most`?", id="unknown"),
        pytest.param('{"most": "1"}', "most: want an int", id="another type"),
        pytest.param('{"most": 0}', "want at least 1", id="refused by the policy"),
    ],
)
def test_arguments_that_a_policy_does_not_take_are_failures_of_it(args: str, text: str) -> None:
    """Only what the policy refused itself was one; an unknown name or another type failed the
    test that expects it.
    """
    policy = (
        "args = plugin_args(most = 2)\n"
        "def _expect():\n    if args.most < 1:\n        fail('want at least 1')\n_expect()\n"
        "def filter(pod, node):\n    return None\n"
    )
    test = "asserts.fails(cluster(make_node()), make_pod(), {!r}, args = {})"
    (result,) = _run(f"def test_it():\n    {test.format(text, args)}\n", policy)
    assert result.passed, describe(result)
    result = _failure(f"def test_it():\n    {test.format('another text', args)}\n", policy)
    assert text in result.got


def test_a_missing_amount_is_shown_with_a_default_for_it() -> None:
    policy = 'def filter(pod, node):\n    return "no" if pod.requests["a.b/gpu"] > 1 else None\n'
    result = _failure(
        "def test_it():\n    asserts.fits(cluster(make_node()), make_pod())\n", policy
    )
    assert "x.star:2" in result.message
    assert '`.get("a.b/gpu", 0)` for an amount' in result.message


def test_a_policy_that_fails_fails_the_test() -> None:
    policy = "def filter(pod, node):\n    return 1 // 0\n"
    test = "def test_it():\n    asserts.fits(cluster(make_node()), make_pod())\n"
    result = _failure(test, policy)
    assert result.message.startswith("the policy fails: x.star:2:")
    assert (result.got, result.want) == ("", "")
    (result,) = _run(
        'def test_it():\n    asserts.fails(cluster(make_node()), make_pod(), "filter() failed")\n',
        policy,
    )
    assert result.passed, describe(result)


def test_a_profile_judges_with_everything_in_it() -> None:
    (result,) = _run(
        "def test_it():\n"
        '    nodes = cluster(make_node("a", taints = ["x:NoSchedule"]), make_node("bb"))\n'
        '    asserts.feasible(nodes, make_pod(), ["bb"], profile = "default-scheduler")\n'
        '    asserts.feasible(nodes, make_pod(), ["a", "bb"])\n'
    )
    assert result.passed, describe(result)


def test_the_same_pod_can_be_placed_twice() -> None:
    (result,) = _run(
        "def test_it():\n"
        '    web = make_pod("web")\n'
        "    nodes = cluster(make_node(pods = [web, web]))\n"
        '    asserts.scores(nodes, web, {"node": 2})\n',
        "def score(pod, node):\n    return node.pod_count\n",
    )
    assert result.passed, describe(result)


def test_an_answer_can_be_looked_at_whole() -> None:
    (result,) = _run(
        "def test_it():\n"
        '    answer = judge(cluster(make_node("a"), make_node("dddd")), make_pod())\n'
        '    asserts.equal(answer.rejected["dddd"].plugin, "x")\n'
        '    asserts.equal(answer.best, ["a"])\n'
    )
    assert result.passed, describe(result)


def test_a_test_that_is_defined_twice_is_a_problem() -> None:
    """Some interpreters let the second definition replace the first without a word."""
    with pytest.raises(PolicyErrors, match="`test_it` is defined twice"):
        _run("def test_it():\n    fail()\ndef test_it():\n    pass\n")


def test_an_error_in_the_test_itself_names_its_line() -> None:
    result = _failure('def test_it():\n    x = 1 + "a"\n')
    assert result.line == 3
    assert "not supported" in result.message


def test_a_test_that_never_ends_is_stopped() -> None:
    bundle = build_bundle(
        {
            "x.star": POLICY,
            "x_test.star": "def test_it():\n    for i in range(1000000000):\n        pass\n",
        },
        None,
    )
    ticks: Iterator[float] = iter(range(1_000_000))
    (result,) = run_tests(bundle, discover(bundle), seconds=5, monotonic=lambda: next(ticks))
    assert result.message == "took longer than 5 s"


def test_the_tests_of_a_replaced_built_in_are_its_own() -> None:
    text = "def filter(pod, node):\n    return 'never'\n"
    test = (
        LOADS + "def test_it():\n    asserts.rejects(cluster(make_node()), make_pod(), 'never')\n"
    )
    bundle = build_bundle({"node_ports.star": text, "node_ports_test.star": test}, None)
    (result,) = run_tests(bundle, discover(bundle))
    assert result.passed, describe(result)


def test_failed_tests_are_problems_too() -> None:
    (problem,) = failed(_run("def test_it():\n    asserts.equal(1, 2)\n"))
    assert str(problem) == "x_test.star:3: test_it: values: got 1, want 2"


@pytest.mark.parametrize("number", ["math.inf", "-math.inf", "math.inf - math.inf"])
@pytest.mark.parametrize(
    "asked",
    [
        'asserts.fits(cluster(make_node("a")), make_pod(), args = {{"limit": [{0}]}})',
        'cluster(make_node("a"), facts = {{"cluster": {{"hour": {0}}}}})',
    ],
)
def test_what_a_test_gives_is_not_lost_on_its_way(number: str, asked: str) -> None:
    """JSON has neither: the argument was missing, and the policy ran with its default."""
    result = _failure(f"def test_a():\n    {asked.format(number)}\n")
    assert "want finite numbers, got" in result.message
    assert result.line == 3
