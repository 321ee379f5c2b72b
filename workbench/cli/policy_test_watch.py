"""`starsched test --watch`: repeats tests when a file changes that they depend on.

Owns noticing changes: a notification of the operating system only triggers a scan of the files.
So editors that write another file and rename it are no special case, and without notifications a
scan every second is enough.
"""

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from watchdog.events import (
    EVENT_TYPE_CLOSED_NO_WRITE,
    EVENT_TYPE_OPENED,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer

from engine.surfaces.cli.input_error import InputError
from workbench.cli.coverage_output import CoverageOutput
from workbench.cli.policy_test_reports import print_result, summary
from workbench.cli.policy_test_session import Outcome, PolicyTestSession

_SUFFIXES: Final = (".star", ".yaml", ".yml", ".json", ".csv", ".gz")
_LOOK_SECONDS: Final = 1.0
# A file that is being written is left alone until it was quiet for so long.
_SETTLE_SECONDS: Final = 0.1
_MOST_SETTLING: Final = 50


def watch(
    session: PolicyTestSession, paths: tuple[Path, ...], config: Path | None, lines: CoverageOutput
) -> bool:
    """Run the tests of *session*, and again after changes, until interrupted.

    Returns whether the last run was good and reached enough *lines*.
    """
    extra = [] if config is None else [config]
    roots = sorted({path if path.is_dir() else path.parent for path in paths})
    tree = _Tree(roots, extra)
    is_good = True
    due: set[Path] | None = None  # at first everything
    with contextlib.suppress(KeyboardInterrupt), _notifications(roots) as noticed:
        while True:
            is_good = _run(session, due, lines, was_good=is_good)
            click.echo(f"watching {', '.join(map(str, roots))}: Ctrl-C stops")
            due = _next_changes(tree, noticed)
            click.echo("\nchanged: " + ", ".join(str(path) for path in sorted(due)))
    click.echo()
    return is_good


def _run(
    session: PolicyTestSession, due: set[Path] | None, lines: CoverageOutput, *, was_good: bool
) -> bool:
    try:
        outcome: Outcome = session.run(print_result, due)
    except InputError as error:
        # A file is half saved, or missing for a moment; the next change starts another run.
        session.postpone(due)
        click.echo(error.format_message())
        return False
    for problem in outcome.problems:
        click.echo(str(problem))
    if due is not None and not outcome.results and not outcome.problems:
        click.echo("no test depends on that")
        return was_good
    lines.write(outcome.reached)
    lines.print(outcome.reached)
    click.echo(summary(outcome.results, outcome.problems))
    return lines.is_enough(outcome.reached) and outcome.is_good


def _next_changes(tree: "_Tree", noticed: threading.Event) -> set[Path]:
    """The files that change next, once they are quiet. Blocks until there are some."""
    changed: set[Path] = set()
    while not changed:
        noticed.wait(_LOOK_SECONDS)
        noticed.clear()
        changed = tree.changes()
        for _ in range(_MOST_SETTLING if changed else 0):
            noticed.wait(_SETTLE_SECONDS)
            noticed.clear()
            more = tree.changes()
            if not more:
                break
            changed |= more
    return changed


@dataclass(frozen=True, slots=True)
class _Seen:
    """A file when it was last looked at."""

    state: tuple[int, int, int]
    digest: bytes


class _Tree:
    """The files of some directories, and their changes since the last scan."""

    def __init__(self, roots: list[Path], files: list[Path]) -> None:
        self._roots = roots
        self._files = files
        self._seen: dict[Path, _Seen] = {}
        self.changes()

    def changes(self) -> set[Path]:
        """The files that are new, gone or of other content since the last call."""
        now: dict[Path, _Seen] = {}
        for path in self._paths():
            try:
                found = path.stat()
                state = (found.st_mtime_ns, found.st_size, found.st_ino)
                known = self._seen.get(path)
                if known is None or known.state != state:
                    known = _Seen(state, hashlib.sha256(path.read_bytes()).digest())
                now[path] = known
            except OSError:
                continue  # gone since it was listed
        before, self._seen = self._seen, now
        differs = {
            path for path in before.keys() & now.keys() if before[path].digest != now[path].digest
        }
        return differs | (before.keys() ^ now.keys())

    def _paths(self) -> Iterator[Path]:
        yield from self._files
        for root in self._roots:
            for directory, inner, names in os.walk(root):
                # Hidden ones are an editor's, or a version control's.
                inner[:] = [name for name in inner if not name.startswith(".")]
                for name in names:
                    if name.endswith(_SUFFIXES) and not name.startswith("."):
                        yield Path(directory) / name


class _Handler(FileSystemEventHandler):
    """Any change triggers a scan; events of opened files, which a scan causes, do not."""

    def __init__(self, noticed: threading.Event) -> None:
        self._noticed = noticed

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Called in the observer's thread."""
        if event.event_type not in (EVENT_TYPE_OPENED, EVENT_TYPE_CLOSED_NO_WRITE):
            self._noticed.set()


@contextlib.contextmanager
def _notifications(roots: list[Path]) -> Iterator[threading.Event]:
    """Set while something happens below *roots*; never, where the system has no notifications."""
    noticed = threading.Event()
    observer = Observer()
    try:
        for root in roots:
            observer.schedule(_Handler(noticed), str(root), recursive=True)
        observer.start()
    except OSError:
        yield noticed  # inotify watches are exhausted: scan periodically
        return
    try:
        yield noticed
    finally:
        observer.stop()
        observer.join(_LOOK_SECONDS)
