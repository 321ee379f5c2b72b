"""Every shipped hook, as Python and in the interpreter: the same verdicts, whatever is asked."""

import functools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.policy.bundle import build_bundle
from engine.policy.evaluator import Files, Instance, Program, program_image
from engine.policy.hook_signatures import hook_signatures
from engine.policy.sandbox.compiled import can_compile
from engine.policy.sandbox.protocol import decode_answer
from engine.policy.sandbox.worker import PolicyWorker
from tests.engine.policy.translation.views import declarations_in


@functools.cache
def shipped() -> Files:
    return build_bundle({}).program.files


def candidates() -> list[tuple[str, str]]:
    return [
        (path, hook)
        for path, text in sorted(shipped().items())
        for hook in hook_signatures(text)
        if can_compile(hook) and not path.endswith("_test.star")
    ]


def interpreted() -> set[tuple[str, str]]:
    """Hooks that take a `state`, by file and hook."""
    return {
        (path, hook)
        for path, hook in candidates()
        if "state" in hook_signatures(shipped()[path])[hook].params
    }


@functools.cache
def workers(path: str) -> tuple[PolicyWorker, PolicyWorker]:
    """One that translates and one that does not."""
    image = program_image(Program(shipped(), (Instance(path, path),)))
    return PolicyWorker(image), PolicyWorker(image, translates=False)


@pytest.mark.slow("compares much")
def test_all_hooks_that_are_asked_about_nodes_are_translated() -> None:
    found = set()
    for path, hook in candidates():
        translations = workers(path)[0].translations
        assert translations is not None
        if translations.obstacle(0, hook):
            found.add((path, hook))
    assert found == interpreted()


@pytest.mark.parametrize(("path", "hook"), sorted({*candidates()} - interpreted()))
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_translated_hook_answers_as_the_interpreter_does(path: str, hook: str, seed: int) -> None:
    fast, plain = workers(path)
    signature = hook_signatures(shipped()[path])[hook]
    for call in declarations_in(shipped(), path, hook, signature.params, random.Random(seed), 10):
        got, want = fast.evaluate(call), plain.evaluate(call)
        # As texts: 1 and True are not the same verdict.
        assert repr(decode_answer(got)) == repr(decode_answer(want)), call
        assert sorted(got.reasons) == sorted(want.reasons)
