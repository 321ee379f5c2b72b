"""The `--leader-elect` options, and the lease that results from them and the configuration file."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from engine.io.leader_election import LeaseSettings
from engine.policy.config import KubeSchedulerConfiguration
from engine.policy.documents import camel_case
from engine.surfaces.cli.durations import DURATION

Command = TypeVar("Command", bound=Callable[..., Any])

_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


# By attribute of `LeaderElection`: the help of its option.
_HELP: Final[Mapping[str, str]] = {
    "lease_duration": "How long a standby waits after the last renewal before it takes over. "
    "Default: 15s.",
    "renew_deadline": "How long the leader tries to renew before it gives up. Default: 10s.",
    "retry_period": "Time between attempts to acquire or renew the lease. Default: 2s.",
    "resource_name": "Name of the lease. Default: starsched.",
    "resource_namespace": "Namespace of the lease. Default: the pod's own, else kube-system.",
}


def lease_options(function: Command) -> Command:
    """Add the `--leader-elect` options to a command."""
    for name, text in reversed([*_HELP.items()]):
        kind = None if name.startswith("resource_") else DURATION
        option = f"--leader-elect-{name.replace('_', '-')}"
        function = click.option(option, type=kind, help=text)(function)
    function = click.option(
        "--leader-elect-resource-lock",
        type=click.Choice(["leases"]),
        default="leases",
        help="Kind of object that is held.",
    )(function)
    return click.option(
        "--leader-elect/--no-leader-elect",
        default=None,
        help="Schedule only while holding a lease, so that several replicas can run. Default: yes.",
    )(function)


def chosen_lease(
    options: dict[str, Any],
    config: KubeSchedulerConfiguration,
    said: dict[str, Any],
    *,
    in_its_place: bool = False,
) -> LeaseSettings | None:
    """The lease: flags first, then the configuration file, then the defaults.

    They are kube-scheduler's if the process runs *in_its_place*.
    """
    elect = options["leader_elect"]
    if elect is None:
        elect = config.leader_election.leader_elect
    if not elect:
        return None
    theirs = config.leader_election
    values: dict[str, Any] = (
        {"namespace": theirs.resource_namespace, "name": theirs.resource_name}
        if in_its_place
        else {"namespace": _own_namespace()}
    )
    for attribute in _HELP:
        value = options[f"leader_elect_{attribute}"]
        # Only what the file really says: kube-scheduler's default name would make a scheduler that
        # runs next to kube-scheduler wait for its lease for ever.
        if value is None and camel_case(attribute) in said:
            value = getattr(theirs, attribute)
        if value is not None:
            is_time = isinstance(value, timedelta)
            name = attribute.removeprefix("resource_")
            values[name] = value.total_seconds() if is_time else value
    try:
        return LeaseSettings(**values)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _own_namespace() -> str:
    """The namespace of the pod we run in, or `kube-system` outside of a cluster."""
    try:
        return _NAMESPACE_FILE.read_text(encoding="ascii").strip() or "kube-system"
    except OSError:
        return "kube-system"
