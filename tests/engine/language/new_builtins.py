"""What every part makes of builtins that the table has one more entry each for.

Run by `test_table.py` in a process of its own: the entries are added before anything else is
imported, as if they stood in `engine/language`. Prints JSON.
"""

import json
import math
import random

from engine.language import counter_makers, numbers
from engine.language.table import Builtin, Parameter, kinds, number


def total(items: list[float]) -> float:
    """The sum of *items*."""
    return sum(items)


def parse_hex(text: object, default: object = None) -> object:
    """The int that *text* is in base 16, else *default*."""
    try:
        return int(text, 16) if isinstance(text, str) else default
    except ValueError:
        return default


_TEXT = Parameter("text", kinds("str none"), "a text")
numbers.ENTRIES = (  # type: ignore[misc]  # one more each
    *numbers.ENTRIES,
    Builtin(
        name="parse_hex",
        parameters=(_TEXT, Parameter("default", default="None")),
        result="int",
        default="default",
        python=parse_hex,
        doc="The int that *text* is in base 16, else *default*.",
    ),
    Builtin(
        name="math.hypot",
        parameters=(number("x"), number("y")),
        result="float",
        python=math.hypot,
        doc="The length of the vector (*x*, *y*).",
    ),
    Builtin(
        name="math.total",
        parameters=(Parameter("items", kinds("list"), "a list of numbers", is_positional=True),),
        result="int",
        python=total,
        doc="The sum of *items*.",
    ),
)
counter_makers.ENTRIES = (  # type: ignore[misc]  # one more
    *counter_makers.ENTRIES,
    Builtin(
        name="shares_key",
        parameters=(
            Parameter("a", kinds("dict"), "a dict"),
            Parameter("b", kinds("dict"), "a dict"),
        ),
        result="bool",
        doc="True if *a* and *b* have a key in common.",
    ),
)
counter_makers.TEXT += "\ndef shares_key(a, b):\n    return any([k in b for k in a])\n"  # type: ignore[misc]  # the same

_POLICY = """
_BASE = {"ff": parse_hex("ff")}

def filter(pod, node):
    if parse_hex(node.labels.get("width"), 0) + math.hypot(3, 4) < _BASE["ff"]:
        return "node(s) were too narrow"
    return None

def score(pod, node):
    if shares_key({"width": 1}, node.labels):
        return math.total([1, 0])
    return parse_hex(node.labels["a"], default = 7)
"""
_WRONG = """
def score(pod, node):
    x = parse_hex(3)
    y = math.hypot("a", 1)
    return 1 if shares_key([], node.labels) else 0

def tie_key(pod, node):
    return parse_hex("a", radix = 2)
"""


def main() -> None:
    from engine.policy.analysis import analyse
    from engine.policy.check import check_files
    from engine.policy.evaluator import Instance, Program, program_image
    from engine.policy.sandbox.protocol import Call, decode_answer
    from engine.policy.sandbox.worker import PolicyWorker
    from tests.engine.policy.translation.random_policies import Policy
    from tests.policies.doc_tables import tables
    from workbench.lint.linter import lint_files
    from workbench.stubs.stubs import stub_text

    files, wrong = {"mine.star": _POLICY}, {"wrong.star": _WRONG}
    image = program_image(Program(files, (Instance("mine", "mine.star"),)))
    fast, plain = PolicyWorker(image), PolicyWorker(image, translates=False)
    assert fast.translations is not None
    answers = []
    for hook in ("filter", "score"):
        nodes = [b'{"labels":{"width":"f","a":"a"}}', b'{"labels":{"width":"fff"}}']
        if hook == "score":
            nodes.append(b'{"labels":{"a":"1f"}}')
        call = Call(0, hook, b"{}", nodes, b"{}")
        answers += [list(decode_answer(worker.evaluate(call))) for worker in (fast, plain)]
    texts = [Policy(random.Random(seed), 8).text for seed in range(40)]
    reads = analyse(files, "mine.star")["filter"]
    found = {
        "check": [str(problem) for problem in check_files(files)],
        "check of wrong calls": [str(problem) for problem in check_files(wrong)],
        "lint": [str(one.problem) for one in lint_files(files)],
        "lint of wrong calls": [str(one.problem) for one in lint_files(wrong)],
        "obstacles": [fast.translations.obstacle(0, hook) for hook in ("filter", "score")],
        "answers": answers,
        "reads": sorted(reads.node),
        "stubs": stub_text(),
        "documents": tables()["builtins"],
        "random policies": "".join(texts),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
