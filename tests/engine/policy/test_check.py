"""What is wrong with policy files, found without running them."""

import pytest

from engine.policy.check import check_files
from engine.policy.file_names import MAX_BYTES, MAX_FILES


def _found(text: str, **others: str) -> list[str]:
    files = {"x.star": text, **{f"{stem}.star": other for stem, other in others.items()}}
    return [str(problem) for problem in check_files(files)]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("def f(:\n", "x.star:1:7: Parse error: unexpected symbol ':'", id="syntax"),
        pytest.param("for x in [1]: pass\n", "x.star:1:1: ", id="a loop at top level"),
        pytest.param("class A: pass\n", "x.star:1:1: ", id="Python"),
        pytest.param("x = " + "(" * 300 + ")" * 300, "x.star:1: too many nested", id="too deep"),
        pytest.param("x = '\udcff'\n", "x.star:1: want text", id="half a character"),
        pytest.param("x = 1\0", "x.star:1:6: ", id="a null"),
    ],
)
def test_text_that_does_not_parse(text: str, want: str) -> None:
    (problem,) = _found(text)
    assert problem.startswith(want)


@pytest.mark.parametrize(
    ("line", "want"),
    [
        pytest.param(
            "while True: pass", "1: Starlark has no `while`\nhint: write `for _", id="while"
        ),
        pytest.param("class A: pass", "1: Starlark has no `class`\nhint: `struct(", id="class"),
        pytest.param("import re", "1: Starlark has no `import`\nhint: `math` and", id="import"),
        pytest.param("from a import b", "1: Starlark has no `from`\nhint: `load(", id="from"),
        pytest.param("global x", "1: Starlark has no `global`\nhint: nothing is kept", id="global"),
        pytest.param("assert x", "1: Starlark has no `assert`\nhint: write `if not", id="assert"),
        pytest.param("raise x", '1: Starlark has no `raise`\nhint: `fail("why")`', id="raise"),
        pytest.param("x = y is None", "5: Starlark has no `is`\nhint: write `==`", id="is"),
        pytest.param(
            "x = y is not 1", "5: Starlark has no `is not`\nhint: write `!=`", id="is not"
        ),
        pytest.param('z = "é", y is 1', "10: Starlark has no `is`", id="a column in characters"),
        pytest.param("x = {1, 2}", "5: Starlark has no sets\nhint: a dict", id="a set"),
        pytest.param("x = any(y for y in z)", "8: Starlark has no generators", id="a generator"),
        pytest.param("x = 1 < y < 3", "5: Starlark has no chains of comparisons", id="a chain"),
        pytest.param("x = y ** 2", "5: Starlark has no `**`\nhint: write `math.pow", id="a power"),
        pytest.param("x = f'{y.z}'", "5: Starlark has no expressions in f-strings", id="f-string"),
        pytest.param("x = f'{y:>3}'", "5: Starlark has no expressions in f-str", id="a format"),
        pytest.param("x = [*y]", "5: Starlark has no `*` in lists\nhint: write `a + b`", id="star"),
        pytest.param("x = {**y}", "5: Starlark has no `**` in dicts\nhint: write `a |", id="stars"),
        pytest.param("x = y = 1", "1: Starlark has no `a = b = c`", id="two targets"),
        pytest.param("del x", "1: Starlark has no `del`\nhint: `values.pop(", id="del"),
        pytest.param("if (x := 1): pass", "5: Starlark has no `:=`", id="a walrus"),
        pytest.param("x = ('a'\n  'b')", "11: Parse error: unexpected string literal", id="texts"),
        pytest.param("\tpass", "1: tabs are not allowed\nhint: indent by four spaces", id="a tab"),
    ],
)
def test_what_only_python_has_is_reported_with_what_to_write_instead(line: str, want: str) -> None:
    first, *rest = line.split("\n")
    text = "\n".join(["def f(y, z):", first if first[0] == "\t" else f"    {first}", *rest, ""])
    (problem,) = _found(text)
    if rest:
        assert problem.startswith("x.star:3:3: Parse error: unexpected string literal")
        assert problem.endswith("\nhint: texts are joined by `+`")
        return
    column, _, message = want.partition(":")
    at = int(column) if first[0] == "\t" else int(column) + 4
    assert problem.startswith(f"x.star:2:{at}:{message}")


