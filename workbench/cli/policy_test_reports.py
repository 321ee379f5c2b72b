"""What `starsched test` prints: text for people, JSON and JUnit for programs."""

import shlex
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import click
import msgspec

from engine.lib.printable import printable_lines
from engine.policy.errors import Problem
from engine.surfaces.cli import terminal
from engine.testing.runner import PolicyTestResult, describe
from workbench.coverage.coverage import FileCoverage, percent

_COLOURS = {"PASS": "green", "FAIL": "red", "SKIP": "yellow"}


def print_result(result: PolicyTestResult) -> None:
    """One test, as it ends."""
    verdict = "SKIP" if result.skipped else "PASS" if result.passed else "FAIL"
    rest = f"  {result.file}:{result.line}  {result.name}"
    terminal.echo_styled(verdict, rest, fg=_COLOURS[verdict])
    if result.passed:
        return
    terminal.echo(f"      {result.message}")
    if result.got or result.want:
        click.echo(f"        got   {result.got}")
        click.echo(f"        want  {result.want}")
    if result.example:
        click.echo(f"        for   {result.example}")
        seed = f" --seed {result.seed}" if result.seed else ""
        name = shlex.quote(result.name)
        click.echo(f"        again starsched test {shlex.quote(result.file)} --run {name}{seed}")


def summary(results: Sequence[PolicyTestResult], problems: Sequence[Problem]) -> str:
    """The last line for people."""
    if not results and not problems:
        return "no tests to run"
    failures = sum(not result.passed for result in results)
    seconds = sum(result.seconds for result in results)
    text = f"{len(results) - failures} passed, {failures} failed in {seconds:.2f} s"
    return f"{text}; {len(problems)} problem(s) in the policies" if problems else text


def as_plain(results: Sequence[PolicyTestResult], problems: Sequence[Problem]) -> dict[str, Any]:
    """The results for JSON."""
    failures = sum(not result.passed for result in results)
    return {
        "passed": len(results) - failures,
        "failed": failures,
        "tests": msgspec.to_builtins(results),
        "problems": msgspec.to_builtins(problems),
    }


def as_counts(reached: Sequence[FileCoverage], *, is_whole: bool) -> dict[str, Any]:
    """The coverage for JSON. Libraries of the runtime are files of their own kind."""
    counted = [one for one in reached if is_whole or not one.is_shipped]
    libraries = [one for one in reached if not is_whole and one.is_shipped]
    return {
        "percent": round(percent(counted), 2),
        "files": {one.file: _lines(one) for one in counted},
        "libraries": {one.file: _lines(one) for one in libraries},
    }


def _lines(one: FileCoverage) -> dict[str, Any]:
    return {"lines": len(one.hits), "covered": one.covered, "missing": one.missing}


def as_junit(results: Sequence[PolicyTestResult], problems: Sequence[Problem]) -> str:
    """The results as JUnit's XML, which every CI reads."""
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
            classname=_xml(result.file.removesuffix(".star")),
            name=_xml(result.name),
            file=_xml(result.file),
            line=str(result.line),
            time=f"{result.seconds:.3f}",
        )
        if not result.passed:
            failure = ElementTree.SubElement(case, "failure", message=_xml(describe(result)))
            failure.text = _xml(f"{result.file}:{result.line}: {describe(result)}")
    for problem in problems:
        case = ElementTree.SubElement(suite, "testcase", classname=_xml(problem.file), name="check")
        error = ElementTree.SubElement(case, "error", message=_xml(problem.message))
        error.text = _xml(str(problem))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def _xml(text: str) -> str:
    """*text* without control characters, most of which XML does not allow."""
    return printable_lines(text)
