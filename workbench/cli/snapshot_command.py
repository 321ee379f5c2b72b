"""`starsched snapshot`: the state of a cluster as one file."""

import os
from collections import Counter
from pathlib import Path

import click

from engine.files.cluster_file import snapshot_bytes
from engine.io.facts.collection import FactsDocument
from engine.surfaces.cli import terminal
from engine.surfaces.cli.cluster_option import cluster_options
from engine.surfaces.cli.input_error import InputError, require_places
from engine.surfaces.cli.json_output import output_option, print_json
from engine.surfaces.cli.output_file import real_place, replacing, write_file
from engine.telemetry.logs import configure_logging
from workbench.cli.cluster_reading import now_text, read_live
from workbench.cli.fact_reading import FactsAt, policy_reads, read_facts


@click.command("snapshot", short_help="Write the state of a cluster that decisions read to a file.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@cluster_options
@click.option(
    "--policies",
    metavar="SOURCE",
    help="Also save the facts that these policies read, and the objects that their queues are made "
    "of: a directory or `configmap:NAMESPACE/NAME`, "
    "as for `run`. The sources of their `PolicyRuntime` are asked once.",
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Directory in which the scheduler keeps learned facts, if it uses one.",
)
@output_option("How to print what was written.")
def snapshot_command(
    file: Path,
    kubeconfig: Path | None,
    context: str | None,
    policies: str | None,
    state_dir: Path | None,
    output: str,
) -> None:
    """Write the state of a cluster to FILE, for `explain`, `simulate` and bug reports.

    Holds nodes, pods, namespaces, services, workloads, budgets, volumes, claims, classes, CSI
    objects and devices; compressed if FILE ends in `.gz`, on standard output for `-`.
    Secrets are never read, and config maps only if `--policies` names them. The
    environment, arguments, commands and probes of containers, managed fields and kubectl's
    last-applied annotation are left out. Permission to list these kinds is enough.

    Exit codes: 0 written, 1 the cluster cannot be read, 2 wrong usage, or FILE cannot be written.

    \b
    Examples:
      starsched snapshot cluster.json.gz
      starsched snapshot --kubeconfig ~/.kube/config --context prod cluster.json
      starsched snapshot cluster.json.gz --policies configmap:starsched/starsched-policies
      starsched snapshot - | jq '.items | group_by(.kind) | map({(.[0].kind): length}) | add'
    """
    require_places(file)
    configure_logging(verbosity=-1, log_format="text")
    at = FactsAt(kubeconfig, context, policies or "", state_dir)
    reads = policy_reads(at) if policies is not None else None
    queues = () if reads is None else reads.queues
    items, missing, version = read_live(kubeconfig, context, queues=queues)
    facts: list[FactsDocument] = []
    if reads is not None:
        facts, unread = read_facts(reads.facts, at)
        missing |= unread
    compress = file.name.endswith(".gz")
    text = snapshot_bytes(items, now_text(), missing, facts, version=version, compress=compress)
    for resource, reason in missing.items():
        terminal.echo(f"not read: {resource}: {reason}", err=True)
    if str(file) == "-":
        terminal.write_data(text)
        return
    _write(file, text)
    counts = Counter(item["kind"] for item in items)
    if output == "json":
        said = {
            "file": str(file),
            "bytes": len(text),
            "objects": dict(counts.most_common()),
            "facts": [one.source for one in facts],
            "missing": missing,
        }
        print_json(said)
        return
    shown = ", ".join(f"{number} {kind}" for kind, number in counts.most_common(4))
    terminal.echo(f"{file}: {len(items)} objects ({shown}, ...), {len(text):,} bytes", err=True)
    for one in facts:
        terminal.echo(f"facts: {one.source}", err=True)


def _write(file: Path, text: bytes) -> None:
    """Write *file* atomically, readable by its owner alone, since a cluster's state is private.

    A link is followed; what is not a regular file, such as a device, is written to directly.
    """
    try:
        if file.exists() and not file.is_file():
            write_file(file, text)
            return
        with replacing(real_place(file)) as temporary:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(text)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"{file}: {reason}") from error
