"""What the analysis finds that hooks read: never too little, and seldom too much."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.language.effects import AGES
from engine.language.modules import Module, World
from engine.language.syntax import is_safe_to_parse, parse
from engine.policy.analysis import analyse, examine
from engine.policy.evaluator import InProcessEvaluator, PolicyFailure
from engine.policy.hook_signatures import hook_signatures
from engine.policy.node_views import NODE_FIELDS
from engine.policy.pod_views import POD_FIELDS
from engine.policy.views import SCHEMA
from tests.engine.policy.programs import per_node, program_of
from tests.searching import examples


def _reads(text: str, hook: str = "filter", **files: str) -> tuple[set[str], set[str]]:
    texts = {"x.star": text, **{f"{stem}.star": other for stem, other in files.items()}}
    reads = analyse(texts, "x.star")[hook]
    # Ages go with whatever is not understood; that they do is tested below.
    return set(reads.pod) - {AGES}, set(reads.node) - {AGES}


def _node_reads(body: str, before: str = "") -> set[str]:
    lines = "".join(f"    {line}\n" for line in body.strip("\n").split("\n"))
    return _reads(f"{before}\ndef filter(pod, node):\n{lines}")[1]


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param("return node.pod_count", {"pod_count"}, id="a field"),
        pytest.param("n = node\nreturn n.taints", {"taints"}, id="through a variable"),
        pytest.param("a, b = node, pod\nreturn a.taints", {"taints"}, id="through an unpacking"),
        pytest.param("x = (node, 1)\na, b = x\nreturn a.taints", {"taints"}, id="through a tuple"),
        pytest.param("for n in [node]:\n    y = n.taints", {"taints"}, id="through a loop"),
        pytest.param("return [n.taints for n in [node]]", {"taints"}, id="through a comprehension"),
        pytest.param("return (node if pod else None).taints", {"taints"}, id="through a condition"),
        pytest.param("return (None or node).taints", {"taints"}, id="through an or"),
        pytest.param("f = lambda n: n.taints\nreturn f(node)", {"taints"}, id="through a lambda"),
        pytest.param("def f():\n    return node.taints\nreturn f()", {"taints"}, id="a closure"),
        pytest.param(
            "def f(x = node.taints):\n    return x\nreturn f(1)",
            {"taints"},
            id="a default that no call needs",
        ),
        pytest.param(
            "return (lambda x = node.taints: x)(1)", {"taints"}, id="the same of a lambda"
        ),
        pytest.param("f = lambda: node.taints\nreturn [f]", {"taints"}, id="an escaped closure"),
        pytest.param("return getattr(node, 'taints')", {"taints"}, id="getattr"),
        pytest.param("return getattr(node, 'taints', None)", {"taints"}, id="getattr, default"),
        pytest.param("return hasattr(node, 'taints')", {"taints"}, id="hasattr"),
        pytest.param("return getattr(node, pod.name)", {"*"}, id="getattr, computed"),
        pytest.param("return dir(node)", {"*"}, id="dir"),
        pytest.param("return str(node)", {"*"}, id="str"),
        pytest.param("return node", {"*"}, id="returned"),
        pytest.param("return {'n': node}", {"*"}, id="in a dict"),
        pytest.param("return '%s' % node", {"*"}, id="formatted"),
        pytest.param("return f'{node}'", {"*"}, id="in an f-string"),
        pytest.param(
            "return {'n': node}, node.pod_annotations['a'], node.device_shares.get('b')",
            {"*", "pod_annotations[a]", "device_shares[b]"},
            id="what must be named beside the whole",
        ),
        pytest.param(
            "keys = ['a', 'b']\nreturn [node.pod_annotations[k] for k in keys]",
            {"pod_annotations", "pod_annotations[a]", "pod_annotations[b]"},
            id="what must be named, by a list that might grow",
        ),
        pytest.param(
            "return {'n': node}['n'].pod_annotations['a']",
            {"*", "pod_annotations[a]"},
            id="what must be named, out of a dict",
        ),
        pytest.param(
            "x = struct(n = node).n.device_shares\nreturn x.get('a', [])",
            {"*", "device_shares[a]"},
            id="the same through a variable",
        ),
        pytest.param(
            "return getattr(struct(n = node).n, 'facts')['a']",
            {"*", "facts[a]"},
            id="the same by getattr",
        ),
        pytest.param(
            "return {'n': node}['n'].manifest", {"*", "manifest"}, id="the manifest, out of a dict"
        ),
        pytest.param("return [node][0].taints", {"taints"}, id="out of a list"),
        pytest.param("x = []\nx.append(node)", {"*"}, id="appended"),
        pytest.param("x = [1]\nx[0] = node", {"*"}, id="put into a list"),
        pytest.param("return node == pod", {"*"}, id="compared"),
        pytest.param("return node == None", set(), id="compared with None"),
        pytest.param("return type(node)", set(), id="its type"),
        pytest.param("if node:\n    pass", set(), id="a struct is always true"),
        pytest.param("return len([node, node])", set(), id="counted in a list"),
        pytest.param("return len((node, pod))", set(), id="counted in a tuple"),
        pytest.param("return len(list(node.labels))", {"labels"}, id="the keys counted"),
        pytest.param(
            "return len([t for t in node.taints if t.key])", {"taints"}, id="some counted"
        ),
        pytest.param("return f(*[node])", {"*"}, id="passed with a star"),
        pytest.param("return struct(**{'n': node})", {"*"}, id="passed with two stars"),
        pytest.param("return node.manifest['spec']", {"manifest"}, id="the manifest"),
        pytest.param("return sorted([node], key = lambda n: n.pod_count)", {"*"}, id="a key, kept"),
        pytest.param(
            "return max([node], key = lambda n: n.pod_count).taints",
            {"pod_count", "taints"},
            id="a key function",
        ),
    ],
)
def test_fields_are_found(body: str, want: set[str]) -> None:
    assert _node_reads(body) == want


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param("return node.labels['a']", {"labels[a]"}, id="a constant key"),
        pytest.param("return node.labels.get('a')", {"labels[a]"}, id="get"),
        pytest.param("return node.labels.get('a', 'x')", {"labels[a]"}, id="get with a default"),
        pytest.param("return 'a' in node.labels", {"labels[a]"}, id="in"),
        pytest.param("return 'a' not in node.labels", {"labels[a]"}, id="not in"),
        pytest.param("return node.labels[KEY]", {"labels[zone]"}, id="a constant of the file"),
        pytest.param("return node.labels[PREFIX + 'x']", {"labels[p/x]"}, id="a sum"),
        pytest.param("return node.labels[LOADED]", {"labels[loaded]"}, id="a loaded constant"),
        pytest.param(
            "k = 'a' if pod else 'b'\nreturn node.labels[k]", {"labels[a]", "labels[b]"}, id="two"
        ),
        pytest.param("k = 'a'\nk += 'b'\nreturn node.labels[k]", {"labels"}, id="a changed key"),
        pytest.param("return node.labels[pod.name]", {"labels"}, id="a computed key"),
        pytest.param("return node.labels", {"labels"}, id="all of it"),
        pytest.param("return [k for k in node.labels]", {"labels"}, id="looped over"),
        pytest.param("return node.labels.items()", {"labels"}, id="items"),
        pytest.param("return len(node.labels)", {"labels"}, id="its length"),
        pytest.param("return 'x' if node.labels else 'y'", {"labels"}, id="its truth"),
        pytest.param("return node.labels or {}", {"labels"}, id="an or"),
        pytest.param("return not node.labels", {"labels"}, id="a not"),
        pytest.param("return node.labels == {}", {"labels"}, id="compared"),
        pytest.param("return node.labels | {}", {"labels"}, id="merged"),
        pytest.param("m = node.labels\nreturn m['a']", {"labels[a]"}, id="through a variable"),
        pytest.param("return _get(node.labels, 'a')", {"labels[a]"}, id="through a helper"),
        pytest.param("return _any(node.labels)", {"labels"}, id="a helper that loops"),
        pytest.param(
            "return [node.allocatable[k] for k in ('cpu', 'memory')]",
            {"allocatable[cpu]", "allocatable[memory]"},
            id="keys of a tuple",
        ),
        pytest.param(
            "return [node.allocatable[k] for k in NAMES]",
            {"allocatable[cpu]", "allocatable[memory]"},
            id="keys of a constant list",
        ),
        pytest.param(
            "names = ['cpu']\nnames.append(pod.name)\nreturn [node.allocatable[k] for k in names]",
            {"allocatable"},
            id="a list that grew",
        ),
        pytest.param(
            "return [node.allocatable[k] for k in WEIGHTS]",
            {"allocatable[cpu]"},
            id="keys of a constant dict",
        ),
        pytest.param(
            "x = [k for k in ('other',)]\nreturn node.labels[k]",
            {"labels[kay]"},
            id="a comprehension's variable is its own",
        ),
        pytest.param("return node.labels['a'] + node.labels.get(pod.name)", {"labels"}, id="both"),
        pytest.param("return node.images['a'].size_bytes", {"images[a]"}, id="a record in a dict"),
    ],
)
def test_keys_are_narrowed_only_if_they_are_known(body: str, want: set[str]) -> None:
    before = """
