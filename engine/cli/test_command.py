"""`starsched test`: the unit tests of policies."""

import fnmatch
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import msgspec

from engine.cli.policy_paths import build, command_paths, read_paths
from engine.offline.policy_files import PolicyFiles
from engine.offline.policy_tests import TestCase, TestResult, describe, discover, run_tests
from engine.policy.errors import Problem


@click.command("test", short_help="Run the unit tests of policies.")
@command_paths
@click.option(
    "--run",
    "pattern",
    metavar="PATTERN",
    help="Only tests whose name, or `file::name`, contains PATTERN; `*` and `?` are wildcards.",
)
@click.option(
    "--output",
    type=click.Choice(["text", "json", "junit"]),
    default="text",
    show_default=True,
    help="How to print the results.",
)
def test_command(
    paths: tuple[Path, ...], config: Path | None, pattern: str | None, output: str
) -> None:
    """Run the `test_*` functions of `*_test.star` files.

    PATHS are test files, policy files (their tests are run) or directories. The tests run against
    the same engine as the scheduler. A failed assertion shows both sides.

    \b
    Exit codes: 0 all tests pass, 1 a test fails or the policies have problems, 2 the command
    cannot run, or there is no test to run.

    \b
    Examples:
      starsched test policies/
      starsched test policies/my_policy_test.star
      starsched test policies/ --run 'cheaper*'
      starsched test policies/ --output junit > report.xml
    """
    problems: list[Problem] = []
    results: list[TestResult] = []
    for files in read_paths(paths):
        bundle, found = build(files, config)
        if bundle is None:
            problems += found
            continue
        wanted = [case for case in discover(bundle) if _is_wanted(case, files, pattern)]
        for result in run_tests(bundle, wanted):
            shown = msgspec.structs.replace(result, file=files.shown(result.file))
            results.append(shown)
            if output == "text":
                _print(shown)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(_plain(results, problems))).decode())
    elif output == "junit":
        click.echo(_junit(results, problems))
    else:
        for problem in problems:
            click.echo(str(problem))
        click.echo(_summary(results, problems))
    if problems or any(not result.passed for result in results):
        raise SystemExit(1)
    raise SystemExit(0 if results else 2)


def _is_wanted(case: TestCase, files: PolicyFiles, pattern: str | None) -> bool:
    policy = case.file.removesuffix("_test.star") + ".star"
    if case.file not in files.selected and policy not in files.selected:
        return False
    if pattern is None:
        return True
    wrapped = f"*{pattern}*"
    return fnmatch.fnmatchcase(case.name, wrapped) or fnmatch.fnmatchcase(str(case), wrapped)


def _print(result: TestResult) -> None:
    verdict = "PASS" if result.passed else "FAIL"
    click.echo(f"{verdict}  {result.file}:{result.line}  {result.name}")
    if result.passed:
        return
    click.echo(f"      {result.message}")
    if result.got or result.want:
        click.echo(f"        got   {result.got}")
        click.echo(f"        want  {result.want}")


def _summary(results: list[TestResult], problems: list[Problem]) -> str:
    if not results and not problems:
        return "no tests to run"
    failures = sum(not result.passed for result in results)
    seconds = sum(result.seconds for result in results)
    text = f"{len(results) - failures} passed, {failures} failed in {seconds:.2f} s"
    return f"{text}; {len(problems)} problem(s) in the policies" if problems else text


def _plain(results: list[TestResult], problems: list[Problem]) -> dict[str, Any]:
    failures = sum(not result.passed for result in results)
    return {
        "passed": len(results) - failures,
        "failed": failures,
        "tests": msgspec.to_builtins(results),
        "problems": msgspec.to_builtins(problems),
    }


def _junit(results: list[TestResult], problems: list[Problem]) -> str:
    failures = sum(not result.passed for result in results)
    suite = ElementTree.Element(
        "testsuite",
        name="starsched",
        tests=str(len(results) + len(problems)),
        failures=str(failures),
        errors=str(len(problems)),
        time=f"{sum(result.seconds for result in results):.3f}",
    )
    for result in results:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=result.file.removesuffix(".star"),
            name=result.name,
            file=result.file,
            line=str(result.line),
            time=f"{result.seconds:.3f}",
        )
        if not result.passed:
            failure = ElementTree.SubElement(case, "failure", message=_xml(describe(result)))
            failure.text = _xml(f"{result.file}:{result.line}: {describe(result)}")
    for problem in problems:
        case = ElementTree.SubElement(suite, "testcase", classname=problem.file, name="check")
        error = ElementTree.SubElement(case, "error", message=_xml(problem.message))
        error.text = _xml(str(problem))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def _xml(text: str) -> str:
    """*text* without the control characters that XML cannot hold."""
    return "".join(c if c >= " " or c in "\t\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
