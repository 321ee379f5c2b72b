"""The text of a new policy and of its test, hook by hook.

Owns the pieces. Any choice of hooks gives two files that pass `check --strict` and `test` as they
are, because working code is the easier starting point.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class _Piece:
    """One hook: its purpose, what it reads, its constant, its text and its tests.

    `loads`: what its tests load from the policy itself; `needs`: what it loads, of amounts.
    """

    does: str
    reads: str
    constant: str
    text: str
    test: str
    helpers: tuple[str, ...]
    loads: str = ""
    needs: tuple[str, ...] = ()


_PIECES: Final[dict[str, _Piece]] = {
    "group_of": _Piece(
        "Makes a group of the pods that name one, and its size.",
        'pod.labels["{key}.group"], pod.labels["{key}.size"]',
        '_GROUP = "example.com/{dashed}.group"\n_SIZE = "example.com/{dashed}.size"',
        "def group_of(pod):\n"
        "    name = pod.labels.get(_GROUP)\n"
        "    if not name:\n"
        "        return None\n"
        '    return gang(name, min_count = parse_int(pod.labels.get(_SIZE, ""), 1))\n',
        "def test_pods_that_name_a_group_are_in_it():\n"
        '    labels = {{"example.com/{dashed}.group": "g", "example.com/{dashed}.size": "3"}}\n'
        '    asserts.in_group(make_pod(labels = labels), "g", 3)\n'
        "    asserts.in_group(make_pod(), None)\n",
        ("make_pod",),
    ),
    "queue_key": _Piece(
        "Takes pods of higher priority first, then older ones.",
        "pod.priority, pod.created_at",
        "",
        "def queue_key(pod):\n    return (-pod.priority, pod.created_at)\n",
        "def test_urgent_pods_go_first():\n"
        '    pods = [make_pod("a"), make_pod("b", priority = 10)]\n'
        '    asserts.order(pods, ["b", "a"])\n',
        ("make_pod",),
    ),
    "pre_enqueue": _Piece(
        "Holds pods back while an annotation says so.",
        'pod.annotations["{key}.hold"]',
        '_HOLD = "example.com/{dashed}.hold"',
        "def pre_enqueue(pod):\n"
        '    if pod.annotations.get(_HOLD) == "true":\n'
        '        return "held back by an annotation"\n'
        "    return None\n",
        "def test_a_pod_is_held_back_until_its_annotation_goes():\n"
        '    held = make_pod(annotations = {{"example.com/{dashed}.hold": "true"}})\n'
        '    asserts.gated(held, "held back by an annotation")\n'
        "    asserts.not_gated(make_pod())\n",
        ("make_pod",),
    ),
    "pre_filter": _Piece(
        "Lets an annotation name the nodes that a pod may run on.",
        'pod.annotations["{key}.nodes"]',
        '_NODES = "example.com/{dashed}.nodes"',
        "def pre_filter(pod):\n"
        "    text = pod.annotations.get(_NODES)\n"
        "    if text == None:\n"
        "        return None\n"
        '    return only_nodes([name.strip() for name in text.split(",")])\n',
        "def test_only_the_named_nodes_are_considered():\n"
        '    pod = make_pod(annotations = {{"example.com/{dashed}.nodes": "a, b"}})\n'
        '    nodes = cluster(make_node("a"), make_node("b"), make_node("c"))\n'
        '    asserts.considers(nodes, pod, ["a", "b"])\n'
        "    asserts.considers(nodes, make_pod(), None)\n",
        ("cluster", "make_node", "make_pod"),
    ),
    "counters": _Piece(
        "Puts one pod of an app on a node.",
        'pod.labels["app"], pod.namespace',
        '_HOSTNAME = "kubernetes.io/hostname"',
        "def counters(pod):\n"
        '    app = {{"app": pod.labels.get("app", "")}}\n'
        "    peers = count_pods(_HOSTNAME, labels = app, namespaces = [pod.namespace], up_to = 1)\n"
        '    return {{"filter": [peers]}}\n',
        "def test_a_node_takes_one_pod_of_an_app():\n"
        '    web = [make_pod(name, labels = {{"app": "web"}}) for name in ("web-1", "web-2")]\n'
        '    nodes = cluster(make_node("a", pods = [web[0]]), make_node("b"))\n'
        '    asserts.rejects(nodes, web[1], "node(s) had a pod of the same app", "a")\n'
        '    asserts.fits(nodes, web[1], "b")\n',
        ("cluster", "make_node", "make_pod"),
    ),
    "filter": _Piece(
        "Keeps pods off nodes that are marked.",
        'node.labels["{key}.avoid"]',
        '_AVOID = "example.com/{dashed}.avoid"',
        "def filter(pod, node):\n"
        '    if node.labels.get(_AVOID) == "true":\n'
        '        return unresolvable("node(s) were marked to be avoided")\n'
        "    return None\n",
        "def test_a_marked_node_rejects():\n"
        '    marked = make_node("a", labels = {{"example.com/{dashed}.avoid": "true"}})\n'
        '    nodes = cluster(marked, make_node("b"))\n'
        '    asserts.unresolvable(nodes, make_pod(), "node(s) were marked to be avoided", "a")\n'
        '    asserts.fits(nodes, make_pod(), "b")\n',
        ("cluster", "make_node", "make_pod"),
    ),
    "pre_score": _Piece(
        "Takes no number for one that is less than a pod's annotation says.",
        'pod.annotations["{key}.least"]',
        '_LEAST = "example.com/{dashed}.least"',
        "def pre_score(pod):\n"
        "    # Once for the pod, and not for every node.\n"
        '    return state(least = parse_int(pod.annotations.get(_LEAST, ""), 0))\n',
        "def test_a_number_that_is_too_small_is_none():\n"
        '    small = make_node("a", labels = {{"example.com/{dashed}.score": "50"}})\n'
        '    pod = make_pod(annotations = {{"example.com/{dashed}.least": "60"}})\n'
        '    asserts.scores(cluster(small), pod, {{"a": 0}})\n',
        ("cluster", "make_node", "make_pod"),
    ),
    "score": _Piece(
        "Prefers nodes by a number in a label.",
        'node.labels["{key}.score"]',
        '_SCORE = "example.com/{dashed}.score"',
        "def score(pod, node):\n"
        '    return math.clamp(parse_int(node.labels.get(_SCORE, ""), 0), 0, 100)\n',
        "def test_the_node_with_the_larger_number_is_preferred():\n"
        '    good = make_node("a", labels = {{"example.com/{dashed}.score": "50"}})\n'
        '    asserts.prefers(cluster(good, make_node("b")), make_pod(), "a", "b")\n',
        ("cluster", "make_node", "make_pod"),
    ),
    "normalize": _Piece(
        "",
        "",
        "",
        "def normalize(score, over):\n"
        "    # The best node gets 100; if all are alike at 0, there is nothing to prefer.\n"
        "    return 0 if over.max == 0 else 100 * score // over.max\n",
        "def test_the_best_node_gets_all_points():\n"
        '    good = make_node("a", labels = {{"example.com/{dashed}.score": "50"}})\n'
        '    asserts.scores(cluster(good, make_node("b")), make_pod(), {{"a": 100, "b": 0}})\n',
        ("cluster", "make_node", "make_pod"),
    ),
    "score_all": _Piece(
        "Prefers nodes that have fewer pods than the average node.",
        "node.pod_count",
        "",
        "def score_all(pod, nodes):\n"
        "    total = 0\n"
        "    for node in nodes:\n"
        "        total += node.pod_count\n"
        "    return [100 if node.pod_count * len(nodes) < total else 0 for node in nodes]\n",
        "def test_nodes_below_the_average_are_preferred():\n"
        '    nodes = cluster(make_node("busy", pods = [make_pod("p")]), make_node("idle"))\n'
        '    asserts.scores(nodes, make_pod(), {{"busy": 0, "idle": 100}})\n',
        ("cluster", "make_node", "make_pod"),
    ),
    "tie_key": _Piece(
        "Takes the first by name of nodes that are equally good.",
        "node.name",
        "",
        "def tie_key(pod, node):\n    return node.name\n",
        "def test_nodes_that_are_equally_good_are_told_apart_by_name():\n"
        '    nodes = [struct(name = name) for name in ("b", "a")]\n'
        "    first = sorted(nodes, key = lambda node: tie_key(None, node))[0]\n"
        '    asserts.equal(first.name, "a")\n',
        (),
        loads="tie_key",
    ),
    "permit": _Piece(
        "Binds the pods of a group once all have a node, and waits ten minutes for that.",
        "of the pod's group its size, and how many wait and are placed",
        "",
        "def permit(pod, group):\n"
        "    if group == None or group.waiting + group.placed >= group.min_count:\n"
        "        return None\n"
        '    return wait(600, "waiting for the other pods of the group")\n',
        "def test_a_pod_waits_until_its_group_is_whole():\n"
        "    asserts.waits(make_pod(), make_group(min_count = 2, waiting = 1, pending = 1), 600)\n"
        "    asserts.permitted(make_pod(), make_group(min_count = 2, waiting = 2))\n"
        "    asserts.permitted(make_pod(), None)\n",
        ("make_group", "make_pod"),
    ),
    "victim_key": _Piece(
        "Evicts pods that are marked before all others, then the least important.",
        'pod.labels["{key}.evict-first"], pod.priority',
        '_EVICT_FIRST = "example.com/{dashed}.evict-first"',
        "def victim_key(pod):\n"
        '    is_marked = pod.labels.get(_EVICT_FIRST) == "true"\n'
        "    return (1 if is_marked else 0, -pod.priority)\n",
        "def test_a_marked_pod_goes_first():\n"
        '    marked = {{"example.com/{dashed}.evict-first": "true"}}\n'
        '    first = make_pod("first", priority = 5, cpu = 1, labels = marked)\n'
        '    other = make_pod("other", priority = 1, cpu = 1)\n'
        '    nodes = cluster(make_node("a", cpu = 2, pods = [first, other]))\n'
        '    urgent = make_pod("urgent", priority = 100, cpu = 1)\n'
        '    asserts.evicts(nodes, urgent, "a", ["first"], profile = "default-scheduler")\n',
        ("cluster", "make_node", "make_pod"),
    ),
    "candidate_key": _Piece(
        "Frees capacity where the fewest budgets are violated and the fewest pods evicted.",
        "the victims and the violations",
        "",
        "def candidate_key(node, victims, violations):\n    return (violations, len(victims))\n",
        "def test_one_victim_is_better_than_two():\n"
        '    two = [make_pod(name, priority = 1, cpu = 1) for name in ("a1", "a2")]\n'
        '    a = make_node("a", cpu = 2, pods = two)\n'
        '    b = make_node("b", cpu = 2, pods = [make_pod("b1", priority = 50, cpu = 2)])\n'
        '    urgent = make_pod("urgent", priority = 100, cpu = 2)\n'
        '    asserts.evicts(cluster(a, b), urgent, "b", ["b1"], profile = "default-scheduler")\n',
        ("cluster", "make_node", "make_pod"),
    ),
    "annotate": _Piece(
        "Notes on the pod which instance type it got.",
        'node.labels["node.kubernetes.io/instance-type"]',
        "",
        "def annotate(pod, node):\n"
        '    kind = node.labels.get("node.kubernetes.io/instance-type")\n'
        '    return {{"example.com/{dashed}": kind}} if kind else None\n',
        "def test_the_instance_type_is_noted():\n"
        '    node = make_node(labels = {{"node.kubernetes.io/instance-type": "large"}})\n'
        '    asserts.annotates(cluster(node), make_pod(), {{"example.com/{dashed}": "large"}})\n',
        ("cluster", "make_node", "make_pod"),
    ),
    "queues": _Piece(
        "Makes a queue of each object that a QueueTree names, with the weight that it says.",
        'object["spec"]["weight"], object["spec"]["parent"]',
        "tree = queue_attributes(weight = 1)",
        "def queues(object):\n"
        '    spec = object.get("spec", {{}})\n'
        '    name, parent = object["metadata"]["name"], spec.get("parent", "")\n'
        '    return [queue(name, parent = parent, weight = spec.get("weight", 1))]\n',
        "def test_an_object_is_a_queue_of_its_weight():\n"
        '    found = queues({{"metadata": {{"name": "web"}}, "spec": {{"weight": 3}}}})\n'
        '    asserts.equal([one.name for one in found], ["web"])\n'
        '    asserts.equal(found[0].attributes, {{"weight": 3}})\n',
        (),
        loads="queues",
    ),
    "queue_of": _Piece(
        "Puts pods into the queue that a label names.",
        'pod.labels["{key}.queue"]',
        '_QUEUE = "example.com/{dashed}.queue"',
        "def queue_of(pod):\n    return pod.labels.get(_QUEUE)\n",
        "def test_a_pod_is_in_the_queue_that_it_names():\n"
        '    pod = make_pod(labels = {{"example.com/{dashed}.queue": "web"}})\n'
        '    asserts.in_queue(pod, "web")\n'
        "    asserts.in_queue(make_pod(), None)\n",
        ("make_pod",),
    ),
    "passes_up": _Piece(
        "Passes up what a queue wants, for the shares of those above it.",
        "queue.requested",
        "",
        "def passes_up(queue):\n"
        '    wanted = queue.requested if queue.is_leaf else queue.up.get("wanted", {{}})\n'
        '    return {{"wanted": wanted}}\n',
        "def test_a_queue_passes_up_what_is_wanted_below_it():\n"
        '    leaf = make_queue("a", requested = {{"cpu": 1000}})\n'
        '    asserts.equal(passes_up(leaf), {{"wanted": {{"cpu": 1000}}}})\n'
        '    above = make_queue("b", is_leaf = False, up = {{"wanted": {{"cpu": 2000}}}})\n'
        '    asserts.equal(passes_up(above), {{"wanted": {{"cpu": 2000}}}})\n',
        ("make_queue",),
        loads="passes_up",
    ),
    "shares": _Piece(
        "Divides what there is equally among the queues that want some of it.",
        "of queues: share, requested",
        "",
        "def shares(parent, children):\n"
        "    share = {{q.name: {{}} for q in children}}\n"
        "    for r, total in parent.share.items():\n"
        "        entries = [entry(q.name, most = q.requested.get(r, 0)) for q in children]\n"
        "        for name, amount in divide(total, entries).items():\n"
        "            share[name][r] = amount\n"
        "    return share\n",
        "def test_what_one_does_not_want_goes_to_the_other():\n"
        '    root = make_queue("", share = {{"cpu": 10000}})\n'
        '    a = make_queue("a", requested = {{"cpu": 2000}})\n'
        '    b = make_queue("b", requested = {{"cpu": 20000}})\n'
        '    want = {{"a": {{"cpu": 2000}}, "b": {{"cpu": 8000}}}}\n'
        "    asserts.equal(shares(root, [a, b]), want)\n",
        ("make_queue",),
        loads="shares",
        needs=("entry",),
    ),
    "turn_key": _Piece(
        "The queue that has the least of what it needs most goes next.",
        "of queues: allocated",
        "",
        "def turn_key(queue, head, total):\n"
        "    return dominant(plus(queue.allocated, head.resources), total)\n",
        "def test_the_queue_that_has_less_goes_first():\n"
        '    head, total = make_request({{"cpu": 1000}}), {{"cpu": 10000}}\n'
        '    key = turn_key(make_queue("a", allocated = {{"cpu": 2000}}), head, total)\n'
        "    asserts.equal((key.n, key.d), (3000, 10000))\n",
        ("make_queue", "make_request"),
        loads="turn_key",
        needs=("dominant", "plus"),
    ),
    "admit": _Piece(
        "Holds the requests of a queue that would have more than its share.",
        "of queues: allocated, share",
        "",
        "def admit(request, path):\n"
        "    own = path[0]\n"
        "    short = over(plus(own.allocated, request.resources), own.share)\n"
        "    if short:\n"
        '        return hold("queue has its share", at = own.path, short = short)\n'
        "    return None\n",
        "def test_what_is_beyond_the_share_waits():\n"
        '    own = make_queue("a", allocated = {{"cpu": 2000}}, share = {{"cpu": 2500}})\n'
        '    asserts.equal(admit(make_request({{"cpu": 500}}), [own]), None)\n'
        '    held = admit(make_request({{"cpu": 1000}}), [own])\n'
        '    asserts.equal((held.at, held.short), ("a", ["cpu", 500]))\n',
        ("make_queue", "make_request"),
        loads="admit",
        needs=("over", "plus"),
    ),
    "reclaim": _Piece(
        "Has queues give back what they have beyond their share.",
        "of queues: allocated, share",
        "",
        "def reclaim(taker, victim):\n"
        "    gives = victim.queue\n"
        "    return 0 if over(gives.allocated, gives.share) else None\n",
        "def test_only_what_is_beyond_the_share_is_given_back():\n"
        '    full = make_queue("a", allocated = {{"cpu": 2000}}, share = {{"cpu": 2000}})\n'
        '    over_full = make_queue("b", allocated = {{"cpu": 3000}}, share = {{"cpu": 2000}})\n'
        "    asserts.equal(reclaim(None, struct(queue = full)), None)\n"
        "    asserts.equal(reclaim(None, struct(queue = over_full)), 0)\n",
        ("make_queue",),
        loads="reclaim",
        needs=("over",),
    ),
    "giver_key": _Piece(
        "Has the queue that has most give first.",
        "of queues: allocated",
        "",
        'def giver_key(queue):\n    return -queue.allocated.get("cpu", 0)\n',
        "def test_the_queue_that_has_most_gives_first():\n"
        '    more = make_queue("a", allocated = {{"cpu": 2000}})\n'
        '    less = make_queue("b", allocated = {{"cpu": 1000}})\n'
        "    asserts.true(giver_key(more) < giver_key(less))\n",
        ("make_queue",),
        loads="giver_key",
    ),
}

#: The hooks that a new policy can start with: all, in the order in which they are called.
HOOKS: Final = tuple(_PIECES)
#: A policy has either the first or some of the others.
EITHER: Final = ("score_all", ("pre_score", "score", "normalize"))
# Hooks that have no effect without another one, and which that is.
_NEEDS: Final = {
    "group_of": "permit",
    "counters": "filter",
    "pre_score": "score",
    "normalize": "score",
}
_AMOUNTS: Final = "@std/amounts.star"
_COUNTING_FILTER: Final = (
    "def filter(pod, node, counts):\n"
    '    if node.labels.get(_AVOID) == "true":\n'
    '        return unresolvable("node(s) were marked to be avoided")\n'
    "    if counts[0].here:\n"
    '        return "node(s) had a pod of the same app"\n'
    "    return None\n"
)
_SCORE_OF_STATE: Final = (
    "def score(pod, node, state):\n"
    '    number = math.clamp(parse_int(node.labels.get(_SCORE, ""), 0), 0, 100)\n'
    "    return number if number >= state.least else 0\n"
)


def new_policy(name: str, hooks: Collection[str]) -> tuple[str, str]:
    """The texts of the policy *name* with *hooks* (of `HOOKS`) and of its test."""
    wanted = {*hooks, *(_NEEDS[hook] for hook in hooks if hook in _NEEDS)}
    pieces = {hook: piece for hook, piece in _PIECES.items() if hook in wanted}
    if "counters" in wanted:
        pieces["filter"] = replace(pieces["filter"], text=_COUNTING_FILTER)
    if "pre_score" in wanted:
        pieces["score"] = replace(pieces["score"], text=_SCORE_OF_STATE)
    dashed = name.replace("_", "-")
    words = {"dashed": dashed, "key": f"example.com/{dashed}"}
    does = [piece.does for piece in pieces.values() if piece.does]
    reads = [piece.reads.format(**words) for piece in pieces.values() if piece.reads]
    head = "\n".join(does)
    about = "".join(f"\n  {line}" for line in reads)
    constants = [piece.constant.format(**words) for piece in pieces.values() if piece.constant]
    parts = [f'"""{head}\n\nHooks: {", ".join(pieces)}. Reads:{about}\n"""\n']
    needs = sorted({name for piece in pieces.values() for name in piece.needs})
    if needs:
        parts.append(f"load({', '.join(map(json.dumps, (_AMOUNTS, *needs)))})\n")
    if constants:
        parts.append("\n".join(constants) + "\n")
    parts += [piece.text.format(**words) for piece in pieces.values()]
    helpers = sorted(
        {"asserts", *(helper for piece in pieces.values() for helper in piece.helpers)}
    )
    loads = ", ".join(f'"{helper}"' for helper in helpers)
    loading = [f'load("@std/testing.star", {loads})']
    loading += [f'load("{name}.star", "{one.loads}")' for one in pieces.values() if one.loads]
    tests = [f'"""Tests for {name}.star."""\n', "\n".join(loading) + "\n"]
    tests += [piece.test.format(**words) for piece in pieces.values()]
    return "\n".join(parts), "\n".join(tests)