load("lib.star", "LOADED")
KEY = "zone"
PREFIX = "p/"
NAMES = ["cpu", "memory"]
WEIGHTS = {"cpu": 1}
k = "kay"
def _get(labels, key): return labels.get(key)
def _any(labels): return [v for v in labels.values()]
"""
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    text = f"{before}\ndef filter(pod, node):\n{lines}"
    assert _reads(text, lib='LOADED = "loaded"\n')[1] == want


@pytest.mark.parametrize("call", ["_grow(1)", "sorted([1], key = _grow)", "max([1], key = _grow)"])
def test_a_list_of_the_file_that_is_changed_while_it_loads_is_no_constant(call: str) -> None:
    text = f"""
NAMES = ["cpu"]
def _grow(x):
    NAMES.append("memory")
    return x
_grown = {call}
def filter(pod, node): return [node.allocatable[n] for n in NAMES]
"""
    assert _reads(text)[1] == {"allocatable"}


@pytest.mark.parametrize(
    ("first", "next_"),
    [
        ('("a", "b")', "({0}, {0})"),
        ('["a", "b"]', "[{0}, {0}]"),
        ('"a" if True else "b"', '{0} + ("c" if True else "d")'),
        ('("a",)', "{0} + ({0}, {0}) if True else ({0},)"),
    ],
)
def test_constants_made_of_constants_are_followed_so_far(first: str, next_: str) -> None:
    """Sixty short lines kept `check`, and a scheduler that was to load them, busy for ever.

    Each constant was harmless by itself, and was followed as deep as all of them together.
    """
    lines = [f"_C0 = {first}", *(f"_C{i} = {next_.format(f'_C{i - 1}')}" for i in range(1, 60))]
    text = "\n".join([*lines, "def filter(pod, node): return node.labels.get(_C59)"])
    assert _reads(text) == (set(), {"labels"})


def test_helpers_are_followed_with_what_they_are_given() -> None:
    text = """
