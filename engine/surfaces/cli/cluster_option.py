"""The options `--kubeconfig` and `--context`, and the client of the cluster that they name."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint, Redirected, kubeconfig_credentials
from engine.io.kube.errors import NoKubeConfig

Command = TypeVar("Command", bound=Callable[..., Any])


def cluster_options(function: Command) -> Command:
    """Add `--kubeconfig` and `--context` to a command."""
    function = click.option(
        "--context", help="Context of the kubeconfig. Default: its current one."
    )(function)
    return click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="Kubeconfig of the cluster. Default: the pod's own cluster, else $KUBECONFIG or "
        "~/.kube/config.",
    )(function)


async def connect(
    kubeconfig: Path | str | None, context: str | None, master: str | None = None
) -> ApiClient:
    """A client of the cluster that the flags name. Raises `KubeConfigError`.

    The server at *master* takes the place of the kubeconfig's.
    """
    if master is not None:
        if kubeconfig is None:
            return ApiClient(Endpoint(server=master))
        return ApiClient(Redirected(await kubeconfig_credentials(kubeconfig, context), master))
    if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return await ApiClient.from_cluster()
    try:
        return await ApiClient.from_kubeconfig(kubeconfig, context)
    except NoKubeConfig as error:
        hint = "name a cluster with --kubeconfig FILE or $KUBECONFIG"
        raise NoKubeConfig(f"{error}\nhint: {hint}") from error
