"""The page of each hook: its signature, the errors that it names, and an example that runs."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from engine.language.hooks import HOOKS
from engine.policy.evaluator import InProcessEvaluator, PolicyFailure
from tests.engine.policy.programs import per_node, per_pod, program_of
from workbench.cli.main import main

HOOK_PAGES = Path(__file__).resolve().parents[2] / "docs" / "hooks"
_FILE = re.compile(r"^`([\w.]+\.(?:star|yaml))`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page(hook: str) -> str:
    return (HOOK_PAGES / f"{hook}.md").read_text(encoding="utf-8")


def signature(hook: str) -> str:
    return ", ".join(HOOKS[hook].shown_parameters)


def wrong_answers() -> list[tuple[str, str, str]]:
    """(hook, what it returns, the error that its page says comes of it)."""
    return [
        (hook, *row)
        for hook in sorted(HOOKS)
        for row in re.findall(
            r"^\| `(.+)` \| `(.+)` \|$", page(hook).partition("| error |")[2], re.MULTILINE
        )
    ]


def test_every_hook_has_a_page_and_every_page_a_hook() -> None:
    assert {path.stem for path in HOOK_PAGES.glob("*.md")} - {"README"} == HOOKS.keys()
    listed = re.findall(r"^\| \[(\w+)\]", (HOOK_PAGES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(HOOKS)


@pytest.mark.parametrize("hook", sorted(HOOKS))
def test_a_page_lists_the_parameters_in_their_order(hook: str) -> None:
    text = page(hook)
    assert f"\n`{hook}({signature(hook)})`\n" in text
    rows = text.partition("| parameter |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `([\w?]+)` ", rows, re.MULTILINE) == signature(hook).split(", ")
    for part in ("**Called** ", "| returns | means |", "**Reuse.** ", "**When it fails.** "):
        assert f"\n{part}" in text


@pytest.mark.parametrize("hook", sorted(HOOKS))
def test_the_example_of_a_page_passes_check_fmt_and_its_tests(hook: str, tmp_path: Path) -> None:
    files = dict(_FILE.findall(page(hook)))
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert any(re.search(rf"^def {hook}\(", text, re.MULTILINE) for text in files.values())
    for arguments in (["check", "--strict"], ["fmt", "--check", "--diff"], ["test"]):
        result = CliRunner().invoke(main, [*arguments, str(tmp_path)], catch_exceptions=False)
        assert result.exit_code == 0, result.output
    passed = re.search(r"(\d+) passed", result.output)
    assert passed is not None
    assert int(passed[1]) >= 1


@pytest.mark.parametrize(
    ("hook", "returned", "error"), wrong_answers(), ids=lambda value: str(value)[:30]
)
def test_a_wrong_answer_gives_the_error_that_the_page_says(
    hook: str, returned: str, error: str
) -> None:
    entry = HOOKS[hook]
    required = ", ".join(entry.parameters[: entry.required])
    program = program_of(f"def {hook}({required}): return {returned}")
    if entry.is_per_node or hook == "score_all":
        call = per_node(hook, {})
    elif hook == "normalize":
        call = per_node(hook, 1, over={"min": 1, "max": 1, "count": 1})
    else:
        call = per_pod(hook)
    evaluator = InProcessEvaluator(program)
    [verdict, *_] = evaluator.evaluate([call])[0]
    evaluator.close()
    assert isinstance(verdict, PolicyFailure)
    assert verdict.message == error
