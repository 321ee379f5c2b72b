"""Coverage for people and for other tools: a table, LCOV, a page of HTML.

Owns the three forms; the counts are `coverage`'s.
"""

import html
from collections.abc import Iterable, Sequence

from engine.lib.printable import printable, printable_lines
from workbench.coverage.coverage import FileCoverage, percent


def as_text(files: Sequence[FileCoverage], *, is_whole: bool = False) -> str:
    """A table: lines, covered, missing lines.

    Shipped libraries come after the total, unless *is_whole* has them counted in it.
    """
    counted = [one for one in files if is_whole or not one.is_shipped]
    libraries = [one for one in files if not is_whole and one.is_shipped]
    titles = ["total", *(["libraries"] if libraries else [])]
    width = max(len(text) for text in [*titles, *(one.file for one in files)])
    rows = [f"{'file':{width}}  lines  covered  missing"]
    rows += [_row(one, width) for one in counted]
    rows.append(_sum("total", counted, width))
    if libraries:
        rows += [_row(one, width) for one in libraries]
        rows.append(_sum("libraries", libraries, width))
    return "\n".join(rows)


def _row(one: FileCoverage, width: int) -> str:
    share = f"{percent([one]):.1f}%"
    return f"{one.file:{width}}  {len(one.hits):5}  {share:>7}  {one.missing_ranges}".rstrip()


def _sum(name: str, files: Sequence[FileCoverage], width: int) -> str:
    total = sum(len(one.hits) for one in files)
    return f"{name:{width}}  {total:5}  {percent(files):6.1f}%"


def as_lcov(files: Iterable[FileCoverage]) -> str:
    """The trace format of lcov, which editors and code hosts read."""
    parts = []
    for one in files:
        lines = [f"DA:{line},{count}" for line, count in sorted(one.hits.items())]
        parts += ["TN:", f"SF:{one.file}", *lines]
        parts += [f"LF:{len(one.hits)}", f"LH:{one.covered}", "end_of_record"]
    return "\n".join(parts) + "\n" if parts else ""


_STYLE = (
    "body{font:14px sans-serif;margin:2em}pre{margin:0}td{padding:0 .6em;vertical-align:top}"
    ".yes{background:#dfd}.no{background:#fcc}.n{color:#888;text-align:right}"
)


def as_html(files: Sequence[FileCoverage], *, is_whole: bool = False) -> str:
    """One page with every file, its lines coloured; the title counts as `as_text`'s total does."""
    counted = [one for one in files if is_whole or not one.is_shipped]
    parts = [
        "<!doctype html><meta charset=utf-8><title>Coverage of policies</title>",
        f"<style>{_STYLE}</style><h1>Coverage of policies: {percent(counted):.1f}%</h1><ul>",
    ]
    for index, one in enumerate(files):
        name = html.escape(printable(one.file))
        parts.append(f'<li><a href="#f{index}">{name}</a> {percent([one]):.1f}%')
    parts.append("</ul>")
    for index, one in enumerate(files):
        parts.append(f'<h2 id="f{index}">{html.escape(printable(one.file))}</h2><table>')
        for number, line in enumerate(one.text.rstrip("\n").split("\n"), 1):
            count = one.hits.get(number)
            kind = "" if count is None else "yes" if count else "no"
            shown = "" if count is None else str(count)
            parts.append(
                f'<tr class="{kind}"><td class=n>{number}<td class=n>{shown}'
                f"<td><pre>{html.escape(printable_lines(line))}</pre>"
            )
        parts.append("</table>")
    return "\n".join(parts) + "\n"
