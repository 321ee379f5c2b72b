"""`starsched apply`: writes planned policies into their ConfigMap, unless something has moved."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from engine.files.policy_files import PolicyFiles
from engine.io.kube.client import ApiClient
from engine.io.kube.errors import AlreadyExists, ApiError, Conflict, KubeConfigError, NotFound
from engine.io.kube.resources import CONFIG_MAPS, NODES
from engine.lib import event_loop
from engine.policy.file_names import SUFFIXES
from engine.rollout.trial import digest
from engine.rollout.vanishing import vanishing_queues
from engine.surfaces.cli.cluster_option import cluster_options, connect
from engine.surfaces.cli.json_output import output_option, print_json
from engine.surfaces.cli.policy_paths import build, config_option
from engine.telemetry.logs import configure_logging
from workbench.cli.cluster_reading import list_newest
from workbench.cli.policies_in_force import CannotPlan, PolicyMap, configmap_option, in_force_now
from workbench.cli.policy_option import read_texts
from workbench.plan.plan_index import NONE, PlanIndex, generation_of

APPLIED, REFUSED = 0, 1

_MANAGER: Final = {"fieldManager": "starsched"}
_PLAN_AGAIN: Final = "make the plan again with `starsched plan`, look at it, and use its index"


class _Refused(Exception):
    """Something has moved; `args` are sentences."""


class _Loss(_Refused):
    """Something would be lost, and it was not said that it may be."""


class ApplyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an attempt to apply.

    Attributes:
        is_applied: The ConfigMap has these texts now.
        is_written: It had others before.
        resource_version: Of the ConfigMap then.
        refused: Why not: what has moved, a sentence each.
        wants_force: Nothing has moved; `--force` applies it all the same.
    """

    is_applied: bool
    is_written: bool = False
    resource_version: str = ""
    refused: tuple[str, ...] = ()
    wants_force: bool = False


class _IndexType(click.ParamType[PlanIndex]):
    name = "index"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return value if isinstance(value, PlanIndex) else PlanIndex.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command("apply", short_help="Apply planned policies, unless something has moved.")
@click.argument("policies", metavar="POLICIES")
@click.option(
    "--index",
    type=_IndexType(),
    required=True,
    metavar="INDEX",
    help="What `starsched plan` printed.",
)
@click.option(
    "--force", is_flag=True, help="Apply although queues of the tree vanish, as the plan says."
)
@configmap_option
@cluster_options
@config_option("The KubeSchedulerConfiguration of the scheduler, if it has one of its own.")
@output_option("How to print it.")
def apply_command(policies: str, index: PlanIndex, **options: Any) -> None:
    """Write POLICIES (a directory, or a file with a ConfigMap) into the scheduler's ConfigMap.

    Refuses if anything that INDEX stands for has moved since the plan: the policies in force, the
    ConfigMap, the shapes of the nodes (labels, taints, allocatable resources; not how many there
    are, nor pods), or POLICIES themselves. The API server refuses a write that crosses another one.

    Queues that vanish leave their pods without one, so that wants --force.

    Afterwards the ConfigMap has these texts and no others; its labels and annotations stay. The
    scheduler then takes them through its own stages.

    Exit codes: 0 applied, 1 refused because something has moved, or queues vanish, 2 the command
    cannot run.

    \b
    Examples:
      starsched apply ./policies --index 4c1f0a7be2d9.48213.9f3ac21b07d4.a41b22c09e57
      starsched plan ./policies --output json | jq -r .index
    """
    configure_logging(verbosity=-1, log_format="text")
    files = read_texts(policies)
    try:
        written, version = event_loop.run(_apply(files, index, options))
        answer = ApplyAnswer(is_applied=True, is_written=written, resource_version=version)
    except _Refused as refused:
        is_loss = isinstance(refused, _Loss)
        answer = ApplyAnswer(is_applied=False, refused=refused.args, wants_force=is_loss)
    except KubeConfigError as error:
        raise click.UsageError(str(error)) from error
    except ApiError as error:
        raise CannotPlan(f"ConfigMap `{options['policy_map']}`: {error}") from error
    if options["output"] == "json":
        print_json(msgspec.to_builtins(answer))
    else:
        _print(answer, options["policy_map"])
    raise SystemExit(APPLIED if answer.is_applied else REFUSED)


