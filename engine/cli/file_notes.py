"""What to say on stderr of clusters, logs and workloads that were read from files."""

from collections.abc import Sequence
from typing import Final

import click

from engine.offline.cluster_file import Cluster
from engine.offline.decision_log import Damage
from engine.offline.known_facts import unknown_sources
from engine.offline.workload import Workload
from engine.policy.bundle import Bundle

_SHOWN: Final = 3


def tell_repeated(cluster: Cluster) -> None:
    """Say which objects were given more than once, on stderr."""
    if names := list(dict.fromkeys(cluster.repeated)):
        click.echo(f"given more than once, the last one counts: {_shown(names)}", err=True)


def tell_missing(cluster: Cluster) -> None:
    """Say what of a cluster is not known, on stderr: decisions that read it may be others."""
    for resource, reason in cluster.missing.items():
        click.echo(f"not read: {resource}: {reason}", err=True)


def tell_workload(workload: Workload, *bundles: Bundle) -> None:
    """Say what is odd about a workload, and what takes no part in simulating it, on stderr."""
    tell_repeated(workload.cluster)
    tell_damage(workload.damage)
    tell_missing(workload.cluster)
    if workload.cluster.skipped:
        counts = workload.cluster.skipped.most_common()
        said = ", ".join(f"{number} {kind}" for kind, number in counts)
        click.echo(f"left out, as no decision reads their kind: {said}", err=True)
    if any(bundle.extenders for bundle in bundles):
        click.echo("extenders are configured, and are not asked here", err=True)
    known = workload.cluster.facts
    unknown = [n for one in bundles for n in unknown_sources(one.runtime.facts, known)]
    for name in dict.fromkeys(unknown):
        click.echo(f"nothing is known of the facts from {name}", err=True)


def tell_replaced(keys: Sequence[str]) -> None:
    """Say which pods went because another one of their name came, on stderr."""
    if keys:
        said = _shown([f"Pod `{key}`" for key in keys])
        click.echo(f"came again while still there, the later one takes its place: {said}", err=True)


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def tell_damage(damage: Damage) -> None:
    """Say where decision logs are cut off, and what is missing in them, on stderr."""
    for place in damage.cuts:
        click.echo(f"{place}: it ends in the middle of an entry, which is left out", err=True)
    for gap in damage.missing:
        click.echo(gap, err=True)
