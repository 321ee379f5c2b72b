"""What is probably wrong with policies, and what only looks so."""

import ast
from pathlib import Path
from typing import Any

import pytest
import starlark
from hypothesis import given
from hypothesis import strategies as st

from engine.policy.arguments import plugin_args_calls
from engine.policy.check import check_files
from engine.policy.lint import names, values
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
        pytest.param(
            "def filter(pod, node, counts):\n    return 'no' if counts[0].total > 3 else None\n",
            ["1: unused-parameter"],
            id="counts where nothing is counted",
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
            "def pre_score(pod, state):\n    return new_state(x = state.x + pod.priority)\n"
            "def pre_filter(pod):\n    return new_state(x = 1)\n",
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
        pytest.param("-1 if pod.priority > -1 else 0", "error", id="a constant that is asked for"),
        pytest.param("node.pod_count % 101", None, id="a remainder"),
        pytest.param("max(0, 100 - state.used)", None, id="what is not known"),
        pytest.param("100 * node.pod_count // node.allocatable['pods']", None, id="a share"),
        pytest.param("node.pod_count - node.pod_count", None, id="values that depend"),
        pytest.param("9 if node.pod_count > 9 else node.pod_count", None, id="asked for before"),
        pytest.param(
            "9 if 100 - node.pod_count < 0 else 100 - node.pod_count", None, id="asked as a whole"
        ),
        pytest.param(
            "0 if node.pod_count == 0 else 100 - node.pod_count", "warning", id="not bounded so"
        ),
        pytest.param("9 if pod.priority > 9 else node.pod_count", "warning", id="another is asked"),
    ],
)
def test_scores_that_leave_the_range(expression: str, want: str | None) -> None:
    got = [f for f in lint_files({"x.star": in_score(expression)}) if f.lint == "score-range"]
    assert [f.problem.severity for f in got] == ([] if want is None else [want])
    with_normalize = in_score(expression) + "def normalize(score, over):\n    return over.max\n"
    lints = {f.lint for f in lint_files({"x.star": with_normalize})}
    assert "score-range" not in lints


@pytest.mark.parametrize(
    ("counter", "expression", "want"),
    [
        ("", "counts[0].here or 0", "any number over 100"),
        ("", "100 - (counts[0].here or 0)", "negative"),
        ("", "counts[0].total", "any number over 100"),
        ("", "min(counts[0].here or 0, 100)", None),
        ("", "counts[0].here and 5", None),
        ("", "0 if (counts[0].here or 0) > 9 else counts[0].here or 0", None),
        (", up_to = 100", "counts[0].here or 0", None),
        (", weight = args.weight", "counts[0].here or 0", None),
        (", **more", "counts[0].here or 0", None),
    ],
)
def test_a_score_of_what_is_counted_can_leave_its_range(
    counter: str, expression: str, want: str | None
) -> None:
    """A policy that prefers nodes with few of a kind failed at the first with more than 100."""
    text = f"def counters(pod):\n    return [count_pods(None{counter})]\n"
    text += f"def score(pod, node, counts):\n    return {expression}\n"
    got = [f.problem.message for f in lint_files({"x.star": text}) if f.lint == "score-range"]
    assert got == ([f"the score can be {want}, want 0..100"] if want else [])


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
        pytest.param(
            ["for k, v in node.labels.items():", "    if k == 'a' and v:", "        return v"],
            [],
            id="one key",
        ),
        pytest.param(
            [
                "b = ''",
                "for k in node.labels:",
                "    if 'a' == k:",
                "        b = k; break",
                "return b",
            ],
            [],
            id="one key at a break",
        ),
        pytest.param(
            ["for k, v in node.labels.items():", "    if v == 'a':", "        return k"],
            ["2: map-order"],
            id="one value of several keys",
        ),
        pytest.param(
            ["for k, v in node.labels.items():", "    if k == v:", "        return v"],
            ["2: map-order"],
            id="a key that is like its value",
        ),
        pytest.param(["return list(node.labels)[0]"], ["2: map-order"], id="by its place"),
        pytest.param(
            ["keys = list(node.labels)", "return keys[0] if keys else None"],
            ["3: map-order"],
            id="by its place in a list",
        ),
        pytest.param(
            ["keys = sorted(node.labels)", "return keys[0] if keys else None"],
            [],
            id="by its place among the sorted",
        ),
        pytest.param(
            ["keys = list(node.labels)", "keys = sorted(keys)", "return keys[0]"],
            [],
            id="sorted later",
        ),
        pytest.param(
            ["return 'no' if ','.join(node.labels.keys()) == 'a,b' else None"],
            ["2: map-order"],
            id="joined",
        ),
        pytest.param(
            ["return 'no' if ','.join(sorted(node.labels)) == 'a,b' else None"],
            [],
            id="sorted and joined",
        ),
        pytest.param(["return node.labels.get('a')"], [], id="by its key"),
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
        pytest.param(
            ["if pod.qos_class == 'Burstable' or 'BestEffort':", "    return 'no'"],
            ["2: wrong-type"],
            id="if",
        ),
        pytest.param(
            ["return 'no' if [t for t in node.taints if t.key == 'a' or 'b'] else None"],
            ["2: wrong-type"],
            id="in a list",
        ),
        pytest.param(
            ["if pod.qos_class in ('Burstable', 'BestEffort'):", "    return 'no'"], [], id="in"
        ),
        pytest.param(["why = node.labels.get('why') or 'no'", "return why"], [], id="a default"),
        pytest.param(["return pod.priority > 3 and 'no' or None"], [], id="an answer"),
    ],
)
def test_a_condition_that_always_holds_is_told(lines: list[str], want: list[str]) -> None:
    """`t.effect == "NoSchedule" or "NoExecute"` passed, and kept every pod off every taint."""
    assert found(in_filter(*lines)) == want


@pytest.mark.parametrize(
    ("key", "is_told"),
    [
        pytest.param("-pod.start_time", True, id="negated"),
        pytest.param("(pod.priority, 9 - pod.start_time)", True, id="subtracted"),
        pytest.param("-(pod.start_time or 0)", False, id="with a default"),
        pytest.param("-pod.start_time if pod.start_time else 0", False, id="asked before"),
        pytest.param("_age(pod)", False, id="by a function that may ask"),
        pytest.param("-pod.priority", False, id="what is always there"),
    ],
)
def test_a_number_of_a_pod_that_is_never_asked_for_is_told(key: str, is_told: bool) -> None:
    """It passed, and no pod was evicted as long as one on the node had not begun to run."""
    text = f"def victim_key(pod):\n    return {key}\n"
    text += "def _age(pod):\n    return pod.created_at\n" if "_age" in key else ""
    assert found(text) == ["2: wrong-type"] * is_told


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


