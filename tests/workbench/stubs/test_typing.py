"""Which types expressions surely have, and where none is known."""

import ast

import pytest

from engine.language.syntax import parse, walk
from engine.policy.views import SCHEMA
from workbench.stubs.typing import FileTypes


def _type_of(text: str, expression: str, *, is_open: bool = False) -> str:
    """The type of *expression*, which stands somewhere in a function of *text*."""
    types = FileTypes("x.star", text, SCHEMA, {"filter", "score"}, is_open=is_open)
    tree = parse(text)
    assert tree is not None
    (found, *_) = [
        node
        for node in walk(tree)
        if isinstance(node, ast.expr) and ast.unparse(node) == expression
        if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    ]
    return types.of(found)


def _in_score(body: str) -> str:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    return f"def score(pod, node, counts):\n{lines}"


@pytest.mark.parametrize(
    ("body", "expression", "want"),
    [
        pytest.param("return pod.labels", "pod.labels", "dict[str, str]", id="a field"),
        pytest.param("return pod.labels.get('a')", "pod.labels.get('a')", "str?", id="get"),
        pytest.param(
            "return pod.labels.get('a', 'b')", "pod.labels.get('a', 'b')", "str", id="a default"
        ),
        pytest.param("return [t.key for t in node.taints]", "t", "Taint", id="an element"),
        pytest.param("return [v for k, v in pod.requests.items()]", "v", "int", id="a value"),
        pytest.param("return [k for k, v in pod.requests.items()]", "k", "str", id="a key"),
        pytest.param("return pod.owner", "pod.owner", "Owner?", id="what may be None"),
        pytest.param("x = 1\nx = None\nreturn x", "x", "none", id="what was set last"),
        pytest.param("x = 1\nif pod.uid:\n    x = 'a'\nreturn x", "x", "", id="an int or a text"),
        pytest.param("x = 1\nx += 2\nreturn x", "x", "int", id="a sum"),
        pytest.param("x = 1 + 2.0\nreturn x", "x", "float", id="an int and a float"),
        pytest.param("x = 1 / 2\nreturn x", "x", "float", id="a quotient"),
        pytest.param(
            "return node.facts['a'].value * 2", "node.facts['a'].value * 2", "", id="fact"
        ),
        pytest.param("x = '%s' % pod\nreturn x", "x", "str", id="a format string"),
        pytest.param("x = math.floor(1.5)\nreturn x", "x", "int", id="a builtin of a library"),
        pytest.param("x = parse_int('a', 0)\nreturn x", "x", "int", id="a builtin with a default"),
        pytest.param("x = parse_int('a')\nreturn x", "x", "int?", id="and without one"),
        pytest.param("return sorted(pod.labels)[0]", "sorted(pod.labels)[0]", "str", id="sorted"),
        pytest.param("x = []\nx.append(1)\nreturn x[0]", "x[0]", "", id="a list that grows"),
        pytest.param(
            "return pod.name.find('a')", "pod.name.find('a')", "int", id="a text's method"
        ),
        pytest.param("x = pod.name.split('-')[0]\nreturn x", "x", "str", id="a part of a text"),
        pytest.param(
            "x, _, z = pod.name.partition('-')\nreturn x + z", "x + z", "str", id="a partition"
        ),
        pytest.param("return counts[0].here", "counts[0].here", "int?", id="a field of a counter"),
        pytest.param("return counts[0]", "counts[0]", "@counts", id="a counter"),
        pytest.param("return reject('no')", "reject('no')", "verdict", id="a verdict"),
        pytest.param("x = lambda y: y\nreturn x", "x", "function", id="a function"),
        pytest.param("return pod.manifest['a']", "pod.manifest['a']", "", id="anything"),
    ],
)
def test_types_of_expressions(body: str, expression: str, want: str) -> None:
    assert _type_of(_in_score(body), expression) == want


_OWNER = "x = pod.owner\n"
_EITHER = "x = 1 if pod.uid else pod.name\n"


