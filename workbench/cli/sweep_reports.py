"""The output of a sweep: a table of all results, a chart, and a summary.

Owns the formats of results. The grid of simulations is `workbench.simulation.sweep`'s.
"""

import csv
import math
from collections.abc import Sequence
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.console import Console

from engine.lib.printable import printable
from engine.surfaces.cli.console import escape as plain
from engine.surfaces.cli.console import say
from engine.surfaces.cli.output_file import naming, replacing
from engine.surfaces.cli.terminal import is_wide
from workbench.cli.table import numbers, print_table
from workbench.simulation.sweep import SAME_WITHIN, Measured

_MOST_COLUMNS: Final = 6
_NO_PYARROW: Final = "--format parquet: want pyarrow, which is not installed"
_HOW_TO_INSTALL: Final = "hint: pip install pyarrow, or starsched[parquet]"


class FormatError(ValueError):
    """A table format whose library is missing; the message says what to install."""


def columns_of(results: Sequence[Measured]) -> dict[str, list[Any]]:
    """The columns of the table: arguments, `seed`, `revision`, measures; one row a simulation.

    An argument keeps its values if all are of one plain type; otherwise each that is no text is
    JSON. A measure that a simulation does not have is 0.
    """
    found: dict[str, list[Any]] = {}
    for name in dict.fromkeys(name for one in results for name in one.arguments):
        found[name] = _of_one_type([one.arguments.get(name) for one in results])
    found["seed"] = [one.seed for one in results]
    found["revision"] = [one.revision for one in results]
    for name in dict.fromkeys(name for one in results for name in one.metrics):
        found[name] = [float(one.metrics.get(name, 0.0)) for one in results]
    return found


def _of_one_type(values: list[Any]) -> list[Any]:
    kinds = {type(value) for value in values}
    if kinds == {int, float}:
        return [float(value) for value in values]
    if len(kinds) == 1 and kinds <= {bool, int, float, str}:
        return values
    return [_text(value) for value in values]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def require_parquet() -> None:
    """Raise `FormatError` if Parquet cannot be written here."""
    try:
        import pyarrow.parquet  # noqa: F401  # only to see if it is there
    except ImportError as error:
        raise FormatError(f"{_NO_PYARROW}\n{_HOW_TO_INSTALL}") from error


def write_table(path: Path, results: Sequence[Measured]) -> None:
    """Write *results* to *path*, as Parquet if it ends so and as CSV otherwise."""
    with naming(path), replacing(path) as temporary:
        _write_table(temporary, columns_of(results), is_parquet=path.suffix == ".parquet")


def renew_other_table(path: Path, results: Sequence[Measured]) -> None:
    """Write *results* in the other format too, if an earlier sweep left a table in it.

    Otherwise its old results could be mistaken for these. A table that cannot be written is
    removed.
    """
    other = path.with_suffix(".csv" if path.suffix == ".parquet" else ".parquet")
    if not other.is_file():
        return
    try:
        if other.suffix == ".parquet":
            require_parquet()
        write_table(other, results)
    except FormatError:
        with naming(other):
            other.unlink(missing_ok=True)


def _write_table(path: Path, columns: dict[str, list[Any]], *, is_parquet: bool) -> None:
    if is_parquet:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    else:
        text = StringIO(newline="")
        table = csv.writer(text)
        table.writerow(map(printable, columns))
        table.writerows(
            [_cell(value) for value in row] for row in zip(*columns.values(), strict=True)
        )
        path.write_text(text.getvalue(), encoding="utf-8", newline="")


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return _text(value)
    return printable(value) if isinstance(value, str) else value


def differing(results: Sequence[Measured]) -> list[str]:
    """The measures that are not the same in all *results*."""
    return [
        name
        for name in dict.fromkeys(name for one in results for name in one.metrics)
        if not math.isclose(
            min(one.metrics.get(name, 0.0) for one in results),
            max(one.metrics.get(name, 0.0) for one in results),
            rel_tol=SAME_WITHIN,
        )
    ]


def combinations(results: Sequence[Measured]) -> dict[str, list[Measured]]:
    """*results* by their arguments, each named in short; one for each seed."""
    groups: dict[str, list[Measured]] = {}
    for one in results:
        label = ", ".join(f"{k.rsplit('.', 1)[-1]}={_text(v)}" for k, v in one.arguments.items())
        groups.setdefault(label, []).append(one)
    return groups


def _mean(group: Sequence[Measured], name: str) -> float:
    return sum(one.metrics.get(name, 0.0) for one in group) / len(group)


def print_means(results: Sequence[Measured], console: Console) -> None:
    """Print a line a combination: means over the seeds of the measures that differ."""
    names = differing(results)
    if not names:
        console.print("no measure differs")
        return
    shown = names if is_wide() else names[:_MOST_COLUMNS]
    rows = [
        (plain(label), *(f"{_mean(group, name):.4g}" for name in shown))
        for label, group in combinations(results).items()
    ]
    print_table(console, ["arguments", *numbers(*map(plain, shown))], rows)
    if len(names) > len(shown):
        more = len(names) - len(shown)
        say(console, f"and {more} more measures: --wide, the table and the chart have all")


def bar_chart(results: Sequence[Measured]) -> str:
    """The measures that differ, each as bars by combination: means, with the span over seeds."""
    groups, names = combinations(results), differing(results)
    row, top, left, width = 18, 26, 330, 420
    panel = top + row * len(groups) + 10
    height = max(40, panel * len(names))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 {height}" width="900" '
        f'height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="900" height="{height}" fill="white"/>',
    ]
    if not names:
        parts.append('<text x="10" y="20">no measure differs</text>')
    for number, name in enumerate(names):
        y = number * panel
        most = max(one.metrics.get(name, 0.0) for one in results) or 1.0
        parts.append(f'<text x="10" y="{y + 18}" font-weight="bold">{_escape(name)}</text>')
        for place, (label, group) in enumerate(groups.items()):
            values = [one.metrics.get(name, 0.0) for one in group]
            mean = _mean(group, name)
            at, middle = y + top + place * row, y + top + place * row + 7
            low, high = (left + width * value / most for value in (min(values), max(values)))
            parts += [
                f'<text x="{left - 8}" y="{at + 11}" text-anchor="end">{_escape(label)}</text>',
                f'<rect x="{left}" y="{at}" width="{width * mean / most:.1f}" height="14" '
                'fill="#1f77b4"/>',
                f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="black"/>',
                f'<text x="{left + width + 10}" y="{at + 11}">{mean:.4g}</text>',
            ]
    return "\n".join([*parts, "</svg>", ""])


def _escape(text: str) -> str:
    return escape(printable(text))