@pytest.mark.parametrize(
    ("counted", "line", "want"),
    [
        pytest.param("[count_pods(_Z, x)]", "counts[0].here > 3", ["6"], id="by a label"),
        pytest.param("[count_pods('z', x)]", "counts[0].here + 1 > 3", ["6"], id="reckoned with"),
        pytest.param("{'filter': [count_pods(_Z, x)]}", "counts[0].here > 3", ["6"], id="by hook"),
        pytest.param("[count_pods(None, x)]", "counts[0].here > 3", [], id="by node"),
        pytest.param("[count_pods(_Z, x), y]", "counts[1].here > 3", [], id="not known"),
        pytest.param("[count_pods(_Z, x)]", "(counts[0].here or 0) > 3", [], id="with a default"),
        pytest.param("[count_pods(_Z, x)]", "counts[0].total > 3", [], id="over all domains"),
        pytest.param(
            "[count_pods(_Z, x)]",
            "counts[0].here != None and counts[0].here > 3",
            [],
            id="asked before",
        ),
        pytest.param(
            "[count_pods(_Z, x)]",
            "node.labels.get(_Z) and counts[0].here > 3",
            [],
            id="the label asked for",
        ),
    ],
)
def test_a_count_that_no_node_without_the_label_has_is_told(
    counted: str, line: str, want: list[str]
) -> None:
    """It failed on the first node without the label, and no pod was placed any more."""
    text = (
        "_Z = 'zone'\n"
        "def counters(pod):\n    x, y = [pods_in([], {}, {})], None\n"
        f"    return {counted}\n"
        f"def filter(pod, node, counts):\n    return 'no' if {line} else None\n"
    )
    assert [one for one in found(text) if "wrong-type" in one] == [
        f"{at}: wrong-type" for at in want
    ]


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
        pytest.param(
            'load("@std/numbers.star", "go_div"); A = 1\n',
            'load("@std/numbers.star", "go_div"); A = 1\n',
            id="a statement after it is kept",
        ),
        pytest.param(
            'A = 1; load("@std/numbers.star", "go_div")\nB = 2\n',
            'A = 1; load("@std/numbers.star", "go_div")\nB = 2\n',
            id="a statement before it is kept, and its line",
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
            "candidate_key(node, victims)", "None", "returns None here, want an int, a string or"
        ),
        pytest.param("victim_key(pod)", "None if pod.labels else (1, 2)", None),
        pytest.param(
            "victim_key(pod)", "(pod.priority, None)", "returns None here, want None, an int, a"
        ),
        pytest.param("among_x(pod, node)", "node.name == 'a'", None),
        pytest.param("filter(pod, node)", "_f()", "returns True or False here", id="by a helper"),
        pytest.param("filter(pod, node)", "node", "returns a struct here, want None, a reason"),
        pytest.param("filter(pod, node)", "skip()", "returns skip(...) here, want None, a reason"),
        pytest.param("filter(pod, node)", "wait(3)", "returns wait(...) here, want None"),
        pytest.param("filter(pod, node)", "node.labels.get('why')", None),
        pytest.param("filter(pod, node)", "''", "returns an empty text here, want None"),
        pytest.param("filter(pod, node)", "pod.labels == {} and 'no'", "returns True or False"),
        pytest.param("filter(pod, node)", "node.labels.get('why') or None", None),
        pytest.param("pre_filter(pod)", "'no'", "returns a text here, want None, reject(...)"),
        pytest.param("pre_filter(pod)", "only_nodes(['a'])", None),
        pytest.param("filter(pod, node)", "unresolvable", "the function `unresolvable` here, want"),
        pytest.param("pre_score(pod)", "skip", "returns the function `skip` here, want None"),
        pytest.param("filter(pod, node)", "_f", "returns the function `_f` here, want None"),
        pytest.param("filter(pod, node, state)", "state", None, id="what a hook is given"),
        pytest.param("pre_score(pod)", "reject('no')", "returns reject(...) here, want None"),
        pytest.param("group_of(pod)", "pod.labels.get('job', '')", "returns a text here, want"),
        pytest.param("annotate(pod, node)", "node.name", "returns a text here, want None or a"),
        pytest.param("annotate(pod, node)", "node.labels", None),
        pytest.param("score_all(pod, nodes)", "len(nodes)", "returns an int here, want a list"),
        pytest.param("score(pod, node)", "3 / 4 * 100", "returns a fraction here, want an int"),
        pytest.param("score(pod, node)", "100 * _g(pod.priority)", None, id="not known"),
        pytest.param(
            "score(pod, node)",
            "100 * (node.pod_count / max(1, pod.priority))",
            "returns a fraction here, want an int",
            id="times a fraction",
        ),
        pytest.param("score(pod, node)", "int(100 * (node.pod_count / 3))", None, id="made whole"),
        pytest.param("score(pod, node)", "pod.labels.get('a')", None, id="what may be None"),
        ("score(pod, node)", "math.sqrt(node.pod_count)", "returns a fraction here, want an int"),
        ("score(pod, node)", "float(node.pod_count)", "returns a fraction here, want an int"),
        ("score(pod, node)", "parse_float(node.name, 0.0)", "returns a fraction here, want an"),
        ("score(pod, node)", "parse_int(node.name, 0)", None),
        ("score(pod, node)", "parse_int(node.name)", None),
        ("score(pod, node)", "math.round(math.sqrt(node.pod_count))", None),
        ("score(pod, node)", "parse_float(node.name, 0)", None),
        pytest.param(
            "counters(pod)", "{'filters': []}", "counters() returns counters for `filters`, want"
        ),
    ],
)
def test_an_answer_that_the_hook_never_takes_is_an_error(
    hook: str, answer: str, want: str | None
) -> None:
    text = f"def {hook}:\n    return {answer}\n\ndef _f():\n    return True\n"
    text += "\ndef _g(x):\n    return x\n"
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
        pytest.param(
            "def group_of(pod):\n    return gang('a')\ndef queue_key(pod):\n    return 1\n",
            ["1: unused-hook"],
            id="a group that nobody is given",
        ),
        pytest.param(
            "def group_of(pod):\n    return gang('a')\n"
            "def pre_enqueue(pod, group):\n    return 'no' if group else None\n",
            [],
            id="a group",
        ),
    ],
)
def test_a_hook_that_is_never_asked_is_told(text: str, want: list[str]) -> None:
    assert found(text) == want


