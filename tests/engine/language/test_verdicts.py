"""The forms of verdicts: the driver, Python, the decoder and the lints agree about each of them."""

import ast
from typing import Any

import msgspec
import pytest

from engine.language.hook import Hook
from engine.language.hooks import AMONG, ENTRIES
from engine.language.verdicts import NoVerdictError, checker, wire_of
from engine.policy.evaluator import Call, InProcessEvaluator, Instance, PolicyFailure, Program
from engine.policy.sandbox.compiled import can_compile
from workbench.lint.linter import lint_files

_VALUES = (
    *("None", "True", "False", "0", "-1", "100", "101", "4611686018427387905", "1 << 70", "1.5"),
    *('""', '" "', '"why"', "[]", "()", '["a"]', '["a", ""]', "[1]", '(1, "a")', "(1, None)"),
    *("[True]", "[[1]]", "{}", '{"a": "b"}', '{"": "b"}', '{"a": 1}', '{"filter": []}'),
    *('reject("no")', 'unresolvable(["a", "b"])', "skip()", 'only_nodes(["a"])', "state(a = 1)"),
    *('reject("no", token = "Own")', 'unresolvable("a", "QuotaReached")', 'reject("a", "b")'),
    *('wait(5, token = "Own")', "wait(5, token = 1)", 'unresolvable("a", token = "Throttled")'),
    *("wait(5)", 'gang("g", 2)', "count_pods(None, [])", "struct(a = 1)"),
    *("ratio(1, 2)", "(ratio(-1, 0), 3)", "ratio(1 << 126, 1)", "ratio(1 << 127, 1)"),
    *('hold("no")', 'hold("no", "Own", at = "a/b", whole_queue = True)'),
    'hold("no", short = struct(resource = "cpu", by = 3))',
)
_NAMES = {hook.name: hook.name for hook in ENTRIES} | {"among_": "among_x"}


@pytest.fixture(scope="module", params=[True, False], ids=["normalized", "bounded"])
def is_normalized(request: pytest.FixtureRequest) -> bool:
    """True for a policy that has `normalize`."""
    return bool(request.param)


def _texts(hook: Hook, *, is_normalized: bool) -> dict[str, str]:
    """For each value a file with the hook that returns it, and the file's name."""
    name = _NAMES[hook.name]
    head = f"def {name}({', '.join(hook.parameters[: hook.required])}):\n    return "
    tail = "\ndef normalize(score, over):\n    return 0\n"
    tail = tail if is_normalized and name != "normalize" else "\n"
    return {f"{i}.star": head + value + tail for i, value in enumerate(_VALUES)}


def _verdicts(hook: Hook, texts: dict[str, str]) -> list[Any]:
    """What the interpreter's driver gives for each file."""
    name = _NAMES[hook.name]
    entries = {
        "normalize": [b"1"],
        "candidate_key": [b'{"node":{},"victims":[],"violations":0}'],
        "score_all": [b"{}"],
    }
    nodes = [b"{}"] if hook.is_per_node else entries.get(hook.name)
    extra = b'{"over":{"min":0,"max":1,"count":1}}' if name == "normalize" else b"{}"
    program = Program(texts, tuple(Instance(path, path) for path in texts))
    evaluator = InProcessEvaluator(program, translates=False)
    calls = [Call(i, name, b"{}", nodes, extra) for i in range(len(texts))]
    return [verdict for [verdict] in evaluator.evaluate(calls)]


@pytest.mark.parametrize("hook", [*ENTRIES, AMONG], ids=lambda hook: hook.name)
def test_all_parts_agree_about_a_verdict(hook: Hook, is_normalized: bool) -> None:
    forms = hook.forms_for(is_normalized=is_normalized)
    decoder = msgspec.json.Decoder(wire_of(forms))
    texts = _texts(hook, is_normalized=is_normalized)
    refused = {one.problem.file for one in lint_files(texts) if one.lint == "wrong-return"}
    verdicts = _verdicts(hook, texts)
    for value, path, verdict in zip(_VALUES, texts, verdicts, strict=True):
        is_failure = isinstance(verdict, PolicyFailure)
        if not is_failure:
            got = msgspec.to_builtins(decoder.decode(msgspec.json.encode(verdict)))
            if hook.name == "filter" and verdict is not None and len(verdict) == 2:
                assert got.pop() == ""  # the token, which is sent only if there is one
            assert msgspec.json.encode(got) == msgspec.json.encode(verdict), value
        literal = _literal(value)
        if can_compile(hook.name) and literal is not ...:
            try:
                sent = checker(forms)(literal)
            except NoVerdictError:
                assert is_failure, value
            else:
                assert sent == verdict, value
        assert is_failure or path not in refused, f"the lint refuses {value}"
    assert not all(isinstance(verdict, PolicyFailure) for verdict in verdicts)


def _literal(value: str) -> Any:
    """The value in Python, or ... for one that a builtin makes."""
    try:
        return ast.literal_eval(value)
    except ValueError:
        return ...