def filter(pod, node): return _f(node, pod) or _g(n = node)
def _f(a, b): return a.taints and b.tolerations
def _g(m = None, n = None): return n.pod_count
"""
    assert _reads(text) == ({"tolerations"}, {"taints", "pod_count"})


def test_loads_are_followed() -> None:
    text = 'load("lib.star", look = "f")\ndef filter(pod, node): return look(node)\n'
    lib = 'load("deep.star", "g")\ndef f(n): return g(n)\n'
    assert _reads(text, lib=lib, deep="def g(n): return n.pod_count\n")[1] == {"pod_count"}


def test_a_load_that_is_not_there_reads_everything() -> None:
    text = 'load("no.star", "f")\ndef filter(pod, node): return f(node)\n'
    assert _reads(text) == (set(), {"*"})


def test_a_function_that_is_passed_on_may_be_called_with_anything() -> None:
    text = """
def filter(pod, node): return _apply(_look, node)
def _apply(f, x): return f(x)
def _look(n): return n.taints
"""
    assert _reads(text)[1] == {"taints"}


@pytest.mark.parametrize(
    ("made", "used"),
    [
        pytest.param("T = struct(look = _look)", "T.look(node)", id="in a struct"),
        pytest.param("T = {k: _look for k in ['a']}", "T['a'](node)", id="in a comprehension"),
        pytest.param("T = [_look][0]", "T(node)", id="out of a list"),
        pytest.param("T = None or _look", "T(node)", id="through an or"),
        pytest.param("T = _wrapped()", "T(node)", id="in a closure"),
        pytest.param("T = struct(look = lambda n: _look(n))", "T.look(node)", id="in a lambda"),
        pytest.param("T = {}\nT['a'] = _look", "T['a'](node)", id="put into a dict"),
        pytest.param("T = []\n_put(1)", "T[0](node)", id="put there by a function"),
        pytest.param("T, _ = _look, 1", "T(node)", id="unpacked"),
        pytest.param("_S = struct(look = _look)\nT = [_S]", "T[0].look(node)", id="held twice"),
        pytest.param("load('lib.star', 'T')", "T.look(node)", id="in a struct that is loaded"),
    ],
)
def test_functions_that_a_file_keeps_are_followed(made: str, used: str) -> None:
    """A library's `struct(look = _look)` was not: a fact that `_look` names was not there at all.

    Where it asked for the annotations of the node's pods, there were none; and no fact had an age.
    """
    functions = (
        "def _look(n):\n    return n.facts['a'], n.pod_annotations.get('b', [])\n"
        "def _wrapped():\n    return lambda n: _look(n)\n"
        "def _put(x):\n    T.append(_look)\n"
    )
    text = f"{functions}{made}\ndef filter(pod, node): return {used}\n"
    lib = f"{functions}T = struct(look = _look)\n"
    assert _reads(text, lib=lib)[1] == {"*", "facts[a]", "pod_annotations[b]"}


def test_default_arguments_are_values_too() -> None:
    text = """