@pytest.mark.parametrize(
    ("filled", "want"),
    [
        pytest.param('"%d" % pod.name', "`%d` wants a number, `pod.name` is a text", id="a text"),
        pytest.param(
            '"%s: %d" % (pod.name, pod.labels.get("a"))',
            '`%d` wants a number, `pod.labels.get("a")` is a text',
            id="a text or None",
        ),
        pytest.param('"%x" % (pod.priority > 3)', "is True or False", id="a truth"),
        pytest.param('"%.2f" % (pod.priority / 3)', "`%.`, which fills nothing", id="digits"),
        pytest.param('"%5d" % pod.priority', "`%5`, which fills nothing", id="a width"),
        pytest.param('"50% of %d" % pod.priority', "`% `, which fills nothing", id="a percentage"),
        pytest.param('"%d%" % pod.priority', "`%d%` ends in `%`", id="a percent sign"),
        pytest.param('"%s %s" % pod.name', "has 2 places, and is given 1", id="too few"),
        pytest.param('"%s" % (1, 2)', "has 1 place, and is given 2", id="too many"),
        pytest.param('"all" % pod.name', "has no places, and is given 1", id="no place"),
        pytest.param('"{:d}".format(3)', "`{:d}`, which fills nothing", id="format: digits"),
        pytest.param('"{pod.name}".format(pod = 1)', "`{pod.name}`, which", id="format: a field"),
        pytest.param('"{}: {}".format(pod)', "has 2 places, and is given 1", id="format: too few"),
        pytest.param('"{1}".format(pod)', "`{1}`, and is given 1", id="format: a number too far"),
        pytest.param(
            f'"{{{"9" * 5_000}}}".format(pod)', "and is given 1, counted from 0", id="format: long"
        ),
        pytest.param('"{a}".format(b = 1)', "`{a}`, and is given no `a`", id="format: a name"),
        pytest.param('"{}{0}".format(1)', "want all places numbered", id="format: both ways"),
        pytest.param('"{".format(1)', "has a `{` that belongs to no place", id="format: a brace"),
    ],
)
def test_a_text_that_cannot_be_filled_is_told(filled: str, want: str) -> None:
    """It failed with the first pod that came by."""
    (problem,) = [
        f.problem
        for f in lint_files({"x.star": in_filter(f"return {filled}")})
        if f.lint == "wrong-type"
    ]
    assert want in problem.message
    assert problem.severity == "error"
    starlark.parse("x.star", filled)


@pytest.mark.parametrize(
    "filled",
    [
        '"%d" % pod.priority',
        '"%d%%" % pod.priority',
        '"%f of %g" % (pod.priority / 3, 1)',
        '"%s %r" % (pod.name, pod.labels)',
        '"%s" % None',
        '"%s" % pod.labels',
        '"%d" % parse_int(pod.name, 0)',
        '"%d" % parse_int(pod.name)',
        '"%s %s" % _pair(pod)',
        '"%d" % _number(pod)',
        '"{}".format(pod, pod)',
        '"{}{}".format(*_pair(pod))',
        '"{a}{{".format(**{"a": pod})',
    ],
)
def test_a_text_that_can_be_filled_is_left_alone(filled: str) -> None:
    helpers = "def _pair(pod):\n    return (pod, pod)\ndef _number(pod):\n    return 1\n"
    text = helpers + in_filter(f"return {filled}")
    assert not [f for f in lint_files({"x.star": text}) if f.lint == "wrong-type"]


@given(
    st.text("{}01ab!rs:.[ ]", max_size=8),
    st.sampled_from(["", "1", "1, 2", "a = 1", "1, a = 1"]),
)
def test_formats_are_told_where_the_interpreter_cannot_fill_them(text: str, arguments: str) -> None:
    filled = f'"{text}".format({arguments})'
    try:
        starlark.eval(starlark.Module(), starlark.parse("x", filled), starlark.Globals.standard())
        is_filled = True
    except starlark.StarlarkError:
        is_filled = False
    told = [
        f for f in lint_files({"x.star": in_filter(f"return {filled}")}) if f.lint == "wrong-type"
    ]
    assert bool(told) is not is_filled, filled


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        pytest.param(['return pod.labels["a"]'], ["2"], id="unasked"),
        pytest.param(['return node.annotations["a"] + pod.labels["b"]'], ["2", "2"], id="two"),
        pytest.param(["x = pod.labels['a']", "return x or pod.labels['a']"], ["2"], id="once"),
        pytest.param(["return pod.labels['a'] if 'b' in pod.labels else ''"], [], id="in"),
        pytest.param(["if 'a' not in node.labels:", "    return None"], [], id="asked, unused"),
        pytest.param(
            ["if 'a' not in node.labels:", "    return None", "return node.labels['a']"],
            [],
            id="not in",
        ),
        pytest.param(
            ["x = pod.labels.get('a')", "return pod.labels['a'] if x else None"], [], id="get"
        ),
        pytest.param(["return [pod.labels[k] for k in pod.labels][0]"], [], id="a loop"),
        pytest.param(["return _of(pod) if pod.labels else ''"], [], id="any at all"),
        pytest.param(["return node.facts['a'] == None"], [], id="a fact"),
        pytest.param(["return {'a': 'b'}['a']"], [], id="a dict of its own"),
    ],
)
def test_a_label_that_not_all_have_is_told(lines: list[str], want: list[str]) -> None:
    """Headers of policies write it so; in a hook it failed with the first that lacks the label."""
    helper = "def _of(pod):\n    return pod.labels.get('z', '')\n"
    findings = [
        f.problem
        for f in lint_files({"x.star": in_filter(*lines) + helper})
        if f.lint == "wrong-type"
    ]
    assert [str(one.line) for one in findings] == want
    assert all(one.severity == "warning" for one in findings)
    assert all("there is no such key" in one.message for one in findings)
    assert all(one.hint.endswith('", "")`') for one in findings)


def test_a_label_that_another_hook_asked_for_is_left_alone() -> None:
    """A filter may have left out the nodes that a score fails on."""
    text = in_filter("return None if 'a' in node.labels else 'no'")
    text += "def score(pod, node):\n    return len(node.labels['a'])\n"
    assert not [f for f in lint_files({"x.star": text}) if f.lint == "wrong-type"]


_INNER = "    def filter(pod, node):\n        return 'no' if node.name == 'a' else None\n"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(f"def setup():\n{_INNER}", [("error", 2)], id="alone"),
        pytest.param(
            f"def score(pod, node):\n{_INNER}    return 1\n", [("error", 2)], id="indented too far"
        ),
        pytest.param(f"def make():\n{_INNER}    return filter\n", [("warning", 2)], id="returned"),
        pytest.param(
            f"def make():\n{_INNER}    return struct(filter = filter)\nmake()\n",
            [("warning", 2)],
            id="a plugin that nobody takes",
        ),
        pytest.param(
            f"def _make():\n{_INNER}    return filter\n"
            "_fits = _make()\n"
            "def score(pod, node):\n    return 0 if _fits(pod, node) else 1\n",
            [],
            id="returned to a caller",
        ),
        pytest.param(
            f"def score(pod, node):\n{_INNER}    return 0 if filter(pod, node) else 1\n",
            [],
            id="called inside",
        ),
        pytest.param(
            "def score_all(pod, nodes):\n"
            "    def score(node):\n        return node.pod_count\n"
            "    return [1 for _ in nodes]\n",
            [],
            id="not given what the hook is",
        ),
    ],
)
def test_a_hook_inside_another_function_is_told(text: str, want: list[tuple[str, int]]) -> None:
    """It ran without a word, and its rule held for no pod."""
    problems = [f.problem for f in lint_files({"x.star": text}) if f.lint == "unused-hook"]
    assert [(one.severity, one.line) for one in problems] == want
    assert not check_files({"x.star": text})


