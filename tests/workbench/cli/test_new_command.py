"""`starsched new`: what it writes works at once, and it overwrites nothing."""

import itertools
import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from engine.language.hooks import HOOKS as EVERY_HOOK
from engine.policy.shipped import recipes
from workbench.cli.main import main
from workbench.formatting import formatted
from workbench.scaffold import EITHER, HOOKS


def starsched(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return result.exit_code, result.output


# Those that most policies have.
COMMON = ("queue_key", "pre_enqueue", "filter", "score", "normalize", "annotate")


def test_every_hook_of_the_language_has_a_text() -> None:
    """Who wanted a `permit`, or another one of nine, was told that there was no text for it."""
    assert set(HOOKS) == EVERY_HOOK.keys()


def test_two_that_stand_for_each_other_are_refused(tmp_path: Path) -> None:
    code, output = starsched("new", "x", "--hooks", "score_all,score", "--to", tmp_path)
    assert code == 2
    assert "--hooks: `score_all` stands for `score`: want one or the other" in output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow("computes for long")
@pytest.mark.parametrize(
    "hooks",
    [
        *HOOKS,
        *map(",".join, itertools.combinations(COMMON, 2)),
        ",".join(hook for hook in HOOKS if hook != EITHER[0]),
        ",".join(hook for hook in HOOKS if hook not in EITHER[1]),
    ],
)
def test_a_new_policy_passes_its_check_and_its_tests(tmp_path: Path, hooks: str) -> None:
    code, output = starsched("new", "my_policy", "--hooks", hooks, "--to", tmp_path / "p")
    assert code == 0, output
    assert "starsched test" in output
    code, output = starsched("check", tmp_path, "--strict")
    assert code == 0, output
    code, output = starsched("test", tmp_path)
    assert code == 0, output
    text = (tmp_path / "p" / "my_policy.star").read_text()
    for hook in hooks.split(","):
        assert f"def {hook}(" in text
    for path in (tmp_path / "p").iterdir():
        assert formatted(path.read_text()) == path.read_text()


def test_programs_read_what_was_written(tmp_path: Path) -> None:
    code, output = starsched("new", "mine", "--to", tmp_path, "--output", "json")
    files = [str(tmp_path / name) for name in ("mine.star", "mine_test.star")]
    assert (code, json.loads(output)) == (0, {"written": files})
    code, output = starsched("eject", "NodeName", "--to", tmp_path, "--output", "json")
    assert (code, json.loads(output)) == (0, {"written": [str(tmp_path / "node_name.star")]})
    code, output = starsched("eject", "NodeName", "--output", "json")
    assert json.loads(output)["files"]["node_name.star"] == (tmp_path / "node_name.star").read_text(
        encoding="utf-8"
    )


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine_test.star").write_text("# mine\n")
    code, output = starsched("new", "mine", "--to", tmp_path)
    assert code == 2
    assert "already exists" in output
    assert [path.name for path in tmp_path.iterdir()] == ["mine_test.star"]


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("MyPolicy", "small letters"),
        ("../x", "small letters"),
        ("2nd_try", "want at most 63 small letters, digits and `_` between, a letter first"),
        ("a" * 64, "at most 63"),
        ("x_test", "reserved for tests"),
        ("node_name", "starsched eject node_name"),
        (
            "volume_binding",
            "goes by `VolumeBinding` in profiles, a part of the runtime\nhint: take",
        ),
    ],
)
def test_names_are_checked(tmp_path: Path, name: str, want: str) -> None:
    code, output = starsched("new", name, "--to", tmp_path)
    assert code == 2
    assert want in output
    assert list(tmp_path.iterdir()) == []


def test_a_recipe_is_written_with_its_test_by_its_own_name(tmp_path: Path) -> None:
    code, output = starsched("new", "--from", "team-quota", "--to", tmp_path)
    assert code == 0, output
    assert (tmp_path / "team_quota.star").read_text() == recipes()["team_quota"].text
    assert (tmp_path / "team_quota_test.star").read_text() == recipes()["team_quota"].test


@pytest.mark.budget(4, "checks and tests a policy")
def test_a_recipe_by_another_name_passes_its_check_and_its_tests(tmp_path: Path) -> None:
    code, output = starsched("new", "mine", "--from", "pods_per_node", "--to", tmp_path)
    assert code == 0, output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.star", "mine_test.star"]
    assert "pods_per_node" not in (tmp_path / "mine_test.star").read_text()
    code, output = starsched("check", tmp_path, "--strict")
    assert code == 0, output
    code, output = starsched("test", tmp_path)
    assert code == 0, output


def test_programs_read_which_recipes_there_are() -> None:
    code, output = starsched("new", "--list", "--output", "json")
    listed = {row["name"]: row["does"] for row in json.loads(output)["recipes"]}
    assert (code, listed.keys()) == (0, recipes().keys())
    assert all(does.endswith(".") for does in listed.values())


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["--from", "team_quotas"], "has no `team_quotas`\nhint: did you mean `team_quota`?"),
        (["--from", "zzz"], "hint: want one of ageing, "),
        (["--from", "ageing", "--hooks", "score"], "--from: want no --hooks"),
        (["--list", "mine"], "--list: want nothing else"),
        (["mine", "--from", "ageing", "--to", "{here}"], "already exists"),
        ([], "want a NAME, or --from with a policy of the cookbook"),
    ],
)
def test_a_wrong_usage_says_what_is_wanted(tmp_path: Path, arguments: list[str], want: str) -> None:
    (tmp_path / "mine.star").write_text("# mine\n")
    code, output = starsched("new", *(a.format(here=tmp_path) for a in arguments))
    assert (code, want in output) == (2, True), output


def test_a_hook_that_there_is_no_text_for_is_named(tmp_path: Path) -> None:
    code, output = starsched("new", "x", "--hooks", "filter,scoer", "--to", tmp_path)
    assert code == 2
    assert "`scoer`" in output
    assert "did you mean `score`?" in output


@pytest.mark.parametrize("name", ["VolumeBinding", "volume_binding", "DynamicResources"])
def test_a_plugin_that_is_a_part_of_the_runtime_is_not_taken_for_another(name: str) -> None:
    """It said "did you mean `volume_zone`?" of VolumeBinding, which every profile names."""
    code, output = starsched("eject", name)
    assert code == 2
    assert "is a part of the runtime: it has no policy file" in output
    assert "did you mean" not in output


def test_a_part_of_the_runtime_with_a_policy_file_is_printed() -> None:
    code, output = starsched("eject", "DefaultPreemption")
    assert (code, "def victim_key(" in output) == (0, True)


def test_the_commands_to_go_on_with_are_for_a_shell(tmp_path: Path) -> None:
    """They held the path as it is: in a directory with a blank in its name they did not run."""
    directory = tmp_path / "my policies"
    _, output = starsched("new", "mine", "--to", directory)
    command = next(line for line in output.splitlines() if line.startswith("next:"))
    want = ["next:", "starsched", "check", str(directory / "mine.star")]
    assert shlex.split(command, comments=True) == want
