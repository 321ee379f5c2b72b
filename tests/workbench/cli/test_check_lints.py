"""`starsched check`: lints, what a hook costs, and safe corrections."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from workbench.cli.main import main
from workbench.lint.linter import lint_files

pytestmark = pytest.mark.usefixtures("policies_load_in_process")

ROOT = Path(__file__).resolve().parents[3]
UNUSED = (
    'load("@std/numbers.star", "go_div")\n\n'
    "def filter(pod, node):\n"
    '    return "no" if [t for t in node.taints if [p for p in pod.tolerations]] else None\n'
)
SHIFT = "def filter(pod, node):\n    return 'no' if 1 << 31 else None\n"


def check(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["check", *map(str, arguments)])
    return result.exit_code, result.output


def test_a_warning_names_its_lint_and_is_no_error_unless_asked(tmp_path: Path) -> None:
    (tmp_path / "a.star").write_text(UNUSED)
    code, output = check(tmp_path)
    assert code == 0
    want = f"{tmp_path}/a.star:1:27: warning: `go_div` is loaded and never used [unused-load]"
    assert output.splitlines() == [want, "1 policy file(s) checked: no problems, 1 warning(s)"]
    assert check(tmp_path, "--strict")[0] == 1


@pytest.mark.slow("starts programs")
def test_what_python_would_warn_of_is_not_reported(tmp_path: Path) -> None:
    """It was told of a file `<unknown>`, twice, and in the log of a scheduler too."""
    (tmp_path / "a.star").write_text("def score(pod, node):\n    return 1if pod.name else 0\n")
    command = [sys.executable, "-m", "workbench.cli.main", "check", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("1 policy file(s) checked: no problems\n", "")


def test_what_is_surely_a_mistake_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.star").write_text(SHIFT)
    code, output = check(tmp_path)
    assert code == 1
    assert "a.star:2:20: `1 << 31` gives -2147483648 here, want 2147483648" in output
    assert "hint: write `2147483648`" in output


def test_json_has_the_lint_and_the_cost(tmp_path: Path) -> None:
    (tmp_path / "a.star").write_text(UNUSED)
    code, output = check(tmp_path, "--output", "json", "--cost")
    answer = json.loads(output)
    assert code == 0
    assert [p["lint"] for p in answer["problems"]] == ["unused-load"]
    assert answer["costs"] == [
        {
            "policy": "a",
            "hook": "filter",
            "called": "per node",
            "loops": [["node.taints", "pod.tolerations"]],
        }
    ]
    assert "a.filter, per node: node.taints x pod.tolerations" in check(tmp_path, "--cost")[1]


def test_costs_go_through_loaded_functions(tmp_path: Path) -> None:
    text = 'load("@std/taints.star", "tolerates_all")\n\ndef filter(pod, node):\n'
    text += (
        "    ok = tolerates_all(pod.tolerations, node.taints)\n    return None if ok else 'no'\n"
    )
    (tmp_path / "a.star").write_text(text)
    assert "a.filter, per node: node.taints x pod.tolerations" in check(tmp_path, "--cost")[1]


def test_fix_takes_out_unused_loads_and_touches_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.star").write_text(UNUSED)
    (tmp_path / "b.star").write_text(SHIFT)
    code, output = check(tmp_path / "a.star", "--fix")
    assert code == 0
    assert "no problems" in output
    assert (tmp_path / "a.star").read_text() == UNUSED.partition("\n")[2]
    assert (tmp_path / "b.star").read_text() == SHIFT


def test_a_file_with_errors_is_not_linted_as_well(tmp_path: Path) -> None:
    (tmp_path / "a.star").write_text(UNUSED + "X = missing\n")
    code, output = check(tmp_path)
    assert code == 1
    assert "unused-load" not in output


@pytest.mark.parametrize("file", ["a.star", "b.star"])
def test_a_circle_of_loads_is_an_error_of_each_file_in_it(tmp_path: Path, file: str) -> None:
    """Nothing was said of it unless the first file of the circle was given."""
    (tmp_path / "a.star").write_text('load("b.star", "x")\n\ny = x\n')
    (tmp_path / "b.star").write_text('load("a.star", "y")\n\nx = y\n')
    code, output = check(tmp_path / file)
    assert code == 1
    assert f"{tmp_path}/a.star:1:6: files load each other in a circle: a.star -> b.star" in output


def test_errors_of_loaded_files_are_shown_and_warnings_are_not(tmp_path: Path) -> None:
    (tmp_path / "p.star").write_text(
        'load("x.star", "x")\n\ndef filter(pod, node):\n    return x\n'
    )
    (tmp_path / "x.star").write_text('load("broken.star", "z")\n\nx = z\n')
    (tmp_path / "broken.star").write_text(UNUSED + "X = missing\n")
    (tmp_path / "unrelated.star").write_text("X = missing\n")
    code, output = check(tmp_path / "p.star")
    assert code == 1
    assert f"{tmp_path}/broken.star:" in output
    assert "unrelated.star" not in output
    (tmp_path / "broken.star").write_text(UNUSED + "z = None\n")
    code, output = check(tmp_path / "p.star")
    assert (code, output) == (0, "1 policy file(s) checked: no problems\n")


def test_the_shared_functions_have_no_warning() -> None:
    files = {p.name: p.read_text() for p in (ROOT / "policies" / "std").glob("*.star")}
    assert lint_files(files) == []


def test_a_profile_is_checked_alone_whatever_lies_next_to_it(tmp_path: Path) -> None:
    profile = tmp_path / "profile.yaml"
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    plugins = "profiles: [{plugins: {multiPoint: {enabled: [{name: mine}]}}}]\n"
    profile.write_text(head + plugins)
    (tmp_path / "workloads.yaml").write_text("kind: Job\n")
    (tmp_path / "mine.star").write_text("def filter(pod, node):\n    return None\n")
    assert check(profile) == (0, "1 configuration file(s) checked: no problems\n")
    profile.write_text(head + plugins.replace("mine", "nobodys"))
    code, output = check(profile)
    assert code == 1
    assert f"{profile}:3:" in output
    # Of policies that cannot run a profile says nothing good.
    profile.write_text(head + plugins)
    (tmp_path / "mine.star").write_text("def filter(pod, node:\n")
    code, output = check(profile)
    assert code == 1
    assert f"{tmp_path}/mine.star:1" in output


def test_what_ships_is_loaded_with_the_arguments_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "mine.star").write_text("def filter(pod, node):\n    return None\n")
    (tmp_path / "profile.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
        "- plugins: {multiPoint: {enabled: [{name: mine}, {name: GpuBestFit}]}}\n"
        "  pluginConfig: [{name: GpuBestFit, args: {mostCpu: 0}}]\n"
    )
    code, output = check(tmp_path)
    assert code == 1
    assert "@gpu/gpu_best_fit.star:14: most_cpu: want a number above 0, got 0" in output
