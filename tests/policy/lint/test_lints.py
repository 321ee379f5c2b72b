"""What is probably wrong with policies, and what only looks so."""

import ast
from pathlib import Path

import pytest
import starlark
from hypothesis import given
from hypothesis import strategies as st

from engine.policy.arguments import plugin_args_calls
from engine.policy.check import check_files
from engine.policy.lint import names
from engine.policy.lint.finding import LINTS
from engine.policy.lint.fixes import without_unused_loads
from engine.policy.lint.linter import lint_files

PLAIN_FILTER = "def filter(pod, node):\n    return None\n"


def found(text: str, **others: str) -> list[str]:
    """`line: name` of each finding in x.star."""
    files = {"x.star": text} | {f"{stem}.star": other for stem, other in others.items()}
    assert not [p for p in check_files(files) if p.severity == "error"]
    return [f"{f.problem.line}: {f.lint}" for f in lint_files(files) if f.problem.file == "x.star"]


def in_filter(*lines: str) -> str:
    return "def filter(pod, node):\n" + "".join(f"    {line}\n" for line in lines)


def in_score(expression: str) -> str:
    return f"def score(pod, node, state):\n    _ = state\n    return {expression}\n"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(
            'load("@std/numbers.star", "go_div", "round_div")\n'
            "def score(pod, node):\n    return round_div(1, 2)\n",
            ["1: unused-load"],
            id="a load",
        ),
        pytest.param("def _f():\n    pass\n" + PLAIN_FILTER, ["1: unused-function"], id="private"),
        pytest.param("def f():\n    pass\n" + PLAIN_FILTER, ["1: unused-function"], id="public"),
        pytest.param("def f():\n    pass\n", [], id="a library's function"),
        pytest.param("_A = 1\n" + PLAIN_FILTER, ["1: unused-variable"], id="a constant"),
        pytest.param(in_filter("x = 1", "return None"), ["2: unused-variable"], id="a local"),
        pytest.param(in_filter("_x = 1", "return None"), [], id="a local meant to be unused"),
        pytest.param(in_filter("x, y = 1, 2", "return str(y)"), [], id="one of two unpacked"),
        pytest.param(
            "args = plugin_args(a = 1, b = 2)\ndef score(pod, node):\n    return args.a\n",
            ["1: unused-argument"],
            id="an argument",
        ),
        pytest.param(
            "args = plugin_args(a = 1, b = 2)\n"
            "def score(pod, node):\n    return _of(args)\n"
            "def _of(given):\n    return getattr(given, 'a')\n",
            [],
            id="arguments that are handed on",
        ),
        pytest.param(
            "def filter(pod, node, counts):\n    return None\n",
            ["1: unused-parameter"],
            id="counts that nobody looks at",
        ),
        pytest.param("def filter(pod, node):\n    return None\n", [], id="required parameters"),
        pytest.param(in_filter("return None", "return 'x'"), ["3: unreachable"], id="after return"),
        pytest.param(
            in_filter("if pod.priority > 1:", "    return 'a'", "else:", "    fail('b')", "x = 1"),
            ["6: unused-variable", "6: unreachable"],
            id="after both branches",
        ),
        pytest.param(
            in_filter("len = 3", "return str(len)"), ["2: shadowed-name"], id="a built-in hidden"
        ),
        pytest.param(
            "def score(pod, node):\n    return 1\n" + in_filter("score = 3", "return str(score)"),
            ["4: shadowed-name"],
            id="a hook hidden",
        ),
        pytest.param(
            "def score(pod, node, state):\n    return state.x\n"
            "def pre_score(pod, state):\n    return state(x = state.x + pod.priority)\n",
            ["4: shadowed-name"],
            id="a built-in called that a parameter hides",
        ),
        pytest.param(
            "new_state = state\n"
            "def score(pod, node, state):\n    return state.x\n"
            "def pre_score(pod, state):\n    return new_state(x = state.x + pod.priority)\n",
            [],
            id="a built-in of another name",
        ),
        pytest.param(
            "def normalize(score, over):\n    return score if over.max else 0\n"
            "def score(pod, node, state):\n    return _of(state)\n"
            "def _of(state):\n    return state.x\n",
            [],
            id="names that hooks take",
        ),
        pytest.param(
            "def score(pod, node, cluster):\n"
            "    return len([i for i in range(cluster.node_count) if i == 3]) % 10\n",
            ["1: node-loop"],
            id="a loop over nodes per node",
        ),
        pytest.param(
            "def score_all(pod, nodes):\n    return [_near(n, nodes) for n in nodes]\n"
            "def _near(node, others):\n    return len([o for o in others if o == node])\n",
            ["1: node-loop"],
            id="nodes times nodes, in a helper",
        ),
        pytest.param(
            "def score_all(pod, nodes):\n    return [n.pod_count for n in nodes]\n",
            [],
            id="one pass over all nodes",
        ),
    ],
)
def test_lints_of_names_and_flow(text: str, want: list[str]) -> None:
    assert found(text) == want


