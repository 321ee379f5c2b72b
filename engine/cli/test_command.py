"""`starsched test`: the unit tests of policies."""

import fnmatch
import random
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import msgspec

from engine.cli.policy_paths import build, command_paths, read_paths
from engine.offline.coverage import Coverage, FileCoverage, percent
from engine.offline.coverage_reports import as_html, as_lcov, as_text
from engine.offline.policy_files import TEST_SUFFIX, PolicyFiles
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
@click.option("--coverage", is_flag=True, help="Print which lines of the policies were reached.")
@click.option(
    "--coverage-html",
    "html_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the same as a page, each line coloured.",
)
@click.option(
    "--coverage-lcov",
    "lcov_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the same as an LCOV file, for editors and code hosts.",
)
@click.option(
    "--fail-under",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Fail if less than this share of lines was reached.",
)
@click.option(
    "--seed", type=int, help="Run the tests of each directory in an order drawn with this number."
)
def test_command(
    paths: tuple[Path, ...],
    config: Path | None,
    pattern: str | None,
    output: str,
    coverage: bool,
    html_file: Path | None,
    lcov_file: Path | None,
    fail_under: float | None,
    seed: int | None,
) -> None:
    """Run the `test_*` functions of `*_test.star` files.

    PATHS are test files, policy files (their tests are run) or directories. The tests run against
    the same engine as the scheduler. A failed assertion shows both sides.

    \b
    Exit codes: 0 all tests pass, 1 a test fails, the policies have problems or coverage is under
    the limit, 2 the command cannot run, or there is no test to run.

    \b
    Examples:
      starsched test policies/
      starsched test policies/my_policy_test.star
      starsched test policies/ --run 'cheaper*'
      starsched test policies/ --output junit > report.xml
      starsched test policies/ --coverage --fail-under 90
    """
    is_counted = coverage or html_file or lcov_file or fail_under is not None
    reached: list[FileCoverage] = []
    problems: list[Problem] = []
    results: list[TestResult] = []
    for files in read_paths(paths):
        bundle, found = build(files, config)
        if bundle is None:
            problems += found
            continue
        wanted = [case for case in discover(bundle) if _is_wanted(case, files, pattern)]
        if seed is not None:
            random.Random(seed).shuffle(wanted)
        counts = Coverage(bundle)
        if is_counted:
            names = (n for n in files.selected if n.endswith(".star"))
            counts.watch(_policy_of(n) for n in names if _policy_of(n) in bundle.files)
        for result in run_tests(counts.bundle, wanted, natives=counts.natives):
            shown = msgspec.structs.replace(result, file=files.shown(result.file))
            results.append(shown)
            if output == "text":
                _print(shown)
        reached += [replace(one, file=files.shown(one.file)) for one in counts.files()]
    if html_file is not None:
        html_file.write_text(as_html(reached), encoding="utf-8")
    if lcov_file is not None:
        lcov_file.write_text(as_lcov(reached), encoding="utf-8")
    share = percent(reached)
    if output == "json":
        answer = _plain(results, problems)
        if is_counted:
            answer["coverage"] = _counted(reached)
        click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())
    elif output == "junit":
        click.echo(_junit(results, problems))
    else:
        for problem in problems:
            click.echo(str(problem))
        if coverage:
            click.echo(as_text(reached))
        click.echo(_summary(results, problems))
    if problems or any(not result.passed for result in results):
        raise SystemExit(1)
    if fail_under is not None and share < fail_under:
        click.echo(f"coverage is {share:.1f}%, want at least {fail_under:g}%", err=True)
        raise SystemExit(1)
    raise SystemExit(0 if results else 2)


def _policy_of(name: str) -> str:
    """The policy file that *name* is, or is the test of."""
    return name.removesuffix(TEST_SUFFIX) + ".star" if name.endswith(TEST_SUFFIX) else name


def _counted(reached: list[FileCoverage]) -> dict[str, Any]:
    files = {
        one.file: {"lines": len(one.hits), "covered": one.covered, "missing": one.missing}
        for one in reached
    }
    return {"percent": round(percent(reached), 2), "files": files}


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
