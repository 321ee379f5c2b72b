"""The tests of a candidate run confined: whatever they do, the parent goes on."""

import threading
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from engine.testing import process
from engine.testing.process import LOADING, MIB, run_tests_confined
from engine.testing.runner import describe

LOADS = 'load("@std/testing.star", "asserts", "cluster", "make_node", "make_pod")\n'
GOOD = 'def test_good():\n    asserts.scores(cluster(make_node("a")), make_pod(), {"a": 1})\n'
NONSENSE = "sent what is no report"
POLICY = "def score(pod, node):\n    return len(node.name)\n"


def test_results_are_those_of_the_tests() -> None:
    bad = 'def test_bad():\n    asserts.scores(cluster(make_node("a")), make_pod(), {"a": 2})\n'
    results = run_tests_confined({"x.star": POLICY, "x_test.star": LOADS + GOOD + bad})
    assert [(r.name, r.passed) for r in results] == [("test_good", True), ("test_bad", False)]
    assert (results[1].got, results[1].want, results[1].line) == ('{"a": 1}', '{"a": 2}', 5)


@pytest.mark.slow("computes until it is killed")
def test_a_test_that_cannot_be_interrupted_fails_and_the_others_run() -> None:
    """One built-in call may take for ever: only killing the process ends it."""
    stuck = "def test_a_stuck():\n    for i in range(100):\n        sorted(range(10000000))\n"
    results = run_tests_confined(
        {"x.star": POLICY, "x_test.star": LOADS + stuck + GOOD},
        seconds=3.0,  # a busy machine needs more than one for the good test
        address_space=2048 * MIB,
    )
    assert [(r.name, r.passed) for r in results] == [("test_a_stuck", False), ("test_good", True)]
    assert "took longer than 3 s" in results[0].message


def test_a_test_that_takes_all_memory_fails_and_the_others_run() -> None:
    greedy = 'def test_a_greedy():\n    x = "a"\n    for i in range(40):\n        x = x + x\n'
    results = run_tests_confined(
        {"x.star": POLICY, "x_test.star": LOADS + greedy + GOOD}, address_space=256 * MIB
    )
    assert [(r.name, r.passed) for r in results] == [("test_a_greedy", False), ("test_good", True)]


@pytest.mark.parametrize(
    ("says", "how"),
    [
        pytest.param('b"no report"', NONSENSE, id="no JSON"),
        pytest.param("b'[' * 100_000", NONSENSE, id="too deep"),
        pytest.param("runs.replace(b'it', b'\\xff')", NONSENSE, id="no text"),
        pytest.param('b\'{"type":"ran","result":7}\'', NONSENSE, id="no result"),
        pytest.param("b'x' * (1 << 21)", "reported more than", id="a line without end"),
        pytest.param("runs * (1 << 15)", "reported more than", id="announcements without end"),
    ],
)
def test_a_child_that_reports_nonsense_fails_its_test_and_takes_no_memory(
    monkeypatch: pytest.MonkeyPatch, says: str, how: str
) -> None:
    """A test might take the process over; its parent raised, or kept all that it was sent."""
    hostile = (
        "import json, sys, time\n"
        "is_last = bool(json.load(sys.stdin)['done'])\n"
        'runs = b\'{"type":"runs","file":"x_test.star","name":"test_it","line":1}\\n\'\n'
        'last = b\'{"type":"runs","is_last":true}\'\n'
        f"sys.stdout.buffer.write((last if is_last else runs + {says}) + b'\\n')\n"
        "sys.stdout.flush()\n"
        "time.sleep(60)\n"
    )
    doubled = hostile.replace("{", "{{").replace("}", "}}")
    monkeypatch.setattr(process, "_PROGRAM", doubled)
    monkeypatch.setattr(process, "_MOST_REPORT_BYTES", MIB)
    (result,) = run_tests_confined({"x.star": POLICY})
    assert (result.file, result.name, result.passed) == ("x_test.star", "test_it", False)
    assert result.message.startswith(f"ended the sandbox: it {how}")


def test_files_that_do_not_make_a_bundle_fail_at_their_place() -> None:
    (result,) = run_tests_confined({"x.star": "def score(pod, node:\n"})
    assert (result.file, result.line, result.name, result.passed) == ("x.star", 1, LOADING, False)


def test_files_that_take_all_memory_while_they_load_fail() -> None:
    files = {"x.star": POLICY + 'X = "a" * 2000000000\n', "x_test.star": LOADS + GOOD}
    assert [result.passed for result in run_tests_confined(files)] == [False]


@pytest.mark.slow("computes until it is killed")
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


def test_a_run_is_over_soon_after_it_is_stopped() -> None:
    """A scheduler that was stopped while it tested an edit was there until all tests had run."""
    stuck = "def test_a_stuck():\n    for i in range(100):\n        sorted(range(10000000))\n"
    stop = threading.Timer(1.5, lambda: None)
    stop.start()
    started = time.monotonic()
    results = run_tests_confined(
        {"x.star": POLICY, "x_test.star": LOADS + stuck + GOOD},
        seconds=60.0,
        address_space=2048 * MIB,
        is_stopped=stop.finished.is_set,
    )
    assert time.monotonic() - started < 10.0
    assert not any(result.passed for result in results)