def test_all_that_only_python_has_is_reported_at_once() -> None:
    text = "import re\n@wraps\ndef f():\n    try:\n        return 1\n    except:\n        pass\n"
    assert [problem.partition("\n")[0] for problem in _found(text)] == [
        "x.star:1:1: Starlark has no `import`",
        "x.star:2:2: Starlark has no decorators",
        "x.star:4:5: Starlark has no `try`",
    ]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("def f()\n    pass\n", "x.star:1:8: Parse error: expected ':'", id="a colon"),
        pytest.param(
            "def f():\n    return 1\n\nx = (1,\n",
            "x.star:4:5: Parse error: '(' was never closed",
            id="the end of the text is not its first line",
        ),
        pytest.param(
            "def f():\n    x = 1\n      return x\n",
            "x.star:3:7: Parse error: unexpected indent",
            id="a line too far in",
        ),
        pytest.param(
            "def f(x):\n    if x:\n        pass\n    else if 1:\n        pass\n",
            "x.star:4:10: Parse error: expected ':'\nhint: write `elif`",
            id="else if",
        ),
        pytest.param(
            "x = a ? b\n", "x.star:1:7: Parse error: invalid input `?`", id="no language at all"
        ),
        pytest.param(
            "x = a && b\n",
            "x.star:1:8: Parse error: unexpected symbol '&' here\nhint: write `and`",
            id="without all that could stand there",
        ),
    ],
)
def test_what_is_not_python_either_is_reported_briefly(text: str, want: str) -> None:
    assert _found(text) == [want]


_BLOCK = "a block begins with `:` at the end of the line, and is indented"


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("if node.name == nil {", _BLOCK),
        ('if x { return "y" }', _BLOCK),
        ("}", _BLOCK),
        ("if x", ""),
        ("x = !y", "write `not`"),
        ("x = y || z", "write `or`"),
        ("x = y ? 1 : 2", "write `a if condition else b`"),
        ("x := 3", "a variable is set by `x = value`"),
        ("var x = 3", "a variable is set by `x = value`"),
        ("func f() {", "write `def name(parameters):`"),
        ("x++", "write `x += 1`, or `x -= 1`"),
        ("x = 3 // as is known", "a comment begins with `#`"),
        ("switch x {", "write `if`, `elif` and `else`"),
        ("if x = 3:", "`=` sets a variable; `==` compares"),
        ("x = “no”", 'texts are in straight quotes: `"`'),
        ('x = "a && b" c', ""),
        ("x = [1, 2", ""),
        ("x = {1: 2", ""),
        ("x = nil", "nothing is `None`"),
        (
            'x = strings.Contains(y, "a")',
            "ask the text: `x.startswith(...)`, `x.split(...)`, `y in x`",
        ),
    ],
)
def test_what_other_languages_write_is_reported_with_what_to_write_instead(
    line: str, want: str
) -> None:
    """It was `unexpected symbol '{' here`, and nothing more."""
    problems = check_files({"x.star": f"def f(node, y, z):\n    {line}\n"})
    assert [one.line for one in problems] == [2]
    assert problems[0].hint == want


def test_a_name_of_ones_own_hides_a_library() -> None:
    text = (
        "math = struct(sum = 1)\ndef _f(json): return json.loads\n"
        "def score(pod, node): return math.sum + math.pi\n"
    )
    assert check_files({"x.star": text}) == []


def test_a_test_without_its_loads_is_reported_with_what_to_load() -> None:
    """`cluster` was taken for `str`, and of `asserts` nothing was said."""
    text = "def test_it(): asserts.fits(cluster(), nodes)"
    assert [str(problem) for problem in check_files({"x_test.star": text})] == [
        "x_test.star:1:16: no `asserts` is defined\n"
        'hint: it is loaded: `load("@std/testing.star", "asserts")`',
        "x_test.star:1:29: no `cluster` is defined\n"
        'hint: it is loaded: `load("@std/testing.star", "cluster")`',
        "x_test.star:1:40: no `nodes` is defined\nhint: did you mean `only_nodes`?",
    ]


