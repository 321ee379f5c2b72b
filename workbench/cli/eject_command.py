"""`starsched eject`: a built-in policy's text, to start one's own from."""

import difflib
from pathlib import Path

import click

from engine.policy.profiles import RUNTIME_PLUGINS
from engine.policy.shipped import KUBERNETES, pack_modules, shipped_files, snake_case
from engine.surfaces.cli.input_error import input_errors
from engine.surfaces.cli.json_output import output_option, print_json
from engine.surfaces.cli.output_file import write_file


@click.command("eject", short_help="Print a built-in policy to start from.")
@click.argument("name")
@click.option("--with-test", is_flag=True, help="Print or write its test file too.")
@click.option(
    "--to",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the files there instead of printing them; existing files are left alone.",
)
@output_option("How to print what was written, or the text itself.")
def eject_command(name: str, with_test: bool, directory: Path | None, output: str) -> None:
    """Print the built-in policy NAME, as plugin (NodeResourcesFit) or file (node_resources_fit).

    A file of that name among your policies replaces the built-in, its tests included. A policy of
    a pack (FGDScore) becomes one of yours: a profile names it by its file (fgd_score).

    Exit codes: 0 printed or written, 2 no such policy, or a file exists.

    \b
    Examples:
      starsched eject NodeResourcesFit > policies/node_resources_fit.star
      starsched eject NodeResourcesFit --with-test --to policies/
      starsched eject FGDScore --output json | jq -r '.files[]'
    """
    shipped = {
        path.removeprefix(KUBERNETES): text
        for path, text in shipped_files().items()
        if path.startswith(KUBERNETES)
    }
    for module in pack_modules().values():
        for path in (module, module.replace(".star", "_test.star")):
            shipped[path.rpartition("/")[2]] = shipped_files()[path]
    stem = snake_case(name.removesuffix(".star"))
    parts = {snake_case(plugin): plugin for plugin in RUNTIME_PLUGINS}
    if stem in parts and f"{stem}.star" not in shipped:
        message = f"`{parts[stem]}` is a part of the runtime: it has no policy file"
        raise click.UsageError(f"{message}\nhint: a profile switches it on and off, as any plugin")
    if f"{stem}.star" not in shipped or stem.endswith("_test"):
        known = sorted(
            path.removesuffix(".star") for path in shipped if not path.endswith("_test.star")
        )
        close = difflib.get_close_matches(stem, known, 1)
        hint = f"did you mean `{close[0]}`?" if close else f"want one of {', '.join(known)}"
        raise click.UsageError(f"no built-in policy `{name}`\nhint: {hint}")
    wanted = [f"{stem}.star"] + ([f"{stem}_test.star"] if with_test else [])
    wanted = [path for path in wanted if path in shipped]
    if directory is None and output == "json":
        print_json({"files": {path: shipped[path] for path in wanted}})
        return
    if directory is None:
        click.echo("\n".join(shipped[path] for path in wanted), nl=False)
        return
    present = [path for path in wanted if (directory / path).exists()]
    if present:
        raise click.UsageError(f"{directory / present[0]}: already exists")
    with input_errors():
        directory.mkdir(parents=True, exist_ok=True)
        for path in wanted:
            write_file(directory / path, shipped[path])
    written = [str(directory / path) for path in wanted]
    if output == "json":
        print_json({"written": written})
        return
    for path in written:
        click.echo(f"wrote {path}")
