"""Tables of commands: laid out in the columns that there are, without cutting a cell.

Owns the layout, and how equal rows become one. What does not fit next to the other columns goes
below its row, under its title; so a name or a `file:line` is always whole.
"""

import itertools
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from engine.surfaces.cli.console import table_width, wrapped
from engine.surfaces.cli.terminal import is_wide

T = TypeVar("T")

_GAP: Final = 2
_BELOW: Final = " " * 4
_MOST_VALUES: Final = 3
# A title such as `NodeResourcesFit` may also be broken at its capitals.
_BREAKS: Final = re.compile(r"\s+|(?<=[a-z])(?=[A-Z])")
# What the pods of one controller have in front of a part of their own: `web-7d9c-`, `worker`.
_STEM: Final = re.compile(r"(.*-)[^-/]+|(.*?[^\d/])\d+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: Its name.
        is_number: It is aligned to the right.
    """

    title: str
    is_number: bool = False


def numbers(*titles: str) -> list[Column]:
    """Columns of numbers."""
    return [Column(title, is_number=True) for title in titles]


def print_table(
    console: Console,
    columns: Sequence[str | Column],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
) -> None:
    """Print *rows*, whose cells are markup, under the titles of *columns*; nothing without rows.

    The first column stays where it is. Others that are empty in all rows are left out.
    """
    cells = [[console.render_str(cell) for cell in row] for row in rows]
    if not cells:
        return
    heads = [one if isinstance(one, Column) else Column(one) for one in columns]
    if title:
        console.print(f"[italic]{title}[/italic]", soft_wrap=True)
    width = table_width(console)
    across, below = _layout(heads, cells, width)
    for number in range(max(len(one.titles) for one in across)):
        line = [Text(one.title_line(number), "bold") for one in across]
        if any(line):
            _print_line(console, across, line)
    for row in cells:
        _print_line(console, across, [row[one.at] for one in across])
        for text in _below(heads, row, below):
            for part in wrapped(Text(_BELOW) + text, width):
                console.print(part, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class _Across:
    """A column that is next to others: where, how wide, and the lines of its title."""

    at: int
    width: int
    titles: Sequence[str]
    is_number: bool

    def title_line(self, number: int) -> str:
        return self.titles[number] if number < len(self.titles) else ""


def _layout(
    heads: Sequence[Column], cells: Sequence[Sequence[Text]], width: int
) -> tuple[list[_Across], list[int]]:
    """The columns that are next to each other, and the places of those that are below."""
    shown = [at for at in range(len(heads)) if at == 0 or any(row[at] for row in cells)]
    # The widest go first, so that the fewest have to.
    going = sorted(shown[1:], key=lambda at: (_widest(cells, at), at), reverse=True)
    for count in range(len(going) + 1):
        kept = [at for at in shown if at not in going[:count]]
        for breaks_titles in (False, True):
            across = [_across(heads[at], at, cells, breaks_titles) for at in kept]
            if sum(one.width + _GAP for one in across) - _GAP <= width:
                return across, sorted(going[:count])
    return across, sorted(going)


def _across(head: Column, at: int, cells: Sequence[Sequence[Text]], breaks_titles: bool) -> _Across:
    width = _widest(cells, at)
    titles = _broken(head.title, width) if breaks_titles else [head.title]
    return _Across(at, max(width, *map(cell_len, titles)), titles, head.is_number)


def _widest(cells: Sequence[Sequence[Text]], at: int) -> int:
    return max(row[at].cell_len for row in cells)


def _broken(title: str, width: int) -> list[str]:
    """*title* in as few lines as *width* columns allow, or its longest word."""
    places = [0, *(found.start() for found in _BREAKS.finditer(title)), len(title)]
    words = [title[start:end] for start, end in itertools.pairwise(places)]
    width = max(width, *(cell_len(word.strip()) for word in words))
    lines = [""]
    for word in words:
        if cell_len((lines[-1] + word).strip()) > width:
            lines.append("")
        lines[-1] += word
    return [line.strip() for line in lines]


def _print_line(console: Console, across: Sequence[_Across], line: Sequence[Text]) -> None:
    joined = Text()
    for one, text in zip(across, line, strict=True):
        padding = " " * (one.width - text.cell_len)
        joined.append_text(Text(padding) + text if one.is_number else text + padding)
        joined.append(" " * _GAP)
    joined.rstrip()
    console.print(joined, soft_wrap=True)


def _below(heads: Sequence[Column], row: Sequence[Text], below: Sequence[int]) -> Iterator[Text]:
    """What is below a row: numbers in one paragraph, then a paragraph for each other cell."""
    counted = [at for at in below if heads[at].is_number and row[at]]
    if counted:
        yield Text(", ").join(_named(heads[at], row[at], " ") for at in counted)
    for at in below:
        if row[at] and not heads[at].is_number:
            yield _named(heads[at], row[at], ": ")


def _named(head: Column, cell: Text, between: str) -> Text:
    return Text(head.title + between, "dim") + cell if head.title else cell


# --- equal rows ------------------------------------------------------------------------------


def grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """*items* of equal *key* together, in the order of the first of each; with `--wide`, alone."""
    if is_wide():
        return [[one] for one in items]
    groups: dict[Hashable, list[T]] = {}
    for one in items:
        groups.setdefault(key(one), []).append(one)
    return list(groups.values())


def stem_of(name: str) -> str:
    """*name*, without the part that a controller gives each of its pods."""
    found = _STEM.fullmatch(name)
    return name if found is None else found[1] or found[2]


def pods_text(names: Sequence[str]) -> str:
    """The pods of one stem: `10 x default/ml-*`; of a single one its name."""
    return names[0] if len(names) == 1 else f"{len(names):,} x {stem_of(names[0])}*"


def several(values: Iterable[str], most: int = _MOST_VALUES) -> str:
    """Different *values*, each once; of many the first, and how many there are in addition."""
    different = list(dict.fromkeys(values))
    more = f", +{len(different) - most:,}" if len(different) > most else ""
    return ", ".join(different[:most]) + more