@pytest.mark.parametrize(
    ("body", "expression", "want"),
    [
        pytest.param(
            "x = 1\nif pod.uid:\n    x = None\nreturn x", "x", "int?", id="where two ways meet"
        ),
        pytest.param(
            "x = 'a'\nif pod.uid:\n    x = 1\n    return 0\nreturn x",
            "x",
            "str",
            id="a way that ends",
        ),
        pytest.param(
            "x = 'a'\nif pod.uid:\n    x = 1\n    fail('no')\nreturn x", "x", "str", id="a failure"
        ),
        pytest.param(
            "x = None\nfor n in [1]:\n    y = x\n    x = 1\nreturn 0",
            "x",
            "int?",
            id="a round before",
        ),
        pytest.param(
            "x = 'a'\nfor n in [1]:\n    if n:\n        x = 1\n        break\n    x = 2\nreturn x",
            "x",
            "",
            id="a loop of which nothing need run",
        ),
        pytest.param(
            "x = 1\nfor n in [1]:\n    x = 'a'\n    if n:\n        x = 2\n        continue\n"
            "    x = 3\nreturn x",
            "x",
            "int",
            id="what a round leaves",
        ),
        pytest.param(
            _OWNER + "if x == None:\n    return 0\ny = x\nreturn y", "y", "Owner", id="asked before"
        ),
        pytest.param(_OWNER + "return [y for y in [x] if y]", "y", "Owner?", id="asked afterwards"),
        pytest.param(
            _OWNER + "y = x and x.kind\nz = [x][0] if x else 1\nreturn z",
            "x.kind",
            "str",
            id="asked in the expression",
        ),
        pytest.param(
            _OWNER + "if not x or pod.uid:\n    return 0\ny = x\nreturn y", "y", "Owner", id="by or"
        ),
        pytest.param(
            _OWNER + "if x or pod.uid:\n    y = x\n    return y\nreturn 0",
            "y",
            "Owner?",
            id="not by or",
        ),
        pytest.param(
            _EITHER + "if type(x) == 'string':\n    y = x\n    return y\nreturn 0",
            "y",
            "str",
            id="a kind",
        ),
        pytest.param(
            _EITHER + "if type(x) in ('string', 'NoneType'):\n    return 0\ny = x\nreturn y",
            "y",
            "int",
            id="none of some kinds",
        ),
        pytest.param(
            "x = pod.manifest['a']\ny = type(x) == 'int' and [x][0]\nreturn y",
            "[x][0]",
            "",
            id="a list that may grow",
        ),
        pytest.param(
            "x = pod.manifest['a']\nif type(x) != 'int':\n    return 0\ny = x\nreturn y",
            "y",
            "int",
            id="a kind of anything",
        ),
        pytest.param(
            "x = pod.manifest['a']\nif x != None:\n    return 0\ny = x\nreturn y",
            "y",
            "none",
            id="nothing else than None",
        ),
        pytest.param(
            _EITHER + "if type(x) in 'strings':\n    y = x\n    return y\nreturn 0",
            "y",
            "",
            id="a part of a text",
        ),
        pytest.param(
            "type = lambda x: 'string'\n"
            + _EITHER
            + "if type(x) == 'string':\n    y = x\n    return y\nreturn 0",
            "y",
            "",
            id="another function of that name",
        ),
        pytest.param(
            "x = 1\nf = lambda: x\nx = 'a'\nreturn f()", "f()", "", id="a function sees all of it"
        ),
        pytest.param(
            "x = 1\nf = lambda y = x: y\nx = 'a'\nreturn f()", "f()", "int", id="a default does not"
        ),
    ],
)
def test_types_follow_the_order_of_statements(body: str, expression: str, want: str) -> None:
    assert _type_of(_in_score(body), expression) == want


def test_no_kind_is_known_where_the_file_has_a_type_of_its_own() -> None:
    body = _in_score(_EITHER + "if type(x) == 'string':\n    y = x\n    return y")
    assert _type_of(body, "y") == "str"
    assert _type_of("def type(x):\n    return 'string'\n\n" + body, "y") == ""


_HELPER = "def {name}(x):\n    return x\n\ndef score(pod, node):\n    return {name}(pod.uid)\n"


def test_parameters_of_a_private_function_have_the_types_of_all_its_calls() -> None:
    assert _type_of(_HELPER.format(name="_same"), "x") == "str"
    more = _HELPER.format(name="_same") + "\ndef filter(pod, node):\n    return _same(1)\n"
    assert _type_of(more, "x") == ""


def test_parameters_of_a_function_that_others_can_call_are_unknown() -> None:
    assert _type_of(_HELPER.format(name="same"), "x") == ""
    assert _type_of(_HELPER.format(name="_same"), "x", is_open=True) == ""
    passed_on = _HELPER.format(name="_same") + "\nALL = [_same]\n"
    assert _type_of(passed_on, "x") == ""


def test_a_call_has_the_type_of_what_the_function_returns() -> None:
    assert _type_of(_HELPER.format(name="_same"), "_same(pod.uid)") == "str"
    text = "def _some(pod):\n    if pod.priority:\n        return 1\n\n"
    text += "def score(pod, node):\n    return _some(pod)\n"
    assert _type_of(text, "_some(pod)") == "int?"


def test_a_function_that_is_never_called_is_looked_at_all_the_same() -> None:
    text = "def _idle(x):\n    y = 1\n    return y\n"
    assert _type_of(text, "y") == "int"