def test_a_public_function_that_a_neighbour_loads_is_used() -> None:
    text = "def f():\n    pass\n" + PLAIN_FILTER
    other = 'load("x.star", "f")\ndef score(pod, node):\n    return f()\n'
    assert found(text, y=other) == []


def test_a_function_of_a_test_file_that_is_no_test_is_told() -> None:
    (got,) = lint_files({"x.star": PLAIN_FILTER, "x_test.star": "def tset_a():\n    pass\n"})
    assert (got.lint, got.problem.file) == ("unused-function", "x_test.star")
    assert "test_" in got.problem.hint


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        pytest.param("node.pod_count", "warning", id="a count"),
        pytest.param("pod.priority", "warning", id="a priority"),
        pytest.param("100 - node.pod_count", "warning", id="less than nothing"),
        pytest.param("101", "error", id="a constant over 100"),
        pytest.param("-1", "error", id="a constant under 0"),
        pytest.param("50 if pod.priority else 200", "error", id="one branch"),
        pytest.param("min(100, node.pod_count)", None, id="bounded above"),
        pytest.param("100 - max(0, min(100, pod.priority))", None, id="clamped by hand"),
        pytest.param("math.clamp(pod.priority, 0, 100)", None, id="clamped"),
        pytest.param("node.pod_count % 101", None, id="a remainder"),
        pytest.param("max(0, 100 - state.used)", None, id="what is not known"),
        pytest.param("100 * node.pod_count // node.allocatable['pods']", None, id="a share"),
        pytest.param("node.pod_count - node.pod_count", None, id="values that depend"),
    ],
)
def test_scores_that_leave_the_range(expression: str, want: str | None) -> None:
    got = [f for f in lint_files({"x.star": in_score(expression)}) if f.lint == "score-range"]
    assert [f.problem.severity for f in got] == ([] if want is None else [want])
    with_normalize = in_score(expression) + "def normalize(score, over):\n    return over.max\n"
    lints = {f.lint for f in lint_files({"x.star": with_normalize})}
    assert "score-range" not in lints


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        pytest.param(["for key in node.labels:", "    return key"], ["2: map-order"], id="first"),
        pytest.param(
            ["for k, v in pod.node_selector.items():", "    if v:", "        return v"],
            ["2: map-order"],
            id="the first that is so",
        ),
        pytest.param(
            ["for k in node.labels:", "    if k == pod.name:", "        return 'no'"],
            [],
            id="any of them",
        ),
        pytest.param(
            ["for k in sorted(node.labels):", "    if k:", "        return k"], [], id="sorted"
        ),
        pytest.param(
            ["best = ''", "for k in node.labels:", "    best = k", "    break", "return best"],
            ["3: map-order"],
            id="kept at a break",
        ),
        pytest.param(["return list(node.labels)[0]"], ["2: map-order"], id="by its place"),
        pytest.param(["return node.labels['a']"], [], id="by its key"),
        pytest.param(["return 'on %s' % node.name"], ["2: varying-reason"], id="a built reason"),
        pytest.param(
            ["x = node.name", "return f'on {x}'"], ["3: varying-reason"], id="an f-string"
        ),
        pytest.param(
            ["return unresolvable('a ' + node.name)"], ["2: varying-reason"], id="wrapped"
        ),
        pytest.param(["return 'a' if node.name else 'b'"], [], id="constants"),
        pytest.param(
            ["x = 'a'", "return '%s-%s' % (x, type(3))"], ["3: varying-reason"], id="a local"
        ),
        pytest.param(["return 'over %d' % len([1, 2])"], [], id="the same for every pod"),
    ],
)
def test_lints_of_order_and_reasons(lines: list[str], want: list[str]) -> None:
    assert found(in_filter(*lines)) == want


