"""A text that does to terminals, logs and pages what it should not, and how to find it there."""

import re
from typing import Final

#: A window title, a colour, letters from right to left, another line, C1, what is not seen, markup.
HOSTILE: Final = (
    "a\x1b]0;owned\x07\x1b[31mred\u202e\r\nfake: ok\x9b1m\u2028\u2066\u200b\u200d\ufeff\x7f\x00"
    "\U000e0041[bold red]b[/bold red][link=x]c[/link]<b>d</b>"
)
#: The same where a path is wanted, which has no zero and no slash.
HOSTILE_NAME: Final = "a\x1b]0;owned\x07\x1b[31mred\u202e\r\nfake\x9b1m\u2028\u200b\ufeff[red]x"

_RAW: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)
_OWN_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


def raw_in(text: str) -> list[str]:
    """The control characters of *text* but for new lines and tabs."""
    return _RAW.findall(text)


def without_colours(text: str) -> str:
    """*text* without what sets colours, for output that has some of its own."""
    return _OWN_COLOURS.sub("", text)


def starlark(text: str) -> str:
    """*text* as a literal of Starlark's."""
    return '"' + "".join(f"\\U{ord(c):08x}" for c in text) + '"'
