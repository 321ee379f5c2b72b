"""`starsched test --coverage`, `--fail-under` and `--seed`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from workbench.cli.main import main

pytestmark = pytest.mark.slow("runs commands")

ROOT = Path(__file__).resolve().parents[3]
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


def test_broken_policies_have_no_coverage(policies: Path) -> None:
    """The last line but one said that 100 % of them were covered."""
    (policies / "y.star").write_text("def broken(")
    code, output = run(policies, "--coverage")
    assert code == 1
    assert "1 problem(s) in the policies" in output
    assert "total" not in output


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
    assert counted["libraries"] == {}


def test_a_seed_gives_an_order_that_can_be_had_again(policies: Path) -> None:
    def order(*arguments: object) -> list[str]:
        _, output = run(policies, "--output", "json", *arguments)
        return [one["name"] for one in json.loads(output)["tests"]]

    written = order()
    assert written == sorted(written)
    assert order("--seed", 1) == order("--seed", 1)
    assert sorted(order("--seed", 1)) == written
    assert len({tuple(order("--seed", seed)) for seed in range(4)}) > 1


HELPED = """
load("@std/numbers.star", "go_div")
load("helpers.star", "half")

def score(pod, node):
    return half(go_div(100, 3))
"""
HELPER = """
load("@std/taints.star", "tolerates")

def half(x):
    return x // 2

def unused(taint, tolerations):
    return tolerates(tolerations, taint)
"""


@pytest.fixture
def helped(tmp_path: Path) -> Path:
    """A policy that loads a helper beside it, which loads a shipped library."""
    (tmp_path / "x.star").write_text(HELPED)
    (tmp_path / "helpers.star").write_text(HELPER)
    (tmp_path / "x_test.star").write_text(
        'load("@std/testing.star", "asserts", "cluster", "make_node", "make_pod")\n\n'
        'def test_it():\n    asserts.scores(cluster(make_node("a")), make_pod(), {"a": 16})\n'
    )
    return tmp_path


def test_what_a_policy_loads_is_counted_libraries_apart(helped: Path) -> None:
    code, output = run(helped / "x.star", "--output", "json", "--coverage")
    assert code == 0
    counted = json.loads(output)["coverage"]
    assert set(counted["files"]) == {f"{helped}/x.star", f"{helped}/helpers.star"}
    assert counted["files"][f"{helped}/helpers.star"] == {"lines": 2, "covered": 1, "missing": [8]}
    assert counted["percent"] == 66.67
    libraries = counted["libraries"]
    assert set(libraries) == {"@std/numbers.star", "@std/taints.star"}
    assert 0 < libraries["@std/numbers.star"]["covered"] < libraries["@std/numbers.star"]["lines"]
    _, text = run(helped / "x.star", "--coverage")
    rows = [line.split()[0] for line in text.splitlines() if "%" in line]
    assert rows == [
        f"{helped}/helpers.star",
        f"{helped}/x.star",
        "total",
        "@std/numbers.star",
        "@std/taints.star",
        "libraries",
    ]


def test_libraries_are_held_against_the_tests_only_if_asked(helped: Path) -> None:
    assert run(helped, "--fail-under", "66")[0] == 0
    code, output = run(helped, "--fail-under", "66", "--with-libraries")
    assert code == 1
    assert "want at least 66%" in output
    assert run(helped, "--with-libraries")[0] == 2


def test_a_library_that_several_directories_load_is_counted_once(tmp_path: Path) -> None:
    for name, call in (("a", "go_div(7, 2)"), ("b", "go_div(-7, 2)")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.star").write_text(
            f'load("@std/numbers.star", "go_div")\n\ndef score(pod, node):\n    return 5 + {call}\n'
        )
        want = 8 if name == "a" else 2
        (tmp_path / name / "x_test.star").write_text(
            'load("@std/testing.star", "asserts", "cluster", "make_node", "make_pod")\n\n'
            "def test_it():\n"
            f'    asserts.scores(cluster(make_node("a")), make_pod(), {{"a": {want}}})\n'
        )

    def reached(*paths: Path) -> int:
        _, output = run(*paths, "--output", "json", "--coverage")
        libraries = json.loads(output)["coverage"]["libraries"]
        assert list(libraries) == ["@std/numbers.star"]
        covered: int = libraries["@std/numbers.star"]["covered"]
        return covered

    both = reached(tmp_path)
    assert both >= max(reached(tmp_path / "a"), reached(tmp_path / "b"))
    lcov = tmp_path / "out.info"
    run(tmp_path, "--coverage-lcov", lcov)
    assert lcov.read_text().count("SF:@std/numbers.star") == 1
    assert lcov.read_text().count("end_of_record") == 3


def test_the_reports_hold_every_line(helped: Path) -> None:
    """LCOV as its readers read it, and the page as a browser does."""
    lcov, page = helped / "out.info", helped / "out.html"
    run(helped, "--coverage-lcov", lcov, "--coverage-html", page)
    records = {}
    for record in lcov.read_text().split("end_of_record\n"):
        lines = [line.partition(":") for line in record.splitlines()]
        of = [value for key, _, value in lines if key == "SF"]
        pairs = [value.split(",") for key, _, value in lines if key == "DA"]
        hits = {int(line): int(count) for line, count in pairs}
        if of:
            totals = {key: int(value) for key, _, value in lines if key in ("LF", "LH")}
            assert totals == {"LF": len(hits), "LH": sum(n > 0 for n in hits.values())}
            records[of[0]] = hits
    assert records[f"{helped}/helpers.star"] == {5: 1, 8: 0}
    text = page.read_text()
    assert '<tr class="no"><td class=n>8<td class=n>0' in text
    assert '<tr class="yes"><td class=n>5<td class=n>1' in text
    assert "Coverage of policies: 66.7%" in text


def test_the_tests_of_the_shipped_policies_reach_their_lines() -> None:
    options = ("--coverage", "--with-libraries", "--fail-under", "98", "--output", "json")
    code, output = run(ROOT / "policies", *options)
    assert code == 0, output[-3000:]
    files = json.loads(output)["coverage"]["files"]
    assert [name for name, one in files.items() if one["covered"] < 0.95 * one["lines"]] == []
    # Of every policy that ships, and of every library but those that tests are written with.
    for_tests = {"testing.star", "generators.star"}
    shipped = {
        path.name
        for path in (ROOT / "policies").rglob("*.star")
        if not path.name.endswith("_test.star")
    }
    assert {Path(name).name for name in files} == shipped - for_tests
