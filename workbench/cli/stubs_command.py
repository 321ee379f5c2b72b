"""`starsched stubs`: type stubs, with which editors complete the fields of pods and nodes."""

import shlex
import sys
from pathlib import Path
from typing import Final

import click

from engine.surfaces.cli.input_error import input_errors
from engine.surfaces.cli.json_output import output_option, print_json
from engine.surfaces.cli.output_file import write_file
from workbench.cli.editor_bridge import serve
from workbench.stubs.stubs import stub_text

#: Where language servers look for builtins.
FILE: Final = Path("typings") / "__builtins__.pyi"
CURRENT, STALE = 0, 1


@click.command("stubs", short_help="Write type stubs, so that editors complete what policies see.")
@click.argument(
    "directory", type=click.Path(path_type=Path, file_okay=False), default=Path(), required=False
)
@click.option("--stdout", "prints", is_flag=True, help="Print the stub instead of writing it.")
@click.option(
    "--check", is_flag=True, help="Write nothing; report whether the existing file is current."
)
@click.option(
    "--serve",
    "server",
    metavar="COMMAND",
    help="Be a language server on stdin and stdout: COMMAND, with types added to parameters.",
)
@output_option("How to print what was written, or found.")
def stubs_command(
    directory: Path, prints: bool, check: bool, server: str | None, output: str
) -> None:
    """Write the fields of pods, nodes and all else that policies see, with types and docs.

    The file is DIRECTORY/typings/__builtins__.pyi; DIRECTORY (default: the current one) is the
    folder that the editor opens. Language servers for Python such as basedpyright read it to
    understand policies. With --serve an editor starts this command in place of the server: then
    `pod.` and `node.` complete in every hook, without type annotations in the policy.

    Exit codes: 0 done, or current; 1 --check: it is missing or of another version; 2 wrong usage,
    or the server does not start. With --serve, the server's.

    \b
    Examples:
      starsched stubs
      starsched stubs --serve "basedpyright-langserver --stdio"
      starsched stubs policies/ --check
      starsched stubs --check --output json | jq .current
    """
    if prints + check + (server is not None) > 1:
        raise click.UsageError("want one of --stdout, --check and --serve")
    if output == "json" and (prints or server is not None):
        raise click.UsageError("--output json is about the file: want no --stdout or --serve")
    if server is not None:
        try:
            command = shlex.split(server)
        except ValueError as error:
            raise click.UsageError(f"--serve: want a command, got `{server}`: {error}") from error
        if not command:
            raise click.UsageError("--serve wants the command of a language server")
        try:
            # Not `sys.stdin`: at exit Python takes its lock, which a reading thread may hold.
            reader = open(sys.stdin.fileno(), "rb", closefd=False)  # noqa: SIM115  # ends with us
            code = serve(command, reader, sys.stdout.buffer)
        except OSError as error:
            raise click.UsageError(f"`{command[0]}` does not start: {error.strerror}") from error
        raise SystemExit(code)
    text = stub_text()
    if prints:
        click.echo(text, nl=False)
        return
    path = directory / FILE
    try:
        is_current = path.read_bytes() == text.encode()
    except OSError:
        is_current = False
    if check:
        said = "current" if is_current else "missing, or of another version"
        _say(output, f"{path}: {said}", {"file": str(path), "current": is_current})
        raise SystemExit(CURRENT if is_current else STALE)
    with input_errors():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, text)
    _say(output, f"wrote {path}", {"file": str(path), "current": True})


def _say(output: str, text: str, plain: dict[str, object]) -> None:
    if output == "json":
        print_json(plain)
    else:
        click.echo(text)
