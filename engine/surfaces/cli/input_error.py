"""The error of files that cannot be used, as every command reports it.

Owns the exit code of such errors, and which exceptions of readers and writers become one.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from engine.surfaces.cli.output_file import real_place


class InputError(click.ClickException):
    """A file that is missing, broken or of another kind, or cannot be written: exit code 2.

    The message is one line with its place.

    Unlike `click.UsageError` it prints no usage: the command line was right, the file is not.
    """

    exit_code = 2


@contextmanager
def input_errors(paths: Iterable[Path] = ()) -> Iterator[None]:
    """Convert errors about *paths*, or about written files, to `InputError`."""
    try:
        yield
    except OSError as error:
        raise InputError(reason_of(error)) from error
    except ValueError as error:
        # Imported where there is an error: what reads clusters is large.
        from engine.files.text_places import FileError
        from engine.files.world import ManifestError

        if isinstance(error, FileError):
            raise InputError(str(error)) from error
        if isinstance(error, ManifestError):
            raise InputError(_with_place(error, list(paths))) from error
        raise


def reason_of(error: OSError) -> str:
    """The file and the error text of the operating system."""
    reason = (error.strerror or str(error)).lower()
    return f"{error.filename}: {reason}" if error.filename else reason


def require_places(*paths: Path | None) -> None:
    """Raise `InputError` unless a file of its own can be made at each of *paths*.

    Said before the work, not after.
    """
    files: set[Path] = set()
    for path in paths:
        if path is None:
            continue
        if not path.parent.is_dir():
            raise InputError(f"{path}: there is no directory `{path.parent}` to write it to")
        with input_errors():
            place = real_place(path)
        if place in files and (place.is_file() or not place.exists()):
            raise InputError(f"{path}: want a file for each output, got it twice")
        files.add(place)


def _with_place(error: ValueError, paths: list[Path]) -> str:
    """What is wrong with a manifest, with the file and line where one of *paths* has the like."""
    from engine.files.cluster_file import ClusterFileError, manifest_files, unpacked
    from engine.testing.fixtures import FixtureError, find_misshapen

    for path in paths:
        try:
            for file in manifest_files(path):
                found = find_misshapen(str(file), unpacked(file))
                if found is not None:
                    return str(found)
        except (ClusterFileError, FixtureError, OSError):
            continue  # a table, or a log
    return f"{', '.join(map(str, paths))}: {error}" if paths else str(error)
