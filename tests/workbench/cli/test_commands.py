import gzip
import json
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from workbench.cli.main import main

pytestmark = pytest.mark.usefixtures("policies_load_in_process")

POLICY = "def score(pod, node):\n    return min(100, len(node.name))\n"
BROKEN = (
    "def score(pod, node):\n    return len(node.nam)\n\ndef filter(pod, nod):\n    return None\n"
)
TEST = """load("@std/testing.star", "asserts", "cluster", "make_node", "make_pod")

def test_right():
    asserts.scores(cluster(make_node("a")), make_pod(), {"a": 1})

def test_wrong():
    asserts.scores(cluster(make_node("a")), make_pod(), {"a": 2})
"""


def _write(directory: Path, **files: str) -> str:
    for stem, text in files.items():
        directory.mkdir(exist_ok=True)
        (directory / f"{stem}.star").write_text(text)
    return str(directory)


def _check(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["check", *arguments])


def _test(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["test", *arguments])


# --- check ---------------------------------------------------------------------------------


def test_check_is_silent_about_good_policies(tmp_path: Path) -> None:
    result = _check(_write(tmp_path / "p", x=POLICY, x_test=TEST))
    assert (result.exit_code, result.output) == (
        0,
        "2 policy file(s) checked: no problems\n",
    )


def test_check_prints_every_problem_with_its_place(tmp_path: Path) -> None:
    path = _write(tmp_path / "p", x=BROKEN)
    result = _check(path)
    assert result.exit_code == 1
    assert f"{path}/x.star:2:" in result.output
    assert "did you mean `name`?" in result.output
    assert f"{path}/x.star:4:" in result.output


def test_check_answers_in_json(tmp_path: Path) -> None:
    path = _write(tmp_path / "p", x=BROKEN)
    result = _check(path, "--output", "json")
    answer = json.loads(result.output)
    assert result.exit_code == 1
    assert answer["files"] == 1
    assert {(p["file"], p["line"]) for p in answer["problems"]} == {
        (f"{path}/x.star", 2),
        (f"{path}/x.star", 4),
    }


def test_check_looks_into_directories_below(tmp_path: Path) -> None:
    _write(tmp_path / "a", x=POLICY)
    _write(tmp_path / "b", x=BROKEN)
    _write(tmp_path / ".hidden", x=BROKEN)
    result = _check(str(tmp_path))
    assert result.exit_code == 1
    assert f"{tmp_path}/b/x.star:2:" in result.output
    assert ".hidden" not in result.output


def test_check_of_a_file_is_about_that_file(tmp_path: Path) -> None:
    path = _write(tmp_path / "p", x=POLICY, y=BROKEN)
    assert _check(f"{path}/x.star").exit_code == 0
    assert _check(f"{path}/y.star").exit_code == 1


def test_check_runs_the_top_level_of_the_files(tmp_path: Path) -> None:
    path = _write(tmp_path / "p", x="LIMIT = [1, 2][3]\n" + POLICY)
    result = _check(path)
    assert result.exit_code == 1
    assert f"{path}/x.star:1:" in result.output


def test_warnings_are_no_errors(tmp_path: Path) -> None:
    result = _check(_write(tmp_path / "p", x=POLICY, idle="X = 1\n"))
    assert result.exit_code == 0
    assert "idle.star: warning: defines no hook" in result.output
    assert result.output.endswith("2 policy file(s) checked: no problems, 1 warning(s)\n")


@pytest.mark.parametrize(
    ("name", "is_key"),
    [
        pytest.param("-_A.1.star", True, id="what keys are made of"),
        pytest.param("two words.star", False, id="a space"),
        pytest.param("naïve.star", False, id="a letter with a mark"),
        pytest.param(f"{'x' * 248}.star", True, id="as long as a key"),
        pytest.param(f"{'x' * 249}.star", False, id="longer"),
    ],
)
def test_check_reports_names_that_no_config_map_takes(
    tmp_path: Path, name: str, is_key: bool
) -> None:
    """They ran from a directory; `kubectl create configmap` was the first to refuse them."""
    (tmp_path / name).write_text("def filter(pod, node):\n    return None\n")
    result = _check(str(tmp_path))
    assert result.exit_code == 0, result.output
    want = f"{tmp_path / name}: warning: a ConfigMap cannot have this name as a key\nhint: want"
    assert (want in result.output) != is_key


def test_check_uses_the_configuration_it_is_given(tmp_path: Path) -> None:
    path = _write(tmp_path / "p", x=POLICY)
    config = tmp_path / "profile.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins:\n    score:\n      enabled: [{name: y}]\n"
    )
    result = _check(path, "--config", str(config))
    assert result.exit_code == 1
    assert str(config) in result.output
    assert "`y`" in result.output


