"""The command `starsched demo`: runs a story, and keeps its cluster if that is wanted.

Owns the options, where output and log go, and how the command ends. The stories are `scenarios`.
"""

import asyncio
import os
import signal
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from devkit.demo.scenarios import SCENARIOS
from devkit.demo.stage import CONFIG_MAP, NAMESPACE, Scenario, Stage, StoryFailed, page_of, stage_of
from engine.lib import event_loop
from engine.surfaces.cli.console import make_console
from engine.surfaces.cli.json_output import output_option, print_json
from engine.telemetry.logs import configure_logging

_PIPE_WIDTH: Final = 100
#: Of the end of the log, shown when a story fails.
_LOG_LINES: Final = 100
_DEFAULT: Final = next(iter(SCENARIOS))
_WIDEST: Final = max(map(len, SCENARIOS))
_LISTED: Final = "\n".join(
    textwrap.fill(
        f"{name:{_WIDEST}}  {scenario.summary}",
        76,
        initial_indent="  ",
        subsequent_indent=" " * (_WIDEST + 4),
    )
    for name, scenario in SCENARIOS.items()
)
_HELP: Final = f"""Tell a story of the scheduler, on a cluster in memory.

Needs nothing but this command: no cluster, no network. Everything but the API server is real, and
all figures are of what happened. Colours only on a terminal.

\b
Scenarios:
{_LISTED}

Exit codes: 0 all went as it should, 1 something did not.

\b
Examples:
  starsched demo
  starsched demo --scenario gpu
  starsched demo --keep      # then: kubectl --kubeconfig ... get pods -o wide
"""


@click.command("demo", short_help="Show everything on a cluster in memory.", help=_HELP)
@click.option(
    "--scenario",
    type=click.Choice(list(SCENARIOS)),
    default=_DEFAULT,
    show_default=True,
    help="What is shown.",
)
@click.option("--keep", is_flag=True, help="Leave everything running until Ctrl-C or SIGTERM.")
@output_option("How to print the demo; with `json`, the facts of the story.")
def demo_command(scenario: str, keep: bool, output: str) -> None:
    """Run a story."""
    stream = sys.stderr if output == "json" else sys.stdout
    console = make_console(_PIPE_WIDTH, file=stream)
    # The log would talk over the story; it is one file away.
    with tempfile.TemporaryDirectory(prefix="starsched-demo-") as directory:
        log_file = Path(directory) / "scheduler.log"
        with log_file.open("ab", buffering=0) as log:
            configure_logging(log_format="text", stream=log, colors=False)
            try:
                kept_in = Path(directory) if keep else None
                event_loop.run(_run(SCENARIOS[scenario], console, output == "json", kept_in))
            except StoryFailed as failure:
                console.print(f"demo failed: {failure}", style="bold red", markup=False)
                lines = log_file.read_text(encoding="utf-8").splitlines()
                console.print("\n".join(lines[-_LOG_LINES:]), markup=False)
                raise SystemExit(1) from failure
            except (KeyboardInterrupt, asyncio.CancelledError):
                console.print("stopped")


async def _run(scenario: Scenario, console: Console, as_json: bool, kept_in: Path | None) -> None:
    """Run a story and print its facts; keep what it ran on, with its files in *kept_in*."""
    _end_as_by_ctrl_c()
    started = time.monotonic()
    async with stage_of(scenario, console) as stage:
        nodes = len(stage.cluster.list("nodes"))
        took = time.monotonic() - started
        stage.say(f"A cluster of {nodes} nodes in memory, and the scheduler: up in {took:.1f} s.")
        facts = await scenario.run(stage)
        seconds = round(time.monotonic() - started, 2)
        stage.say(f"\nDone in {seconds} s.")
        if as_json:
            print_json({"scenario": scenario.name, "nodes": nodes, **facts, "seconds": seconds})
        if kept_in is not None:
            await _keep(stage, scenario, kept_in)


def _end_as_by_ctrl_c() -> None:
    """Clean up when the demo is ended by a signal, such as that of a closed terminal."""
    task = asyncio.current_task()
    assert task is not None
    for sent in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(sent) is not signal.SIG_IGN:  # as nohup has it
            asyncio.get_running_loop().add_signal_handler(sent, task.cancel)


async def _keep(stage: Stage, scenario: Scenario, directory: Path) -> None:
    scenario.leave(stage)
    path = stage.cluster.write_kubeconfig(directory / "kubeconfig")
    os.chmod(path, 0o600)
    page = page_of(stage.app)

    def line(text: str) -> None:
        stage.console.print(f"  {text}", markup=False, soft_wrap=True)

    stage.say(f"\nEverything keeps running until Ctrl-C. Its page shows {scenario.shows}:")
    line(f"{page}/{scenario.page}")
    stage.say("Look around with:")
    line(f"export KUBECONFIG={path}")
    line("kubectl get pods -o wide")
    line(f"starsched explain NAMESPACE/POD --server {page}")
    line(f"kubectl -n {NAMESPACE} edit configmap {CONFIG_MAP}")
    line(f"curl {page}/{scenario.page or 'queue'}")
    line(f"tail -f {directory / 'scheduler.log'}")
    await asyncio.Event().wait()
