"""Syntax trees for several threads at a time."""

import ast
import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine.lib.syntax_tree import syntax_tree

TEXT = "x = " + "[" * 60 + "1, 2, 3" + "]" * 60 + "\n" + "y = f(a, b = {1: (2, 3)})\n" * 200


def _gives_way(_phase: str, _info: dict[str, int]) -> None:
    time.sleep(0)


@pytest.fixture(autouse=True)
def impatient_threads() -> Iterator[None]:
    """The garbage collector comes often, and lets other threads go on while it is there."""
    before = gc.get_threshold()
    gc.set_threshold(50)
    gc.callbacks.append(_gives_way)
    yield
    gc.callbacks.remove(_gives_way)
    gc.set_threshold(*before)


@pytest.mark.slow("computes for long")
def test_threads_do_not_spoil_each_other_their_trees() -> None:
    """A standby did not start: `AST constructor recursion depth mismatch`."""
    want = ast.dump(ast.parse(TEXT))
    with ThreadPoolExecutor(4) as threads:
        trees = list(threads.map(syntax_tree, [TEXT] * 40))
    assert all(ast.dump(tree) == want for tree in trees[::10])


def test_what_is_no_python_is_refused_as_ever() -> None:
    with pytest.raises(SyntaxError):
        syntax_tree("x = = 1\n")
    assert isinstance(syntax_tree(""), ast.Module)