def test_a_function_that_another_file_loads_may_return_one_called_like_a_hook() -> None:
    library = f"def make():\n{_INNER}    return filter\n"
    loads = 'load("x.star", "make")\n_fits = make()\n'
    assert found(library, y=loads + PLAIN_FILTER) == []


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(
            "def queue_key(pod):\n    pod.priority\n", ["1: missing-return", "2: no-effect"]
        ),
        pytest.param(
            "def queue_key(pod):\n    if pod.priority:\n        return 1\n", ["1: missing-return"]
        ),
        pytest.param(
            "def victim_key(pod):\n    if pod.priority:\n        return 1\n", ["1: missing-return"]
        ),
        pytest.param("def victim_key(pod):\n    return None\n", []),
        pytest.param(
            in_filter("if node.unschedulable:", "    return 'no'"), [], id="a filter fits"
        ),
        pytest.param(
            in_filter("if node.unschedulable:", "    unresolvable('no')", "return None"),
            ["3: no-effect"],
            id="a verdict that nobody takes",
        ),
        pytest.param(in_filter("'Says what it does.'", "return None"), [], id="a docstring"),
        pytest.param(
            in_filter("if node.unschedulable:", "    'no'", "return None"),
            ["3: no-effect"],
            id="a reason that nobody takes",
        ),
        pytest.param(
            "def normalize(score, over):\n    if over.max:\n        return 1\n    fail('odd')\n"
            "def score(pod, node):\n    return 1\n",
            [],
            id="a way that fails",
        ),
    ],
)
def test_an_answer_that_is_not_given_is_told(text: str, want: list[str]) -> None:
    """It passed, and hooks failed for every pod or had nothing to say."""
    assert found(text) == want


_COUNTER = "count_pods(None, labels = {'a': 'b'}, namespaces = ['x'])"
_TAKES = "def {0}(pod, node, counts):\n    return None if counts[{1}].here else None\n"


@pytest.mark.parametrize(
    ("counters", "taken", "want"),
    [
        pytest.param("return [C]", {"filter": 0, "score": 0}, [], id="for both"),
        pytest.param("return [C]", {"score": 1}, ["4: never-given"], id="one too many"),
        pytest.param("return [C] if pod.labels else []", {"score": 0}, [], id="or none"),
        pytest.param("return {'filter': [C]}", {"filter": 0}, [], id="for one"),
        pytest.param(
            "return {'filter': [C]}", {"filter": 0, "score": 0}, ["6: never-given"], id="not both"
        ),
        pytest.param(
            "return {'score': [C]}",
            {"filter": 0, "score": 0},
            ["4: never-given"],
            id="the other way round",
        ),
        pytest.param(
            "return {'filter': [C], 'score': [C]}",
            {"score": 0},
            ["1: never-given"],
            id="for one that does not take them",
        ),
        pytest.param("return made(pod)", {"score": 7}, [], id="who knows"),
        pytest.param(
            "found = {}; found['scores'] = [C]; return found",
            {"score": 0},
            ["2: wrong-return"],
            id="a key that is set",
        ),
    ],
)
def test_counters_that_a_hook_is_not_given_are_told(
    counters: str, taken: dict[str, int], want: list[str]
) -> None:
    """They passed, and failed where they were asked for: `Index 0 is out of bound`."""
    text = f"def counters(pod):\n    {counters.replace('C', _COUNTER)}\n"
    text += "".join(_TAKES.format(hook, index) for hook, index in taken.items())
    library = f"def made(pod):\n    return [{_COUNTER}] * 9\n"
    if "made" in text:
        text += 'load("made.star", "made")\n'
    assert found(text, made=library) == want


@pytest.mark.parametrize(
    ("before", "use", "is_told"),
    [
        pytest.param("", "state.a", True, id="nobody keeps any"),
        pytest.param("return state(b = 1)", "state.a", True, id="another field"),
        pytest.param("return state(a = 1)", "state.a", False, id="the field"),
        pytest.param("return None", "state.a", True, id="a pre-filter that keeps none"),
        pytest.param("return None", "state and state.a", False, id="asked before"),
        pytest.param("return made()", "state.a", False, id="by another file"),
        pytest.param("return _own()", "state.a", False, id="by a helper"),
        pytest.param("return state(**dict(a = 1))", "state.a", False, id="of any names"),
        pytest.param("return only_nodes(['n'], state = state(a = 1))", "state.a", False, id="more"),
    ],
)
def test_a_field_of_the_state_that_nobody_keeps_is_told(
    before: str, use: str, is_told: bool
) -> None:
    """It passed, and failed on every node."""
    text = f'load("made.star", "made")\ndef filter(pod, node, state):\n    return str({use})\n'
    text += "def _own():\n    made()\n    return state(a = 1)\n" if "_own" in before else ""
    text += f"def pre_filter(pod):\n    {before}\n" if before else ""
    findings = lint_files({"x.star": text, "made.star": "def made():\n    return state(a = 1)\n"})
    told = [f.problem for f in findings if f.lint == "never-given"]
    assert [(p.line, p.severity) for p in told] == [(3, "error")] * is_told


@pytest.mark.parametrize(
    ("kept", "lines", "is_told"),
    [
        pytest.param("None", ["return 'no' if state.a else None"], True, id="at once"),
        pytest.param("None", ["n = node.pod_count", "return str(state.a + n)"], True, id="later"),
        pytest.param("None", ["for a in state.a:", "    return a"], True, id="in a loop"),
        pytest.param("None", ["return 'no' if node.name and state.a else None"], False, id="after"),
        pytest.param(
            "None", ["if not pod.labels:", "    return None", "return state.a"], False, id="guarded"
        ),
        pytest.param("None", ["return state.a if state else None"], False, id="asked"),
        pytest.param("None", ["return [state.a for _ in pod.labels]"], False, id="for each label"),
        pytest.param("skip()", ["return state.a"], False, id="not asked then"),
        pytest.param("_kept()", ["return state.a"], False, id="by a helper"),
    ],
)
def test_a_state_that_is_none_for_some_pods_is_told(
    kept: str, lines: list[str], is_told: bool
) -> None:
    """It passed, and no pod without a label was placed: the filter failed on every node."""
    text = "def filter(pod, node, state):\n" + "".join(f"    {line}\n" for line in lines)
    text += "def pre_filter(pod):\n    if pod.priority > 3:\n        return state(a = 'x')\n"
    text += f"    return {kept}\n\ndef _kept():\n    return state(a = 'y')\n"
    findings = [f for f in lint_files({"x.star": text}) if f.lint == "wrong-type"]
    told = [
        f.problem for f in findings if "`state` is None where pre_filter()" in f.problem.message
    ]
    assert [p.severity for p in told] == ["warning"] * is_told


