"""The command `starsched`: finds the subcommand and nothing else.

Owns the list of commands. Each is imported when it is used, so that `--help` and the offline
commands do not pay for the scheduler's libraries.
"""

import gc
import importlib
import sys
from pathlib import Path
from typing import Any, Final

import click
from click.exceptions import NoSuchCommand

from engine.lib import garbage
from engine.surfaces.cli.program import KUBE_SCHEDULER, version_option
from workbench.cli.standard_output import GuardedGroup
from workbench.cli.supervisor import INTERRUPTED, supervise

# Command: the module and attribute that hold it, and its line in `--help`, in the order shown.
COMMANDS: Final[dict[str, tuple[str, str, str]]] = {
    "run": ("engine.surfaces.cli.run_command", "run_command", "Schedule the pods of a cluster."),
    "demo": ("devkit.demo.command", "demo_command", "Show everything on a cluster in memory."),
    "extender": (
        "engine.surfaces.cli.extender_command",
        "extender_command",
        "Answer a stock kube-scheduler with the same policies.",
    ),
    "preflight": (
        "engine.surfaces.cli.preflight_command",
        "preflight_command",
        "Check what a scheduler needs, before it runs.",
    ),
    "check": (
        "workbench.cli.check_command",
        "check_command",
        "Report every problem of policy files.",
    ),
    "test": (
        "workbench.cli.policy_test_command",
        "test_command",
        "Run the unit tests of policies.",
    ),
    "bench": (
        "workbench.cli.bench_command",
        "bench_command",
        "Measure what the hooks of policies cost.",
    ),
    "fmt": (
        "workbench.cli.fmt_command",
        "fmt_command",
        "Format policies.",
    ),
    "new": ("workbench.cli.new_command", "new_command", "Write a new policy and its test."),
    "stubs": (
        "workbench.cli.stubs_command",
        "stubs_command",
        "Write type stubs, so that editors complete what policies see.",
    ),
    "eject": (
        "workbench.cli.eject_command",
        "eject_command",
        "Print a built-in policy to start from.",
    ),
    "explain": (
        "workbench.cli.explain_command",
        "explain_command",
        "Explain why a pod goes where it goes, or nowhere.",
    ),
    "rollout": (
        "workbench.cli.rollout_command",
        "rollout_command",
        "Show how far an edit has come; pause, promote or abort it.",
    ),
    "whatif": (
        "workbench.cli.what_if_command",
        "what_if_command",
        "Show what would start if the cluster were another one.",
    ),
    "shares": (
        "workbench.cli.shares_command",
        "shares_command",
        "Show what queues have, borrow and lack of their shares.",
    ),
    "simulate": (
        "workbench.cli.simulate_command",
        "simulate_command",
        "Schedule a workload in virtual time.",
    ),
    "snapshot": (
        "workbench.cli.snapshot_command",
        "snapshot_command",
        "Write the state of a cluster that decisions read to a file.",
    ),
    "replay": (
        "workbench.cli.replay_command",
        "replay_command",
        "Decide a recorded log again.",
    ),
    "diff": (
        "workbench.cli.diff_command",
        "diff_command",
        "Compare the decisions of two sets of policies.",
    ),
    "compare": (
        "workbench.cli.compare_command",
        "compare_command",
        "Say if two sets of policies are equivalent on a snapshot.",
    ),
    "plan": (
        "workbench.cli.plan_command",
        "plan_command",
        "Show what an edit of the policies would change in a cluster.",
    ),
    "apply": (
        "workbench.cli.apply_command",
        "apply_command",
        "Apply planned policies, unless something has moved.",
    ),
    "sweep": (
        "workbench.cli.sweep_command",
        "sweep_command",
        "Simulate a grid of arguments and seeds.",
    ),
    "conformance": (
        "workbench.cli.conformance_command",
        "conformance_command",
        "Compare decisions with recorded ones of kube-scheduler.",
    ),
}

# They run until they are stopped, and have no findings.
_SERVERS: Final = frozenset({"run", "extender"})
# Commands that run policies in their own process.
_SUPERVISED: Final = frozenset(
    {
        "test",
        "bench",
        "explain",
        "simulate",
        "replay",
        "diff",
        "compare",
        "plan",
        "rollout report",
        "sweep",
        "conformance",
    }
)


class _LazyGroup(GuardedGroup):
    """A group that imports a command when it is used."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run as a program, which may fork. Tests call `main`, in their own process."""
        if Path(sys.argv[0]).name == KUBE_SCHEDULER:
            kwargs.update(args=["run", *sys.argv[1:]], prog_name=KUBE_SCHEDULER)
        if _SUPERVISED.intersection((*sys.argv[1:2], " ".join(sys.argv[1:3]))):
            supervise()
        if not _is_server():
            gc.set_threshold(*garbage.UNTIL_THE_END)
        try:
            return super().__call__(*args, **kwargs)
        finally:
            # The interpreter would look through every object for garbage before it exits.
            gc.freeze()

    def fault_code(self) -> int:
        return 1 if _is_server() else super().fault_code()

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Ctrl-C has an exit code of its own; 1 is a finding of the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("\ninterrupted", err=True)
            raise SystemExit(INTERRUPTED) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, attribute, _ = entry
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module.partition(".")[0]:
                raise
            # The image is without what only developers and demos need.
            raise click.ClickException(
                f"`{cmd_name}` is not part of this image: `pip install starsched` brings it"
            ) from None
        command: click.Command = getattr(found, attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:
            # click suggests names from `commands`, which is empty: commands are imported lazily.
            raise NoSuchCommand(error.command_name, None, COMMANDS, ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])


def _is_server() -> bool:
    return Path(sys.argv[0]).name == KUBE_SCHEDULER or not _SERVERS.isdisjoint(sys.argv[1:2])


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@version_option
def main() -> None:
    """A Kubernetes scheduler whose decisions are Starlark policy files.

    Policies in a ConfigMap or a directory decide which pod goes first, which nodes fit and which
    is best. Edit and apply them, and the next pod is decided by the new text, once it has passed
    checks, tests and a trial.
    """


if __name__ == "__main__":
    main()
