"""Writes a page for every command, from what its `--help` says.

`docs/commands/NAME.md` has a generated part between two marks, and may go on after it: what is
written there by hand is kept. `docs/commands.md` is the list of them. A new entry of
`workbench.cli.main.COMMANDS` is all that a new page takes. Run it with `make docs`; with `--check`
nothing is written, and pages that are out of date are named.
"""

import argparse
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # run as a file, only `devkit/tools/` is on the path

from workbench.cli.main import COMMANDS, main  # noqa: E402  # found by the line above

BEGIN: Final = "<!-- made from `--help` by `make docs` -->"
END: Final = "<!-- end of what is made -->"
INDEX: Final = Path("docs/commands.md")
# A paragraph of the help that begins so becomes a section; the rest of its line is its text.
_SECTION = re.compile(r"^(Exit codes(?=: )|[^\n]+(?=:\n)):[ \n]")


def pages() -> dict[Path, str]:
    """Every page as it should be, by its path in the repository."""
    made = {}
    for name, (module, attribute, _) in COMMANDS.items():
        command: click.Command = getattr(importlib.import_module(module), attribute)
        path = Path("docs/commands") / f"{name}.md"
        made[path] = _page(name, command, _by_hand(path))
    made[INDEX] = _with_made("# Commands", _index(), _by_hand(INDEX))
    return made


def stale() -> list[Path]:
    """The pages that are missing, out of date, or of no command."""
    wanted = pages()
    there = {path.relative_to(ROOT) for path in (ROOT / "docs/commands").glob("*.md")}
    wrong = [path for path, text in wanted.items() if _read(path) != text]
    return sorted({*wrong, *(there - wanted.keys())})


def _page(name: str, command: click.Command, by_hand: str) -> str:
    # Within its group, as it is run: the group's settings name the options of help.
    with (
        main.make_context("starsched", [name]) as group,
        click.Context(command, parent=group, info_name=name) as context,
    ):
        made = "\n\n".join([_usage(context), *_help(command), _options(context)])
        if isinstance(command, click.Group):
            made = "\n\n".join([made, *_parts(command, context)])
    return _with_made(f"# starsched {name}", made, by_hand)


def _parts(group: click.Group, context: click.Context) -> Iterator[str]:
    """A section for each command of *group*."""
    for name, command in group.commands.items():
        with click.Context(command, parent=context, info_name=name) as inner:
            parts = [f"## {inner.command_path}", _usage(inner), *_help(command), _options(inner)]
            yield "\n\n".join(parts)


def _with_made(title: str, made: str, by_hand: str) -> str:
    return f"{title}\n\n{BEGIN}\n\n{made}\n\n{END}\n{by_hand}"


def _usage(context: click.Context) -> str:
    pieces = " ".join(context.command.collect_usage_pieces(context))
    return f"```text\n{context.command_path} {pieces}\n```"


def _help(command: click.Command) -> Iterator[str]:
    """The paragraphs of the help; what the terminal shows as written stays so."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        is_literal = paragraph.startswith("\b\n")
        text = paragraph.removeprefix("\b\n")
        is_section = is_literal or text.startswith("Exit codes: ")
        section = _SECTION.match(text) if is_section else None
        if section is None:
            yield f"```text\n{text}\n```" if is_literal else text
            continue
        body = inspect.cleandoc("\n" + text[section.end() :])
        if section[1] == "Exit codes":
            yield f"**{section[1]}:** {' '.join(body.split())}"
        else:
            language = "sh" if section[1] == "Examples" else "text"
            yield f"**{section[1]}:**\n\n```{language}\n{body}\n```"


def _options(context: click.Context) -> str:
    rows = ["| option | means |", "| --- | --- |"]
    for parameter in context.command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None or not isinstance(parameter, click.Option):
            continue  # hidden, or an argument: the text above says what it is
        names, means = (part.replace("|", "\\|").replace("\n", " ") for part in record)
        rows.append(f"| `{names}` | {means.replace('  [', ' [')} |")
    return "\n".join(rows)


def _index() -> str:
    rows = ["| command | does |", "| --- | --- |"]
    for name, (_, _, does) in COMMANDS.items():
        rows.append(f"| [`starsched {name}`](commands/{name}.md) | {does} |")
    return "\n".join(rows)


def _read(path: Path) -> str | None:
    file = ROOT / path
    return file.read_text(encoding="utf-8") if file.exists() else None


def _by_hand(path: Path) -> str:
    """What follows the generated part of the page *path*."""
    return (_read(path) or "").partition(f"{END}\n")[2]


def write() -> int:
    """Write the pages, or name the stale ones, and return the exit code."""
    parser = argparse.ArgumentParser(description="write a page for every command")
    parser.add_argument("--check", action="store_true", help="write nothing, name stale pages")
    arguments = parser.parse_args()
    wrong = stale()
    wanted = pages()
    for path in wrong:
        if arguments.check:
            print(f"{path}: not what `--help` says; run `make docs`")
        elif path in wanted:
            (ROOT / path).parent.mkdir(exist_ok=True)
            (ROOT / path).write_text(wanted[path], encoding="utf-8")
            print(f"wrote {path}")
        else:
            print(f"{path}: there is no such command; delete it")
    return 1 if arguments.check and wrong else 0


if __name__ == "__main__":
    raise SystemExit(write())