def test_the_configuration_may_lie_next_to_the_policies(tmp_path: Path) -> None:
    """Of a file named with it there were "no problems", of the directory that it is there twice."""
    path = _write(tmp_path / "p", x=POLICY)
    config = tmp_path / "p" / "profile.yaml"
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins:\n    multiPoint:\n      enabled: [{name: y}]\n"
    )
    config.write_text(text)
    for asked in (f"{path}/x.star", path):
        result = _check(asked, "--config", str(config))
        assert result.exit_code == 1, result.output
        assert f"{config}:6:" in result.output
    config.write_text(text.replace("name: y", "name: x"))
    for asked in (f"{path}/x.star", path):
        result = _check(asked, "--config", str(config))
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize("command", ["check", "test"])
def test_the_standard_input_is_no_policy(command: str) -> None:
    """`fmt -` reads it; here there was "no such file or directory"."""
    result = CliRunner().invoke(main, [command, "-"], input=POLICY)
    assert result.exit_code == 2
    assert result.output.startswith("Error: -: want files, not standard input")


@pytest.mark.parametrize(
    ("name", "text"),
    [("missing.star", None), ("notes.txt", "hello"), ("latin.star", b"\xff")],
)
def test_a_path_that_cannot_be_read_is_a_wrong_use(
    tmp_path: Path, name: str, text: str | bytes | None
) -> None:
    if text is not None:
        (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    result = _check(str(tmp_path / name))
    assert result.exit_code == 2
    assert name in result.output


def test_a_directory_without_policies_is_a_wrong_use(tmp_path: Path) -> None:
    result = _check(str(tmp_path))
    assert result.exit_code == 2
    assert "want a directory with `*.star` files, or with a profile or a QueueTree" in result.output


def test_a_tree_of_queues_alone_is_checked(tmp_path: Path) -> None:
    """A pack that ships governs it: it was refused for want of `*.star` files."""
    tree = "apiVersion: starsched.dev/v1\nkind: QueueTree\npolicy: drf\nqueues:\n  a: {weight: 2}\n"
    (tmp_path / "tree.yaml").write_text(tree)
    assert _check(str(tmp_path)).exit_code == 0
    (tmp_path / "tree.yaml").write_text(tree.replace("weight", "wieght"))
    result = _check(str(tmp_path))
    assert result.exit_code == 1
    assert "tree.yaml:5:" in result.output


# --- test ----------------------------------------------------------------------------------


def test_a_failed_test_shows_both_sides_and_where(tmp_path: Path) -> None:
    path = _write(tmp_path / "p", x=POLICY, x_test=TEST)
    result = _test(path)
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[0] == f"PASS  {path}/x_test.star:3  test_right"
    assert lines[1:5] == [
        f"FAIL  {path}/x_test.star:7  test_wrong",
        "      scores",
        '        got   {"a": 1}',
        '        want  {"a": 2}',
    ]
    assert lines[-1].startswith("1 passed, 1 failed in ")


@pytest.mark.parametrize("pattern", ["right", "*rig?t", "x_test.star::test_right"])
def test_run_selects_tests(tmp_path: Path, pattern: str) -> None:
    result = _test(_write(tmp_path / "p", x=POLICY, x_test=TEST), "--run", pattern)
    assert result.exit_code == 0
    assert result.output.splitlines()[-1].startswith("1 passed, 0 failed")


def test_nothing_to_run_is_not_success(tmp_path: Path) -> None:
    result = _test(_write(tmp_path / "p", x=POLICY, x_test=TEST), "--run", "no such")
    assert (result.exit_code, result.output) == (2, "no tests to run\n")


def test_a_policy_without_tests_says_where_they_belong(tmp_path: Path) -> None:
    """It said only that there are no tests to run, also of `tset_it` in the right file."""
    result = _test(_write(tmp_path / "p", x=POLICY))
    want = (
        "no tests to run\nhint: the tests of `x.star` are functions `test_...` in `x_test.star`\n"
    )
    assert (result.exit_code, result.output) == (2, want)


@pytest.mark.parametrize("name", ["x.star", "x_test.star"])
def test_a_file_means_its_own_tests(tmp_path: Path, name: str) -> None:
    path = _write(tmp_path / "p", x=POLICY, x_test=TEST, y=POLICY, y_test=TEST)
    result = _test(f"{path}/{name}")
    assert "/x_test.star" in result.output
    assert "/y_test.star" not in result.output


def test_problems_of_the_policies_come_instead_of_tests(tmp_path: Path) -> None:
    path = _write(tmp_path / "p", x=BROKEN, x_test=TEST)
    result = _test(path)
    assert result.exit_code == 1
    assert f"{path}/x.star:2:" in result.output
    assert "0 passed, 0 failed" in result.output.splitlines()[-1]


def test_test_results_as_json(tmp_path: Path) -> None:
    result = _test(_write(tmp_path / "p", x=POLICY, x_test=TEST), "--output", "json")
    answer = json.loads(result.output)
    assert (result.exit_code, answer["passed"], answer["failed"]) == (1, 1, 1)
    assert answer["tests"][1]["got"] == '{"a": 1}'
    assert answer["tests"][1]["line"] == 7


def test_test_results_as_junit(tmp_path: Path) -> None:
    result = _test(_write(tmp_path / "p", x=POLICY, x_test=TEST), "--output", "junit")
    suite = ElementTree.fromstring(result.output)
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    failure = suite.find("testcase[@name='test_wrong']/failure")
    assert failure is not None
    assert failure.get("message") == 'scores: got {"a": 1}, want {"a": 2}'


TABLE = """load("@std/testing.star", "asserts", "cases", "cluster", "make_node", "make_pod")

def _check(node, want):
    asserts.scores(cluster(make_node(node)), make_pod(), {node: want})

test_golden = cases(_check, {
    "half full": {"node": "a", "want": 1},
    "full": {"node": "bb", "want": 3},
})

def test_any():
    asserts.for_any(lambda n: asserts.true(n < 12, "small"), n = any_int(0, 50))
""".replace("load(", 'load("@std/generators.star", "any_int")\nload(', 1)


@pytest.mark.parametrize(
    ("pattern", "want"),
    [
        ("test_golden[half full]", "1 passed, 0 failed"),
        ("x_test.star::test_golden[full]", "0 passed, 1 failed"),
        ("golden[*full", "1 passed, 1 failed"),
        ("test_golden", "1 passed, 1 failed"),
        ("half", "1 passed, 0 failed"),
        ("test_golden[none]", "no tests to run"),
    ],
)
def test_run_selects_a_case_by_its_name(tmp_path: Path, pattern: str, want: str) -> None:
    result = _test(_write(tmp_path / "p", x=POLICY, x_test=TABLE), "--run", pattern)
    assert result.output.splitlines()[-1].startswith(want)


def test_the_command_that_is_printed_for_a_drawn_case_runs_it_again(tmp_path: Path) -> None:
    path = _write(tmp_path / "p", x=POLICY, x_test=TABLE)
    first = _test(path, "--seed", "5", "--run", "any").output.splitlines()
    assert "        for   n = 12" in first
    (again,) = [line for line in first if line.startswith("        again ")]
    command = shlex.split(again.removeprefix("        again starsched test "))
    assert command == [f"{path}/x_test.star", "--run", "test_any", "--seed", "5"]
    assert "        for   n = 12" in _test(*command).output.splitlines()


def test_drawn_cases_are_in_the_reports_for_programs(tmp_path: Path) -> None:
    path = _write(tmp_path / "p", x=POLICY, x_test=TABLE)
    (one,) = json.loads(_test(path, "--run", "any", "--output", "json").output)["tests"]
    assert (one["example"], one["seed"], one["message"]) == ("n = 12", 0, "small")
    suite = ElementTree.fromstring(_test(path, "--output", "junit").output)
    assert [case.get("name") for case in suite] == [
        "test_golden[half full]",
        "test_golden[full]",
        "test_any",
    ]


def test_list_names_every_test_and_runs_none(tmp_path: Path) -> None:
    path = _write(tmp_path / "p", x=POLICY, x_test=TABLE)
    names = [
        f"{path}/x_test.star::{name}"
        for name in ("test_golden[half full]", "test_golden[full]", "test_any")
    ]
    result = _test(path, "--list")
    assert (result.exit_code, result.output.splitlines()) == (0, names)
    result = _test(path, "--list", "--run", "half", "--output", "json")
    assert json.loads(result.output) == {"tests": names[:1], "problems": []}
    assert _test(path, "--list", "--run", "nothing").exit_code == 2


def test_data_of_tests_may_lie_next_to_policies(tmp_path: Path) -> None:
    test = (
        'load("@std/testing.star", "asserts", "load_manifests", "make_pod")\n\n'
        'def test_it():\n    nodes = load_manifests("nodes_test.yaml").cluster\n'
        '    asserts.scores(nodes, make_pod(), {"abc": 3})\n'
    )
    path = _write(tmp_path / "p", x=POLICY, x_test=test)
    (tmp_path / "p" / "nodes_test.yaml").write_text("kind: Node\nmetadata: {name: abc}\n")
    result = _test(path)
    assert result.exit_code == 0, result.output
    assert _check(path, "--strict").exit_code == 0


# --- eject ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["NodePorts", "node_ports", "node_ports.star"])
def test_eject_prints_the_built_in(name: str) -> None:
    result = CliRunner().invoke(main, ["eject", name])
    assert result.exit_code == 0
    assert result.output.startswith('"""Keeps a pod off nodes where one of the host ports')
    assert "def filter(pod, node):" in result.output


@pytest.mark.slow("compares much")
def test_an_ejected_policy_replaces_the_built_in_and_passes_its_tests(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        main, ["eject", "NodeResourcesFit", "--with-test", "--to", str(tmp_path)]
    )
    assert result.exit_code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "node_resources_fit.star",
        "node_resources_fit_test.star",
    ]
    assert _test(str(tmp_path)).exit_code == 0
    again = CliRunner().invoke(main, ["eject", "NodeResourcesFit", "--to", str(tmp_path)])
    assert again.exit_code == 2
    assert "already exists" in again.output