@pytest.mark.parametrize(
    ("condition", "want"),
    [
        pytest.param("pod.requests > 3", "wrong-type", id="a dict with a number"),
        pytest.param("pod.priority == 'high'", "wrong-type", id="a number with a text"),
        pytest.param("node.unschedulable == 'true'", "wrong-type", id="a bool with a text"),
        pytest.param("pod.labels.app == 'x'", "wrong-type", id="a dict's key as a field"),
        pytest.param("node.taints.key == 'x'", "wrong-type", id="a list's element as itself"),
        pytest.param("pod.requests + 1 == 3", "wrong-type", id="a sum"),
        pytest.param("'a' in pod.priority", "wrong-type", id="in a number"),
        pytest.param("3 in pod.scheduling_gates", "wrong-type", id="a number among texts"),
        pytest.param("[x for x in pod.priority]", "wrong-type", id="a loop over a number"),
        pytest.param("[t for t in node.taints if t > 3]", "wrong-type", id="a record"),
        pytest.param("pod.owner == None", None, id="None of what may be None"),
        pytest.param("pod.requests.get('cpu', 0) > 3", None, id="an amount"),
        pytest.param("pod.requests.get('cpu') == None", None, id="a key that is missing"),
        pytest.param("'%d pods' % node.pod_count == ''", None, id="formatting"),
        pytest.param("node.pod_count * 2 > 3.5", None, id="numbers"),
        pytest.param("pod.labels.get('a') == node.labels.get('b')", None, id="texts"),
        pytest.param("[t for t in node.taints if t.effect == 'NoScheduel']", "enum-text", id="e"),
        pytest.param("[t for t in node.taints if t.effect == 'noschedule']", "enum-text", id="ca"),
        pytest.param(
            "[t for t in pod.tolerations if t.operator in ('Equals', 'Exists')]",
            "enum-text",
            id="in a tuple",
        ),
        pytest.param("pod.qos_class == 'Guarantied'", "enum-text", id="quality of service"),
        pytest.param("node.conditions.get('Ready') == 'true'", "enum-text", id="a condition"),
        pytest.param("node.conditions.get('Ready', '') == ''", None, id="the default of get"),
        pytest.param("[t for t in node.taints if t.effect == 'NoExecute']", None, id="right"),
        pytest.param("[t for t in node.taints if t.key == 'NoScheduel']", None, id="any text"),
        pytest.param("1 << 31", "wrong-shift", id="the sign bit"),
        pytest.param("3 << 30", "wrong-shift", id="three halves of it"),
        pytest.param("1 << node.pod_count", "wrong-shift", id="by what is not known"),
        pytest.param("node.pod_count << 10", "wrong-shift", id="of what is not known"),
        pytest.param("1 << 30", None, id="fits"),
        pytest.param("1 << 62", None, id="large, and right"),
    ],
)
def test_lints_of_values(condition: str, want: str | None) -> None:
    got = found(in_filter(f"if {condition}:", "    return 'no'", "return None"))
    assert got == ([] if want is None else [f"2: {want}"])


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        pytest.param(["if heat.age_seconds > 60:", "    return 'a'"], ["4"], id="an age"),
        pytest.param(["if 2 * heat.value > 60:", "    return 'a'"], ["4"], id="a value"),
        pytest.param(
            ["if heat.age_seconds == None or heat.age_seconds > 60:", "    return 'a'"],
            [],
            id="asked before",
        ),
        pytest.param(
            ["if (heat.age_seconds or 0) > 60:", "    return 'a'"], [], id="with a default"
        ),
        pytest.param(
            ["if _odd(heat):", "    return 'a' if heat.value > 3 else None"], [], id="by f"
        ),
    ],
)
def test_a_number_of_a_fact_that_is_never_asked_for_is_told(
    lines: list[str], want: list[str]
) -> None:
    """It failed for the first fact without a time, and the pods were placed no more."""
    text = in_filter("heat = node.facts['heat']", "if heat == None: return None", *lines)
    text += "def _odd(fact):\n    return fact.value == None\n" if "_odd" in text else ""
    assert found(text) == [f"{line}: wrong-type" for line in want]


def test_types_are_followed_into_helpers_and_through_variables() -> None:
    text = in_filter(
        "wanted = pod.requests", "return _over(wanted, node.taints) if wanted else None"
    ) + (
        "def _over(amounts, taints):\n    for taint in taints:\n"
        "        if taint.effect == 'NoScheduled':\n            return 'a'\n"
        "    return 'b' if amounts > 3 else None\n"
    )
    assert found(text) == ["6: enum-text", "8: wrong-type"]


