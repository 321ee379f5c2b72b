"""Mutations keep an input's form, and a run shows how far it came and what failed."""

import copy
import random
import sys
from pathlib import Path

import msgspec
import pytest

from tests.fuzzing import __main__ as driver
from tests.fuzzing import mutation
from tests.fuzzing.forms import JSON, JSON_LINES, TOKENS, YAML
from tests.fuzzing.mutation import Mutator

_SEEDS = [b'{"a":{"b":[1,"x"]},"c":null}', b'{"d":[{"e":true}],"a":2.5}']


def _mutated(mutator: Mutator, count: int = 300) -> list[bytes]:
    made = (mutator.mutated(_SEEDS[n % 2], random.Random(n)) for n in range(count))
    return [one for one in made if one is not None]


def test_mutations_of_json_are_json_and_take_over_parts_of_the_seeds() -> None:
    made = _mutated(Mutator((JSON,), _SEEDS))
    for one in made:
        msgspec.json.decode(one)
    assert len(set(made)) > 200
    assert any(b'"b"' in one and b'"e"' in one for one in made)


def test_a_seed_gives_the_same_mutations() -> None:
    """A value that had been taken over was changed later, in every tree that it was part of."""
    odd = copy.deepcopy(mutation.ODD)
    mutator = Mutator((JSON, YAML, JSON_LINES, TOKENS), _SEEDS)
    assert _mutated(mutator) == _mutated(mutator)
    assert repr(mutation.ODD) == repr(odd)


def test_what_has_no_form_is_left_to_the_bytes() -> None:
    assert Mutator((JSON,), _SEEDS).mutated(b"{", random.Random(1)) is None
    aliases = b"a: &a [x]\nb: [*a, *a]\n"
    assert Mutator((YAML,), [aliases]).mutated(aliases, random.Random(1)) is None


@pytest.mark.parametrize("code", [pytest.param(0, id="survived"), pytest.param(77, id="failed")])
def test_a_run_says_what_failed_and_how_to_run_it_again(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path, code: int
) -> None:
    lines = (
        "#512\tNEW    cov: 166 ft: 200 corp: 7/2kb lim: 400 exec/s: 512 rss: 82Mb L: 1/2 MS: 1\n"
        "ValueError: no\n"
        "artifact_prefix='x'; Test unit written to /tmp/http-crash-1\n"
    )
    program = f"import sys; print({lines!r}, file=sys.stderr); sys.exit({code})"
    monkeypatch.setattr(driver, "_command", lambda *_: [sys.executable, "-c", program])
    monkeypatch.setattr(driver, "_KEPT", tmp_path)
    assert driver.fuzz("http", 1.0) is (code == 0)
    shown = capfd.readouterr()
    assert "512 inputs, 512/s, 166 edges, 7 in the corpus, 82 MB" in shown.out
    again = "again: make fuzz TARGET=http INPUT=/tmp/http-crash-1"
    assert (again in shown.err) is (code != 0)
    assert ("ValueError: no" in shown.err) is (code != 0)
