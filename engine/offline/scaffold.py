"""The text of a new policy and of its test, hook by hook.

Owns the pieces. Any choice of hooks gives two files that pass `check --strict` and `test` as they
are: a start that works is easier to change than one that does not.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class _Piece:
    """One hook: what it is for, what it reads, its constant, its text and its tests."""

    does: str
    reads: str
    constant: str
    text: str
    test: str
    helpers: tuple[str, ...]


_PIECES: Final[dict[str, _Piece]] = {
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
}

#: The hooks that a new policy can start with, in the order in which they are called.
HOOKS: Final = tuple(_PIECES)
_NEEDS: Final = {"normalize": "score"}


def new_policy(name: str, hooks: Collection[str]) -> tuple[str, str]:
    """The texts of the policy *name* with *hooks* (of `HOOKS`) and of its test."""
    wanted = {*hooks, *(_NEEDS[hook] for hook in hooks if hook in _NEEDS)}
    pieces = {hook: piece for hook, piece in _PIECES.items() if hook in wanted}
    dashed = name.replace("_", "-")
    words = {"dashed": dashed, "key": f"example.com/{dashed}"}
    does = [piece.does for piece in pieces.values() if piece.does]
    reads = [piece.reads.format(**words) for piece in pieces.values() if piece.reads]
    head = "\n".join(does)
    about = "".join(f"\n  {line}" for line in reads)
    constants = [piece.constant.format(**words) for piece in pieces.values() if piece.constant]
    parts = [f'"""{head}\n\nHooks: {", ".join(pieces)}. Reads:{about}\n"""\n']
    if constants:
        parts.append("\n".join(constants) + "\n")
    parts += [piece.text.format(**words) for piece in pieces.values()]
    helpers = sorted(
        {"asserts", *(helper for piece in pieces.values() for helper in piece.helpers)}
    )
    loads = ", ".join(f'"{helper}"' for helper in helpers)
    tests = [f'"""Tests for {name}.star."""\n', f'load("@std/testing.star", {loads})\n']
    tests += [piece.test.format(**words) for piece in pieces.values()]
    return "\n".join(parts), "\n".join(tests)
