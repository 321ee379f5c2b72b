"""The progress bar of commands that take long: on standard error, and only on a terminal."""

import sys

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from engine.cli import terminal


def progress_bar(unit: str = "") -> Progress:
    """A progress bar; with *unit*, a count of such things whose total is not known."""
    counted: list[ProgressColumn] = [BarColumn(), MofNCompleteColumn()]
    if unit:
        counted = [TextColumn(f"{{task.completed}} {unit}")]
    return Progress(
        TextColumn("{task.description}"),
        *counted,
        TimeElapsedColumn(),
        console=terminal.console(None, is_error=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