@pytest.mark.parametrize(
    "line",
    ["load = 1", "load += 1", "x = load", "x = load(1)", "x = [load for load in []]", "x = y.load"],
)
def test_the_name_that_only_starlark_keeps_for_itself_is_reported(line: str) -> None:
    """Who measures load calls a variable so, and heard that a "(" was expected."""
    (problem,) = _found(f"def f(y):\n    {line}\n")
    assert problem.endswith("\nhint: `load` is the word for loading files: take another name")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(
            "def filter(pod, nod): pass",
            [
                "x.star:1:1: filter() lacks the parameter `node`, want `def filter(pod, node)`",
                "x.star:1:17: filter() has no parameter `nod`, want `pod`, `node`, `state`, "
                "`counts` or `cluster`\nhint: did you mean `node`?",
            ],
            id="a misspelt parameter",
        ),
        pytest.param("def filter(node, pod): pass", [], id="the order is free"),
        pytest.param("def filter(pod, node, state, cluster): pass", [], id="with more"),
        pytest.param(
            "def score(pod, node, *rest): pass",
            ["x.star:1:23: score() cannot take `*` or `**` parameters"],
            id="rest parameters",
        ),
        pytest.param(
            "def score(pod, node, state = None): pass",
            ["x.star:1:30: parameters of score() cannot have defaults"],
            id="defaults",
        ),
        pytest.param(
            "def fliter(pod, node): pass",
            ["x.star:1:1: `fliter` is no hook, and nothing calls it\nhint: did you mean `filter`?"],
            id="a misspelt hook",
        ),
        pytest.param("def fliter(x): return x\ny = fliter(1)", [], id="a helper of such a name"),
        pytest.param("def _filter(pod): pass", [], id="a private function"),
        pytest.param("def default_normalize(x): pass", [], id="a name that is only akin"),
        pytest.param(
            "def score(pod, node): pass\ndef score(pod, node): pass",
            [
                "x.star:2:1: `score` is defined twice, at line 1 before\n"
                "hint: the interpreter would keep the last one in silence"
            ],
            id="a hook twice",
        ),
        pytest.param(
            "A = 1\nA = 2",
            [
                "x.star:2:1: `A` is defined twice, at line 1 before\n"
                "hint: the interpreter would keep the last one in silence"
            ],
            id="a constant twice",
        ),
        pytest.param(
            "def score(pod, node): return 1\ndef score_all(pod, nodes): return [1 for _ in nodes]",
            [
                "x.star:2:1: a policy has `score` or `score_all`, and this one has both\n"
                "hint: move one of them to a policy of its own"
            ],
            id="two scores",
        ),
        pytest.param(
            "filter = 3",
            [
                "x.star:1:1: `filter` is the name of a hook, "
                "want a function: `def filter(pod, node)`"
            ],
            id="a hook that is none",
        ),
    ],
)
def test_hooks_and_names(text: str, want: list[str]) -> None:
    assert _found(text + "\n") == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(
            "def score(pod, node): return node.alocatable",
            "x.star:1:35: `node` has no field `alocatable`\nhint: did you mean `allocatable`?",
            id="a field of a view",
        ),
        pytest.param(
            "def score(pod, node): return [t.efect for t in node.taints]",
            "x.star:1:33: `Taint` has no field `efect`\nhint: did you mean `effect`?",
            id="a field of a record",
        ),
        pytest.param(
            "def score(pod, node): return _f(node)\ndef _f(n): return n.lables",
            "x.star:2:21: `node` has no field `lables`\nhint: did you mean `labels`?",
            id="in a helper",
        ),
        pytest.param(
            'def score(pod, node):\n    e = "é"; pod.labels["ü"] = e\n',
            "x.star:2:14: pod.labels is changed: what a hook is given cannot be changed\n"
            "hint: copy it first: `dict(...)` or `list(...)`",
            id="a change, with columns in characters",
        ),
        pytest.param(
            "def score(pod, node): return scor(node)",
            "x.star:1:30: no `scor` is defined\nhint: did you mean `score`?",
            id="an undefined name",
        ),
        pytest.param(
            "def score(pod, node): return sum([1])",
            "x.star:1:30: no `sum` is defined\nhint: add in a loop: `for x in values: total += x`",
            id="what only Python has",
        ),
        pytest.param(
            "def score(pod, node): return cluster.node_count",
            "x.star:1:30: no `cluster` is defined\n"
            "hint: a hook that has the parameter `cluster` is given it; functions pass it on",
            id="a parameter that is not there; it was taken for `str`",
        ),
        pytest.param(
            "def score(pod, node): return go_div(1, 2)",
            "x.star:1:30: no `go_div` is defined\n"
            'hint: it is loaded: `load("@std/numbers.star", "go_div")`',
            id="a shipped function that is not loaded",
        ),
        pytest.param(
            'def score(pod, node): return len(json.loads("[]"))',
            "x.star:1:34: `json` has no field `loads`\nhint: there are `decode`, `encode`",
            id="what only Python's json has",
        ),
        pytest.param(
            "def score(pod, node): return math.clmap(1, 2, 3)",
            "x.star:1:30: `math` has no field `clmap`\nhint: did you mean `clamp`?",
            id="a misspelt function of math",
        ),
        pytest.param(
            "def score(pod, node): return args.weight",
            "x.star:1:30: no `args` is defined\n"
            "hint: `args = plugin_args(name = default)` declares arguments",
            id="arguments that are not declared",
        ),
        pytest.param(
            "args = plugin_args(limit = 1, zone = '')\ndef score(pod, node): return args.limt",
            "x.star:2:30: `args` has no field `limt`\nhint: did you mean `limit`?",
            id="an argument that is not declared",
        ),
        pytest.param(
            "def filter(pod, node): return [p.name for p in node.pods]",
            "x.star:1:53: `node` has no field `pods`\n"
            "hint: `counters` says what is counted among placed pods, for a node or for all",
            id="the pods of a node; `pod_facts` was proposed",
        ),
        pytest.param(
            "def score(pod, node): return node.age",
            "x.star:1:35: `node` has no field `age`\n"
            "hint: there is no clock: `created_at` can be compared; the hour is in `cluster.facts`",
            id="an age; `images` was proposed",
        ),
        pytest.param(
            "def score(pod, node): return node.ready",
            "x.star:1:35: `node` has no field `ready`\n"
            'hint: it is a condition: `conditions.get("Ready")`, which is "True", "False" or '
            '"Unknown"',
            id="a condition",
        ),
        pytest.param(
            "def score(pod, node): return len(pod.images)",
            "x.star:1:38: `pod` has no field `images`\n"
            "hint: `containers` have one each: `[c.image for c in ...]`",
            id="the images of a pod; `image_volumes` was proposed",
        ),
        pytest.param(
            "def score(pod, node, cluster): return cluster.weather",
            "x.star:1:47: `cluster` has no field `weather`\nhint: want `node_count`, `facts`, "
            "`kubernetes_minor` or `behaves`",
            id="a field of a view that is not near any",
        ),
        pytest.param(
            'def filter(pod, node): return unschedulable("no")',
            "x.star:1:31: no `unschedulable` is defined\n"
            'hint: a filter returns its reason alone, `return "why"`; others `reject("why")`',
            id="kube-scheduler's word; `unresolvable` was proposed",
        ),
        pytest.param(
            'def filter(pod, node): return node.images["x"].tags',
            "x.star:1:48: `Image` has no field `tags`\nhint: want `size_bytes` or `node_count`",
            id="a field of a record that is not near any",
        ),
        pytest.param(
            "_A = _f(3)\ndef _f(x): return x\ndef score(pod, node): return _A",
            "x.star:1:6: `_f` is used here, and defined further down\n"
            "hint: line 2 has to come first",
            id="a function that the top level calls too early",
        ),
        pytest.param(
            "def score(pod, node): return _f()\ndef _f(x = _A): return x\n_A = 3",
            "x.star:2:12: `_A` is used here, and defined further down\n"
            "hint: line 3 has to come first",
            id="a default that is not there yet",
        ),
        pytest.param(
            "args = plugin_args(limit = 1)\ndef score(pod, node): return args['limit']",
            "x.star:2:30: `args` is a struct: its fields are read by their names\n"
            "hint: write `args.limit`",
            id="an argument as an element",
        ),
        pytest.param(
            'def counters(pod): return [count_pods(None, [], amoung = "among_x")]',
            "x.star:1:49: count_pods() has no parameter `amoung`\nhint: did you mean `among`?",
            id="a misspelt parameter of a built-in",
        ),
        pytest.param(
            "def permit(pod, group): return wait(timeout = 60)",
            "x.star:1:37: wait() has no parameter `timeout`"
            "\nhint: want `seconds`, `reason` or `token`",
            id="a parameter that a built-in has not",
        ),
        pytest.param(
            "def permit(pod, group): return wait()",
            "x.star:1:32: wait() lacks `seconds`\n"
            "hint: want `wait(seconds, reason='waiting for the rest of its group', token='')`",
            id="a built-in without what it needs",
        ),
        pytest.param(
            "def pre_filter(pod): return skip('no')",
            "x.star:1:34: skip() takes no arguments, got 1\nhint: want `skip()`",
            id="a built-in with more than it takes",
        ),
        pytest.param(
            "def pre_filter(pod): return state(3)",
            "x.star:1:35: state() takes named arguments alone, got 1\nhint: want `state(**values)`",
            id="a value of the state without a name",
        ),
        pytest.param(
            "def filter(pod, node): return _f(pod, node)\ndef _f(pod): return None",
            "x.star:1:39: _f() takes 1 argument, got 2\nhint: want `_f(pod)`",
            id="a function of the file with more than it takes",
        ),
        pytest.param(
            "def filter(pod, node): return _f(pod)\ndef _f(pod, x): return None",
            "x.star:1:31: _f() lacks `x`\nhint: want `_f(pod, x)`",
            id="a function of the file without what it needs",
        ),
        pytest.param(
            "def filter(pod, node): return _f(pod, pod = node)\ndef _f(pod): return None",
            "x.star:1:31: _f() is given `pod` twice\nhint: want `_f(pod)`",
            id="one argument twice",
        ),
        pytest.param(
            "def filter(pod, node): return _f(nod = node)\ndef _f(node): return None",
            "x.star:1:34: _f() has no parameter `nod`\nhint: did you mean `node`?",
            id="a misspelt parameter of a function of the file",
        ),
        pytest.param(
            'load("@std/numbers.star", "go_div")\ndef score(pod, node): return go_div(3)',
            "x.star:2:30: go_div() lacks `b`\nhint: want `go_div(a, b)`",
            id="a loaded function without what it needs",
        ),
        pytest.param(
            'def score(pod, node): print("x")',
            "x.star:1:23: policies cannot print\n"
            "hint: in a test, a failing assertion shows both sides; or use fail()",
            id="print",
        ),
        pytest.param(
            "def score(pod, node): return score(pod, node)",
            "x.star:1:1: score() calls itself\nhint: write a loop: recursion is not allowed",
            id="direct recursion",
        ),
        pytest.param(
            "def _a(): return _b()\ndef _b(): return _a()",
            "x.star:1:1: _a() calls itself by way of `_b`\n"
            "hint: write a loop: recursion is not allowed",
            id="mutual recursion",
        ),
        pytest.param(
            "def score(pod, node):\n    def f(): return f()\n    return f()",
            "x.star:2:5: f() calls itself\nhint: write a loop: recursion is not allowed",
            id="recursion inside",
        ),
        pytest.param(
            "def score(pod, node): return plugin_args(x = 1).x",
            "x.star:1:30: plugin_args() must be assigned at top level: `args = plugin_args(...)`",
            id="arguments declared too late",
        ),
        pytest.param(
            "a = plugin_args(x = 1)\nb = plugin_args(y = 1)",
            "x.star:2:5: plugin_args() may be called once: it declares all arguments",
            id="arguments declared twice",
        ),
        pytest.param(
            "a = plugin_args(1)",
            "x.star:1:5: plugin_args() takes `name = default` pairs only",
            id="arguments without a name",
        ),
        pytest.param(
            "a = plugin_args(limit)",
            "x.star:1:5: plugin_args() takes `name = default` pairs only\n"
            "hint: a default holds where nothing is configured: `limit = 0`",
            id="an argument without a default",
        ),
        pytest.param(
            "def score(pod: Pod, node): return 1",
            "x.star:1:16: no type `Pod` is defined\nhint: what hooks see of the API has "
            "no type to write: leave the annotation out; editors know `pod` and `node` by their "
            "names",
            id="a view as a type",
        ),
        pytest.param(
            "if 1:\n    def score(pod, node):\n        return 1",
            "x.star:1:1: `if` cannot be used outside `def` in this dialect\n"
            "hint: choose inside a function, or with `x = a if b else c`",
            id="a hook in a condition",
        ),
    ],
)
def test_one_mistake(text: str, want: str) -> None:
    assert _found(text + "\n") == [want]


