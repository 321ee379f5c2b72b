"""What hooks that look at groups are given, and what they can answer."""

from typing import Any

import pytest

from engine.policy.analysis import analyse
from engine.policy.evaluator import InProcessEvaluator, PolicyFailure
from tests.engine.policy.programs import per_pod, program_of

GROUP = {"name": "g", "min_count": 3, "waiting": 1, "placed": 1, "exists": True}


def _one(text: str, call: Any) -> Any:
    ((verdict,),) = InProcessEvaluator(program_of(text)).evaluate([call])
    return verdict


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param("None", None, id="leave"),
        pytest.param("wait(30)", ["wait", 30.0, "waiting for the rest of its group"], id="wait"),
        pytest.param('wait(0.5, "not yet")', ["wait", 0.5, "not yet"], id="wait with a reason"),
        pytest.param('wait(1000, "not yet")', ["wait", 900.0, "not yet"], id="too long a wait"),
        pytest.param('"no"', ["reject", ["no"]], id="a reason"),
        pytest.param('["no", "never"]', ["reject", ["no", "never"]], id="reasons"),
        pytest.param('reject("no")', ["reject", ["no"]], id="reject, spelt out"),
        pytest.param('unresolvable("no")', ["reject", ["no"]], id="the same"),
    ],
)
def test_verdicts_of_permit(body: str, want: Any) -> None:
    call = per_pod("permit", group=GROUP)
    assert _one(f"def permit(pod, group): return {body}", call) == want


@pytest.mark.parametrize("body", ["True", "0", "skip()", '""', "[]", 'gang("g")'])
def test_anything_else_is_refused(body: str) -> None:
    failure = _one(f"def permit(pod, group): return {body}", per_pod("permit", group=GROUP))
    assert isinstance(failure, PolicyFailure)
    assert "want None, wait(...) or a reason" in failure.message


@pytest.mark.parametrize("call", ['wait("5")', "wait(0)", "wait(-1)", 'wait(1, "")', "wait(None)"])
def test_a_wait_that_makes_no_sense_fails(call: str) -> None:
    failure = _one(f"def permit(pod, group): return {call}", per_pod("permit", group=GROUP))
    assert isinstance(failure, PolicyFailure)
    assert "wait() wants" in failure.message


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param("None", None, id="no group"),
        pytest.param('gang("g")', ["g", None, None, None, None], id="what the PodGroup says"),
        pytest.param('gang("g", min_count = 4)', ["g", 4, None, None, None], id="so many together"),
        pytest.param(
            'gang("g", 1 << 40)',
            ["g", 1_000_000_000, None, None, None],
            id="more than there can be",
        ),
    ],
)
def test_verdicts_of_group_of(body: str, want: Any) -> None:
    assert _one(f"def group_of(pod): return {body}", per_pod("group_of")) == want


@pytest.mark.parametrize(
    "body", ['"g"', "3", 'gang("")', "gang(3)", 'gang("g", -1)', 'gang("g", "3")']
)
def test_a_group_without_a_name_or_with_a_strange_number_fails(body: str) -> None:
    verdict = _one(f"def group_of(pod): return {body}", per_pod("group_of"))
    assert isinstance(verdict, PolicyFailure)


@pytest.mark.parametrize("hook", ["permit", "pre_enqueue", "queue_key"])
def test_the_group_is_given_as_a_struct_or_none(hook: str) -> None:
    answer = "group.waiting + group.placed" if hook == "queue_key" else 'group.name + "!"'
    text = f'def {hook}(pod, group): return {answer} if group != None else "alone"'
    want = {"permit": ["reject", ["g!"]], "pre_enqueue": "g!", "queue_key": [2]}[hook]
    alone = {"permit": ["reject", ["alone"]], "pre_enqueue": "alone", "queue_key": ["alone"]}[hook]
    assert _one(text, per_pod(hook, group=GROUP)) == want
    assert _one(text, per_pod(hook)) == alone


def test_a_hook_is_given_what_it_reads_of_the_group() -> None:
    text = "def permit(pod, group): return None if group.waiting > group.min_count else wait(1)"
    assert analyse({"x.star": text}, "x.star")["permit"].group == {"waiting", "min_count"}
