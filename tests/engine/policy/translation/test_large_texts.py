"""Policies with more text than there is time to translate: the interpreter answers."""

import pytest

from engine.policy.evaluator import program_image
from engine.policy.sandbox.worker import PolicyWorker
from tests.engine.policy.programs import per_node, program_of

LINES = 1000


@pytest.mark.parametrize(
    ("width", "obstacle"),
    [pytest.param(20, "", id="little"), pytest.param(80, "too much text", id="much")],
)
def test_a_long_text_is_left_to_the_interpreter(width: int, obstacle: str) -> None:
    rows = "".join(f"    {n},\n".ljust(width - 1) + "\n" for n in range(LINES))
    text = f"ROWS = [\n{rows}]\n\ndef score(pod, node):\n    return ROWS[node.pod_count] % 100\n"
    worker = PolicyWorker(program_image(program_of(text)))
    assert worker.translations is not None
    assert worker.translations.obstacle(0, "score") == obstacle
    nodes = [{"pod_count": count} for count in (0, 7, LINES - 1)]
    assert list(worker.verdicts(per_node("score", *nodes))) == [0, 7, 99]