def filter(pod, node):
    def f(n = node): return n.taints
    return f()
"""
    assert _reads(text)[1] == {"taints"}


def test_recursion_ends_the_analysis_too() -> None:
    text = "def filter(pod, node): return _f(node)\ndef _f(n): return _f(n) if n.taints else n\n"
    assert _reads(text)[1] == {"*"}


def test_the_parameters_of_each_hook_are_found() -> None:
    text = "def filter(node, pod, state): pass\ndef queue_key(pod): pass\ndef other(x): pass\n"
    reads = analyse({"x.star": text}, "x.star")
    assert {hook: r.params for hook, r in reads.items()} == {
        "filter": ("node", "pod", "state"),
        "queue_key": ("pod",),
    }


def test_nodes_and_victims_are_views_too() -> None:
    text = """
def score_all(pod, nodes): return [n.pod_count for n in nodes]
def candidate_key(node, victims): return [v.priority for v in victims]
"""
    assert _reads(text, "score_all") == (set(), {"pod_count"})
    assert _reads(text, "candidate_key") == ({"priority"}, set())


def test_how_many_victims_there_are_says_nothing_of_their_fields() -> None:
    text = "def candidate_key(node, victims): return (victims[0].priority, len(victims))\n"
    assert _reads(text, "candidate_key") == ({"priority"}, set())


@pytest.mark.parametrize(
    ("kept", "asked", "want"),
    [
        ('cluster.facts["a"]', "state.x.value", {"facts[a]"}),
        ('cluster.facts["a"]', "state.x.age_seconds", {"facts[a]", AGES}),
        ('cluster.facts["a"].value', "state.x or node.age_seconds", {"facts[a]"}),
        ("cluster.facts", 'struct(facts = state.x).facts["b"]', {"facts", "facts[b]"}),
        ("cluster", 'state.x.facts["b"].age_seconds', {"*", "facts[b]", AGES}),
    ],
)
def test_what_is_in_a_state_is_read_by_those_who_get_it(
    kept: str, asked: str, want: set[str]
) -> None:
    """A fact in a state had no age: the filter failed, or took it for one that nobody dated."""
    text = (
        f"def pre_filter(pod, cluster): return state(x = {kept})\n"
        f"def filter(pod, node, state): return {asked}\n"
    )
    assert analyse({"x.star": text}, "x.star")["pre_filter"].cluster == want


def test_a_pod_in_a_state_has_its_manifest_for_those_who_ask() -> None:
    text = (
        "def pre_score(pod): return state(p = pod)\n"
        "def score(pod, node, state): return state.p.manifest\n"
    )
    assert analyse({"x.star": text}, "x.star")["pre_score"].pod == {"*", "manifest"}


def test_state_and_arguments_are_no_views() -> None:
    text = """
