"""`starsched rollout`: how far an edit has come, and pausing, promoting or aborting it."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click
import msgspec

from engine.io.kube.errors import KubeConfigError
from engine.lib import event_loop
from engine.rollout.control import MODE, PAUSED, STAGED, SUFFIX
from engine.rollout.status import RUNNING
from engine.surfaces.cli.cluster_option import cluster_options, connect
from engine.surfaces.cli.json_output import output_option, print_json
from engine.surfaces.cli.policy_paths import CONFIGMAP_PREFIX
from engine.surfaces.cli.terminal import wide_option
from engine.surfaces.live.answers import RolloutPage
from engine.telemetry.logs import configure_logging
from workbench.cli.leader_access import answer_of, leader_options
from workbench.cli.rollout_control import Change, abort, promote, set_mode, write_control
from workbench.cli.rollout_report import report_command
from workbench.cli.rollout_text import print_rollout

Command = TypeVar("Command", bound=Callable[..., Any])

_REVISION: Final = re.compile(r"[0-9a-f]{12}")


@click.group("rollout", short_help="Show how far an edit has come; pause, promote or abort it.")
def rollout_command() -> None:
    """Show how far an edit of the policies has come, and pause, resume, promote or abort it.

    `status` and `report` ask the scheduler that leads, as `starsched explain` does. The others
    write the ConfigMap next to the policies' that holds the mode of roll-outs, with your
    credentials: the Role `starsched-rollout-operator` allows it. Its mode counts for every edit
    until it is changed.

    Exit codes: 0 done, 1 refused, or the scheduler could not be asked, or nothing is being rolled
    out, 2 wrong usage.

    \b
    Examples:
      starsched rollout status
      starsched rollout status --output json | jq .verdict
      starsched rollout report --log /var/log/starsched
      starsched rollout pause
      starsched rollout promote --revision 3f2a9c41d07b
      starsched rollout abort --configmap starsched/starsched-policies
    """
    configure_logging(verbosity=-1, log_format="text")


def _writing(function: Command) -> Command:
    """Add what every command that writes takes."""
    function = leader_options(function)
    function = cluster_options(function)
    return click.option(
        "--configmap",
        metavar="NAMESPACE/NAME",
        callback=lambda _ctx, _option, text: _config_map(text),
        help="The ConfigMap of the policies, as in `--policies` of `run`. Default: what the "
        "scheduler that leads says.",
    )(function)


def _revision_option(function: Command) -> Command:
    return click.option(
        "--revision",
        metavar="REVISION",
        callback=lambda _ctx, _option, text: _revision(text),
        help="The candidate's revision, so that no other one is meant. Default: what the "
        "scheduler that leads is rolling out.",
    )(function)


def _config_map(text: str | None) -> str | None:
    if text is None:
        return None
    namespace, slash, name = text.removeprefix(CONFIGMAP_PREFIX).partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise click.BadParameter(f"want NAMESPACE/NAME, got `{text}`")
    return f"{namespace}/{name.removesuffix(SUFFIX)}{SUFFIX}"


def _revision(text: str | None) -> str | None:
    if text is not None and not _REVISION.fullmatch(text):
        raise click.BadParameter(f"want 12 hexadecimal digits, as `status` has it, got `{text}`")
    return text


@rollout_command.command()
@cluster_options
@leader_options
@wide_option
@output_option("How to print it.")
def status(**options: Any) -> None:
    """Print stages, gates and differences of the edit that is rolled out, or was last."""
    page = _ask(options)
    if options["output"] == "json":
        print_json(msgspec.to_builtins(page))
    else:
        print_rollout(page)


rollout_command.add_command(report_command)


@rollout_command.command()
@_writing
def pause(**options: Any) -> None:
    """Keep this edit, and each later one, in the stage that it is in."""
    before = _write(options, _place(options), set_mode(PAUSED))
    was = " already" if before.get(MODE, "").strip() == PAUSED else ""
    click.echo(f"Roll-outs are paused{was}; `starsched rollout resume` lets them go on.")


@rollout_command.command()
@_writing
def resume(**options: Any) -> None:
    """Let edits go through their stages again."""
    page = None if options["configmap"] else _ask(options)
    before = _write(options, _place(options, page), set_mode(STAGED))
    mode = before.get(MODE, "").strip() or STAGED
    was = "already" if mode == STAGED else f"again; the mode was `{mode}`"
    click.echo(f"Edits go through their stages {was}.")
    if page is not None and page.is_stopped:
        click.echo(f"note: {page.next_step}\n  {page.commands[0].command}", err=True)


@rollout_command.command("promote")
@_revision_option
@_writing
def promote_command(**options: Any) -> None:
    """Put the candidate in force now, whatever its remaining stages would find."""
    revision = _steer(options, promote)
    click.echo(f"{revision} is to be put in force; `starsched rollout status` shows if it is.")


@rollout_command.command("abort")
@_revision_option
@_writing
def abort_command(**options: Any) -> None:
    """Give the candidate up; what is in force stays."""
    revision = _steer(options, abort)
    click.echo(f"{revision} is to be given up; `starsched rollout status` shows if it is.")


def _steer(options: dict[str, Any], change: Callable[[str], Change]) -> str:
    """Make *change* about the candidate, and return its revision."""
    revision: str | None = options["revision"]
    page = None if options["configmap"] and revision else _ask(options)
    if page is not None:
        if page.result != RUNNING and revision is None:
            raise click.ClickException(f"nothing is being rolled out\n{page.headline}")
        if page.result == RUNNING and revision not in (None, page.candidate):
            raise click.ClickException(
                f"`{revision}` is not being rolled out: `{page.candidate}` is"
            )
        revision = revision or page.candidate
    assert revision is not None
    _write(options, _place(options, page), change(revision))
    return revision


def _place(options: dict[str, Any], page: RolloutPage | None = None) -> str:
    """The ConfigMap that holds the mode."""
    if options["configmap"]:
        return str(options["configmap"])
    page = page or _ask(options)
    if not page.config_map:
        raise click.ClickException(
            f"the policies come from `{page.source}`: only for those of a ConfigMap is there one "
            "that holds the mode of roll-outs\nhint: change the policies themselves"
        )
    return page.config_map


def _ask(options: dict[str, Any]) -> RolloutPage:
    hint = "--configmap and --revision say what is written without asking"
    return answer_of(
        options, "/rollout", {}, RolloutPage, hint=hint if "configmap" in options else ""
    )


def _write(options: dict[str, Any], config_map: str, change: Change) -> Mapping[str, str]:
    async def write() -> Mapping[str, str]:
        async with await connect(options["kubeconfig"], options["context"]) as client:
            return await write_control(client, config_map, change)

    try:
        return event_loop.run(write())
    except KubeConfigError as error:
        raise click.UsageError(str(error)) from error
