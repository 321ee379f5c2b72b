"""The sign that a command is at work on what cannot be counted: only on a terminal."""

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def working(description: str) -> Iterator[None]:
    """A bar that moves during the block, once it has taken a while."""
    if not sys.stderr.isatty():
        yield
        return
    # Imported where there is a terminal: the library takes longer than the check of a file may.
    from engine.surfaces.cli.progress_bar import moving_bar

    with moving_bar(description):
        yield
