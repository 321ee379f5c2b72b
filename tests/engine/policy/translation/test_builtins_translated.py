"""Every builtin of the table in a hook: it runs as Python, or its entry says that it does not."""

from typing import Final

import pytest

from engine.language.table import builtins
from engine.policy.evaluator import program_image
from engine.policy.sandbox.worker import PolicyWorker
from tests.engine.policy.programs import per_node, program_of

# An int that a call of each gives; `{}` is where a view is not given by name.
CALLS: Final = {
    "abs": "abs(-node.pod_count)",
    "all": "1 if all([node.name]) else 0",
    "any": "1 if any([node.name]) else 0",
    "bool": "1 if bool(node.name) else 0",
    "chr": "len(chr(node.pod_count + 65))",
    "dict": "len(dict(a = node.name))",
    "dir": "len(dir(struct(a = 1)))",
    "divide": "len(divide(node.pod_count, []))",
    "enumerate": "len([i for i, x in enumerate(node.taints)])",
    "enum": "1 if enum('a', 'b') else 0",
    "eval_type": "1 if eval_type(int).matches(node.pod_count) else 0",
    "fail": "fail('no') if node.pod_count > 100 else 1",
    "field": "1 if record(a = field(int, 1)) else 0",
    "float": "int(float(node.pod_count))",
    "getattr": "getattr(node, 'pod_count')",
    "hasattr": "1 if hasattr(node, 'pod_count') else 0",
    "hash": "hash(node.name) % 100",
    "int": "int(node.pod_count / 2)",
    "isinstance": "1 if isinstance(node.pod_count, int) else 0",
    "len": "len(node.name)",
    "list": "len(list(node.taints))",
    "matches": "1 if matches(struct(labels = {'a': 'b'}, expressions = []), node.labels) else 0",
    "math.abs": "math.abs(-node.pod_count)",
    "math.beta_cdf": "int(math.beta_cdf(node.pod_count / 10, 1, 2) * 50)",
    "math.ceil": "math.ceil(node.pod_count / 2)",
    "math.clamp": "math.clamp(node.pod_count, 1, 2)",
    "math.exp": "int(math.exp(node.pod_count / 2))",
    "math.floor": "math.floor(node.pod_count / 2)",
    "math.lgamma": "int(math.lgamma(node.pod_count + 1))",
    "math.log": "int(math.log(node.pod_count + 1))",
    "math.pow": "int(math.pow(node.pod_count, 2))",
    "math.round": "math.round(node.pod_count / 2)",
    "math.sqrt": "int(math.sqrt(node.pod_count))",
    "max": "max(node.pod_count, 2)",
    "min": "min(node.pod_count, 2)",
    "ord": "ord(node.name)",
    "parse_float": "int(parse_float(node.name, 0.0))",
    "parse_int": "parse_int(node.name, 0)",
    "plugin_args": "ARGS.x",
    "quantity": "quantity(node.pod_count, 'cpu')",
    "queue_attributes": "queue_attributes(a = node.pod_count).a",
    "range": "len([i for i in range(node.pod_count)])",
    "record": "1 if record(a = int) else 0",
    "repr": "len(repr(node.name))",
    "reversed": "len(reversed(node.taints))",
    "sorted": "len(sorted(node.labels))",
    "str": "len(str(node.pod_count))",
    "struct": "struct(a = node.pod_count).a",
    "tuple": "len(tuple(node.taints))",
    "type": "1 if type(node.name) == 'string' else 0",
    "zip": "len([a for a, b in zip(node.taints, node.taints)])",
    # What hooks return that may run as Python.
    "reject": "reject('no')",
    "unresolvable": "unresolvable('no', token = 'NotHere')",
}
# What hooks return that are asked once for a pod, which are never translated.
_ONCE_PER_POD: Final = {
    *("skip", "only_nodes", "state", "wait", "gang", "queue", "alias", "member", "ratio", "hold"),
    *(name for name, one in builtins().items() if one.result in ("counter", "selector")),
}
_NODES: Final = [
    {"name": "7", "pod_count": 3, "labels": {"a": "b"}, "taints": [{"key": "k"}]},
    {"name": "n", "pod_count": 0, "labels": {}, "taints": []},
]


def _workers(text: str) -> tuple[PolicyWorker, PolicyWorker]:
    image = program_image(program_of(text))
    return PolicyWorker(image), PolicyWorker(image, translates=False)


def test_every_builtin_has_a_call_here() -> None:
    assert set(CALLS) == builtins().keys() - _ONCE_PER_POD


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_builtin_is_translated_or_its_entry_says_that_it_is_not(name: str) -> None:
    """`math.` functions that take a list passed every check, and their hooks lost their speed.

    They were left to the interpreter, three to four times the CPU, and nothing said so.
    """
    hook = "filter" if builtins()[name].makes else "score"
    head = "ARGS = plugin_args(x = 1)\n\n" if name == "plugin_args" else ""
    text = f"{head}def {hook}(pod, node):\n    return {CALLS[name]}\n"
    fast, plain = _workers(text)
    assert fast.translations is not None
    assert (fast.translations.obstacle(0, hook) == "") is builtins()[name].is_translated
    call = per_node(hook, *_NODES)
    assert list(fast.verdicts(call)) == list(plain.verdicts(call))


@pytest.mark.parametrize(
    "call",
    [
        "parse_int(node.name, default = 4)",
        "parse_int(text = node.name, default = 4)",
        "parse_int(default = 4, text = node.name)",
        "int(parse_float(node.name, default = 4.0))",
    ],
)
def test_arguments_given_by_name_are_translated(call: str) -> None:
    fast, plain = _workers(f"def score(pod, node):\n    return {call}\n")
    assert fast.translations is not None
    assert fast.translations.obstacle(0, "score") == ""
    asked = per_node("score", *_NODES)
    assert list(fast.verdicts(asked)) == list(plain.verdicts(asked)) == [7, 4]