@pytest.mark.parametrize(
    ("line", "want"),
    [
        pytest.param("n = node.taints['a']", "wrong-type", id="a list by a key"),
        pytest.param("n = node.taints[0]", None, id="a list by a place"),
        pytest.param("n = node.labels.get('a', 0)", "wrong-type", id="a default of another type"),
        pytest.param("n = node.labels.get('a', '')", None, id="a default of the type"),
        pytest.param("n = node.allocatable.get('a') + 1", "wrong-type", id="None plus 1"),
        pytest.param("n = parse_int('3') > 1", "wrong-type", id="a number that is none"),
        pytest.param("n = parse_int('3', 0) > 1", None, id="a number, or else"),
        pytest.param(
            "n = node.allocatable.get('a') + 1 if 'a' in node.allocatable else 0",
            None,
            id="asked before",
        ),
        pytest.param("n = 3 // node.allocatable.get('a', 0)", "zero-division", id="by a default"),
        pytest.param("m = node.allocatable.get('a', 0); n = 3 // m", "zero-division", id="later"),
        pytest.param(
            "m = node.allocatable.get('a', 0); n = 3 // m if m else 0", None, id="asked for 0"
        ),
        pytest.param("n = 3 // max(1, node.allocatable.get('a', 0))", None, id="at least 1"),
        pytest.param("n = 3 % node.pod_count", "zero-division", id="an empty node"),
        pytest.param("n = '%d' % node.pod_count", None, id="formatting"),
    ],
)
def test_numbers_that_are_not_there_are_told(line: str, want: str | None) -> None:
    """They passed, and failed on the first node that lacks them."""
    got = found(in_filter(line, "return str(n)"))
    assert got == ([] if want is None else [f"2: {want}"])


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        pytest.param(["return pod.owner.kind"], ["2"], id="a field of None"),
        pytest.param(["x = pod.owner", "return x.kind + x.name"], ["3"], id="by a variable"),
        pytest.param(["if pod.owner:", "    return pod.owner.kind"], [], id="asked before"),
        pytest.param(["x = pod.owner", "return x.kind if x != None else None"], [], id="compared"),
        pytest.param(["return str(len(pod.node_affinity.required or []))"], ["2"], id="affinity"),
        pytest.param(["return node.facts['a'].text"], ["2"], id="a fact"),
        pytest.param(["return _kind(pod.owner)"], [], id="handed on"),
    ],
)
def test_a_field_of_what_may_be_none_is_told(lines: list[str], want: list[str]) -> None:
    """It passed, and failed on the first pod without an owner."""
    helper = "def _kind(owner):\n    return owner.kind\n"
    text = in_filter(*lines) + (helper if "_kind" in lines[0] else "")
    assert found(text) == [f"{line}: wrong-type" for line in want]


def test_the_group_of_a_pod_may_be_none() -> None:
    text = "def pre_enqueue(pod, group):\n    return 'no' if {}group.pod_count < 3 else None\n"
    assert found(text.format("")) == ["2: wrong-type"]
    assert found(text.format("group != None and ")) == []


@pytest.mark.parametrize(
    ("lines", "is_told"),
    [
        pytest.param(["return ['no' for t in node.taints]"], True, id="made at once"),
        pytest.param(["x = []", "x.append('no')", "return x"], True, id="filled"),
        pytest.param(["x = []", "x.append('no')", "return x or None"], False, id="or None"),
        pytest.param(["x = []", "if x:", "    return x"], False, id="asked before"),
        pytest.param(["return []"], True, id="empty"),
        pytest.param(["return ['no']"], False, id="one"),
    ],
)
def test_an_empty_list_of_reasons_is_told(lines: list[str], is_told: bool) -> None:
    """It passed, and each pod lost its attempt on the first node where it fits."""
    assert [one.split(": ")[1] for one in found(in_filter(*lines))] == ["wrong-return"] * is_told


def test_counters_and_counts_are_lists() -> None:
    text = f"def counters(pod):\n    return {_COUNTER}\n"
    text += "def score(pod, node, counts):\n    return min(100, counts.total)\n"
    assert found(text) == ["2: wrong-return", "4: wrong-type"]


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        pytest.param("return 100 * score // over.max", True, id="where all scores are 0"),
        pytest.param("return score // (over.max - over.min)", True, id="where all are equal"),
        pytest.param("return 0 if over.max == 0 else 100 * score // over.max", False, id="asked"),
        pytest.param(
            "if over.max == over.min: return 1\n    return score // (over.max - over.min)",
            False,
            id="asked if all are equal",
        ),
        pytest.param("return score // over.count", False, id="there is one"),
    ],
)
def test_scores_that_are_all_alike_are_thought_of(line: str, is_told: bool) -> None:
    text = f"def score(pod, node):\n    return 1\ndef normalize(score, over):\n    {line}\n"
    assert [one.split(": ")[1] for one in found(text)] == ["zero-division"] * is_told


def test_a_default_that_is_changed_is_told() -> None:
    helper = "def _f(x = []):\n    x.append(1)\n    return str(x)\n"
    assert found(in_filter("return _f()") + helper) == ["4: kept-value"]
    assert found(in_filter("return _f()") + helper.replace("x.append", "x = []; x.append")) == []


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


_HOOK_OF = {
    "wait": "def permit(pod, group):\n    _ = group\n    return {0}\n",
    "only_nodes": "def pre_filter(pod):\n    return {0}\n",
    "reject": "def pre_filter(pod):\n    return {0}\n",
    "unresolvable": "def pre_filter(pod):\n    return {0}\n",
    "gang": "def group_of(pod):\n    return {0}\n"
    "def pre_enqueue(pod, group):\n    return 'no' if group else None\n",
    "count_pods": "def counters(pod):\n    return [{0}]\n"
    "def filter(pod, node, counts):\n    return 'no' if counts[0].total > 3 else None\n",
    "count_terms": "def counters(pod):\n    return [{0}]\n"
    "def filter(pod, node, counts):\n    return 'no' if counts[0].total > 3 else None\n",
}
_AMONG = "def among_x(pod, node):\n    return True\n"