@pytest.mark.parametrize(
    "text",
    [
        "def score(pod, node): return [x for x in range(3)][0]\n",
        "def score(pod, node):\n    f = lambda a, *b, **c: a\n    return f(1)\n",
        "def score(pod: typing.Any, node: typing.Any) -> int: return 1\n",
        "def score(pod, node):\n    for a, (b, c) in []: pass\n    return {k: 1 for k in {}}\n",
        'load("@std/taints.star", t = "tolerates")\ndef filter(pod, node): return str(t)\n',
        "def score(pod, node):\n    score = 3\n    return score\n",
        "",
        '"""Only a docstring."""\n',
    ],
)
def test_good_files_have_no_problems(text: str) -> None:
    assert _found(text) == []


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (
            'load("@std/taint.star", "tolerates")',
            "x.star:1:6: no file `@std/taint.star` to load: want a file of the same folder "
            "(`x.star`), `@std/x.star` or `@kubernetes/x.star`\n"
            "hint: did you mean `@std/taints.star`?",
        ),
        (
            'load("@std/taints.star", "tolerate")',
            "x.star:1:26: `@std/taints.star` has no `tolerate` to load\n"
            "hint: did you mean `tolerates`?",
        ),
        ('load("lib.star", "_f")', "x.star:1:18: `_f` is private to `lib.star`"),
        (
            'load("@std/testing.star", "asserts")',
            "x.star:1:6: only tests can load `@std/testing.star`\n"
            "hint: tests are in files that end in `_test.star`",
        ),
        (
            'load("lib.star", "filter")',
            "x.star:1:18: `filter` is the name of a hook, want a function: "
            "`def filter(pod, node)`\n"
            'hint: load it under another name: `load("...", my_filter = "filter")`',
        ),
    ],
)
def test_loads(text: str, want: str) -> None:
    lib = "def _f(): pass\ndef filter(pod, node): pass\n"
    assert _found(text + "\n", lib=lib) == [want]


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        pytest.param("taints.star", "@std/taints.star", id="no folder"),
        pytest.param("@std/taints", "@std/taints.star", id="no suffix"),
        pytest.param("taint", "@std/taints.star", id="neither, and misspelt"),
        pytest.param("//policies/std:taints.star", "@std/taints.star", id="as Bazel has it"),
        pytest.param("@kubernetes/taints.star", "@std/taints.star", id="another folder"),
        pytest.param("./lib.star", "lib.star", id="a path"),
        pytest.param("LIB.star", "lib.star", id="capitals"),
    ],
)
def test_a_file_is_meant_by_its_name_wherever_it_is(wanted: str, meant: str) -> None:
    """Names were compared with their folders and suffixes, and most had no hint."""
    [problem] = _found(f'load("{wanted}", "x")\n', lib="x = 1\n")
    assert problem.endswith(f"hint: did you mean `{meant}`?")


