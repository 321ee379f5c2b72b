"""Every input of the corpora, and every one that failed once, is survived."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.fuzzing.corpus import CORPORA, inputs_of
from tests.fuzzing.targets import TARGETS, runner_of

_MOST_BYTES = 200_000


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """What is wrong with an input is logged, which is not looked at here."""
    config = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**config)


@pytest.mark.parametrize(
    ("target", "path"),
    [
        pytest.param(target, path, id=f"{target}/{path.name}")
        for target in TARGETS
        for path in inputs_of(target)
    ],
)
def test_the_input_is_survived(target: str, path: Path) -> None:
    runner_of(target)(path.read_bytes())


def test_every_target_has_a_corpus_and_they_stay_small() -> None:
    assert {path.name for path in CORPORA.iterdir()} == set(TARGETS)
    assert sum(path.stat().st_size for path in CORPORA.rglob("*")) < _MOST_BYTES