@pytest.mark.parametrize(
    ("call", "want"),
    [
        ("wait('10s')", "wait() wants `seconds` to be a number of seconds above 0, got a text"),
        ("wait(0)", "wait() wants `seconds` to be a number of seconds above 0, got `0`"),
        ("wait(-1.5)", "above 0, got `-1.5`"),
        ("wait(10, reason = 3)", "wants `reason` to be a reason or a list of reasons, got an int"),
        ("wait(10, ['a', 3])", "each a text, got an int: `3`"),
        ("wait(10 if pod.labels else '10s')", 'got a text: `"10s"`'),
        ("only_nodes('a')", 'wants `names` to be a list of node names, got a text: `"a"`'),
        ("only_nodes(pod.name)", "a list of node names, got a text: `pod.name`"),
        ("only_nodes(['a', pod.priority])", "each a text, got an int: `pod.priority`"),
        ("only_nodes(['a'], state = {'a': 1})", "to be state(...) or None, got a dict"),
        ("only_nodes(None)", "got None"),
        ("reject(3)", "reject() wants a reason or a list of reasons, got an int: `3`"),
        ("unresolvable('')", "unresolvable() wants a reason or a list of reasons, got an empty te"),
        ("unresolvable([])", "got an empty list"),
        ("gang('', 3)", "gang() wants `name` to be a text that is not empty, got an empty text"),
        ("gang('a', '3')", "gang() wants `min_count` to be an int of at least 0 or None, got a te"),
        ("gang('a', -1)", "gang() wants `min_count` to be an int of at least 0 or None, got `-1`"),
        ("count_pods('z', labels = pod.labels)", "wants `namespaces` beside `labels`"),
        ("count_pods('z', namespaces = ['a'])", "wants `labels` beside `namespaces`"),
        ("count_pods('z')", "wants `labels` and `namespaces`, or `selectors`"),
        ("count_pods('z', labels = {}, namespaces = 'a')", "a list of namespaces, got a text"),
        ("count_pods('z', [], weight = 1.5)", "wants `weight` to be an int, got a fraction: `1.5`"),
        ("count_pods('z', [], among = among_x)", 'the name of a function, such as "among_x", go'),
        ("count_pods('z', [], among = 'among_y')", "no function `among_y` of this file says which"),
        ("count_pods('z', [pods_in('a', {})])", "pods_in() wants `namespaces` to be a list of"),
        ("count_terms('required')", "count_terms() wants one of `required_affinity`, `required_an"),
        ("wait(1.5, ['a', 'b'])", None),
        ("wait(parse_int(pod.labels.get('t'), 30))", None),
        ("only_nodes(['a'], state = state(a = 1))", None),
        ("only_nodes(sorted(pod.labels))", None),
        ("only_nodes(pod.labels)", None),
        ("only_nodes([])", None),
        ("reject(['a', 'b'])", None),
        ("reject(pod.labels.get('why') or 'no')", None),
        ("gang(pod.name, min_count = None)", None),
        ("count_pods(None, [], 'a' and pod.labels, [pod.namespace], among = 'among_x')", None),
        ("count_pods('z', [pods_in([], pod.spread_selector, {})], keys = ('a',))", None),
        ("count_terms(kind = 'required_affinity', weight = 2, up_to = 0)", None),
    ],
)
def test_an_argument_that_a_built_in_never_takes_is_told(call: str, want: str | None) -> None:
    """They passed, and each pod lost its attempt: `wait() wants a number of seconds`."""
    text = _HOOK_OF[call.partition("(")[0]].format(call) + (_AMONG if "among_x" in call else "")
    got = [f.problem for f in lint_files({"x.star": text}) if f.lint == "wrong-type"]
    assert [one.severity for one in got] == ([] if want is None else ["error"])
    assert all(str(want) in one.message for one in got)


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ("parse_int(node.pod_count, 0)", "wants `text` to be a text, got an int: `node.pod_count`"),
        ("int(node.labels)", "int() wants a number or a text, got a dict: `node.labels`"),
        ("int(None)", "int() wants a number or a text, got None"),
        ("len(node.pod_count)", "len() wants a text, a list or a dict, got an int"),
        ("range(pod.containers)", "range() wants an int, got a list: `pod.containers`"),
        ("range(node.pod_count / 2)", "range() wants an int, got a fraction"),
        ("math.round(3.5, 2)", "math.round() takes 1 argument, got 2"),
        ("math.clamp(3, 2)", "math.clamp() takes 3 arguments, got 2"),
        ("math.log(3, 2) + math.pow(2, 3)", None),
        ("math.sqrt(pod.name)", "math.sqrt() wants a number, got a text: `pod.name`"),
        ("max(node.pod_count)", "max() wants a list or a dict, got an int: `node.pod_count`"),
        ("matches('a', pod.labels)", "wants `selector` to be a selector or a dict of labels, got"),
        ("sorted(pod.name)", "sorted() wants a list or a dict, got a text: `pod.name`"),
        ("_listed('a')", None),
        ("_same(node)", None),
        ("max(node.pod_count, 3)", None),
        ("max([1, 2], key = _same)", None),
        ("int('3') + int(True) + int(3.5)", None),
        ("parse_int(None, 3)", None),
        ("len('abc') + len((1, 2)) + len(pod.labels)", None),
        ("sorted(pod.requests)", None),
        ("matches(None, {})", None),
        ("[len(len) for len in ['a']]", None),
    ],
)
def test_an_argument_that_starlark_never_takes_is_told(value: str, want: str | None) -> None:
    text = f"def filter(pod, node):\n    return 'no' if {value} else None\n"
    # It asks what it is given, so no call of it is told.
    text += "def _listed(x):\n    return [x] if type(x) == 'string' else list(x)\n"
    text += (
        "def _same(x):\n    return x\ndef queue_key(pod):\n    return str(_listed([_same(1)]))\n"
    )
    got = [f.problem for f in lint_files({"x.star": text}) if f.lint == "wrong-type"]
    assert [(one.line, one.severity) for one in got] == ([] if want is None else [(2, "error")])
    assert all(str(want) in one.message for one in got)


