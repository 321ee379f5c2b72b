"""Which lines tests reach: counted right, and without changing what the tests see."""

from pathlib import Path

import pytest

from engine.language.syntax import parse
from engine.policy.bundle import build_bundle
from engine.testing.runner import PolicyTestResult, discover, run_tests
from workbench.coverage.coverage import Coverage, FileCoverage, marked_text, percent
from workbench.coverage.reports import as_html, as_lcov, as_text

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = sorted((ROOT / "policies").rglob("*.star"))

POLICY = '''"""Doc."""

load("@std/numbers.star", "go_div")

_LIMITS = [
    1,
    2,
]

def filter(pod, node):
    """Doc."""
    for limit in [] or _LIMITS:
        if (pod.priority > limit and
            node.name):
            return "high"
        elif pod.priority == -7:
            return "seven"; x = 1
    if pod.priority < 0: fail("no")
    return None

def score(pod, node):
    return go_div(10, 1)
'''
TEST = """
load("@std/testing.star", "asserts", "cluster", "make_node", "make_pod")

def test_low():
    asserts.fits(cluster(make_node()), make_pod(priority = 1))

def test_high():
    asserts.rejects(cluster(make_node()), make_pod(priority = 9), "high")

def test_failing():
    asserts.fails(cluster(make_node()), make_pod(priority = -1), "x.star:18: filter() failed: no")
"""


def run(policy: str, test: str, *names: str) -> tuple[list[PolicyTestResult], FileCoverage]:
    counts = Coverage(build_bundle({"x.star": policy, "x_test.star": test}))
    counts.watch(["x.star"])
    cases = [c for c in discover(counts.bundle) if not names or c.name in names]
    results = list(run_tests(counts.bundle, cases, natives=counts.natives))
    (one,) = counts.files()
    return results, one


def test_lines_are_those_that_begin_a_statement() -> None:
    _, lines = marked_text(POLICY)
    assert lines == [5, 12, 13, 15, 16, 17, 18, 19, 22]


def test_what_tests_reach_is_covered_and_nothing_else() -> None:
    _, one = run(POLICY, TEST, "test_low")
    assert one.missing == [15, 17]
    assert one.missing_ranges == "15, 17"
    assert one.hits[5] >= 1
    _, one = run(POLICY, TEST, "test_low", "test_high")
    assert one.missing == [17]
    assert percent([one]) == 100 * 8 / 9


def test_tests_see_the_same_errors_at_the_same_places() -> None:
    results, _ = run(POLICY, TEST)
    bundle = build_bundle({"x.star": POLICY, "x_test.star": TEST})
    plain = list(run_tests(bundle, discover(bundle)))
    assert [(r.name, r.line, r.message) for r in results] == [
        (r.name, r.line, r.message) for r in plain
    ]
    assert [r.passed for r in results] == [True, True, True], results


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_marks_shift_no_line_and_leave_the_text_readable(path: Path) -> None:
    text = path.read_text()
    marked, lines = marked_text(text)
    assert parse(marked) is not None
    assert len(marked.split("\n")) == len(text.split("\n"))
    rows = text.split("\n")
    assert all(rows[line - 1].strip() for line in lines)


def test_the_reports_say_the_same() -> None:
    _, one = run(POLICY, TEST, "test_low")
    assert as_text([one]).splitlines()[1] == "x.star      9    77.8%  15, 17"
    lcov = as_lcov([one])
    assert "SF:x.star\nDA:5," in lcov
    assert "DA:15,0\n" in lcov
    assert "LF:9\nLH:7\nend_of_record\n" in lcov
    page = as_html([one])
    assert page.count("<tr class=no>") + page.count('<tr class="no">') == 2
    assert "&quot;high&quot;" in page


def test_nothing_to_cover_is_covered() -> None:
    assert percent([]) == 100.0
    assert as_lcov([]) == ""