def test_a_variable_of_several_types_is_not_known() -> None:
    text = in_filter("x = pod.requests", "if not x:", "    x = 3", "return 'a' if x > 3 else None")
    assert found(text) == []


def test_an_argument_has_a_type_that_is_not_known() -> None:
    text = "args = plugin_args(limit = 3)\n" + in_filter(
        "limit = args.limit", "if not limit:", "    limit = ''", "return 'a' if limit > 3 else None"
    )
    assert found(text) == []


@given(st.integers(-(2**33), 2**33), st.integers(0, 40))
def test_a_shift_is_told_if_and_only_if_the_interpreter_gets_it_wrong(value: int, by: int) -> None:
    expression = f"({value}) << {by}"
    module = starlark.Module()
    got = starlark.eval(module, starlark.parse("x.star", expression), starlark.Globals.standard())
    lints = [f.lint for f in lint_files({"x.star": f"A = {expression}\n"})]
    assert lints == ([] if got == value << by else ["wrong-shift"])


def test_a_comment_silences_its_line_or_the_next() -> None:
    line = "return 'on ' + node.name"
    assert found(in_filter(f"{line}  # lint: ignore=varying-reason  two nodes only")) == []
    assert found(in_filter("# lint: ignore=varying-reason, wrong-shift", line)) == [
        "2: unknown-lint"
    ]
    assert found(in_filter("# lint: ignore=varied-reason", line)) == [
        "2: unknown-lint",
        "3: varying-reason",
    ]
    assert found(in_filter('x = "# lint: ignore=varying-reason"', "return x")) == []


def test_a_silencer_that_silences_nothing_is_told() -> None:
    (got,) = lint_files({"x.star": in_filter("return None  # lint: ignore=map-order")})
    assert "says nothing here" in got.problem.message


@pytest.mark.parametrize(
    ("load", "want"),
    [
        pytest.param('load("@std/numbers.star", "go_div")\n', "", id="all of it"),
        pytest.param(
            'load("@std/numbers.star", "go_div", "round_div")\n_X = round_div(1, 2)\n',
            'load("@std/numbers.star", "round_div")\n_X = round_div(1, 2)\n',
            id="the first",
        ),
        pytest.param(
            'load("@std/numbers.star", "go_div", r = "round_div")\n_X = go_div(1, 2)\n',
            'load("@std/numbers.star", "go_div")\n_X = go_div(1, 2)\n',
            id="a renamed one, at the end",
        ),
        pytest.param(
            'load(\n    "@std/numbers.star",\n    "go_div",\n    "round_div",\n)\n'
            "_X = go_div(1, 2)\n",
            'load(\n    "@std/numbers.star",\n    "go_div",\n)\n_X = go_div(1, 2)\n',
            id="on lines of their own",
        ),
        pytest.param(
            'load("@std/numbers.star", "go_div")  # why\n',
            'load("@std/numbers.star", "go_div")  # why\n',
            id="a comment is kept, and so its load",
        ),
    ],
)
def test_unused_loads_are_taken_out(load: str, want: str) -> None:
    text = '"""ä"""\n' + load
    findings = lint_files({"x.star": text})
    got = without_unused_loads(text, findings)
    assert got == '"""ä"""\n' + want
    ast.parse(got)


