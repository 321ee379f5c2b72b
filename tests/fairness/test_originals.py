"""Our policies of queues say what the originals do, on random trees of small numbers."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from click.testing import CliRunner

from tests.fairness import fuzz, generator
from tests.fairness.governed import Governed
from tests.fairness.originals import Original
from tests.fairness.schemes import KNOWN
from tests.json_lines import Plain

Named = Callable[[str], Original]

SEED = 2026


def _none_differs(original: Original, scheme: str, seed: int, indexes: range) -> fuzz.Tally:
    tally = fuzz.search(original, scheme, seed, indexes)
    shown = [(index, *map(str, found)) for index, _, found in tally.differing]
    assert shown == []
    return tally


@pytest.mark.parametrize("indexes", fuzz.batches(range(2_000), 500), ids=str)
@pytest.mark.parametrize("scheme", generator.SCHEMES)
def test_random_trees_are_governed_as_by_the_original(
    original: Named, scheme: str, indexes: range
) -> None:
    tally = _none_differs(original(scheme), scheme, SEED, indexes)
    assert tally.cases == len(indexes)
    assert tally.facts > 2 * tally.cases
    # Few differ for a reason, or the reasons hide what is compared.
    assert sum(tally.known.values()) < tally.facts / 50


@pytest.mark.long("25 times as many, of another seed")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("indexes", fuzz.batches(range(50_000), 5_000), ids=str)
@pytest.mark.parametrize("scheme", generator.SCHEMES)
def test_many_random_trees_are_governed_as_by_the_original(
    original: Named, scheme: str, indexes: range
) -> None:
    _none_differs(original(scheme), scheme, SEED + 1, indexes)


def test_every_reason_names_version_and_file() -> None:
    for reason in KNOWN.values():
        assert all(part in reason for part in (".go: ", "0.17.0" if "Kueue" in reason else "1.8.0"))


def test_the_same_seed_makes_the_same_trees() -> None:
    for scheme in generator.SCHEMES:
        one, again, other = (generator.case(scheme, seed, 7) for seed in (1, 1, 2))
        assert one == again
        assert one != other


def _with_half(case: Plain, policy: str, args: Mapping[str, Any]) -> Governed:
    """The case as a policy sees it that forgets half of what there is."""
    half = {r: amount // 2 for r, amount in case["total"].items()}
    return Governed({**case, "total": half}, policy, args)


def test_a_difference_is_found_and_made_small(
    original: Named, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fairness.schemes.Governed", _with_half)
    koordinator = original("koordinator")
    tally = fuzz.search(koordinator, "koordinator", SEED, range(50), every=False)
    ((_, case, found),) = tally.differing
    assert "runtime of " in found[0].fact
    small = fuzz.small_case(koordinator, "koordinator", case)
    assert fuzz.differences(koordinator, "koordinator", small)
    assert len(small["queues"]) < len(case["queues"])
    monkeypatch.undo()
    assert fuzz.differences(koordinator, "koordinator", small) == []


def test_the_command_says_how_many_match(original: Named) -> None:
    result = CliRunner().invoke(fuzz.main, ["--scheme", "capacity", "--count", "20", "--seed", "5"])
    assert result.exit_code == 0, result.output
    assert "capacity: 20 of 20 cases match" in result.output


def test_the_command_fails_on_a_difference(
    original: Named, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fairness.schemes.Governed", _with_half)
    result = CliRunner().invoke(fuzz.main, ["--scheme", "koordinator", "--count", "50"])
    assert result.exit_code == 1
    assert "again: python -m tests.fairness.fuzz --scheme koordinator --seed 1 --start" in (
        result.output
    )
