"""`starsched compare`: if two sets of policies are equivalent on a snapshot."""

from typing import Any, Final

import click
import msgspec
import yaml

from engine.comparing.population import PolicySet
from engine.core.framework.behaviors import CHANGES, NEWEST, RELEASED
from engine.files.policy_files import PolicyFiles
from engine.lib.printable import counted
from engine.policy.bundle import Bundle
from engine.surfaces.cli import terminal
from engine.surfaces.cli.emulated_version import EmulatedVersion, emulated_version_option
from engine.surfaces.cli.input_error import InputError, input_errors
from engine.surfaces.cli.json_output import output_option, print_json
from engine.surfaces.cli.policy_paths import config_option
from engine.surfaces.cli.progress_bar import progress_bar
from engine.telemetry.logs import configure_logging
from workbench.cli.file_notes import report_workload
from workbench.cli.input_path import InputPath
from workbench.cli.policy_option import known_profile, read_bundle
from workbench.comparing.counterexample import Counterexample
from workbench.plan.equivalence import EQUIVALENT, Equivalence, compare
from workbench.plan.minor_changes import AS_IT_IS, MinorChanges, minor_changes
from workbench.simulation.workload import Workload, read_workload

SAME, OTHERWISE = 0, 1


class _Minors(click.ParamType[tuple[int, int]]):
    """Two minor versions, such as `1.37,1.38`."""

    name = "versions"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        old, comma, new = str(value).partition(",")
        if not comma:
            self.fail(f"want two versions, such as 1.37,1.38, got `{value}`", param, ctx)
        version = EmulatedVersion()
        return version.convert(old, param, ctx), version.convert(new, param, ctx)


_SIDES: Final = ("A", "B")


@click.command("compare", short_help="Say if two sets of policies are equivalent on a snapshot.")
@click.argument("before", metavar="[A]", default="builtin")
@click.argument("after", metavar="[B]", required=False)
@click.option(
    "--on",
    "inputs",
    type=InputPath(),
    multiple=True,
    required=True,
    metavar="INPUT",
    help="Where pods and nodes are taken from: a snapshot or a workload as for `simulate` "
    "(repeatable).",
)
@click.option(
    "--minors",
    type=_Minors(),
    metavar="OLD,NEW",
    help="Compare A with itself under two minor versions of Kubernetes, such as "
    f"1.{RELEASED},1.{NEWEST}: which pods would be answered otherwise, and why.",
)
@config_option()
@click.option(
    "--profile", metavar="NAME", help="Ask about every pod by this profile (a `schedulerName`)."
)
@emulated_version_option("that of the snapshot or log")
@output_option("How to print it.")
def compare_command(before: str, after: str | None, **options: Any) -> None:
    """Say if the policies A and B decide alike about every pod on every node of a snapshot.

    A and B are directories, files with a ConfigMap, or `builtin`. Both are asked about every pod,
    placed ones too, on every node as it is and on every node without its pods: the verdicts of
    filters, their reasons, the order of nodes, gates, approval, groups, victims, and the order of
    the queue. The answer is `equivalent`; or that A implies B (everything that A rejects, B
    rejects), or B implies A; and the smallest counterexample: a pod and nodes with the fields that
    make the difference, and what each set says of them. It holds for this snapshot. What a tree of
    queues holds back, or whose turn it gives, is not compared: that the trees differ is said.

    With --minors it says what an upgrade of the cluster would change: the pods about which A, or
    the built-in policies, answer otherwise for the other version, each with the difference between
    the versions that does it.

    Exit codes: 0 equivalent; 1 not equivalent; 2 wrong usage, or policies or input cannot be used.

    \b
    Examples:
      starsched compare ./policies ./policies-new --on cluster.json.gz
      starsched compare builtin ./policies --on nodes.csv --on pods.csv
      starsched compare live.yaml ./policies --on cluster.json.gz --output json | jq .relation
      starsched compare --minors 1.37,1.38 --on cluster.json.gz
    """
    configure_logging(verbosity=-1, log_format="text")
    if options["minors"]:
        if after is not None:
            raise click.UsageError("want one set of policies with --minors, got two")
        if options["emulated_version"] is not None:
            raise click.UsageError("want either --minors or --emulated-version, got both")
        _compare_minors(before, options)
    if after is None:
        raise click.UsageError("want two sets of policies, A and B, or --minors")
    bundles, files = zip(
        *(read_bundle(name, options["config"]) for name in (before, after)), strict=True
    )
    for bundle in bundles:
        known_profile(bundle, options["profile"])
    with input_errors(options["inputs"]):
        workload = read_workload(*options["inputs"], minor=options["emulated_version"])
        found = _shown(_compare(bundles, workload, options["profile"]), files)
        _require_pods(found.pods)
    if options["output"] == "json":
        revisions = {"before": bundles[0].revision, "after": bundles[1].revision}
        not_applied = workload.cluster.not_applied
        print_json({**revisions, **msgspec.to_builtins(found), "not_applied": not_applied})
    else:
        _print(found)
    is_same = found.relation == EQUIVALENT and not found.has_other_queues
    raise SystemExit(SAME if is_same else OTHERWISE)


def _compare(bundles: tuple[Bundle, ...], workload: Workload, profile: str | None) -> Equivalence:
    report_workload(workload, *bundles)
    if profile:
        workload = workload.decided_as(profile)
    population = workload.population()
    with PolicySet(bundles[0]) as first, PolicySet(bundles[1]) as second, progress_bar() as bar:
        task = bar.add_task("classes of pods", total=None)
        return compare(
            (first, second),
            population,
            lambda done, total: bar.update(task, completed=done, total=total),
        )


