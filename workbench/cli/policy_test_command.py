"""`starsched test`: the unit tests of policies."""

from pathlib import Path

import click
import msgspec

from engine.core.framework.behaviors import RELEASED
from engine.surfaces.cli.emulated_version import emulated_version_option
from engine.surfaces.cli.input_error import require_places
from engine.surfaces.cli.json_output import print_json
from engine.surfaces.cli.policy_paths import command_paths
from workbench.cli.coverage_output import CoverageOutput
from workbench.cli.policy_test_reports import as_counts, as_junit, as_plain, print_result, summary
from workbench.cli.policy_test_session import PolicyTestSession
from workbench.cli.policy_test_watch import watch


@click.command("test", short_help="Run the unit tests of policies.")
@command_paths
@click.option(
    "--run",
    "pattern",
    metavar="PATTERN",
    help="Only tests whose name, or `file::name`, contains PATTERN; `*` and `?` are wildcards. "
    "A case of a table is `name[case]`.",
)
@click.option(
    "--list", "is_list", is_flag=True, help="Print the names of the tests without running them."
)
@click.option(
    "--watch",
    "is_watch",
    is_flag=True,
    help="Keep running, and rerun the tests that a changed file "
    "affects; with coverage, all tests of its directory.",
)
@click.option(
    "--output",
    type=click.Choice(["text", "json", "junit"]),
    default="text",
    show_default=True,
    help="How to print the results.",
)
@click.option(
    "--coverage", is_flag=True, help="Print which lines of the policies the tests reached."
)
@click.option(
    "--coverage-html",
    "html_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write line coverage as an HTML page.",
)
@click.option(
    "--coverage-lcov",
    "lcov_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write line coverage as an LCOV file, for editors and code hosts.",
)
@click.option(
    "--fail-under",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Fail if the tests reached less than this share of lines.",
)
@click.option(
    "--with-libraries",
    is_flag=True,
    help="Count the lines of shipped libraries (`@std/...`) in the share too.",
)
@click.option(
    "--seed",
    type=int,
    help="Seed of a random order of the tests of each directory, and of the drawn cases of "
    "properties.",
)
@emulated_version_option(f"1.{RELEASED}, or what a test says")
def test_command(
    paths: tuple[Path, ...],
    config: Path | None,
    pattern: str | None,
    is_list: bool,
    is_watch: bool,
    output: str,
    coverage: bool,
    html_file: Path | None,
    lcov_file: Path | None,
    fail_under: float | None,
    with_libraries: bool,
    seed: int | None,
    emulated_version: int | None,
) -> None:
    """Run the `test_*` functions and tables of cases of `*_test.star` files.

    PATHS are test files, policy files (their tests are run) or directories. The tests run against
    the same engine as the scheduler. A failed assertion shows both sides.

    Exit codes: 0 all tests pass, 1 a test fails, the policies have problems or coverage is under
    the limit, 2 the command cannot run, or there is no test to run. Ctrl-C stops --watch, and the
    code is that of the last run.

    \b
    Examples:
      starsched test policies/
      starsched test policies/my_policy_test.star
      starsched test policies/ --run 'cheaper*'
      starsched test policies/ --run 'test_golden[half full]'
      starsched test policies/ --watch --coverage
      starsched test policies/ --seed 7
      starsched test policies/ --output junit > report.xml
      starsched test policies/ --coverage --fail-under 90
    """
    lines = CoverageOutput(coverage, html_file, lcov_file, fail_under, with_libraries)
    require_places(html_file, lcov_file)
    if with_libraries and not lines.is_wanted:
        raise click.UsageError("--with-libraries is about coverage: want --coverage or the like")
    session = PolicyTestSession(
        paths,
        config,
        pattern=pattern,
        seed=seed,
        counts_lines=lines.is_wanted,
        minor=RELEASED if emulated_version is None else emulated_version,
    )
    if is_list:
        _list(session, output)
    if is_watch:
        if output != "text":
            raise click.UsageError(
                f"--watch prints many runs, as text: --output {output} is one document of one run"
            )
        raise SystemExit(0 if watch(session, paths, config, lines) else 1)
    outcome = session.run(print_result if output == "text" else lambda _: None)
    lines.write(outcome.reached)
    if output == "json":
        answer = as_plain(outcome.results, outcome.problems)
        if lines.is_wanted:
            answer["coverage"] = as_counts(outcome.reached, is_whole=with_libraries)
        print_json(answer)
    elif output == "junit":
        click.echo(as_junit(outcome.results, outcome.problems))
    else:
        for problem in outcome.problems:
            click.echo(str(problem))
        lines.print(outcome.reached)
        click.echo(summary(outcome.results, outcome.problems))
        if not pattern and not outcome.results and not outcome.problems:
            click.echo("hint: the tests of `x.star` are functions `test_...` in `x_test.star`")
    if not outcome.is_good:
        raise SystemExit(1)
    if not lines.is_enough(outcome.reached):
        raise SystemExit(1)
    raise SystemExit(0 if outcome.results else 2)


def _list(session: PolicyTestSession, output: str) -> None:
    """Print the names of the tests, and end."""
    names, problems = session.names()
    if output == "json":
        answer = {"tests": names, "problems": msgspec.to_builtins(problems)}
        print_json(answer)
    elif output == "text":
        for line in [*names, *map(str, problems)]:
            click.echo(line)
    else:
        raise click.UsageError("--list prints text or json")
    raise SystemExit(1 if problems else 0 if names else 2)