args = plugin_args(x = 1)
def filter(pod, node, state): return state.labels[args.x]
"""
    assert _reads(text) == (set(), set())


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("def filter(pod, node):\n    return 0o8\n", id="not Python"),
        pytest.param("def filter(pod, node): return " + "(" * 300 + ")" * 300, id="too deep"),
        pytest.param(
            "def filter(pod, node): return " + "1 or " * 3000 + "1", id="too long a chain"
        ),
        pytest.param("def filter(pod, node):\n  while True: pass\n", id="Python, not Starlark"),
        pytest.param("def filter(pod, node): return " + "-" * 3000 + "1", id="signs"),
    ],
)
def test_what_is_not_understood_reads_everything(text: str) -> None:
    assert _reads(text) == ({"*"}, {"*"})


@pytest.mark.parametrize(
    "body",
    [
        'k = ""\nfor t in node.taints:\n    if k:\n        k = k + ","\n    k = k + t.key',
        'k = ""\nfor i in range(3):\n    k = _padded(k)',
        'k, j = "a", "b"\nfor i in range(3):\n    k, j = j + k, k + "c"',
    ],
)
def test_a_text_that_a_loop_makes_longer_is_any_text(body: str) -> None:
    """Each pass found a longer one, so the walk had no end and the hook read everything."""
    before = 'def _padded(k):\n    return k + " "\n'
    want = {"labels", "pod_count"} | ({"taints"} if "taints" in body else set())
    assert _node_reads(f"{body}\nreturn node.labels.get(k), node.pod_count", before) == want


def test_a_hook_that_is_too_much_still_asks_for_what_it_names() -> None:
    """What only those are given who name it was not there for them."""
    deep = (
        "".join(f"def f{i}(x): return f{i + 1}(x)\n" for i in range(60)) + "def f60(x): return x\n"
    )
    body = "f0(1)\nreturn node.facts['a'], node.pod_annotations['b'], [node][0].manifest"
    assert _node_reads(body, deep) == {"*", "facts[a]", "pod_annotations[b]", "manifest"}


def test_text_that_is_no_program_has_no_hooks() -> None:
    assert analyse({"x.star": "\0"}, "x.star") == {}
    assert analyse({"x.star": ""}, "x.star") == {}
    assert analyse({}, "x.star") == {}
    assert parse("def f(:") is None


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("x = 1", True),
        ("def f(:", True),  # refused by both parsers, safely
        ("x = " + "[" * 3000, False),
        ("x = " + "- " * 30_000 + "1", False),
        ("x = " + "1 or " * 30_000 + "1", False),
        ("x = " + "a." * 30_000 + "a", False),
        ("x = 0o8 + " + "1 +\\\n" * 30_000 + "1", False),
    ],
)
def test_only_text_that_cannot_exhaust_the_parser_is_parsed_here(text: str, want: bool) -> None:
    assert is_safe_to_parse(text) is want


# --- notes -----------------------------------------------------------------------------------


def _notes(body: str) -> list[tuple[int, int, str, str, str]]:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    found = examine(World({"x.star": f"def filter(pod, node):\n{lines}"}, SCHEMA), "x.star").notes
    return [(n.line, n.column, n.kind, n.owner, n.name) for n in found]


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("return node.lables", [(2, 17, "field", "node", "lables")]),
        ("return node.lables.get('a')", [(2, 17, "field", "node", "lables")]),
        ("for t in node.taints:\n    x = t.efect", [(3, 15, "field", "Taint", "efect")]),
        ("return node.images['a'].size", [(2, 29, "field", "Image", "size")]),
        ("return pod.owner.nam", [(2, 22, "field", "Owner", "nam")]),
        ("x = node if 1 else pod\nreturn x.tolerations", []),
        ("return pod.node_affinity.required[0].expressions[0].key", []),
        ("pod.labels['a'] = 'b'", [(2, 5, "change", "pod.labels", "")]),
        ("pod.labels.pop('a')", [(2, 16, "change", "pod.labels", "")]),
        ("x = dict(pod.labels)\nx['a'] = 'b'", []),
        ("x = []\nx.append(1)", []),
    ],
)
def test_mistakes_are_noted_where_they_are(body: str, want: list[object]) -> None:
    assert _notes(body) == want


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("return node.pod_annotations[pod.name]", "pod_annotations"),
        ("return node.pod_annotations.get(ARGS.x, [])", "pod_annotations"),
        ("return pod.name in node.device_shares", "device_shares"),
        ("names = ['a']\nreturn [node.pod_annotations[n] for n in names]", None),
        ("return node.device_shares.get('a' if pod.priority else 'b')", None),
        ("return node.labels[pod.name], node.facts.get(ARGS.x)", None),
    ],
)
def test_what_is_never_there_under_a_name_that_is_not_written_is_noted(
    body: str, want: str | None
) -> None:
    notes = {(kind, name) for _, _, kind, _, name in _notes(body)}
    assert notes == ({("unnamed", want)} if want else set())


def test_signatures_say_where_the_hook_is() -> None:
    text = "\n\ndef filter(pod, node): pass\n"
    signature = hook_signatures(text)["filter"]
    assert (signature.params, signature.line, signature.column) == (("pod", "node"), 3, 5)


# --- soundness -------------------------------------------------------------------------------


class _Writer:
    """Writes random policies that pass views around before they read them."""

    FIELDS = ("labels", "annotations", "taints", "pod_count", "unschedulable", "allocatable")
    KEYS = ("a", "b", "c")

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._names = 0

    def policy(self) -> str:
        helpers = [self._helper(f"_h{i}") for i in range(self._random.randint(0, 3))]
        self.helpers = len(helpers)
        body = self._block(["node"], ["node.labels"], 1, self._random.randint(2, 6))
        hook = "def filter(pod, node):\n" + body + "    return None\n"
        return 'K = "a"\nKS = ["a", "b"]\n' + "".join(helpers) + hook

    def _helper(self, name: str) -> str:
        self.helpers = int(name[2:])
        body = self._block(["x"], ["y"], 1, self._random.randint(1, 3))
        return (
            f"def {name}(x, y = {{}}):\n{body}    return {self._random.choice(['x', 'y', '1'])}\n"
        )

    def _block(self, views: list[str], maps: list[str], depth: int, size: int) -> str:
        return "".join(self._statement(views, maps, depth) for _ in range(size))

    def _fresh(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def _statement(self, views: list[str], maps: list[str], depth: int) -> str:
        pad = "    " * depth
        choice: Callable[[list[str]], str] = self._random.choice
        view, fresh = choice(views), self._fresh()
        map_ = choice(maps)
        key = choice(['"a"', "K", '"b"', "KS[1]", '"a" + ""', f"{view}.name" if False else '"c"'])
        kind = self._random.randint(0, 13)
        if kind == 0:
            views.append(fresh)
            return f"{pad}{fresh} = {view}\n"
        if kind == 1:
            return f"{pad}{fresh} = {self._field(view)}\n"
        if kind == 2:
            return f"{pad}{fresh} = {map_}.get({key})\n"
        if kind == 3:
            return f"{pad}{fresh} = {key} in {map_}\n"
        if kind == 4:
            maps.append(fresh)
            return f"{pad}{fresh} = {map_}\n"
        if kind == 5:
            views.append(fresh)
            return f"{pad}{fresh}, _ = {view}, 1\n"
        if kind == 6:
            return f"{pad}{fresh} = [{self._field('w')} for w in [{view}]]\n"
        if kind == 7:
            return f"{pad}{fresh} = (lambda w: {self._field('w')})({view})\n"
        if kind == 8 and self.helpers:
            helper = f"_h{self._random.randrange(self.helpers)}"
            return f"{pad}{fresh} = {helper}({view}, {map_})\n"
        if kind == 9 and self.helpers:
            helper = f"_h{self._random.randrange(self.helpers)}"
            return f"{pad}{fresh} = {helper}(y = {map_}, x = {view})\n"
        if kind == 10:
            inner = self._block(list(views), list(maps), depth + 1, 1) if depth < 3 else ""
            body = inner or f"{pad}    pass\n"
            return f"{pad}if {self._random.choice(['True', map_, self._field(view)])}:\n{body}"
        if kind == 11:
            return f"{pad}{fresh} = [{map_}.get(k) for k in KS]\n"
        if kind == 12:
            return f'{pad}{fresh} = getattr({view}, "{self._random.choice(self.FIELDS)}")\n'
        return f"{pad}{fresh} = [v for v in {map_}]\n"

    def _field(self, view: str) -> str:
        return f"{view}.{self._random.choice(self.FIELDS)}"


NODE = {
    "labels": {"a": "1", "b": "2", "c": "3"},
    "annotations": {"a": "x"},
    "taints": [{"key": "k", "value": "", "effect": "NoSchedule"}],
    "pod_count": 3,
    "unschedulable": False,
    "allocatable": {"cpu": 4000},
    "name": "n",
}


def _given(reads: frozenset[str]) -> dict[str, object]:
    """A node with what is read of it and nothing else."""
    if "*" in reads:
        return dict(NODE)
    view: dict[str, object] = {}
    for path in reads:
        name, bracket, key = path.partition("[")
        value = NODE[name]
        if bracket:
            assert isinstance(value, dict)
            part = view.setdefault(name, {})
            assert isinstance(part, dict)
            if key[:-1] in value:
                part[key[:-1]] = value[key[:-1]]
        else:
            view[name] = value
    return view


def _trace(text: str) -> str:
    """*text* with every result of every line in the reason: narrowed reads cannot hide."""
    lines, names = [], []
    in_hook = False
    for line in text.split("\n"):
        in_hook = in_hook or line.startswith("def filter")
        assigned = line.strip().partition(" = ")[0].partition(",")[0]
        is_top = line.startswith("    ") and not line.startswith("     ")
        if in_hook and is_top and assigned.startswith("v") and assigned[1:].isdigit():
            names.append(assigned)
        if in_hook and line == "    return None":
            shown = ", ".join(f"_show({name})" for name in names)
            lines.append(f'    return ", ".join(["x", {shown}])')
        else:
            lines.append(line)
    show = (
        "def _show(v):\n"
        '    if type(v) in ("string", "int", "bool", "NoneType"): return str(v)\n'
        '    if type(v) == "list": return "L" + ",".join(\n'
        '        [str(x) if type(x) in ("string", "int", "bool") else "?" for x in v])\n'
        '    return "?"\n'
    )
    return show + "\n".join(lines)


@pytest.mark.slow("computes for long")
@settings(max_examples=examples(300), deadline=None)
@given(st.integers(min_value=0, max_value=2**32))
def test_a_hook_answers_the_same_when_it_is_given_only_what_it_reads(seed: int) -> None:
    """The one property that everything that is reused rests on."""
    text = _trace(_Writer(seed).policy())
    reads = analyse({"x.star": text}, "x.star")["filter"].node
    evaluator = InProcessEvaluator(program_of(text))
    whole = dict(NODE)
    del whole["name"]  # a reason must not hold it
    ((got, want),) = evaluator.evaluate([per_node("filter", _given(reads), whole)])
    assert not isinstance(want, PolicyFailure), f"{want}\n{text}"
    assert got == want, f"{sorted(reads)}\n{text}"


def test_the_fields_of_the_property_exist() -> None:
    assert set(NODE) <= set(NODE_FIELDS)
    assert "tolerations" in POD_FIELDS


class _Counting(World):
    """Counts the modules that are looked at."""

    asked = 0

    def module(self, path: str) -> Module | None:
        self.asked += 1
        return super().module(path)


def test_what_a_file_loads_is_looked_up_once_for_all_its_hooks() -> None:
    """The time that an edit took grew with the square of its hooks."""
    hooks = [f"def among_{i}(pod, node): return node.name == pod.name\n" for i in range(20)]
    world = _Counting({"x.star": "".join(hooks)}, SCHEMA)
    assert len(examine(world, "x.star").reads) == 20
    assert world.asked == 20 + 1  # where each hook is, and what the file loads


def _chain(length: int, last: str = "") -> dict[str, str]:
    """Files that load each other, each the next one; *last* is in the last of them."""
    texts = {
        f"f{i:03}.star": f'load("f{i + 1:03}.star", "g{i + 1}")\n\ndef g{i}(x):\n    return x\n'
        for i in range(length)
    }
    return {**texts, f"f{length:03}.star": f"def g{length}(x):\n    return x\n{last}"}


@pytest.mark.parametrize(
    ("last", "want"),
    [
        pytest.param("", False, id="nobody"),
        pytest.param("\nlook = [getattr]\n", True, id="the last one"),
    ],
)
def test_a_chain_of_files_is_followed_once(last: str, want: bool) -> None:
    """Each of 500 files was followed to the end of its chain, which took half a minute."""
    files = _chain(100, last)
    world = _Counting(files, SCHEMA)
    assert [world.passes_reflection_on(file) for file in files] == [want] * 101
    assert world.asked < 5 * len(files)


def test_a_file_that_is_not_loaded_by_who_gets_hold_of_fields_does_not() -> None:
    files = {**_chain(3, "\nlook = [getattr]\n"), "aside.star": 'load("f004.star", "x")\n'}
    files["first.star"] = 'load("aside.star", "x")\nload("f002.star", "g2")\n'
    world = World(files, SCHEMA)
    assert [world.passes_reflection_on(f) for f in ("aside.star", "first.star")] == [False, True]
    circle = World({"a.star": 'load("b.star", "x")\n', "b.star": 'load("a.star", "x")\n'}, SCHEMA)
    assert not circle.passes_reflection_on("a.star")


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param("return (-pod.priority, pod.uid)", False, id="a tuple"),
        pytest.param("return _priority(pod)", False, id="a number of a helper"),
        pytest.param("return pod.start_time or 0", False, id="a number or 0"),
        pytest.param("if pod.uid:\n        return 1\n    fail('no')", False, id="a failure"),
        pytest.param("return pod.start_time", True, id="a field that may be None"),
        pytest.param("return None if pod.uid else 1", True, id="None for some"),
        pytest.param("if pod.uid:\n        return 1", True, id="no return for some"),
        pytest.param("return pod.manifest['x']", True, id="anything"),
    ],
)
def test_a_victim_key_that_may_be_none_keeps_pods(body: str, want: bool) -> None:
    text = f"def _priority(pod):\n    return pod.priority\n\ndef victim_key(pod):\n    {body}\n"
    assert analyse({"x.star": text}, "x.star")["victim_key"].keeps_pods is want


def test_variables_of_a_function_in_which_too_much_meets_may_be_all_they_ever_are() -> None:
    ways = "".join(f"    a{i} = 1\n    if pod.uid:\n        a{i} = 2\n" for i in range(1_200))
    text = (
        f"def filter(pod, node):\n    n = pod\n{ways}    m = n\n    n = node\n    return m.name\n"
    )
    assert _reads(text) == ({"uid", "name"}, {"name"})
