"""Pods with thousands of entries: run as Python too, where the interpreter surely has the steps."""

import json
from typing import Any, Final

import pytest

from engine.policy.evaluator import Limits, program_image, view_schema
from engine.policy.sandbox import drivers
from engine.policy.sandbox.modules import Budget, Modules
from engine.policy.sandbox.protocol import Call
from engine.policy.sandbox.worker import PolicyWorker
from tests.engine.policy.programs import program_of

_SCHEMA: Final = view_schema()
_COUNT: Final = 2_000
_PLAIN: Final[dict[str, Any]] = {"int": 0, "bool": True, "float": 0}


def _filled(type_text: str, count: int) -> Any:
    """A value of a type with *count* entries in each list and dict of it, and none in those."""
    type_text = type_text.removesuffix("?")
    if type_text in _SCHEMA.records:
        fields = _SCHEMA.records[type_text]
        return {name: _filled(each, count) for name, each in fields.items()}
    if type_text.startswith("list["):
        return [_filled(type_text[5:-1], 0)] * count
    if type_text.startswith("dict["):
        item = type_text[:-1].partition(",")[2].strip()
        return {str(number): _filled(item, 0) for number in range(count)}
    return _PLAIN.get(type_text, "")


@pytest.mark.parametrize("view", ["pod", "node"])
def test_making_a_view_takes_less_than_a_step_for_each_byte(view: str) -> None:
    """By that it is told which pods the interpreter may not have the steps for."""
    modules = Modules({}, Limits())
    views = modules.run_private(drivers.VIEWS_MODULE, drivers.views_text(_SCHEMA))
    text = f'load("{drivers.VIEWS_MODULE}", "view_{view}")\n'
    text += f"def go(text):\n    view_{view}(json.decode(text))\n"
    module = modules.run_private("@x.star", text, {drivers.VIEWS_MODULE: views})
    for name, type_text in _SCHEMA.views[view].items():
        raw = json.dumps({name: _filled(type_text, _COUNT)}, separators=(",", ":"))
        budget = Budget(Limits()).allow(1_000 + len(raw))
        assert module.call_with(budget, "go", raw).value is None


def test_a_pod_of_300_kilobytes_is_not_left_to_the_interpreter() -> None:
    """It takes fifty times as long: a thousand terms of node affinity ran into the deadline."""
    text = "def score(pod, node): return len([t for t in pod.tolerations if t.key == node.name])\n"
    text += "def normalize(score, over): return 0\n"
    worker = PolicyWorker(program_image(program_of(text)))
    toleration = {"key": "k", "operator": "Exists", "value": "", "effect": "NoSchedule"}
    pod = json.dumps({"tolerations": [toleration] * 4_200}).encode()
    assert len(pod) > 300_000
    assert worker.translations is not None
    call = Call(0, "score", pod, [b'{"name":"k"}', b'{"name":"l"}'])
    found = worker.translations.verdicts(call)
    assert found is not None
    assert list(found) == [4_200, 0] == list(worker.verdicts(call))


def test_pods_that_are_too_large_do_not_slow_the_others() -> None:
    """A hook is left to the interpreter for good once it has often been: 65 such pods did that."""
    text = "def score(pod, node): return 1 if node.name in pod.labels else 0\n"
    worker = PolicyWorker(program_image(program_of(text, limits=Limits(steps=80_000))))
    assert worker.translations is not None
    for number in range(80):
        pod = json.dumps({"labels": {f"{number}-{i}": "x" * 50 for i in range(300)}}).encode()
        call = Call(0, "score", pod, [b'{"name":"n"}'])
        assert worker.translations.verdicts(call) is None
        assert list(worker.verdicts(call)) == [0]
    small = Call(0, "score", b'{"labels":{"n":""}}', [b'{"name":"n"}'])
    found = worker.translations.verdicts(small)
    assert found is not None
    assert list(found) == [1]
