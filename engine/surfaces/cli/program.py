"""What the program is called, its version, and the option that prints it."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

#: Called by this name, the program is `run` with kube-scheduler's defaults: in a static pod's
#: manifest, nothing but the image has to be changed.
KUBE_SCHEDULER: Final = "kube-scheduler"

Command = TypeVar("Command", bound=Callable[..., Any])


def version() -> str:
    """The installed version, or that of a checkout."""
    # A library of mail among others: nothing else that a quick command uses needs it.
    from importlib import metadata

    try:
        return metadata.version("starsched")
    except metadata.PackageNotFoundError:
        return "0.0.0 (not installed)"


def version_option(function: Command) -> Command:
    """Add `--version` to a command."""

    def show(context: click.Context, _: click.Parameter, value: bool) -> None:
        if value and not context.resilient_parsing:
            click.echo(f"starsched {version()}")
            context.exit()

    return click.option(
        "--version",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=show,
        help="Show the version and exit.",
    )(function)
