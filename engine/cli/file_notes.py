"""Notes on stderr about clusters, logs and workloads that were read from files."""

from collections.abc import Sequence
from typing import Final

import click

from engine.offline.cluster_file import Cluster
from engine.offline.decision_log import Damage
from engine.offline.known_facts import unknown_sources
from engine.offline.workload import Workload
from engine.policy.bundle import Bundle

_SHOWN: Final = 3


def report_repeated(cluster: Cluster) -> None:
    """Report objects that were given more than once."""
    if names := list(dict.fromkeys(cluster.repeated)):
        click.echo(f"given more than once; the last one is used: {_shown(names)}", err=True)


def report_missing(cluster: Cluster) -> None:
    """Report what could not be read of a cluster: decisions that depend on it may differ."""
    for resource, reason in cluster.missing.items():
        click.echo(f"not read: {resource}: {reason}", err=True)


def report_workload(workload: Workload, *bundles: Bundle) -> None:
    """Report oddities of a workload, and the parts of it that a simulation ignores."""
    report_repeated(workload.cluster)
    report_damage(workload.damage)
    report_missing(workload.cluster)
    if workload.cluster.skipped:
        counts = workload.cluster.skipped.most_common()
        said = ", ".join(f"{number} {kind}" for kind, number in counts)
        click.echo(f"ignored, because no decision reads their kind: {said}", err=True)
    if any(bundle.extenders for bundle in bundles):
        click.echo("configured extenders are not called here", err=True)
    known = workload.cluster.facts
    unknown = [n for one in bundles for n in unknown_sources(one.runtime.facts, known)]
    for name in dict.fromkeys(unknown):
        click.echo(f"no facts are known from {name}", err=True)


def report_replaced(keys: Sequence[str]) -> None:
    """Report pods that were replaced by a later one of the same name."""
    if keys:
        said = _shown([f"Pod `{key}`" for key in keys])
        click.echo(
            f"arrived again while still present; the later one replaces it: {said}", err=True
        )


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def report_damage(damage: Damage) -> None:
    """Report where decision logs are cut off, and what is missing in them."""
    for place in damage.cuts:
        click.echo(f"{place}: it ends in the middle of an entry, which is ignored", err=True)
    for gap in damage.missing:
        click.echo(gap, err=True)
