"""Policies that nobody wrote: small files that read anything and return anything.

Owns a grammar. Every text is well formed; its hooks may fail for some nodes and some pods, as
those of people do.
"""

from typing import Final

from hypothesis import strategies as st

_ZONE: Final = "topology.kubernetes.io/zone"

# What is there only for those who name it, by view.
NAMED: Final = {
    "pod": ("facts[fussy]",),
    "node": ("facts[heat]", "facts[cold]", "pod_facts[reward]", "pod_annotations[fussy]"),
    "cluster": ("facts[price]",),
}

LIBRARY: Final = '''"""Helpers that the policies load."""

def warmth(node, unknown):
    fact = node.facts["heat"]
    return unknown if fact == None or fact.value == None else fact.value

def same_color(pod, node):
    return pod.labels.get("color", "blue") == node.labels.get("color")

def free(node, name):
    return node.allocatable.get(name, 0) - node.requested.get(name, 0)

taken = getattr

def _age(node):
    fact = node.facts["heat"]
    return 1 if fact == None else fact.age_seconds or 2

TOOLS = struct(age = _age, notes = lambda node: len(node.pod_annotations.get("fussy", [])))

def pick(item, field):
    return {"zone": item.labels.get("topology.kubernetes.io/zone", ""), "name": item.name}[field]
'''

# Whole numbers, of the pod alone and of both.
_OF_POD: Final = (
    "pod.priority",
    "len(pod.labels)",
    'len(pod.labels.get("app", ""))',
    'pod.requests.get("cpu", 0) // 100',
    "len(pod.name)",
    "len(pod.tolerations)",
    "len(pod.namespace_labels)",
    "len(pod.containers)",
    'pod.nonzero_requests.get("memory", 0) // 100000000',
    "ARGS.bonus",
    '(1 if pod.annotations.get("fussy") else 0)',
    '(0 if pod.facts["fussy"] == None else pod.facts["fussy"].value)',
    "len(pod.host_ports)",
)
_OF_NODE: Final = (
    "node.pod_count",
    'node.requested.get("cpu", 0) // 100',
    'free(node, "cpu") // 100',
    "len(node.labels)",
    'len(node.labels.get("color", ""))',
    'len(pick(node, "zone"))',
    "len(node.taints)",
    "len(node.images)",
    "sum_of([i.node_count for i in node.images.values()])",
    "warmth(node, 3)",
    'len(node.pod_facts["reward"])',
    "len(node.used_ports)",
    "(7 if node.unschedulable else 1)",
    'node.nonzero_requested.get("memory", 0) // 100000000',
    '(0 if node.facts["heat"] == None else node.facts["heat"].age_seconds or 0)',
    "(5 if same_color(pod, node) else 2)",
    "parse_int(node.name[1:], 0)",
    'len([a for a in node.pod_annotations.get("fussy", [])])',
    "len(node.allocatable)",
)
_FAILS: Final = (
    'len(node.labels["color"])',
    "10 // (node.pod_count - 1)",
    "(fail(node.name) if node.taints else 1)",
)
# What changes what the nodes that come after are given, too.
_CHANGES: Final = '{"of": cluster}["of"].facts.setdefault("heat", node.pod_count)'
_OF_COUNTS: Final = (
    "(counts[0].here or 0)",
    "counts[0].total",
    "counts[0].max",
    "(1 if counts[0].here == None else 4)",
    "counts[1].min",
    "counts[0].domains",
)
# What reads where it is easily overlooked, by what else could stand in its place.
_HIDDEN: Final[dict[tuple[str, ...], tuple[str, ...]]] = {
    _OF_POD: ("(lambda number, many = len(pod.init_containers): number)(2, 1)",),
    _OF_NODE: (
        '(0 if node.facts["heat"] == None else taken(node.facts["heat"], "age_seconds", 4) or 0)',
        '(2 if struct(of = node).of.facts["cold"] == None else len(node.pod_annotations["fussy"]))',
        "len([key for key in KEYS if key in node.labels])",
        "TOOLS.age(node)",
        "TOOLS.notes(node)",
        # What has the name of the pod, and is none.
        "[len(pod.labels) for pod in [node]][0]",
        "sum_of([len(pod.labels) for pod in [node, node]])",
    ),
    _OF_COUNTS: ("len(str(counts[1]))", "(2 if counts[0] == counts[1] else 3)"),
}
_OF_SCORED_COUNTS: Final = (
    "counts[0].feasible_nodes",
    "counts[1].feasible_domains",
    "counts[0].feasible_outside",
)
_OF_STATE: Final = (
    "state.left",
    "state.rows[0]",
    'state.by["k"]',
    "(0 if state.price == None else state.price.age_seconds or 3)",
)
_COUNTERS: Final = (
    f'count_pods("{_ZONE}", labels = {{"app": "web"}}, namespaces = ["default"])',
    'count_pods(None, labels = {"app": "web"}, namespaces = ["default", "other"])',
    'count_pods("color", labels = pod.labels, namespaces = [pod.namespace], weight = 3)',
    f'count_pods("{_ZONE}", labels = {{"app": "db"}}, namespaces = ["default"], up_to = 1)',
    f'count_pods("{_ZONE}", labels = {{"app": "web"}}, namespaces = ["default"], '
    'among = "among_calm")',
    'count_pods(None, labels = {"app": pod.labels.get("app", "db")}, namespaces = ["default"], '
    'among = "among_dear")',
    f'count_pods(None, labels = {{"app": "web"}}, namespaces = ["default"], keys = ["{_ZONE}"])',
    'count_pods(None, labels = {"app": "web"}, namespaces = ["default"], terminating = True)',
    f'sum_requests("{_ZONE}", [pods_in(["default"], {{"app": "web"}})], "cpu")',
    'sum_requests(None, resource = "memory", labels = pod.labels, namespaces = ["default"], '
    "weight = -2, up_to = 300000000)",
    'count_nodes(None, free = {"cpu": 2000})',
    f'count_nodes("{_ZONE}", labels = {{"color": "red"}}, free = {{"pods": 2}}, weight = 2, '
    'among = "among_calm")',
    'count_terms("required_anti_affinity")',
    'count_terms("preferred_affinity", weight = 2)',
    'count_matches("required_anti_affinity", up_to = 1)',
    f'count_matches("required_affinity", topology = "{_ZONE}")',
    'count_matches("preferred_affinity", weight = 2)',
    f'[count_pods("{_ZONE}", labels = {{"app": "web"}}, namespaces = ["default"]), '
    'count_pods("color", labels = {"app": "db"}, namespaces = ["default"])]',
)


