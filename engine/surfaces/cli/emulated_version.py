"""The option `--emulated-version`: the minor version of Kubernetes that is answered like."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from engine.core.framework.behaviors import NEWEST, OLDEST, minor_of

Command = TypeVar("Command", bound=Callable[..., Any])

#: As the components of Kubernetes take it, which may name themselves.
_COMPONENT: Final = "kube="


class EmulatedVersion(click.ParamType[int]):
    """`1.38`, `v1.38.0` or `kube=1.38`, as the minor version: 38."""

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The minor version, of those that are known."""
        if isinstance(value, int):
            return value
        minor = minor_of(str(value).removeprefix(_COMPONENT))
        if minor is None or not OLDEST <= minor <= NEWEST:
            self.fail(f"want one from 1.{OLDEST} to 1.{NEWEST}, got `{value}`", param, ctx)
        return minor


def emulated_version_option(default: str) -> Callable[[Command], Command]:
    """Add `--emulated-version`; *default* says what is answered like without it."""
    return click.option(
        "--emulated-version",
        type=EmulatedVersion(),
        metavar="VERSION",
        help="Answer like kube-scheduler of this minor version of Kubernetes, such as "
        f"1.{NEWEST}. Default: {default}.",
    )
