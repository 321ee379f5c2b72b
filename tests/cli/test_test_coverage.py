"""`starsched test --coverage`, `--fail-under` and `--seed`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from engine.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
POLICY = """
def filter(pod, node):
    if pod.priority > 5:
        return "high"
    return None
"""
TEST = """
load("@std/testing.star", "asserts", "cluster", "make_node", "make_pod")
""" + "".join(
    f"\ndef test_{name}():\n    asserts.fits(cluster(make_node()), make_pod())\n"
    for name in "abcdef"
)


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    (tmp_path / "x.star").write_text(POLICY)
    (tmp_path / "x_test.star").write_text(TEST)
    return tmp_path


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["test", *map(str, arguments)])
    return result.exit_code, result.output


def test_coverage_is_printed_and_written(policies: Path) -> None:
    lcov, page = policies / "out.info", policies / "out.html"
    code, output = run(policies, "--coverage", "--coverage-lcov", lcov, "--coverage-html", page)
    assert code == 0
    assert f"{policies}/x.star      3    66.7%  4" in output
    assert f"SF:{policies}/x.star" in lcov.read_text()
    assert "66.7%" in page.read_text()


def test_too_little_coverage_fails(policies: Path) -> None:
    code, output = run(policies, "--fail-under", "66.8")
    assert code == 1
    assert "coverage is 66.7%, want at least 66.8%" in output
    assert run(policies, "--fail-under", "66")[0] == 0


def test_coverage_of_a_policy_is_asked_by_its_test_too(policies: Path) -> None:
    code, output = run(policies / "x_test.star", "--output", "json", "--coverage")
    assert code == 0
    counted = json.loads(output)["coverage"]
    assert counted["percent"] == 66.67
    assert counted["files"] == {f"{policies}/x.star": {"lines": 3, "covered": 2, "missing": [4]}}


def test_a_seed_gives_an_order_that_can_be_had_again(policies: Path) -> None:
    def order(*arguments: object) -> list[str]:
        _, output = run(policies, "--output", "json", *arguments)
        return [one["name"] for one in json.loads(output)["tests"]]

    written = order()
    assert written == sorted(written)
    assert order("--seed", 1) == order("--seed", 1)
    assert sorted(order("--seed", 1)) == written
    assert len({tuple(order("--seed", seed)) for seed in range(4)}) > 1


def test_the_tests_of_the_shipped_policies_reach_their_lines() -> None:
    code, output = run(ROOT / "policies", "--coverage", "--fail-under", "98")
    assert code == 0, output[-3000:]