@st.composite
def policy_texts(draw: st.DrawFn) -> str:
    """The text of a policy `wild.star` beside `helpers.star`."""
    with_counts = draw(st.booleans())
    with_state = draw(st.booleans())
    may_fail = draw(st.integers(0, 4)) == 0
    of_node = (*_OF_NODE, *_FAILS) if may_fail else _OF_NODE
    shared = _OF_STATE if with_state else ()

    def number(*kinds: tuple[str, ...]) -> str:
        terms = draw(
            st.lists(st.sampled_from([t for kind in kinds for t in kind]), min_size=1, max_size=3)
        )
        hidden = [t for kind in kinds for t in _HIDDEN.get(kind, ())]
        is_hiding: bool = draw(st.booleans())
        if hidden and is_hiding:
            terms = [draw(st.sampled_from(hidden)), *terms[:2]]
        signs = draw(st.lists(st.sampled_from(["+", "-", "*"]), min_size=2, max_size=2))
        text = terms[0]
        for sign, term in zip(signs, terms[1:], strict=False):
            text = f"({text}) {sign} ({term})"
        return text

    def condition(*kinds: tuple[str, ...]) -> str:
        compare = draw(st.sampled_from([">", "<", "==", ">=", "!="]))
        return f"{number(*kinds)} {compare} {draw(st.integers(0, 12))}"

    lines = [
        '"""Nobody wrote this."""',
        'load("helpers.star", "TOOLS", "free", "pick", "same_color", "taken", "warmth")',
        f"ARGS = plugin_args(bonus = {draw(st.integers(0, 5))})",
        "",
        'KEYS = ["other"]',
        "",
        "def grown(key):",
        "    KEYS.append(key)",
        "    return key",
        "",
        'GROWN = sorted(["kubernetes.io/hostname"], key = grown)',
        "",
        "def sum_of(numbers):",
        "    total = 0",
        "    for number in numbers:",
        "        total += number",
        "    return total",
        "",
        "def among_calm(pod, node):",
        f"    return {condition(_OF_POD, of_node)}",
        "",
        "def among_dear(pod, node, cluster):",
        f"    return {_PRICE} < {number(_OF_NODE)}",
        "",
    ]
    hooks = draw(
        st.sets(
            st.sampled_from(
                [
                    "filter",
                    "score",
                    "score_all",
                    "pre_filter",
                    "tie_key",
                    "annotate",
                    "pre_score",
                    "victim_key",
                ]
            ),
            min_size=1,
        )
    )
    if with_state:
        hooks |= {"pre_filter", "filter"}
    params = [
        *(["state"] if with_state else []),
        *(["counts"] if with_counts else []),
    ]
    tail = "".join(f", {name}" for name in params)
    takes_counts = False
    if with_counts and hooks & {"filter", "score"}:
        takes_counts = draw(st.booleans())
        counters = draw(st.lists(st.sampled_from(_COUNTERS), min_size=2, max_size=2))
        lines += ["def counters(pod):", f"    return [{', '.join(counters)}]", ""]
    counts = _OF_COUNTS if with_counts else ()
    if "pre_filter" in hooks:
        lines += [f"def pre_filter(pod, cluster{', counts' if takes_counts else ''}):"]
        if takes_counts:
            lines += ["    if counts and counts[0].is_empty:", '        return reject("was alone")']
        if draw(st.booleans()):
            verdict = draw(
                st.sampled_from(
                    [
                        'reject("was not liked")',
                        'unresolvable("was never liked")',
                        "skip()",
                        'only_nodes(["n0", "n2", "n4"])',
                        'only_nodes(["n1", "none"])',
                    ]
                )
            )
            if not (with_state and verdict.startswith("only")):
                lines += [f"    if {condition(_OF_POD)}:", f"        return {verdict}"]
        left = draw(st.sampled_from([_PRICE, "cluster.node_count", number(_OF_POD)]))
        if with_state:
            lines += [
                '    price = cluster.facts["price"]',
                f"    return state(left = {left}, rows = [{number(_OF_POD)}], "
                'by = {"k": 1}, price = price)',
                "",
            ]
        else:
            lines += ["    return None", ""]
    if "filter" in hooks:
        asks_cluster = draw(st.integers(0, 4)) == 0
        changes = asks_cluster and may_fail
        lines += [
            f"def filter(pod, node{tail}{', cluster' if asks_cluster else ''}):",
            *([f"    if {_PRICE} > {draw(st.integers(0, 6))}:"] if asks_cluster else []),
            *(['        return "node(s) were dear"'] if asks_cluster else []),
            *([f"    if {_CHANGES} > 1:", '        return "node(s) were late"'] if changes else []),
            f"    if {condition(_OF_POD, of_node, shared, counts)}:",
            f"        return {draw(st.sampled_from(_REASONS))}",
            f"    if {condition(_OF_POD, of_node, counts)}:",
            '        return unresolvable("node(s) were wild")',
            "    return None",
            "",
        ]
    if "pre_score" in hooks:
        lines += [
            f"def pre_score(pod, cluster{', counts' if takes_counts else ''}):",
            *(
                ["    if counts and counts[0].is_empty:", "        return skip()"]
                if takes_counts
                else []
            ),
            f"    if {condition(_OF_POD)}:",
            "        return skip()",
            "    return None"
            if not with_state
            else '    return state(left = 2, rows = [1], by = {"k": 3}, '
            'price = cluster.facts["price"])',
            "",
        ]
    if "score" in hooks:
        normalizes = draw(st.booleans())
        scored = _OF_SCORED_COUNTS if with_counts else ()
        value = number(_OF_POD, of_node, shared, counts, scored)
        if not normalizes:
            value = f"max(0, min(100, {value}))"
        lines += [
            f"def score(pod, node{tail}):",
            f"    if {condition(_OF_NODE)}:",
            "        return None",
            f"    return {value}",
            "",
        ]
        if normalizes:
            lines += [
                "def normalize(score, over):",
                *(["    if score % 2:", "        fail(score)"] if may_fail else []),
                "    if over.max == over.min:",
                f"        return {draw(st.sampled_from(_EVEN))}",
                "    return 100 * (score - over.min) // (over.max - over.min)",
                "",
            ]
    elif "score_all" in hooks:
        lines += [
            "def score_all(pod, nodes):",
            f"    values = [{number(_OF_POD, _OF_NODE)} for node in nodes]",
            "    return [max(0, min(100, value - min(values))) for value in values]",
            "",
        ]
    if "tie_key" in hooks and hooks & {"score", "score_all"}:
        lines += ["def tie_key(pod, node):", f"    return {number(_OF_POD, of_node)}", ""]
    if "victim_key" in hooks:
        lines += ["def victim_key(pod):"]
        if draw(st.booleans()):
            lines += [f"    if {condition(_OF_POD)}:", "        return None"]
        key = 'pod.labels.get("app") or fail(pod.name)' if may_fail else number(_OF_POD)
        lines += [f"    return {key}", ""]
    if "annotate" in hooks and hooks & {"filter", "score", "score_all"}:
        lines += [
            "def annotate(pod, node):",
            f'    return {{"fussy": str({number(_OF_NODE)})}}',
            "",
        ]
    return "\n".join(lines)