def test_a_function_that_is_named_after_a_built_in_takes_what_it_likes() -> None:
    load = 'load("y.star", "wait")\n'
    text = "def filter(pod, node):\n    return wait(node.name)\n"
    wait = "def wait(x):\n    return 'no' if x else None\n"
    assert found(load + text, y=wait) == ["1: shadowed-name"]
    assert found(text + wait) == ["3: shadowed-name"]


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        pytest.param(["return int(node.labels.get('a'))"], ["2"], id="made an int"),
        pytest.param(["x = node.labels.get('a')", "return int(x)"], ["2"], id="by a variable"),
        pytest.param(["return int(float(pod.labels.get('a')))"], ["2"], id="made a fraction"),
        pytest.param(["return int(node.labels.get('a', None))"], ["2"], id="None as a default"),
        pytest.param(["return min(9, node.allocatable.get('gpu'))"], ["2"], id="a bound"),
        pytest.param(["return int('1' + node.labels.get('a'))"], ["2"], id="a text put together"),
        pytest.param(["return 1 if node.labels.get('a').isdigit() else 0"], ["2"], id="a method"),
        pytest.param(["return 1 if 'x' in node.labels.get('a') else 0"], ["2"], id="a part of it"),
        pytest.param(["return int(node.labels.get('a')[0])"], ["2"], id="a letter of it"),
        pytest.param(["return int(pod.start_time) % 9"], ["2"], id="a number that is not there"),
        pytest.param(["return int(parse_int(pod.name)) % 9"], ["2"], id="parsed"),
        pytest.param(["return _of(node)"], ["6"], id="in a helper"),
        pytest.param(["return int(node.labels.get('a') or '0')"], [], id="or else"),
        pytest.param(["return int(node.labels.get('a', '0'))"], [], id="a default"),
        pytest.param(
            ["x = node.labels.get('a')", "return int(x) if x else 0"], [], id="asked before"
        ),
        pytest.param(
            ["return int(node.labels.get('a')) if 'a' in node.labels else 0"], [], id="asked by key"
        ),
        pytest.param(
            ["x = node.labels.get('a') if node.labels else '3'", "return int(x)"], [], id="asked"
        ),
        pytest.param(
            ["x = node.labels.get('a')", "x = x or '3'", "return int(x)"], [], id="set again"
        ),
        pytest.param(["return int(node.labels.get('left out'))"], [], id="by the filter"),
        pytest.param(["return int(node.labels.get(_KEY))"], [], id="by a helper of the filter"),
        pytest.param(
            ["return int(node.labels.get('b')) if has(node) else 0"], [], id="by another file"
        ),
        pytest.param(["return _read(node, 'a') if node.name else 0"], [], id="by who calls it"),
        pytest.param(["return int('%s' % node.labels.get('a') == '')"], [], id="filled in"),
    ],
)
def test_what_is_not_there_for_some_is_told(lines: list[str], want: list[str]) -> None:
    """They passed, and failed on the first node without the label."""
    text = "def score(pod, node):\n" + "".join(f"    {line}\n" for line in lines)
    if "_of" in text:
        text += "\n\ndef _of(n):\n    return int(n.labels.get('k'))\n"
    if "_read" in text:
        text += "def _read(n, key):\n    return int(n.labels.get(key))\n"
    if "left out" in text:
        text += in_filter("return None if 'left out' in node.labels else 'no'")
    if "_KEY" in text:
        text += "_KEY = 'k'\n" + in_filter("return None if _has(node.labels, _KEY) else 'no'")
        text += "def _has(labels, key):\n    return key in labels\n"
    if "has(node)" in text:
        text += "load('y.star', 'has')\n"
    other = "def has(node):\n    return 'b' in node.labels\n"
    assert found(text, y=other) == [f"{line}: wrong-type" for line in want]


@pytest.mark.parametrize(
    ("asked", "used"),
    [
        ("pod.owner == None", "1 if pod.owner.kind == 'Job' else 0"),
        ("node.facts['x'] == None or node.facts['x'].value == None", "node.facts['x'].value % 9"),
        ("pod.start_time == None", "pod.start_time % 9"),
    ],
)
def test_what_a_filter_asks_for_a_score_need_not(asked: str, used: str) -> None:
    """It was told of a score that no node comes to for which it would fail."""
    score = f"def score(pod, node):\n    return {used}\n"
    assert found(in_filter(f"return 'no' if {asked} else None") + score) == []
    assert {one.split(": ")[1] for one in found(score)} == {"wrong-type"}


@pytest.mark.parametrize(
    ("score", "helper", "want"),
    [
        pytest.param("return _f(node)", "return 1000", [("5", "error")], id="a constant"),
        pytest.param(
            "return _f(node)",
            "return math.clamp(node.pod_count, 0, 1000)",
            [("5", "warning")],
            id="clamped too wide",
        ),
        pytest.param("return _f(node)", "return _g(node)", [("8", "warning")], id="two deep"),
        pytest.param("return 100 - _f(node)", "return node.pod_count", [("2", "warning")], id="a"),
        pytest.param(
            "return _f(node.pod_count)", "return node * 10", [("5", "warning")], id="its argument"
        ),
        pytest.param("x = _f(node); return x", "return node.pod_count", [("2", "warning")], id="x"),
        pytest.param("return _MOST", "return node", [("2", "error")], id="a constant of the file"),
        pytest.param(
            "return _f(node) if pod.labels else 3", "return -1", [("5", "error")], id="one branch"
        ),
        pytest.param("return _f(node) // 10", "return 1000", [], id="made smaller"),
        pytest.param("return min(100, _f(node))", "return node.pod_count", [], id="bounded"),
        pytest.param("return _f(node)", "return min(100, node.pod_count)", [], id="in itself"),
        pytest.param(
            "x = _f(node); return x if x < 100 else 100", "return node.pod_count", [], id="asked"
        ),
        pytest.param(
            "return 0 if node.pod_count > 100 else _f(node)",
            "n = node\n    return 100 - n.pod_count",
            [],
            id="asked for by the caller",
        ),
        pytest.param(
            "n = node.pod_count; return 0 if n > 100 else _f(node)",
            "return 100 - node.pod_count",
            [],
            id="asked for by the caller, by a name",
        ),
        pytest.param("return _f(node, False)", "return 1000 if b else 3", [], id="by a flag"),
        pytest.param("return _f(node)", "return 1000 if b else 3", [], id="by a default"),
        pytest.param("return _f(node)", "if b: return 9\n    return 1000", [], id="by an if"),
        pytest.param("return _f(node)", "fail('no')", [], id="no answer"),
        pytest.param("return _f(node)", "return None", [], id="no score"),
        pytest.param("return _f(node)", "return pod_share(node)", [], id="of another file"),
        pytest.param("return _f(node.pod_count)", "node = 3; return node * 10", [], id="set anew"),
        pytest.param("return _f(3)", "return node * 10", [], id="small"),
        pytest.param("return 100 * _f(node) // _g(node)", "return node.pod_count", [], id="share"),
        pytest.param("_f = min; return _f(3, 4)", "return 1000", [], id="another of that name"),
    ],
)
def test_scores_are_followed_into_helpers(
    score: str, helper: str, want: list[tuple[str, str]]
) -> None:
    text = f"def score(pod, node):\n    {score}\n\ndef _f(node, b = True):\n    {helper}\n"
    text += "\ndef _g(node):\n    return node.pod_count\n_MOST = 1000\n"
    text += 'load("y.star", "pod_share")\n'
    files = {"x.star": text, "y.star": "def pod_share(node):\n    return 1000\n"}
    got = [f.problem for f in lint_files(files) if f.lint == "score-range"]
    assert [(str(one.line), one.severity) for one in got] == want


