"""What to say on stderr of clusters and logs that were read from files."""

from typing import Final

import click

from engine.offline.cluster_file import Cluster
from engine.offline.decision_log import Damage

_SHOWN: Final = 3


def tell_repeated(cluster: Cluster) -> None:
    """Say which objects were given more than once, on stderr."""
    if names := list(dict.fromkeys(cluster.repeated)):
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        said = ", ".join(names[:_SHOWN]) + more
        click.echo(f"given more than once, the last one counts: {said}", err=True)


def tell_damage(damage: Damage) -> None:
    """Say where decision logs are cut off, and what is missing in them, on stderr."""
    for place in damage.cuts:
        click.echo(f"{place}: it ends in the middle of an entry, which is left out", err=True)
    for gap in damage.missing:
        click.echo(gap, err=True)