_PRICE: Final = '(0 if cluster.facts["price"] == None else cluster.facts["price"].value)'
_EVEN: Final = ("50", "min(100, over.count)", "0", "min(100, len(str(over)))")
_REASONS: Final = (
    '"node(s) were disliked"',
    '["node(s) were disliked", "node(s) were strange"]',
    '"node(s) were red" if node.labels.get("color") == "red" else "node(s) were not red"',
)

_LOADS: Final = """load("helpers.star", "TOOLS", "free", "pick", "same_color", "taken", "warmth")
ARGS = plugin_args(bonus = 1)

def among_calm(pod, node):
    return True

def among_dear(pod, node):
    return True
"""

#: Policies that reuse once made a difference for, as nobody would write them either.
KNOWN: Final = (
    f'''"""Calls a node `pod`; its keys fail, each in its way."""
{_LOADS}
def filter(pod, node):
    return "node(s) had labels" if [len(pod.labels) for pod in [node]][0] > 2 else None

def score(pod, node):
    return min(100, len(pod.name) + max([len(pod.labels) for pod in [node, node]]))

def tie_key(pod, node):
    return fail(node.name) if node.taints else 1
''',
    f'''"""Fails for what it counts, for whom it spares and for its scores, each in its way."""
{_LOADS}
def counters(pod):
    return [count_pods(None, labels = {{"app": "web"}}, namespaces = ["default"],
                       among = "among_free" if pod.labels else "among_calm")]

def among_free(pod, node):
    return fail(node.name) if node.unschedulable else True

def filter(pod, node, counts):
    return "node(s) were taken" if node.pod_count > 1 and counts[0].total else None

def score(pod, node):
    return node.pod_count + len(node.labels)

def normalize(score, over):
    return fail(score) if over.min != over.max else 50

def victim_key(pod):
    return pod.labels.get("app") or fail(pod.name)
''',
    f'''"""Keeps among the facts of the cluster what it was asked before."""
{_LOADS}
def filter(pod, node, cluster):
    first = {{"of": cluster}}["of"].facts.setdefault("first", node.pod_count)
    return "node(s) were late" if node.pod_count != first else None
''',
)