def test_eject_suggests_a_name() -> None:
    result = CliRunner().invoke(main, ["eject", "NodePort"])
    assert result.exit_code == 2
    assert "did you mean `node_ports`?" in result.output


# --- conformance ---------------------------------------------------------------------------

TAINTS = Path(__file__).parents[2] / "data" / "conformance" / "taints.jsonl"


def test_conformance_ends_with_the_counts(tmp_path: Path) -> None:
    file = tmp_path / "few.jsonl"
    file.write_text("".join(TAINTS.read_text().splitlines(keepends=True)[:2]))
    result = CliRunner().invoke(main, ["conformance", str(file)])
    assert result.exit_code == 0
    assert result.output.splitlines()[-1] == "answers: 10 matched, 0 differ, 0 unsupported"


@pytest.mark.slow("starts processes")
def test_recordings_are_read_compressed_and_from_a_pipe(tmp_path: Path) -> None:
    line = TAINTS.read_bytes().splitlines(keepends=True)[0]
    file = tmp_path / "few.jsonl.gz"
    file.write_bytes(gzip.compress(line))
    result = CliRunner().invoke(main, ["conformance", str(file)])
    assert result.output.splitlines()[-1] == "answers: 5 matched, 0 differ, 0 unsupported"
    piped = subprocess.run(
        [sys.executable, "-m", "workbench.cli.main", "conformance", "-"],
        input=line,
        capture_output=True,
        check=True,
    )
    assert piped.stdout.decode().splitlines()[-1] == result.output.splitlines()[-1]


