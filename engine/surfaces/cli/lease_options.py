"""The `--leader-elect` options, and the lease that results from them and the configuration file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from engine.io.leader_election import LeaseSettings
from engine.policy.config import KubeSchedulerConfiguration
from engine.surfaces.cli.durations import DURATION

Command = TypeVar("Command", bound=Callable[..., Any])

_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def lease_options(function: Command) -> Command:
    """Add the `--leader-elect` options to a command."""
    function = click.option(
        "--leader-elect-resource-namespace",
        help="Namespace of the lease. Default: the pod's own, else kube-system.",
    )(function)
    function = click.option(
        "--leader-elect-resource-name", help="Name of the lease. Default: starsched."
    )(function)
    function = click.option(
        "--leader-elect-retry-period",
        type=DURATION,
        help="Time between attempts to acquire or renew the lease. Default: 2s.",
    )(function)
    function = click.option(
        "--leader-elect-renew-deadline",
        type=DURATION,
        help="How long the leader tries to renew before it gives up. Default: 10s.",
    )(function)
    function = click.option(
        "--leader-elect-lease-duration",
        type=DURATION,
        help="How long a standby waits after the last renewal before it takes over. Default: 15s.",
    )(function)
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
    given = {
        "name": options["leader_elect_resource_name"],
        "namespace": options["leader_elect_resource_namespace"],
        "lease_duration": options["leader_elect_lease_duration"],
        "renew_deadline": options["leader_elect_renew_deadline"],
        "retry_period": options["leader_elect_retry_period"],
    }
    theirs = config.leader_election
    # Only what the file really says: kube-scheduler's default name would make a scheduler that
    # runs next to kube-scheduler wait for its lease for ever.
    written = {
        "resourceName": ("name", theirs.resource_name),
        "resourceNamespace": ("namespace", theirs.resource_namespace),
        "leaseDuration": ("lease_duration", theirs.lease_duration.total_seconds()),
        "renewDeadline": ("renew_deadline", theirs.renew_deadline.total_seconds()),
        "retryPeriod": ("retry_period", theirs.retry_period.total_seconds()),
    }
    values: dict[str, Any] = (
        {"namespace": theirs.resource_namespace, "name": theirs.resource_name}
        if in_its_place
        else {"namespace": _own_namespace()}
    )
    values |= {key: value for word, (key, value) in written.items() if word in said}
    values |= {key: value for key, value in given.items() if value is not None}
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