def test_too_many_hints_are_left_out() -> None:
    """Each is sought among all names: a minute for 2,000 of them."""
    text = "".join(f"def _f{n}(): return _g{n}\n" for n in range(300))
    found = _found(text)
    assert len(found) == 300
    assert [n for n, one in enumerate(found) if "hint: did you mean" in one] == list(range(100))


def test_files_that_load_each_other_in_a_circle_are_named_once() -> None:
    a, b = 'load("b.star", "y")\nx = 1\n', 'load("x.star", "x")\ny = 1\n'
    got = _found(a, b=b)
    assert got == ["b.star:1:6: files load each other in a circle: b.star -> x.star -> b.star"]


def test_all_problems_come_at_once_in_the_order_of_the_files() -> None:
    got = _found("def filter(pod): print(1)\n", a="def score(pod, nod): return nod.x\n", b="x = (")
    assert [problem.partition(": ")[0] for problem in got] == [
        "a.star:1:1",
        "a.star:1:16",
        "b.star:1:5",
        "x.star:1:1",
        "x.star:1:18",
    ]


def test_a_test_file_may_have_functions_of_any_name() -> None:
    text = (
        'load("@std/testing.star", "asserts")\ndef score(x): pass\ndef test_it(): asserts.true(1)\n'
    )
    assert check_files({"x_test.star": text}) == []


