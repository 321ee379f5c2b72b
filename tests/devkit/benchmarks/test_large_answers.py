"""The benchmark of large answers measures what it says."""

import pytest

from devkit.benchmarks import large_answers
from devkit.benchmarks.large_answers import SIZES, answer_of
from engine.io.kube.extender_client import most_bytes


def test_answers_are_as_large_as_they_are_called() -> None:
    sizes = [len(answer_of(size)) for size in list(SIZES.values())[:2]]
    assert sizes[0] < 100
    assert 0.95 * most_bytes(large_answers.NODES) < sizes[1] <= most_bytes(large_answers.NODES)


@pytest.mark.slow("starts a process and sends 50 MB")
def test_an_answer_beyond_the_bound_costs_no_more_than_one_at_the_bound() -> None:
    """46 MB took 8.9 CPU seconds."""
    plain, full, beyond = (large_answers.measure(*one) for one in SIZES.items())
    assert (plain.outcome, full.outcome, beyond.outcome) == ("read", "read", "refused")
    assert beyond.bytes > 45_000_000
    assert beyond.cpu_ms < 1000
