"""The tests of a candidate run confined: whatever they do, the parent goes on."""

from pathlib import Path

from engine.offline.policy_tests import describe
from engine.offline.test_process import LOADING, MIB, run_tests_confined

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


def test_files_that_do_not_make_a_bundle_fail_at_their_place() -> None:
    (result,) = run_tests_confined({"x.star": "def score(pod, node:\n"})
    assert (result.file, result.line, result.name, result.passed) == ("x.star", 1, LOADING, False)


def test_files_that_take_all_memory_while_they_load_fail() -> None:
    files = {"x.star": POLICY + 'X = "a" * 2000000000\n', "x_test.star": LOADS + GOOD}
    assert [result.passed for result in run_tests_confined(files)] == [False]


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


def test_all_tests_of_the_shipped_policies_pass_behind_the_walls() -> None:
    """Whatever the engine loads late must be there before files are closed to it."""
    policies = Path(__file__).parents[2] / "policies" / "kubernetes"
    files = {path.name: path.read_text() for path in policies.glob("*.star")}
    whole = (
        "def test_whole():\n"
        '    rule = {"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}\n'
        '    pod = make_pod(spec = {"topologySpreadConstraints": [rule]})\n'
        '    asserts.fits(cluster(make_node()), pod, profile = "default-scheduler")\n'
    )
    results = run_tests_confined(files | {"whole_test.star": LOADS + whole})
    assert len(results) > 90
    assert [describe(result) for result in results if not result.passed] == []