def test_a_bundle_that_is_too_large_says_how_large() -> None:
    (problem,) = check_files({"x.star": "#" * MAX_BYTES, "y.star": "#"})
    assert str(problem) == (
        "want at most 1,048,576 bytes of policies, got 1,048,577\n"
        "hint: the largest file is `x.star`: 1,048,576"
    )
    assert check_files({"x.star": "#" * MAX_BYTES}) == []


def test_a_bundle_of_too_many_files_says_how_many() -> None:
    (problem,) = check_files({f"x{n}.star": "" for n in range(MAX_FILES + 1)})
    assert "want at most 500 files, got 501" in str(problem)


def test_only_so_many_misspelt_fields_have_a_hint() -> None:
    """To look for each took most of the time that a large edit with mistakes cost everybody."""
    lines = [f"    x = pod.nam{number}\n" for number in range(150)]
    problems = check_files({"x.star": "def filter(pod, node):\n" + "".join(lines)})
    assert len(problems) == 150
    assert sum(bool(problem.hint) for problem in problems) == 100


@pytest.mark.parametrize(
    "text",
    [
        "def score(pod, node): return _f(*[1, 2])\ndef _f(a, b): return a + b",
        "def score(pod, node): return _f(1, **{'b': 2})\ndef _f(a, b): return a + b",
        "def score(pod, node): return _f(1)\ndef _f(a, b = 2, c = 3): return a + b + c",
        "def score(pod, node): return _f(1, 2, c = 3)\ndef _f(*a, **b): return len(a) + len(b)",
        "def score(pod, node):\n    def _f(a): return a\n    return _f(1)\ndef _f(a, b): return a",
        "def score(pod, node): return [_f(1) for _f in [len]][0]\ndef _f(a, b): return a",
        "def score(pod, node): return _f(1, 2)\n_f = max",
        "def permit(pod, group): return wait()\ndef wait(): return None",
        'load("@std/numbers.star", wait = "go_div")\ndef score(pod, node): return wait(4, 2)',
        'load("y.star", "f")\ndef score(pod, node): return f(1, 2, 3)',
        "def pre_filter(pod): return state(a = 1, b = 2)",
        "_A = struct(f = lambda: _f(3))\ndef _f(x): return x\ndef score(pod, node): return _A.f()",
        "_A = [_f for _f in [1]]\ndef _f(x): return x\ndef score(pod, node): return _f(_A[0])",
        "def score(pod, node): return _f(_A)\n_A = 3\ndef _f(x): return x",
    ],
)
def test_calls_and_names_that_may_be_sound_are_let_be(text: str) -> None:
    assert check_files({"x.star": text, "y.star": "f = max\n"}) == []


def test_a_function_with_an_endless_default_is_reported_without_it() -> None:
    text = "def score(pod, node): return _f()\ndef _f(a, b = 1" + " + 1" * 400 + "): return a + b\n"
    (problem,) = check_files({"x.star": text})
    assert (problem.message, problem.hint) == ("_f() lacks `a`", "")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("None = 5\ndef score(pod, node): return None\n", 1),
        ("True = 0\n", 1),
        ("a, False = 1, 2\n", 1),
        ("def score(pod, node):\n    None = 5\n    return None\n", 2),
        ("def score(pod, node):\n    for True in [1]:\n        return True\n", 2),
        ("def score(pod, node):\n    return len([None for None in [1]])\n", 2),
        ("def f(None): return None\n", 1),
        ("f = lambda True: True\n", 1),
        ("def None(): return 1\n", 1),
    ],
)
def test_the_values_of_the_language_are_no_names(text: str, line: int) -> None:
    """The interpreter takes them for names: `None = 5`, and a score of None was one of 5.

    Python's parser refuses such a file, so that no rule of `check` looked at it.
    """
    (problem,) = check_files({"x.star": text})
    assert (problem.file, problem.line) == ("x.star", line)
    assert "is a value, and cannot be the name of another" in problem.message
