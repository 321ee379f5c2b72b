"""`starsched check`: every problem of policies and their configuration, at once."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from engine.files.policy_files import PolicyFiles
from engine.language.syntax import parse, with_loaded
from engine.policy.bundle import Bundle
from engine.policy.documents import write_documents
from engine.policy.errors import Problem
from engine.surfaces.cli import terminal
from engine.surfaces.cli.input_error import input_errors
from engine.surfaces.cli.json_output import output_option, print_json
from engine.surfaces.cli.output_file import write_file
from engine.surfaces.cli.policy_paths import (
    build,
    command_paths,
    is_among,
    load_problems,
    read_paths,
)
from engine.surfaces.cli.terminal import wide_option
from engine.surfaces.cli.working import working
from workbench.cli.input_path import InputPath
from workbench.lint.cost import HookCost, hook_cost
from workbench.lint.fixes import without_unused_loads
from workbench.lint.linter import lint_files

# What only an option needs is imported where it is used: editors check a file on each save.
if TYPE_CHECKING:
    from engine.policy.reuse import HookReuse
    from workbench.comparing.acceptance import RejectedPods

_KEY: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")


@click.command("check", short_help="Report every problem of policy files.")
@command_paths
@wide_option
@output_option("How to print the problems.")
@click.option(
    "--reads",
    is_flag=True,
    help="Print what each hook reads and which verdicts can be reused; warn of what prevents it.",
)
@click.option("--cost", is_flag=True, help="Print what each hook loops over in one call.")
@click.option(
    "--rbac",
    is_flag=True,
    help="Print the ClusterRole of a scheduler with these policies, and no more than it uses.",
)
@click.option(
    "--deep",
    is_flag=True,
    help="Search for two queues that could take from each other in turn, and print a test of it.",
)
@click.option("--strict", is_flag=True, help="Treat warnings as problems: exit with code 1.")
@click.option("--fix", is_flag=True, help="Remove unused loads first.")
@click.option(
    "--never-rejects-everything",
    is_flag=True,
    help="Run the filters: report each class of pods of `--on` that no node accepts, even empty.",
)
@click.option(
    "--on",
    "inputs",
    type=InputPath(),
    multiple=True,
    metavar="INPUT",
    help="Where pods and nodes are taken from: a snapshot or a workload as for `simulate` "
    "(repeatable).",
)
def check_command(
    paths: tuple[Path, ...],
    config: Path | None,
    output: str,
    reads: bool,
    cost: bool,
    rbac: bool,
    deep: bool,
    strict: bool,
    fix: bool,
    never_rejects_everything: bool,
    inputs: tuple[Path, ...],
) -> None:
    """Check policy files and their configuration, without running a hook if nothing asks for it.

    PATHS are policy files or directories; a directory is one set of files, like one ConfigMap,
    and so is each directory inside it. Checks syntax, hooks and their parameters, field names,
    argument types, loads and profiles, then looks for probable mistakes. All problems are printed,
    one per line, as `file:line:column: message`; warnings are not errors. A comment
    `# lint: ignore=NAME` silences the lint NAME on its line.

    With --never-rejects-everything the pods of a snapshot are asked about, too: a class of pods
    that policies keep off every node is a problem, with the policy, its line and the pod as YAML.
    If the built-in policies alone leave it no node, that is a warning.

    With --deep the policy that governs a QueueTree is asked about random small clusters, of its own
    queues and of made-up ones: if a pod that was evicted for a queue could take back from that
    queue at once, that is a warning, with a test that shows it.

    Exit codes: 0 nothing is wrong, 1 there are problems, 2 the command cannot run.

    \b
    Examples:
      starsched check policies/
      starsched check my_policy.star --config profile.yaml
      starsched check policies/ --output json
      starsched check my_policy.star --reads
      starsched check policies/ --rbac | kubectl apply -f -
      starsched check policies/ --strict --cost
      starsched check policies/ --deep
      starsched check policies/ --never-rejects-everything --on cluster.json.gz
    """
    if never_rejects_everything != bool(inputs):
        raise click.UsageError("want --never-rejects-everything and --on together, got one of them")
    # 1. Load: each directory is one set of files.
    population = None
    if inputs:
        from workbench.cli.acceptance_check import (
            as_document,
            as_problem,
            population_of,
            rejected_by,
        )

        population = population_of(inputs)
    sets = read_paths(paths)
    if fix:
        sets = _fixed(sets)
    # 2. Run the checks on each set.
    report = CheckReport()
    bundles = []
    for files in sets:
        bundle = check_set(files, config, report, reads=reads, costs=cost)
        bundles += [] if bundle is None else [bundle]
        if population is not None and bundle is not None:
            rejected = rejected_by(bundle, population, inputs)
            report.rejected += rejected
            report.problems += (as_problem(one, files) for one in rejected)
        if deep and bundle is not None:
            from workbench.cli.circle_check import circle_in

            circle = circle_in(bundle, files)
            if circle is not None:
                report.problems.append(circle[0])
                report.tests.append(circle[1])
    # 3. Print the problems, and set the exit code.
    problems = list(dict.fromkeys(report.problems))
    errors = sum(strict or problem.severity == "error" for problem in problems)
    if output == "json":
        answer = _as_json(report, problems, reads=reads, costs=cost)
        if population is not None:
            answer["rejected"] = [msgspec.to_builtins(one) for one in report.rejected]
        if deep:
            answer["tests"] = report.tests
        if rbac:
            answer["rbac"] = _cluster_role(bundles)
        print_json(answer)
    elif rbac and not errors:
        # YAML: whatever else there is to say is a comment.
        for problem in problems:
            for line in problem_line(problem, report.lints.get(problem)).splitlines():
                terminal.echo(f"# {line}")
        click.echo(write_documents([_cluster_role(bundles)]), nl=False)
    else:
        _print_reads(report.hooks)
        _print_costs(report.costs)
        for problem in problems:
            terminal.echo(problem_line(problem, report.lints.get(problem)))
        for one in report.rejected:
            click.echo(as_document(one), nl=False)
        for text in report.tests:
            click.echo(f"\n{text}")
        terminal.echo(_summary(report, errors, len(problems) - errors))
    raise SystemExit(1 if errors else 0)


@dataclass(slots=True)
class CheckReport:
    """What the checks of all sets of files found.

    Attributes:
        problems: In the order in which they are printed; some may occur twice.
        lints: The name of the lint, for each problem that one found.
        hooks: What hooks read, with `--reads`.
        costs: What hooks loop over, with `--cost`.
        rejected: Pods that no node accepts, with `--never-rejects-everything`.
        tests: Tests that show what was found, with `--deep`.
        policies, documents: How many files of each kind were checked.
    """

    problems: list[Problem] = field(default_factory=list)
    lints: dict[Problem, str] = field(default_factory=dict)
    hooks: "list[HookReuse]" = field(default_factory=list)
    costs: list[HookCost] = field(default_factory=list)
    rejected: "list[RejectedPods]" = field(default_factory=list)
    tests: list[str] = field(default_factory=list)
    policies: int = 0
    documents: int = 0


@working("checking the policies")
def check_set(
    files: PolicyFiles,
    config: Path | None,
    report: CheckReport,
    *,
    reads: bool = False,
    costs: bool = False,
) -> Bundle | None:
    """Check one set of files, and add to *report* what was found.

    Returns the bundle if it can decide.
    """
    bundle, found = build(files, config)
    is_decidable = False
    if bundle is not None:
        found += load_problems(bundle, files)
        is_decidable = all(problem.severity != "error" for problem in found)
        if reads:
            from engine.policy.reuse import reuse_problems

            hooks = _reads(bundle, files)
            report.hooks += hooks
            modules = {name: policy.module for name, policy in bundle.policies.items()}
            for warning in reuse_problems(hooks, modules, bundle.files):
                found.append(replace(warning, file=files.shown(warning.file)))
        if costs:
            report.costs += _costs(bundle, files)
    # What a file seems to mean is not worth a warning as long as it cannot run.
    broken = {problem.file for problem in found if problem.severity == "error"}
    for finding in lint_files(files.texts, files.selected | set(_loaded(files))):
        problem = replace(finding.problem, file=files.shown(finding.problem.file))
        if problem.file not in broken:
            report.lints[problem] = finding.lint
            found.append(problem)
    found += _invalid_keys(files)
    shown = found
    if bundle is not None or any(name.endswith(".star") for name in files.selected):
        shown = _of_selected(found, files, config)
    # Otherwise only a profile was named, and it is wrong if one of its policies cannot run.
    report.problems += shown
    if bundle is None and (reads or costs) and not shown:
        others = sorted({one.file for one in found})
        terminal.echo(f"reads are not known: {', '.join(others)} cannot run", err=True)
    report.policies += sum(name.endswith(".star") for name in files.selected)
    report.documents += sum(not name.endswith(".star") for name in files.selected)
    return bundle if is_decidable else None


def _of_selected(
    found: Iterable[Problem], files: PolicyFiles, config: Path | None
) -> list[Problem]:
    """The problems of the named files, and errors of the files that they load.

    The other files of the directory are only loaded. A policy cannot run while a file
    that it loads is broken, so errors in such a file count.
    """
    others = {files.shown(name) for name in files.texts if name not in files.selected}
    if config is not None and is_among(config, files):
        others.discard(files.shown(config.name))
    loaded = set(map(files.shown, _loaded(files)))
    return [
        problem
        for problem in found
        if problem.file not in others or (problem.severity == "error" and problem.file in loaded)
    ]


def _as_json(
    report: CheckReport, problems: list[Problem], *, reads: bool, costs: bool
) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "problems": [plain_problem(problem, report.lints.get(problem)) for problem in problems],
        "files": report.policies,
    }
    if reads:
        answer["hooks"] = [msgspec.to_builtins(hook) for hook in report.hooks]
    if costs:
        answer["costs"] = [msgspec.to_builtins(hook) for hook in report.costs]
    return answer


def _cluster_role(bundles: Iterable[Bundle]) -> dict[str, Any]:
    """What a scheduler with any of *bundles* may do, as the manifests of an installation say it."""
    from engine.surfaces.preflight.rights import (
        Objects,
        granting,
        needed_rights,
        rights_of_policies,
    )

    rights = needed_rights(Objects(reviews_callers=True))
    rights += [right for bundle in bundles for right in rights_of_policies(bundle)]
    return granting(rights, "", "starsched")[0]


def _summary(report: CheckReport, errors: int, warnings: int) -> str:
    """The last line for people."""
    what = f"{errors} problem(s)" if errors else "no problems"
    if warnings:
        what += f", {warnings} warning(s)"
    is_policies = report.policies or not report.documents
    kind = "policy file(s)" if is_policies else "configuration file(s)"
    return f"{report.policies or report.documents} {kind} checked: {what}"


def _loaded(files: PolicyFiles) -> list[str]:
    """The files that the named ones load, directly or not."""
    # A file that cannot be parsed might load any other; its own error is reported instead.
    policies = [name for name in files.selected if name.endswith(".star")]
    parsed = [name for name in policies if parse(files.texts[name]) is not None]
    return with_loaded(files.texts, parsed)


def _invalid_keys(files: PolicyFiles) -> Iterator[Problem]:
    """Warnings for file names that cannot be keys of a ConfigMap."""
    for name in sorted(files.texts):
        if not _KEY.fullmatch(name):
            message = "a ConfigMap cannot have this name as a key"
            hint = "want at most 253 letters of a to z, digits, `-`, `_` and `.`"
            yield Problem(files.shown(name), 0, 0, message, hint, "warning")


def _reads(bundle: Bundle, files: PolicyFiles) -> "list[HookReuse]":
    """What the hooks of the named files read, in the order of their policies."""
    from engine.policy.reuse import hook_reuse

    return [
        hook_reuse(policy.name, hook, policy.hooks[hook])
        for policy in bundle.policies.values()
        if policy.module in files.selected
        for hook in policy.hooks
    ]


def _print_reads(hooks: "list[HookReuse]") -> None:
    if not hooks:
        return
    from engine.surfaces.cli.console import escape, make_console
    from workbench.cli.table import print_table

    columns = (
        "policy",
        "hook",
        "reads of the pod",
        "of the node, and others",
        "answers are reused",
    )
    rows = []
    before = ""
    for hook in hooks:
        policy, before = ("" if hook.policy == before else hook.policy), hook.policy
        others = [
            *hook.node,
            *(["counts"] if hook.counts else []),
            *(f"cluster.{path}" for path in hook.cluster),
            *(f"group.{path}" for path in hook.group),
        ]
        cells = policy, hook.hook, ", ".join(hook.pod) or "-", ", ".join(others) or "-", hook.reuse
        rows.append(tuple(map(escape, cells)))
    print_table(make_console(), columns, rows)


def _print_costs(costs: list[HookCost]) -> None:
    for one in costs:
        terminal.echo(f"{one.policy}.{one.hook}, {one.called}: {one}")


def _costs(bundle: Bundle, files: PolicyFiles) -> list[HookCost]:
    """What the hooks of the named files loop over, in the order of their policies."""
    return [
        hook_cost(policy.name, bundle.files, policy.module, hook)
        for policy in bundle.policies.values()
        if policy.module in files.selected
        for hook in policy.hooks
    ]


def _fixed(sets: list[PolicyFiles]) -> list[PolicyFiles]:
    """*sets* with safe corrections applied to the named files, on disk too."""
    corrected = []
    for files in sets:
        texts = dict(files.texts)
        for file in sorted(files.selected):
            text = without_unused_loads(texts[file], lint_files(files.texts, [file]))
            if text != texts[file]:
                path = files.directory / file
                is_dos = b"\r\n" in path.read_bytes()
                with input_errors():
                    write_file(path, text.replace("\n", "\r\n") if is_dos else text)
                click.echo(f"corrected {path}", err=True)
                texts[file] = text
        corrected.append(replace(files, texts=texts))
    return corrected


def problem_line(problem: Problem, lint: str | None) -> str:
    """*problem* as it is printed, with the lint that found it."""
    kind = "" if problem.severity == "error" else f"{problem.severity}: "
    name = f" [{lint}]" if lint else ""
    return str(replace(problem, message=f"{kind}{problem.message}{name}"))


def plain_problem(problem: Problem, lint: str | None) -> dict[str, Any]:
    """*problem* as it is in the JSON output, with the lint that found it."""
    plain: dict[str, Any] = msgspec.to_builtins(problem)
    return plain | ({"lint": lint} if lint else {})
