"""The tests of a candidate run confined: whatever they do, the parent goes on."""

import pytest

from engine.offline.test_process import MIB, problems_of_tests, run_tests_confined
from engine.policy.errors import PolicyErrors

LOADS = 'load("@std/testing.star", "asserts", "cluster", "make_node", "make_pod")\n'
GOOD = 'def test_good():\n    asserts.scores(cluster(make_node("a")), make_pod(), {"a": 1})\n'
POLICY = "def score(pod, node):\n    return len(node.name)\n"


def test_results_are_those_of_the_tests() -> None:
    bad = 'def test_bad():\n    asserts.scores(cluster(make_node("a")), make_pod(), {"a": 2})\n'
    results = run_tests_confined({"x.star": POLICY, "x_test.star": LOADS + GOOD + bad})
    assert [(r.name, r.passed) for r in results] == [("test_good", True), ("test_bad", False)]
    assert (results[1].got, results[1].want, results[1].line) == ('{"a": 1}', '{"a": 2}', 5)


def test_a_test_that_cannot_be_interrupted_fails_and_the_others_run() -> None:
    """One built-in call may take for ever: only killing the process ends it."""
    stuck = "def test_a_stuck():\n    for i in range(100):\n        sorted(range(10000000))\n"
    results = run_tests_confined(
        {"x.star": POLICY, "x_test.star": LOADS + stuck + GOOD},
        seconds=0.5,
        address_space=2048 * MIB,
    )
    assert [(r.name, r.passed) for r in results] == [("test_a_stuck", False), ("test_good", True)]
    assert "took longer than 0.5 s" in results[0].message


def test_a_test_that_takes_all_memory_fails_and_the_others_run() -> None:
    greedy = 'def test_a_greedy():\n    x = "a"\n    for i in range(40):\n        x = x + x\n'
    results = run_tests_confined(
        {"x.star": POLICY, "x_test.star": LOADS + greedy + GOOD}, address_space=256 * MIB
    )
    assert [(r.name, r.passed) for r in results] == [("test_a_greedy", False), ("test_good", True)]


def test_files_that_do_not_make_a_bundle_are_refused() -> None:
    with pytest.raises(PolicyErrors, match=r"x\.star:1"):
        run_tests_confined({"x.star": "def score(pod, node:\n"})
    (problem,) = problems_of_tests({"x.star": "def score(pod, node:\n"})
    assert problem.file == "x.star"


def test_files_that_take_all_memory_while_they_load_are_refused() -> None:
    files = {"x.star": POLICY + 'X = "a" * 2000000000\n', "x_test.star": LOADS + GOOD}
    problems = problems_of_tests(files)
    assert problems


def test_the_whole_run_has_a_deadline() -> None:
    stuck = "".join(
        f"def test_{i}():\n    for i in range(100):\n        sorted(range(10000000))\n"
        for i in range(5)
    )
    results = run_tests_confined(
        {"x.star": POLICY, "x_test.star": LOADS + stuck},
        seconds=60,
        total_seconds=3,
        address_space=2048 * MIB,
    )
    assert len(results) == 1
    assert not results[0].passed