def test_what_a_filter_leaves_out_is_no_score() -> None:
    text = "def score(pod, node):\n    return 100 - len(node.taints)\n"
    assert found(text) == ["2: score-range"]
    assert found(text + in_filter("return 'no' if len(node.taints) > 9 else None")) == []


def test_helpers_that_call_each_other_twice_are_looked_into_a_number_of_times() -> None:
    text = (
        "def score(pod, node):\n    return _f0(node)\ndef _f40(node):\n    return node.pod_count\n"
    )
    for n in range(40):
        text += f"def _f{n}(node):\n    return 1 + (_f{n + 1}(node) if node.name else "
        text += f"_f{n + 1}(node))\n"
    assert found(text) == []


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ("node.name.startWith('a')", "did you mean `startswith`?"),
        ("node.name.hasPrefix('a')", ""),
        ("node.name.contains('a')", 'whether it is there is `"x" in node.name`'),
        ("node.namespace", None),
        ("pod.namespace.name", ""),
        ("node.labels.has('a')", 'whether it is there is `"x" in node.labels`'),
        ("node.labels.Get('a')", "did you mean `get`?"),
        ("node.labels.size()", "how long it is: `len(node.labels)`"),
        ("node.labels.size", 'a key of it is read with `node.labels.get("size")`'),
        ("node.taints.length", "how long it is: `len(node.taints)`"),
        ("node.taints.add(1)", "did you mean `append`?"),
        ("node.taints.key", "an element of it is read with `node.taints[0]`"),
        ("','.join(sorted(node.labels)).upper()", None),
        ("node.labels.get('a', '').removeprefix('b')", None),
    ],
)
def test_methods_of_other_languages_are_told(value: str, want: str | None) -> None:
    """`node.name.startWith("a")` passed; `a key of it is read with .get("has")` was no help."""
    text = in_filter(f"return 'no' if {value} else None")
    got = [f.problem for f in lint_files({"x.star": text}) if f.lint == "wrong-type"]
    assert [one.hint for one in got] == ([] if want is None else [want])
    assert all(one.severity == "error" for one in got)


def test_the_methods_of_texts_are_those_that_the_interpreter_knows() -> None:
    module, text = starlark.Module(), 'dir("")'
    got: Any = starlark.eval(module, starlark.parse("x.star", text), starlark.Globals.standard())
    assert set(got) == values._TEXT_METHODS


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("pass", True),
        ("return False", True),
        ("nodes = cluster(make_node('a')); make_pod() == nodes", True),
        ("asserts.fits", True),
        ("_made()", True),
        ("asserts.fits(cluster(make_node('a')), make_pod())", False),
        ("_asked()", False),
        ("[_asked() for _ in [1]]", False),
        ("check = asserts.fits; check(cluster(make_node('a')), make_pod())", False),
        ("fail('not yet')", False),
        ("judge(cluster(make_node('a')), make_pod())", False),
    ],
)
def test_a_test_that_asserts_nothing_is_told(body: str, is_told: bool) -> None:
    """It passed, whatever the policy does."""
    text = (
        'load("@std/testing.star", "asserts", "cluster", "judge", "make_node", "make_pod")\n'
        f"def test_it():\n    {body}\n"
        "def _asked():\n    asserts.equal(1, 1)\ndef _made():\n    return make_node('a')\n"
    )
    findings = lint_files({"x.star": PLAIN_FILTER, "x_test.star": text})
    got = [f.problem for f in findings if "asserts nothing" in f.problem.message]
    assert [(one.line, one.severity) for one in got] == [(2, "warning")] * is_told


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ("node.labels('a')", "`node.labels` is a dict and no function"),
        ("node.unschedulable()", "`node.unschedulable` is True or False and no function"),
        ("pod.name()", "`pod.name` is a text and no function"),
        ("pod['name']", "`pod` is a struct: its fields are read by their names"),
        ("node.taints[0]['key']", "`node.taints[0]` is a struct: its fields are read by their"),
        ("node.labels.get['a']", "`node.labels.get` is a function and has no elements"),
        ("counts[0]['here']", "`counts[0]` is a struct: its fields are read by their names"),
        ("'a' in pod.name or 'b'", '`"b"` is a text, so the condition always holds'),
        ("node.labels.get('a', '')", None),
        ("node.taints[0].key", None),
        ("pod.name[0]", None),
        ("pod.name[1:]", None),
        ("node.labels.get('a', '')[0]", None),
        ("[f(3) for f in [str, repr]]", None),
        ("(lambda x: x)(3)", None),
        ("'a' in (pod.name or 'b')", None),
        ("struct(f = str).f(3)", None),
    ],
)
def test_a_value_that_is_used_in_the_place_of_another_is_told(value: str, want: str | None) -> None:
    """They passed, and failed once a pod came."""
    text = f"def counters(pod):\n    return [{_COUNTER}]\n"
    text += "def filter(pod, node, counts):\n    if counts[0].total > 9:\n        return 'full'\n"
    text += f"    return 'no' if {value} else None\n"
    got = [f.problem for f in lint_files({"x.star": text}) if f.lint == "wrong-type"]
    assert [one.line for one in got] == ([] if want is None else [6])
    assert all(one.message.startswith(str(want)) for one in got)


@pytest.mark.parametrize("answer", ["{}", "1 + {}", "100 - {} // 2"])
def test_a_long_chain_of_helpers_is_followed_as_far_as_the_stack_allows(answer: str) -> None:
    text = "def score(pod, node):\n    return _f0(node)\ndef _f900(node):\n    return 1000\n"
    for n in range(900):
        text += f"def _f{n}(node):\n    return {answer.format(f'_f{n + 1}(node)')}\n"
    assert found(text) == []


@pytest.mark.parametrize(
    "deep",
    ["node" + ".x" * 400 + "(3)", "node.labels" + ".get('a')" * 200, "wait(1" + " + 1" * 400 + ")"],
)
def test_what_nests_too_deep_for_a_lint_ends_none_of_the_others(deep: str) -> None:
    """It ended `check` with `RecursionError`."""
    text = f"_A = 1\ndef score(pod, node):\n    return {deep}\n"
    assert "unused-variable" in {one.lint for one in lint_files({"x.star": text})}
