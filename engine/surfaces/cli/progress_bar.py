"""Progress of commands that take long: on standard error, and only on a terminal."""

import contextlib
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from engine.surfaces.cli.console import make_console

T = TypeVar("T")

PATIENCE_SECONDS: Final = 2.0


def progress_bar(unit: str = "") -> Progress:
    """A progress bar; with *unit*, a count of such things whose total is not known."""
    counted: list[ProgressColumn] = [BarColumn(), MofNCompleteColumn()]
    if unit:
        counted = [TextColumn(f"{{task.completed}} {unit}")]
    return _progress(counted)


@contextlib.contextmanager
def moving_bar(description: str) -> Iterator[None]:
    """A bar that moves during the block, of which no part can be counted."""
    with _progress([BarColumn()]) as progress:
        progress.add_task(description, total=None)
        yield


def tracked(items: Sequence[T], description: str) -> Iterable[T]:
    """*items*, with a bar of how many were taken."""
    with progress_bar() as progress:
        yield from progress.track(items, description=description)


class _Progress(Progress):
    """Appears once the work has taken `PATIENCE_SECONDS`: what is quick shows nothing."""

    def start(self) -> None:
        if self.disable:
            return
        self._begins = threading.Timer(PATIENCE_SECONDS, super().start)
        self._begins.daemon = True
        self._begins.start()

    def stop(self) -> None:
        if self.disable:
            return
        self._begins.cancel()
        self._begins.join()
        super().stop()


def _progress(columns: Iterable[ProgressColumn]) -> Progress:
    return _Progress(
        TextColumn("{task.description}"),
        *columns,
        TimeElapsedColumn(),
        console=make_console(None, is_error=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