def _print(answer: ApplyAnswer, where: PolicyMap) -> None:
    for sentence in answer.refused:
        click.echo(f"refused: {sentence}")
    if answer.wants_force:
        click.echo("next: if that is meant, apply it with --force")
    elif answer.refused:
        click.echo(f"next: {_PLAN_AGAIN}")
    elif not answer.is_written:
        click.echo(f"unchanged: ConfigMap `{where}` has these texts already")
    else:
        click.echo(f"applied to ConfigMap `{where}`, resourceVersion {answer.resource_version}")
        click.echo("next: `starsched rollout status` shows how far it comes")


async def _apply(files: PolicyFiles, index: PlanIndex, options: dict[str, Any]) -> tuple[bool, str]:
    """True if the texts were written, and the ConfigMap's resourceVersion. Raises `_Refused`."""
    where: PolicyMap = options["policy_map"]
    async with await connect(options["kubeconfig"], options["context"]) as client:
        base = await in_force_now(client, where)
        nodes, _ = await list_newest(client, NODES, lambda _: None)
        revision = base.revision or _revision(base.files, options["config"])
        now = PlanIndex(revision, base.resource_version, generation_of(nodes), digest(files.texts))
        if moved := index.moved(now):
            raise _Refused(*moved)
        if not options["force"] and (said := _loss(base.files, files, options["config"])):
            raise _Loss(said)
        try:
            return await _write(client, where, files, base.resource_version)
        except NotFound as error:
            if base.resource_version == NONE:
                raise  # its namespace
            raise _Refused("the ConfigMap was deleted while this command ran") from error
        except (AlreadyExists, Conflict) as error:
            said = f"the ConfigMap was written while this command ran ({error.message})"
            raise _Refused(said) from error


def _loss(before: Mapping[str, str], after: PolicyFiles, config: Path | None) -> str:
    """What would be lost; "" if nothing is. Texts without a tree lose no queue."""
    if not any("QueueTree" in text for text in before.values()):
        return ""
    sides = (PolicyFiles(Path(), before, frozenset(before)), after)
    bundles = [build(files, config)[0] for files in sides]
    if bundles[0] is None or bundles[1] is None:
        return ""
    return vanishing_queues(bundles[0], bundles[1])


def _revision(files: Any, config: Path | None) -> str:
    """The revision of texts of which the scheduler has not said it; as `starsched plan` has it."""
    bundle, problems = build(PolicyFiles(Path(), files, frozenset(files)), config)
    if bundle is None:
        raise CannotPlan("\n".join(map(str, problems)))
    return bundle.revision


async def _write(
    client: ApiClient, where: PolicyMap, files: PolicyFiles, version: str
) -> tuple[bool, str]:
    """Write *files* over the *version* of the ConfigMap that was planned. Raises `ApiError`."""
    if version == NONE:
        made = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": where.name, "namespace": where.namespace},
            "data": dict(files.texts),
        }
        raw = await client.create(
            CONFIG_MAPS, msgspec.json.encode(made), where.namespace, params=_MANAGER
        )
        return True, _version(raw)
    found = msgspec.json.decode(await client.get(CONFIG_MAPS, where.name, where.namespace))
    if found.get("data", {}) == dict(files.texts):
        return False, version
    # The version that was planned, not the one that was read just now.
    found["metadata"]["resourceVersion"] = version
    found["data"] = dict(files.texts)
    # Policies among the binary data would be refused, and no key may be in both.
    binary = found.get("binaryData") or {}
    found["binaryData"] = {
        key: value
        for key, value in binary.items()
        if key not in files.texts and not key.endswith(SUFFIXES)
    }
    raw = await client.update(
        CONFIG_MAPS, where.name, msgspec.json.encode(found), where.namespace, params=_MANAGER
    )
    return True, _version(raw)


def _version(raw: bytes) -> str:
    return str(msgspec.json.decode(raw)["metadata"]["resourceVersion"])
