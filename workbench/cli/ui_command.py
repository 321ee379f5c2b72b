"""`kubectl starsched ui`: the page of the scheduler that leads, in this user's browser."""

import asyncio
import contextlib
import html
import signal
import tempfile
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from engine.io.kube.errors import KubeConfigError
from engine.lib import event_loop
from engine.surfaces.cli import terminal
from engine.surfaces.cli.cluster_option import cluster_options
from engine.surfaces.live.answers import QueuePage
from workbench.cli.leader_access import (
    Refused,
    ask_leader,
    cannot_ask,
    leader_asked,
    leader_at,
    leader_options,
)
from workbench.leader_way import CannotAsk, LeaderAt
from workbench.page_proxy import LOOPBACK, PageProxy

_FIRST: Final = "/queue"


@click.command("ui")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help=f"Listen on this port of {LOOPBACK}. Default: a free one.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@cluster_options
@leader_options
def ui_command(port: int, opens: bool, **options: Any) -> None:
    """Show the page of the scheduler in a browser.

    Prints an address of this host and serves the page there until Ctrl-C. The way to the scheduler
    is that of the other commands: through the API server to the pod of the leader, to its local
    port or else to its secure port, or to the address of --server. When another process leads, the
    page follows.

    The address has a secret: a browser that has opened it once may read the page, and nothing else
    on this host may. Credentials stay in this process, and a token is renewed before it runs out.

    Exit codes: 0 stopped, 1 the scheduler could not be asked, or the port is taken, 2 wrong usage.

    \b
    Examples:
      kubectl starsched ui
      kubectl starsched ui --open --port 8080
      kubectl starsched ui --service-account starsched/page
      kubectl starsched ui --server https://10.0.0.5:10259 --ca-configmap kube-system/starsched-ca
    """
    where = leader_at(options)
    # What is wrong with the way or with rights is best said here, not in a browser.
    try:
        ask_leader(where, _FIRST, {"limit": "1"}, QueuePage)
    except Refused as refused:
        terminal.echo(f"note: {refused}; the page shows when it does", err=True)
    except CannotAsk as error:
        raise cannot_ask(error) from error
    except KubeConfigError as error:
        raise click.UsageError(str(error)) from error
    event_loop.run(_serve(where, port, opens=opens))


async def _serve(where: LeaderAt, port: int, *, opens: bool) -> None:
    proxy = PageProxy(lambda: leader_asked(where, f"{_FIRST}?limit=1"), port=port)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    try:
        await proxy.start()
    except OSError as error:
        raise click.ClickException(
            f"port {port} of {LOOPBACK}: {error.strerror or error}\n"
            "hint: without --port, a free one is taken"
        ) from error
    try:
        click.echo(f"The page is at {proxy.address}")
        click.echo("Ctrl-C ends it.", err=True)
        with _opened(proxy.address) if opens else contextlib.nullcontext():
            await stopped.wait()
    finally:
        await proxy.stop()


@contextlib.contextmanager
def _opened(address: str) -> Iterator[None]:
    """*address*, open in a browser; by way of a file, as other users see arguments of processes."""
    with tempfile.TemporaryDirectory(prefix="starsched-ui-") as folder:
        file = Path(folder) / "open.html"
        to = html.escape(address)
        file.touch(0o600)
        file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={to}">')
        if not webbrowser.open(file.as_uri()):
            terminal.echo("note: no browser could be opened", err=True)
        yield