def _require_pods(count: int) -> None:
    if not count:
        raise InputError(
            "no pod of the input is decided, so nothing was compared: want pods whose "
            "`schedulerName` a profile has, or a workload that makes such"
        )


def _compare_minors(name: str, options: dict[str, Any]) -> None:
    """Compare one set with itself under two versions, print what differs, and exit."""
    bundle, _ = read_bundle(name, options["config"])
    known_profile(bundle, options["profile"])
    minors = options["minors"]
    with input_errors(options["inputs"]):
        workload = read_workload(*options["inputs"])
        report_workload(workload, bundle)
        if options["profile"]:
            workload = workload.decided_as(options["profile"])
        with progress_bar() as bar:
            task = bar.add_task("classes of pods", total=None)
            found = minor_changes(
                bundle,
                workload.population(),
                minors,
                lambda done, total: bar.update(task, completed=done, total=total),
            )
        _require_pods(found.pods)
    if options["output"] == "json":
        about = {"revision": bundle.revision, "minors": [f"1.{minor}" for minor in minors]}
        print_json({**about, **msgspec.to_builtins(found)})
    else:
        _print_changes(found, minors)
    raise SystemExit(OTHERWISE if found.changes else SAME)


def _print_changes(found: MinorChanges, minors: tuple[int, int]) -> None:
    terminal.echo(
        f"{found.changed:,} of {counted(found.pods, 'pod')} would be answered otherwise by "
        f"1.{minors[1]} than by 1.{minors[0]}"
    )
    if found.skipped:
        terminal.echo(
            f"not decided: {counted(found.skipped, 'pod')} whose scheduler no profile has"
        )
    for change in found.changes:
        more = f" and {change.pods - 1:,} like it" if change.pods > 1 else ""
        where = "" if change.nodes == AS_IT_IS else ", on empty nodes"
        terminal.echo(f"\n{change.pod}{more}: {change.kind.replace('_', ' ')}{where}")
        for minor, said in zip(minors, (change.before, change.after), strict=True):
            terminal.echo(f"  1.{minor}  {said.text}")
        for row in change.because:
            what = CHANGES[row]
            terminal.echo(f"  since 1.{what.since}, {what.what} {what.then}")


def _shown(found: Equivalence, files: tuple[PolicyFiles, ...]) -> Equivalence:
    """*found* with files as paths that can be opened."""
    example = found.counterexample
    if example is None:
        return found

    def place(source: str, of: PolicyFiles) -> str:
        module, colon, line = source.rpartition(":")
        return of.shown(module) + colon + line

    example = msgspec.structs.replace(
        example,
        first_source=place(example.first_source, files[0]),
        second_source=place(example.second_source, files[1]),
    )
    return msgspec.structs.replace(found, counterexample=example)


def _print(found: Equivalence) -> None:
    word = "equivalent" if found.relation == EQUIVALENT else "not equivalent"
    if found.relation == EQUIVALENT and found.has_other_queues:
        word = "equivalent but for their queues"
    terminal.echo(
        f"{word} on this input: {found.classes} class(es) of {found.pods} pod(s), "
        f"{found.shapes} shape(s) of {found.nodes} node(s)"
    )
    if found.skipped:
        terminal.echo(
            f"not decided: {counted(found.skipped, 'pod')} whose scheduler no profile has"
        )
    if found.has_other_queues:
        terminal.echo(
            "their trees of queues are not the same: what may start, and in which order, is not "
            "compared here\nhint: `starsched diff --placed` and `starsched plan` compare it"
        )
    if found.relation == EQUIVALENT:
        return
    for one, other, holds in (
        ("A", "B", found.first_implies_second),
        ("B", "A", found.second_implies_first),
    ):
        if holds:
            terminal.echo(f"{one} implies {other}: everything that {one} rejects, {other} rejects")
    for kind, pods in found.differing.items():
        terminal.echo(f"  {kind.replace('_', ' ')}: differs for {pods} pod(s)")
    if found.counterexample is not None:
        click.echo(as_yaml(found.counterexample), nl=False)


def as_yaml(example: Counterexample) -> str:
    """The counterexample as documents of YAML, with comments for what is said of it."""
    said = [
        (example.first, example.first_policy, example.first_source),
        (example.second, example.second_policy, example.second_source),
    ]
    lines = [f"# counterexample ({example.kind}), made from pod {example.of}"]
    for side, (text, policy, source) in zip(_SIDES, said, strict=True):
        by = f" [{policy}{', ' if source else ''}{source}]" if policy else ""
        lines += [f"# {line}" for line in f"{side} {text}{by}".splitlines()]
    others = [] if example.other is None else [example.other]
    documents = [
        *(("Pod", one) for one in (example.pod, *others)),
        *(("Node", one) for one in example.nodes),
        *(("Pod", one) for one in example.pods),
        *(("", one) for one in example.objects),
    ]
    return "\n".join(lines) + "\n" + "".join(map(document_yaml, documents))


def document_yaml(document: tuple[str, dict[str, Any]]) -> str:
    """A document of YAML: a manifest, with its kind in case it has none."""
    kind, manifest = document
    head = {"apiVersion": "v1", "kind": kind} if kind else {}
    return "---\n" + yaml.safe_dump({**head, **manifest}, sort_keys=False, allow_unicode=True)
