"""`starsched fmt`: one way of writing policies."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

from engine.files.text_places import not_utf8
from engine.lib.directories import files_in, walk
from engine.policy.check import check_files
from engine.surfaces.cli import terminal
from engine.surfaces.cli.input_error import InputError, input_errors, reason_of
from engine.surfaces.cli.json_output import output_option, print_json
from engine.surfaces.cli.output_file import write_file
from workbench.cli.format_diff import format_diff
from workbench.formatting import FormatError, formatted

_SUFFIX = ".star"
_STDIN = "<stdin>"
_ANY = "a.star"
_VAGUE = ": invalid syntax"


@click.command("fmt", short_help="Format policies.")
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATHS..."
)
@click.option("--check", is_flag=True, help="Change nothing; exit code 1 if a file would change.")
@click.option("--diff", is_flag=True, help="Change nothing; print what would change.")
@output_option("How to print what was changed.")
def fmt_command(paths: tuple[Path, ...], check: bool, diff: bool, output: str) -> None:
    """Format Starlark files: spaces, quotes, indentation and blank lines.

    PATHS are files or directories, searched to the bottom; `-` formats from stdin to stdout. Line
    breaks and comments stay where they are, and a file means the same before and after.

    Exit codes: 0 done, 1 a file would change (with --check or --diff), 2 a file cannot be read or
    does not parse; such a file is left as it is.

    \b
    Examples:
      starsched fmt policies/
      starsched fmt --check --diff policies/
      starsched fmt --check policies/ --output json | jq -r '.changed[]'
    """
    only_looks = check or diff
    is_plain = output == "json"
    if is_plain and not only_looks and Path("-") in paths:
        raise click.UsageError("--output json is about files: `-` prints the formatted text")
    changed: list[str] = []
    broken: list[str] = []
    diffs: dict[str, str] = {}
    total = 0
    for shown, path, text in _texts(paths):
        total += 1
        try:
            result = formatted(text.removeprefix("\ufeff"))
        except FormatError as error:
            broken.append(_unreadable(shown, text, error))
            if not is_plain:
                click.echo(broken[-1], err=True)
            continue
        if path is None and not only_looks:
            terminal.write_data(result)
            continue
        if result == text:
            continue
        changed.append(shown)
        if diff:
            diffs[shown] = format_diff(shown, text, result)
        if path is not None and not only_looks:
            with input_errors():
                write_file(path, result)
        elif not is_plain:
            click.echo(diffs[shown] if diff else f"would change {shown}")
    if is_plain:
        said = {"files": total, "changed": changed, "problems": broken}
        said |= {"diffs": diffs} if diff else {}
        print_json(said)
    elif paths != (Path("-"),):
        verb = "would change" if only_looks else "changed"
        click.echo(f"{total} file(s): {verb} {len(changed)}", err=diff)
    raise SystemExit(2 if broken else 1 if changed and only_looks else 0)


def _unreadable(shown: str, text: str, error: FormatError) -> str:
    """What is wrong with *text*, in the words of `check` where the parser has none."""
    found = check_files({_ANY: text}) if str(error).endswith(_VAGUE) else []
    return str(replace(found[0], file=shown)) if found else f"{shown}:{error}"


def _texts(paths: tuple[Path, ...]) -> Iterator[tuple[str, Path | None, str]]:
    """(name to show, file or None for stdin, text) of every file that *paths* mean."""
    for path in paths:
        if str(path) == "-":
            yield _STDIN, None, _decoded(_STDIN, sys.stdin.buffer.read())
            continue
        if not path.exists():
            raise InputError(f"{path}: no such file or directory")
        if path.is_file() and path.suffix != _SUFFIX:
            raise InputError(f"{path}: want a `*.star` file, or a directory with some")
        files = list(_files(path))
        if not files:
            raise InputError(f"{path}: want a directory with `*.star` files, found none")
        for file in files:
            try:
                # As bytes: another way of ending lines is a difference.
                raw = file.read_bytes()
            except OSError as error:
                raise InputError(reason_of(error)) from error
            yield str(file), file, _decoded(str(file), raw)


def _decoded(shown: str, raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InputError(not_utf8(shown, error)) from error


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for directory in walk(path):
        yield from files_in(directory, (_SUFFIX,))