@pytest.mark.parametrize(
    ("hook", "answer", "want"),
    [
        pytest.param(
            "filter(pod, node)", "False", "returns True or False here, want None, a reason"
        ),
        pytest.param(
            "filter(pod, node)", "node.name == 'a'", "returns True or False here, want None"
        ),
        pytest.param(
            "filter(pod, node)", "None if node.name else 0", "returns an int here, want None"
        ),
        pytest.param("filter(pod, node)", "None if node.name else 'no'", None),
        pytest.param("filter(pod, node)", "unresolvable('no')", None),
        pytest.param("filter(pod, node)", "['no']", None),
        pytest.param(
            "pre_enqueue(pod)", "not pod.labels", "returns True or False here, want None or"
        ),
        pytest.param(
            "permit(pod, group)", "True", "returns True or False here, want None, wait(...)"
        ),
        pytest.param("score(pod, node)", "0.5", "returns a fraction here, want an int or None"),
        pytest.param(
            "score(pod, node)", "node.pod_count / 2", "returns a fraction here, want an int"
        ),
        pytest.param("score(pod, node)", "node.pod_count // 2", None),
        pytest.param("score(pod, node)", "None", None),
        pytest.param("score(pod, node)", "'5'", "returns a text here, want an int or None"),
        pytest.param(
            "queue_key(pod)", "(pod.priority > 3, 1)", "returns True or False here, want an"
        ),
        pytest.param("queue_key(pod)", "(-pod.priority, pod.name)", None),
        pytest.param(
            "victim_key(pod)", "None", "returns None here, want an int, a string or a tuple"
        ),
        pytest.param("among_x(pod, node)", "node.name == 'a'", None),
    ],
)
def test_an_answer_that_the_hook_never_takes_is_an_error(
    hook: str, answer: str, want: str | None
) -> None:
    text = f"def {hook}:\n    return {answer}\n\ndef _f():\n    return True\n"
    findings = [f for f in lint_files({"x.star": text}) if f.lint == "wrong-return"]
    assert [f.problem.severity for f in findings] == ([] if want is None else ["error"])
    assert all(str(want) in f.problem.message for f in findings)


def test_a_function_inside_a_hook_returns_what_it_likes() -> None:
    inner = "    def _at(n):\n        return n == 1\n    return None if _at(1) else 'no'\n"
    assert found("def filter(pod, node):\n" + inner) == []


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("def normalize(score, over):\n    return 0\n", ["1: unused-hook"], id="alone"),
        pytest.param(
            "def score(pod, node):\n    return 1\ndef normalize(score, over):\n    return score\n",
            [],
            id="beside a score",
        ),
        pytest.param(
            "def counters(pod):\n    return []\n" + PLAIN_FILTER,
            ["1: unused-hook"],
            id="counters that nobody looks at",
        ),
        pytest.param(
            "def counters(pod):\n    return []\n"
            "def filter(pod, node, counts):\n    return 'no' if counts else None\n",
            [],
            id="counters",
        ),
        pytest.param(
            "def among_x(pod, node):\n    return True\n" + PLAIN_FILTER,
            ["1: unused-hook"],
            id="a choice of nodes that no counter names",
        ),
    ],
)
def test_a_hook_that_is_never_asked_is_told(text: str, want: list[str]) -> None:
    assert found(text) == want


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        pytest.param("_SEEN.append(1)", True, id="a list"),
        pytest.param('_BY_NAME["a"] = 1', True, id="a dict"),
        pytest.param("_BY_NAME.update(a = 1)", True, id="a dict, by a method"),
        pytest.param("_COUNT += 1", True, id="a number"),
        pytest.param("seen = list(_SEEN); seen.append(1)", False, id="a copy"),
        pytest.param("_SEEN = []; _SEEN.append(1)", False, id="a local of that name"),
        pytest.param("_COUNT = 0; _COUNT += 1", False, id="a local number of that name"),
        pytest.param("[_SEEN.index(1) for _SEEN in [[1]]]", False, id="of a comprehension"),
        pytest.param("x = _SEEN.index(1) + _BY_NAME.get('a') + _COUNT; fail(x)", False, id="reads"),
    ],
)
def test_what_a_function_would_keep_between_calls_is_told(line: str, is_told: bool) -> None:
    """It was found only when the line was reached, as `Immutable`."""
    text = "_SEEN = []\n_BY_NAME = {}\n_COUNT = 0\n" + in_filter(line, "return None")
    findings = [f.problem for f in lint_files({"x.star": text}) if f.lint == "kept-value"]
    assert [(f.line, f.column, f.severity) for f in findings] == [(5, 5, "error")] * is_told


def test_every_lint_is_tried_here() -> None:
    text = Path(__file__).read_text()
    assert [name for name in LINTS if text.count(name) == 0] == []


def test_a_file_is_not_looked_through_for_each_of_its_constants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was for each, twice: 20 seconds for 2,000 constants."""
    looked = 0

    def counted(tree: ast.Module) -> list[ast.Call]:
        nonlocal looked
        looked += 1
        return plugin_args_calls(tree)

    monkeypatch.setattr(names, "plugin_args_calls", counted)
    text = "".join(f"A{n} = {n}\n" for n in range(50)) + PLAIN_FILTER
    lib = 'load("x.star", "A7")\ndef f():\n    return A7\n'
    assert found(text, lib=lib) == [f"{n + 1}: unused-variable" for n in range(50) if n != 7]
    assert looked <= 4  # two for each file
