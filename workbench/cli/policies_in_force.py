"""The policies in force in a cluster, read from its ConfigMaps, and the options that name them.

Owns the requests. What follows from both ConfigMaps is `rollout.in_force`'s.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

from engine.core.model.objects import ConfigMap, decode
from engine.files.policy_files import PolicyFiles
from engine.io.kube.client import ApiClient
from engine.io.kube.errors import ApiError, KubeConfigError, NoKubeConfig, NotFound
from engine.io.kube.resources import CONFIG_MAPS
from engine.lib import event_loop
from engine.policy.bundle import Bundle
from engine.rollout.last_good import SUFFIX, ConfigMapStore, LastGood, StoreError
from engine.surfaces.cli.cluster_option import connect
from engine.surfaces.cli.policy_paths import CONFIGMAP_PREFIX, build
from workbench.plan.in_force import InForce, in_force

Command = TypeVar("Command", bound=Callable[..., Any])

_DEFAULT: Final = "starsched/starsched-policies"


class CannotPlan(click.ClickException):
    """The cluster does not say what is wanted of it: exit code 2, as 1 is a finding."""

    exit_code = 2


class PolicyMap(NamedTuple):
    """The ConfigMap that policies are edited in."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_default(self) -> bool:
        """True if commands need not be given it."""
        return str(self) == _DEFAULT


class _PolicyMapType(click.ParamType[PolicyMap]):
    """`NAMESPACE/NAME`, with the prefix that `run --policies` wants, or without."""

    name = "configmap"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, PolicyMap):
            return value
        namespace, _, name = str(value).removeprefix(CONFIGMAP_PREFIX).partition("/")
        if not namespace or not name or "/" in name:
            self.fail(f"want `NAMESPACE/NAME`, got `{value}`", param, ctx)
        return PolicyMap(namespace, name)


def configmap_option(function: Command) -> Command:
    """Add `--configmap` to a command."""
    return click.option(
        "--configmap",
        "policy_map",
        type=_PolicyMapType(),
        default=_DEFAULT,
        show_default=True,
        metavar="NAMESPACE/NAME",
        help="The ConfigMap that the scheduler takes its policies from, as `run --policies` names "
        "it.",
    )(function)


def read_in_force(
    where: PolicyMap, kubeconfig: Path | None, context: str | None, instead: str = ""
) -> InForce:
    """The policies in force.

    Raises `click.UsageError` for a kubeconfig that cannot be used (if there is none, the hint ends
    with *instead*), `CannotPlan` if the cluster does
    not answer.
    """
    try:
        return event_loop.run(_read(where, kubeconfig, context))
    except NoKubeConfig as error:
        raise click.UsageError(f"{error}{instead}") from error
    except KubeConfigError as error:
        raise click.UsageError(str(error)) from error
    except ApiError as error:
        raise CannotPlan(f"ConfigMap `{where}`: {error}") from error


async def _read(where: PolicyMap, kubeconfig: Path | None, context: str | None) -> InForce:
    async with await connect(kubeconfig, context) as client:
        return await in_force_now(client, where)


async def in_force_now(client: ApiClient, where: PolicyMap) -> InForce:
    """The policies in force. Raises `ApiError`, and `CannotPlan` if what was saved is unknown."""
    try:
        raw = await client.get(CONFIG_MAPS, where.name, where.namespace)
        edited: ConfigMap | None = decode(ConfigMap, raw)
    except NotFound:
        edited = None
    saved: LastGood | None = None
    try:
        saved = await ConfigMapStore(client, where.namespace, where.name + SUFFIX).load()
    except StoreError as error:
        # Not readable is not empty: the text that is edited may have been rejected.
        raise CannotPlan(f"it is not known which policies are in force: {error}") from error
    return in_force(str(where), edited, saved)


class BundleInForce(NamedTuple):
    """The policies in force, ready to decide.

    Attributes:
        bundle: What they are here.
        files: Their texts.
        revision: As the scheduler names it.
        notes: What a reader should know about where this comes from.
    """

    bundle: Bundle
    files: PolicyFiles
    revision: str
    notes: tuple[str, ...]


def bundle_in_force(base: InForce, where: PolicyMap, config: Path | None) -> BundleInForce:
    """What is in force, built here, with the scheduler's own *config* if it has one.

    Raises `CannotPlan` if it cannot be used here.
    """
    place = Path(f"{CONFIGMAP_PREFIX}{where}")
    files = PolicyFiles(place, base.files, frozenset(base.files))
    bundle, problems = build(files, config)
    if bundle is None:
        said = "\n".join(map(str, problems))
        raise CannotPlan(
            f"the policies in force cannot be used here:\n{said}\n"
            "hint: is --config wanted, as the scheduler has it?"
        )
    notes = base.notes
    revision = base.revision or bundle.revision
    if bundle.revision != revision:
        notes += (
            f"here the same texts are revision {bundle.revision}: the scheduler is of another "
            "version, or has a --config of its own",
        )
    return BundleInForce(bundle, files, revision, notes)
