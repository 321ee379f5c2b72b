"""`starsched test --watch`, as an author uses it: a process that runs while files are edited."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from workbench.cli.main import main

pytestmark = pytest.mark.slow("runs commands")

LOADS = (
    'load("@std/testing.star", "asserts", "cluster", "load_manifests", "make_node", "make_pod")\n'
)
POLICY = """load("lengths.star", "length")

def score(pod, node):
    return length(node)
"""
TEST = (
    LOADS
    + """
def test_scores():
    asserts.scores(load_manifests("fixtures/nodes.yaml").cluster, make_pod(), {"a": 1})
"""
)
OTHER = "def filter(pod, node):\n    return None\n"
OTHER_TEST = LOADS + "\ndef test_fits():\n    asserts.fits(cluster(make_node()), make_pod())\n"
DEAD = '        return "no"\n    return None\n'
SECONDS = 30.0


class Watcher:
    """The command at work, and its lines as they come."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "workbench.cli.main", "test", "--watch", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def run(self) -> list[str]:
        """The lines of the next run, up to where it waits for changes again."""
        lines: list[str] = []
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            try:
                line = self._lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                break
            if line.startswith("watching "):
                return [line for line in lines if line]
            lines.append(line)
        raise AssertionError(f"no run ended in {SECONDS} s, got {lines}")

    def end(self) -> int:
        """Press Ctrl-C; the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(SECONDS)


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    root = tmp_path / "policies"
    (root / "fixtures").mkdir(parents=True)
    (root / "fixtures" / "nodes.yaml").write_text("kind: Node\nmetadata: {name: a}\n")
    (root / "lengths.star").write_text("def length(node):\n    return len(node.name)\n")
    (root / "x.star").write_text(POLICY)
    (root / "x_test.star").write_text(TEST)
    (root / "y.star").write_text(OTHER)
    (root / "y_test.star").write_text(OTHER_TEST)
    return root


@contextlib.contextmanager
def watching(*arguments: str) -> Iterator[Watcher]:
    one = Watcher(*arguments)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
        assert one.process.stdout is not None
        one.process.stdout.close()


@pytest.fixture
def watcher(policies: Path) -> Iterator[Watcher]:
    with watching(str(policies)) as one:
        yield one


def ran(lines: list[str]) -> list[str]:
    """Verdict and name of the tests among *lines*."""
    return [
        f"{line.split()[0]} {line.split()[-1]}"
        for line in lines
        if line.startswith(("PASS", "FAIL"))
    ]


def save(path: Path, text: str) -> None:
    """Save as many editors do: write beside the file, then put it in its place."""
    neighbour = path.with_name(f".{path.name}.swp")
    neighbour.write_text(text)
    neighbour.replace(path)


def test_a_change_runs_the_tests_that_stand_on_it_and_no_other(
    policies: Path, watcher: Watcher
) -> None:
    assert ran(watcher.run()) == ["PASS test_scores", "PASS test_fits"]

    # The policy.
    (policies / "y.star").write_text(OTHER.replace("None", '"no"'))
    lines = watcher.run()
    assert f"changed: {policies}/y.star" in lines
    assert ran(lines) == ["FAIL test_fits"]
    save(policies / "y.star", OTHER)
    assert ran(watcher.run()) == ["PASS test_fits"]

    # The fixture, and the helper that the policy loads.
    save(policies / "fixtures" / "nodes.yaml", "kind: Node\nmetadata: {name: aa}\n")
    assert ran(watcher.run()) == ["FAIL test_scores"]
    save(policies / "lengths.star", "def length(node):\n    return len(node.name) - 1\n")
    assert ran(watcher.run()) == ["FAIL test_scores"]
    save(policies / "fixtures" / "nodes.yaml", "kind: Node\nmetadata: {name: aa}\n---\n")
    assert ran(watcher.run()) == ["FAIL test_scores"]

    # The test itself, and one that is new.
    save(policies / "x_test.star", TEST.replace('{"a": 1}', '{"aa": 1}'))
    assert ran(watcher.run()) == ["PASS test_scores"]
    save(policies / "z_test.star", OTHER_TEST.replace("asserts.fits(", "asserts.equal("))
    assert ran(watcher.run()) == ["FAIL test_fits"]
    (policies / "z_test.star").unlink()
    assert "no test depends on that" in watcher.run()
    assert watcher.end() == 1


def test_broken_edits_are_reported_and_survived(policies: Path, watcher: Watcher) -> None:
    watcher.run()
    save(policies / "x.star", "def score(pod, node:\n")
    lines = watcher.run()
    assert any(f"{policies}/x.star:1:" in line for line in lines)
    assert ran(lines) == []
    # While one file is broken a change of another is not lost.
    save(policies / "y.star", OTHER.replace("None", '"no"'))
    assert ran(watcher.run()) == []
    save(policies / "x.star", POLICY)
    assert ran(watcher.run()) == ["PASS test_scores", "FAIL test_fits"]
    save(policies / "fixtures" / "nodes.yaml", "kind: Node\nmetadata: {name: [\n")
    lines = watcher.run()
    assert ran(lines) == ["FAIL test_scores"]
    assert any("fixtures/nodes.yaml:" in line for line in lines)
    (policies / "y.star").write_bytes(b"\xff\xfe")
    assert any("want UTF-8 text" in line for line in watcher.run())
    save(policies / "y.star", OTHER)
    save(policies / "fixtures" / "nodes.yaml", "kind: Node\nmetadata: {name: a}\n")
    seen: list[str] = []
    while not {"PASS test_scores", "PASS test_fits"} <= set(seen):
        seen += ran(watcher.run())
    assert watcher.end() == 0


def test_an_edit_that_takes_all_memory_is_reported_and_survived(
    policies: Path, watcher: Watcher
) -> None:
    """The kernel killed the command, or whatever else was large."""
    watcher.run()
    greedy = "    text = [node.name]\n    for _ in range(40):\n        text = text + text\n"
    for _ in range(2):  # what failed once is run again, once it is mended
        save(policies / "y.star", OTHER.replace("    return", greedy + "    return"))
        lines = watcher.run()
        assert ran(lines) == ["PASS test_scores", "FAIL test_fits"]
        want = "      y.star:1: filter() of policy `y` took more than 1024 MiB of memory"
        assert want in lines
        save(policies / "y.star", OTHER)
        assert ran(watcher.run()) == ["PASS test_fits"]
    assert watcher.end() == 0


def test_coverage_is_that_of_all_tests_after_each_change(policies: Path) -> None:
    other = policies.parent / "other"
    other.mkdir()
    (other / "z.star").write_text(OTHER)
    (other / "z_test.star").write_text(OTHER_TEST)
    lcov = policies.parent / "out.info"
    options = ["--coverage", "--coverage-lcov", str(lcov), "--fail-under", "70"]
    with watching(str(policies), str(other), *options) as watcher:
        assert ["total", "4", "100.0%"] in map(str.split, watcher.run())

        # A line that no test reaches: all tests of its directory run, and no other.
        save(policies / "y.star", "def filter(pod, node):\n    if pod.priority:\n" + DEAD)
        lines = watcher.run()
        assert ran(lines) == ["PASS test_scores", "PASS test_fits"]
        assert f"{policies}/y.star 3 66.7% 3".split() in map(str.split, lines)
        assert ["total", "6", "83.3%"] in map(str.split, lines)
        assert f"SF:{other}/z.star" in lcov.read_text()

        # Its test goes, and so do the lines that it reached.
        (policies / "y_test.star").unlink()
        lines = watcher.run()
        assert ran(lines) == ["PASS test_scores"]
        assert ["total", "6", "50.0%"] in map(str.split, lines)
        assert "coverage is 50.0%, want at least 70%" in lines
        assert watcher.end() == 1


def test_one_document_of_many_runs_is_a_wrong_use(policies: Path) -> None:
    result = CliRunner().invoke(main, ["test", str(policies), "--watch", "--output", "json"])
    assert result.exit_code == 2
    assert "--watch prints many runs, as text: --output json is one document" in result.output
