"""`starsched snapshot`: the state of a cluster as one file."""

import datetime
import os
import sys
from collections import Counter
from pathlib import Path

import click

from engine.cli.cluster_reading import cluster_options, read_live
from engine.offline.cluster_file import snapshot_bytes


@click.command("snapshot", short_help="Write what decisions read of a cluster to a file.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@cluster_options
def snapshot_command(file: Path, kubeconfig: Path | None, context: str | None) -> None:
    """Write the state of a cluster to FILE, for `explain`, `simulate` and bug reports.

    Holds nodes, pods, namespaces, services, workloads, budgets, volumes, claims, classes, CSI
    objects and devices; compressed if FILE ends in `.gz`, and on the standard output for `-`.
    Secrets and config maps are never read. What containers are told (environment, arguments,
    commands, probes), managed fields and what kubectl remembers are left out. It only lists: a
    role that may list these kinds is enough.

    \b
    Exit codes: 0 written, 1 the cluster cannot be read, 2 wrong usage.

    \b
    Examples:
      starsched snapshot cluster.json.gz
      starsched snapshot --kubeconfig ~/.kube/config --context prod cluster.json
      starsched snapshot - | jq '.items | group_by(.kind) | map({(.[0].kind): length}) | add'
    """
    items, missing = read_live(kubeconfig, context)
    taken_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    text = snapshot_bytes(
        items, taken_at.replace("+00:00", "Z"), missing, compress=file.name.endswith(".gz")
    )
    for resource, reason in missing.items():
        click.echo(f"not read: {resource}: {reason}", err=True)
    if str(file) == "-":
        sys.stdout.buffer.write(text)
        return
    _write(file, text)
    counts = Counter(item["kind"] for item in items)
    shown = ", ".join(f"{number} {kind}" for kind, number in counts.most_common(4))
    click.echo(f"{file}: {len(items)} objects ({shown}, ...), {len(text):,} bytes", err=True)


def _write(file: Path, text: bytes) -> None:
    """Write *file* whole or not at all, for its owner alone: a cluster's state is nobody else's."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(text)
            beside.replace(file)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from error
