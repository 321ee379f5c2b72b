"""The changes of the formatter as a unified diff.

Owns the alignment of the two texts. Formatting keeps the lines that are not blank, so these are
paired in order; the general algorithm of `difflib` takes minutes on a large file.
"""

import difflib
from collections.abc import Iterator, Sequence
from typing import Final

_CONTEXT: Final = 3


def format_diff(name: str, before: str, after: str) -> str:
    """How *after*, the formatted text of *before*, differs; empty if it does not."""
    old, new = before.splitlines(), after.splitlines()
    said: list[str] = []
    for group in _Paired(old, new).get_grouped_opcodes(_CONTEXT):
        if not said:
            said += [f"--- {name}", f"+++ {name} (formatted)"]
        first, last = group[0], group[-1]
        said.append(f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@")
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                said += (f" {line}" for line in old[i1:i2])
            else:
                said += (f"-{line}" for line in old[i1:i2])
                said += (f"+{line}" for line in new[j1:j2])
    return "\n".join(said)


def _range(start: int, end: int) -> str:
    """Lines from *start*, counted from 0, to before *end*, as diffs count them."""
    count = end - start
    if count == 1:
        return str(start + 1)
    return f"{start + 1 if count else start},{count}"


class _Paired(difflib.SequenceMatcher[str]):
    """Pairs lines in order if there are as many in both texts; else falls back to `difflib`."""

    def __init__(self, old: list[str], new: list[str]) -> None:
        super().__init__(None, old, new)
        self._old = old
        self._new = new

    def get_matching_blocks(self) -> list[difflib.Match]:
        old, new = list(_paragraphs(self._old)), list(_paragraphs(self._new))
        if len(old) != len(new):
            return super().get_matching_blocks()
        blocks: list[difflib.Match] = []
        for one, other in zip(old, new, strict=True):
            # The blank lines before a line, from the first, and the line itself.
            pairs = [*zip(one[:-1], other[:-1], strict=False), (one[-1], other[-1])]
            for i, j in pairs:
                if i == len(self._old) or self._old[i] != self._new[j]:
                    continue
                end = blocks[-1] if blocks else difflib.Match(0, 0, 0)
                if (end.a + end.size, end.b + end.size) == (i, j):
                    blocks[-1:] = [difflib.Match(end.a, end.b, end.size + 1)]
                else:
                    blocks.append(difflib.Match(i, j, 1))
        return [*blocks, difflib.Match(len(self._old), len(self._new), 0)]


def _paragraphs(lines: Sequence[str]) -> Iterator[range]:
    """Where each line that is not blank is, and the blank ones before it; the end at last."""
    start = 0
    for number, line in enumerate([*lines, "the end"]):
        if line.strip():
            yield range(start, number + 1)
            start = number + 1