@pytest.mark.slow("runs all tests of the shipped policies")
def test_all_tests_of_the_shipped_policies_pass_behind_the_walls() -> None:
    """Whatever the engine loads late must be there before files are closed to it."""
    policies = Path(__file__).parents[3] / "policies" / "kubernetes"
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


CASES = (
    'load("@std/testing.star", "cases")\n'
    "def _check(length):\n"
    '    asserts.scores(cluster(make_node("a" * length)), make_pod(), {"a" * length: length})\n'
)


def test_cases_of_a_table_are_reported_one_by_one() -> None:
    test = LOADS + CASES + 'test_it = cases(_check, {"one": {"length": 1}, "two": {"length": 2}})\n'
    results = run_tests_confined({"x.star": POLICY, "x_test.star": test})
    assert [(r.name, r.passed) for r in results] == [("test_it[one]", True), ("test_it[two]", True)]


def test_a_case_that_takes_all_memory_fails_and_the_others_run() -> None:
    test = (
        LOADS
        + 'load("@std/testing.star", "cases")\n'
        + "def _check(times):\n"
        + '    x = "a"\n    for i in range(times):\n        x = x + x\n'
        + 'test_it = cases(_check, {"a": {"times": 1}, "b": {"times": 40}, "c": {"times": 1}})\n'
        + GOOD
    )
    results = run_tests_confined({"x.star": POLICY, "x_test.star": test}, address_space=256 * MIB)
    assert [(r.name, r.passed) for r in results] == [
        ("test_it[a]", True),
        ("test_it[b]", False),
        ("test_it[c]", True),
        ("test_good", True),
    ]


def test_tests_whose_files_did_not_come_along_are_skipped_and_said_so() -> None:
    """A ConfigMap holds no directories: what a test reads from one says nothing of the policy."""
    inside = 'load("@std/testing.star", "load_data")\ndef test_it():\n    load_data("f/a.yaml")\n'
    top = (
        'load("@std/testing.star", "load_manifests")\n'
        'F = load_manifests("f/a.yaml")\n\n'
        "def test_it():\n    asserts.fits(F.cluster, make_pod())\n"
    )
    files = {
        "x.star": POLICY,
        "x_test.star": LOADS + GOOD + inside,
        "y_test.star": LOADS + top,
    }
    with capture_logs() as logs:
        results = run_tests_confined(files)
    reason = "f/a.yaml: no such file among those of the policies"
    assert [(r.file, r.name, r.passed, r.skipped) for r in results] == [
        ("x_test.star", "test_good", True, ""),
        ("x_test.star", "test_it", True, reason),
        ("y_test.star", "test_it", True, reason),
    ]
    assert [(one["event"], one["test"], one["reason"]) for one in logs] == [
        ("Skipped test", "test_it", reason)
    ] * 2


def test_data_next_to_the_tests_comes_along() -> None:
    test = (
        LOADS
        + 'load("@std/testing.star", "load_data", "load_manifests")\n'
        + "def test_it():\n"
        + '    nodes = load_manifests("nodes_test.yaml").cluster\n'
        + '    asserts.scores(nodes, make_pod(), load_data("want_test.json"))\n'
    )
    files = {
        "x.star": POLICY,
        "x_test.star": test,
        "nodes_test.yaml": "kind: Node\nmetadata: {name: abc}\n",
        "want_test.json": '{"abc": 3}',
    }
    (result,) = run_tests_confined(files)
    assert (result.passed, result.skipped) == (True, ""), describe(result)
    (result,) = run_tests_confined({**files, "want_test.json": '{"abc": 4}'})
    assert not result.passed


def test_confined_tests_know_the_time_zone_of_their_configuration() -> None:
    """No file can be opened in their process, and time zones are files."""
    policy = '''"""Gates pods in the night."""

def pre_enqueue(pod, cluster):
    return "it is night" if cluster.facts["hour"].value < 6 else None
'''
    test = '''"""Tests for x.star."""

load("@std/testing.star", "asserts", "cluster", "make_pod")

def test_midnight():
    night = cluster(facts = {"time": "2026-06-30T22:00:00Z"})
    asserts.gated(make_pod(), "it is night", cluster = night)
    asserts.not_gated(make_pod(), cluster = cluster(facts = {"time": "2026-06-30T21:59:59Z"}))
'''
    runtime = (
        "apiVersion: starsched.dev/v1\nkind: PolicyRuntime\nfacts: {timeZone: Europe/Berlin}\n"
    )
    files = {"x.star": policy, "x_test.star": test, "runtime.yaml": runtime}
    (result,) = run_tests_confined(files)
    assert result.passed, result.message
    (result,) = run_tests_confined(files | {"runtime.yaml": ""})
    assert not result.passed