def test_conformance_prints_each_difference(tmp_path: Path) -> None:
    scenario = json.loads(TAINTS.read_text().splitlines()[0])
    scenario["answers"][0]["best"] = ["elsewhere"]
    file = tmp_path / "wrong.jsonl"
    file.write_text(json.dumps(scenario))
    result = CliRunner().invoke(main, ["conformance", str(file)])
    lines = result.output.splitlines()
    assert result.exit_code == 1
    assert lines[0] == f"wrong.jsonl {scenario['id']} {scenario['answers'][0]['pod']}"
    assert lines[1].startswith("  best: want ['elsewhere'], got [")
    assert lines[-1] == "answers: 4 matched, 1 differ, 0 unsupported"
    answer = json.loads(
        CliRunner().invoke(main, ["conformance", str(file), "--output", "json"]).output
    )
    assert (answer["matched"], answer["differ"], answer["unsupported"]) == (4, 1, 0)
    assert answer["files"][0]["differences"][0]["scenario"] == scenario["id"]


@pytest.mark.parametrize(
    "text", [b"{}\n", b'{"id": "\xff"}\n', b"[" * 200_000], ids=["JSON", "bytes", "deep"]
)
def test_a_file_that_is_no_recording_is_a_wrong_use(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(text)
    result = CliRunner().invoke(main, ["conformance", str(file)])
    assert result.exit_code == 2
    assert "x.jsonl:1: want a scenario" in result.output


def test_a_recording_without_a_scenario_agrees_with_nothing(tmp_path: Path) -> None:
    """A recording that failed leaves an empty file, and that counted as agreement."""
    file = tmp_path / "x.jsonl"
    file.write_text("\n")
    result = CliRunner().invoke(main, ["conformance", str(file)])
    assert (result.exit_code, result.output) == (
        2,
        f"Error: {file}: want scenarios, one a line, found none\n",
    )


@pytest.mark.parametrize("command", ["check", "test", "eject", "conformance"])
def test_help_has_examples(command: str) -> None:
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0
    assert "starsched" in result.output.split("Examples:")[1]
