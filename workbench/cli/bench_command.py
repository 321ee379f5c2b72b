"""`starsched bench`: the cost of each hook of the policies, compared with another set of them."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.console import Console

from engine.files.policy_files import PolicyFiles
from engine.language.hooks import HOOKS
from engine.policy.bundle import Bundle
from engine.policy.documents import did_you_mean
from engine.surfaces.cli import terminal
from engine.surfaces.cli.console import escape, make_console, say
from engine.surfaces.cli.input_error import InputError, input_errors
from engine.surfaces.cli.json_output import output_option, print_json
from engine.surfaces.cli.policy_paths import config_option
from engine.surfaces.cli.progress_bar import progress_bar
from engine.surfaces.cli.terminal import wide_option
from engine.telemetry.logs import configure_logging
from workbench.bench.generated import generated_workload
from workbench.bench.hook_costs import Change, HookCost, Subject, changes, measure
from workbench.bench.sampled_calls import LostHookError, with_arrivals
from workbench.cli.file_notes import report_damage
from workbench.cli.policy_option import known_profile, read_bundle
from workbench.cli.policy_sets import read_other
from workbench.cli.table import numbers, print_table
from workbench.simulation.workload import Workload, WorkloadError, read_workload

WITHIN, EXCEEDED = 0, 1
_LINE_WIDTH: Final = 90


class _Share(click.ParamType[float]):
    """A part: `20%` or `0.2`."""

    name = "share"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        text = str(value)
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = -1.0
        if not 0 <= share < float("inf"):
            self.fail(f"want a part such as `20%`, got `{text}`", param, ctx)
        return share


@click.command("bench", short_help="Measure what the hooks of policies cost.")
@click.argument("policies", metavar="POLICIES")
@click.option(
    "--on",
    "inputs",
    type=click.Path(path_type=Path, exists=True),
    multiple=True,
    metavar="INPUT",
    help="Input to decide: a snapshot or a workload as for `simulate`; repeatable.",
)
@click.option(
    "--nodes",
    type=click.IntRange(min=1, max=20_000),
    default=200,
    show_default=True,
    help="Nodes of the generated cluster, which is used without --on.",
)
@click.option(
    "--pods",
    type=click.IntRange(min=1, max=20_000),
    default=100,
    show_default=True,
    help="Pods that arrive. If a snapshot has fewer pending ones, placed pods arrive again.",
)
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="Seed of the generated cluster and of the sample.",
)
@click.option("--policy", "names", multiple=True, metavar="NAME", help="Only this policy.")
@click.option("--hook", "hooks", multiple=True, metavar="HOOK", help="Only this hook.")
@click.option(
    "--profile",
    metavar="NAME",
    help="Decide every arriving pod by this profile (a `schedulerName`).",
)
@config_option()
@click.option(
    "--compare",
    "other",
    metavar="REV",
    help="Compare with another version: a git revision of the directory POLICIES, another "
    "directory, a file with a ConfigMap, or `builtin`.",
)
@click.option(
    "--fail-over",
    type=_Share(),
    metavar="N%",
    help="Fail if a hook grew by more than so much since REV.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1, max=1000),
    default=40,
    show_default=True,
    help="How many times each hook is timed.",
)
@click.option(
    "--lines",
    "shown",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="How many lines of each hook to print, the hottest first.",
)
@wide_option
@output_option("How to print it.")
def bench_command(policies: str, other: str | None, **options: Any) -> None:
    """Measure every hook of POLICIES: operations and microseconds, per node, call and pod.

    POLICIES is a directory, a file with a ConfigMap, or `builtin`. The engine decides
    a cluster, and the calls of the hooks are repeated in the sandbox that a scheduler uses. An
    evaluation is one run of a hook, for one node or for a pod; a call covers all nodes without a
    known verdict; "per pod" is what remains for each pod after verdicts are reused.

    Operations are counted, and exact: calls, attributes, items, operators and statements that ran.
    The same text and input give the same number on any machine. Microseconds are medians of
    interleaved rounds, round trips to the sandbox included, with a 95 % confidence interval.

    With --compare, a time counts as changed only if its whole interval is on one side of zero, and
    as over the limit of --fail-over only if all of it is; the 95 % then cover all hooks together.

    Exit codes: 0 measured, and within the limit; 1 a hook costs more than --fail-over allows;
    2 wrong usage, or policies or input cannot be used.

    \b
    Examples:
      starsched bench ./policies
      starsched bench ./policies --on cluster.json.gz --policy my_policy --hook score --lines 10
      starsched bench ./policies --compare HEAD~1 --fail-over 20%
      starsched bench live.yaml --compare ./policies --output json
    """
    configure_logging(verbosity=-1, log_format="text")
    if options["fail_over"] is not None and other is None:
        raise click.UsageError("--fail-over wants --compare")
    bundle, files = read_bundle(policies, options["config"])
    wanted = _wanted(bundle, files, options)
    sets = [bundle]
    if other is not None:
        sets.insert(0, read_other(other, policies, options["config"])[0])
    try:
        with input_errors(options["inputs"]):
            subjects = _measured(sets, wanted, options)
    except LostHookError as error:
        raise InputError(str(error)) from error
    costs = subjects[-1].costs()
    found = changes(*subjects) if other is not None else []
    limit: float | None = options["fail_over"]
    exceeded = [
        f"{one.policy}.{one.hook}: {', '.join(over)}, want at most {limit:+.1%}"
        for one in found
        if limit is not None and (over := one.exceeds(limit))
    ]
    silent = _silent(bundle, wanted, costs)
    if options["output"] == "json":
        result = {
            "revision": bundle.revision,
            "rounds": options["rounds"],
            "hooks": msgspec.to_builtins(costs),
            "not_asked": silent,
        }
        if other is not None:
            result["compared_with"] = sets[0].revision
            result["changes"] = msgspec.to_builtins(found)
            result["exceeded"] = exceeded
        print_json(result)
    else:
        console = make_console()
        _print_costs(console, costs, silent)
        if options["shown"]:
            _print_lines(console, costs, options["shown"])
        if other is not None:
            _print_changes(console, found, subjects, str(other))
        for line in exceeded:
            terminal.echo(f"exceeded: {line}")
    raise SystemExit(EXCEEDED if exceeded else WITHIN)


def _wanted(
    bundle: Bundle, files: PolicyFiles, options: dict[str, Any]
) -> Callable[[str, str], bool]:
    """The hooks to measure: those of the given policies unless others are named."""
    names, hooks = frozenset(options["names"]), frozenset(options["hooks"])
    for name in sorted(names - bundle.policies.keys()):
        hint = did_you_mean(name, bundle.policies)
        raise click.BadParameter(
            f"no policy `{name}`" + (f": {hint}" if hint else ""), param_hint="--policy"
        )
    known = HOOKS.keys() | {hook for policy in bundle.policies.values() for hook in policy.hooks}
    for hook in sorted(hooks - known):
        hint = did_you_mean(hook, known)
        raise click.BadParameter(
            f"no hook `{hook}`" + (f": {hint}" if hint else ""), param_hint="--hook"
        )
    own = {one.name for one in bundle.policies.values() if one.module in files.texts}

    meant = names or own or frozenset(bundle.policies)
    defined = sorted({hook for name in meant for hook in bundle.policies[name].hooks})
    if hooks and hooks.isdisjoint(defined):
        none = ", ".join(f"`{hook}`" for hook in sorted(hooks))
        raise click.BadParameter(
            f"nothing to measure has {none}, want one of {', '.join(defined)}", param_hint="--hook"
        )

    def wanted(policy: str, hook: str) -> bool:
        return policy in meant and (not hooks or hook in hooks)

    return wanted


def _measured(
    sets: list[Bundle], wanted: Callable[[str, str], bool], options: dict[str, Any]
) -> list[Subject]:
    """The sets with their costs; their sandboxes are gone."""
    given = _workload(options)
    progress = progress_bar()
    with contextlib.ExitStack() as open_sets, progress:
        asking = progress.add_task("measuring", total=len(sets))
        subjects = []
        for bundle in sets:
            workload = _decided_by(bundle, given, options)
            subject = Subject(bundle, workload, wanted, seed=options["seed"])
            subjects.append(open_sets.enter_context(subject))
            progress.advance(asking)
        rounds = progress.add_task("rounds", total=options["rounds"])
        for _ in measure(subjects, options["rounds"]):
            progress.advance(rounds)
    return subjects


def _workload(options: dict[str, Any]) -> Workload:
    if not options["inputs"]:
        return generated_workload(options["nodes"], options["pods"], options["seed"])
    read = read_workload(*options["inputs"])
    report_damage(read.damage)
    if not read.cluster.nodes:
        named = ", ".join(map(str, options["inputs"]))
        raise WorkloadError(f"{named}: want nodes, found none")
    return with_arrivals(read, options["pods"], options["seed"])


def _decided_by(bundle: Bundle, workload: Workload, options: dict[str, Any]) -> Workload:
    """The workload with pods of a profile of *bundle*: those that name one, else all of them."""
    profiles = [profile.scheduler_name for profile in bundle.profiles]
    if options["profile"]:
        known_profile(bundle, options["profile"])
        return workload.decided_as(options["profile"])
    if any(one.pod.scheduler_name in profiles for one in workload.arrivals):
        return workload
    return workload.decided_as(profiles[0])


def _silent(bundle: Bundle, wanted: Callable[[str, str], bool], costs: list[HookCost]) -> list[str]:
    """The hooks that were selected and never called."""
    asked = {(cost.policy, cost.hook) for cost in costs}
    return [
        f"{policy.name}.{hook}"
        for policy in bundle.policies.values()
        for hook in policy.hooks
        if wanted(policy.name, hook) and (policy.name, hook) not in asked
    ]


# --- printing --------------------------------------------------------------------------------


def _print_costs(console: Console, costs: list[HookCost], silent: list[str]) -> None:
    columns = ("asked / pod", "nodes / call", "operations", "µs", "95 %")
    of_calls = ("operations / call", "µs / call", "µs / pod")
    rows = []
    before = ""
    for cost in costs:
        name, before = ("" if cost.policy == before else cost.policy), cost.policy
        rows.append(
            (
                escape(name),
                escape(cost.hook) + (" [red]fails[/red]" if cost.failures else ""),
                f"{cost.per_pod:.2f}",
                f"{cost.nodes_per_call:.1f}",
                f"{cost.operations:.1f}",
                _short(cost.microseconds.median),
                f"{_short(cost.microseconds.low)}..{_short(cost.microseconds.high)}",
                f"{cost.operations_per_call:.0f}",
                _short(cost.microseconds_per_call),
                _short(cost.microseconds_per_pod),
            )
        )
    print_table(console, ["policy", "hook", *numbers(*columns, *of_calls)], rows)
    if costs:
        said = "operations and µs of one evaluation, for one node or for the pod"
        say(console, f"[dim]{said}[/dim]")
    for cost in costs:
        if cost.failures:
            text = f"{cost.policy}.{cost.hook}: {cost.failures} of {cost.evaluations} failed"
            say(console, f"[red]{escape(text)}[/red]")
    if silent:
        text = f"never called on this input: {', '.join(silent)}"
        say(console, f"[yellow]{escape(text)}[/yellow]")


def _short(number: float) -> str:
    """Three digits, for a number of microseconds."""
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def _print_lines(console: Console, costs: list[HookCost], shown: int) -> None:
    for cost in costs:
        if not cost.lines:
            continue
        console.print(f"\n[bold]{escape(f'{cost.policy}.{cost.hook}')}[/bold]")
        for line in cost.lines[:shown]:
            place = f"{line.file}:{line.line}"
            text = line.text if len(line.text) <= _LINE_WIDTH else f"{line.text[:_LINE_WIDTH]}..."
            console.print(
                f"  {100 * line.share:5.1f} %  {line.runs:7.2f} x  "
                f"[cyan]{escape(place)}[/cyan]  {escape(text)}",
                soft_wrap=True,
            )


def _print_changes(
    console: Console, found: list[Change], subjects: list[Subject], other: str
) -> None:
    say(console, f"\nCompared with {escape(other)}:")
    columns = ("operations", "operations per pod", "time per pod", "95 %", "verdict")
    rows = []
    colours = {"slower": "red", "more operations": "red", "same": "dim"}
    for one in found:
        colour = colours.get(one.verdict, "green")
        span = f"{one.time.low:+.1%} .. {one.time.high:+.1%}"
        rows.append(
            (
                escape(one.policy),
                escape(one.hook),
                _percent(one.operations),
                _percent(one.operations_per_pod),
                f"{one.time.median:+.1%}",
                span if one.time.is_sure else "too few rounds",
                f"[{colour}]{one.verdict}[/{colour}]",
            )
        )
    print_table(console, ["policy", "hook", *numbers(*columns)], rows)
    keys = [set(subject.hooks) for subject in subjects]
    for text, only in (("only there", keys[0] - keys[1]), ("only here", keys[1] - keys[0])):
        if only:
            names = ", ".join(sorted(f"{policy}.{hook}" for policy, hook in only))
            say(console, escape(f"{text}: {names}"))


def _percent(ratio: float | None) -> str:
    return "new" if ratio is None else "=" if ratio == 0 else f"{ratio:+.1%}"
