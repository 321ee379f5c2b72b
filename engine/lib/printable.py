"""Text of others, made safe to show: control characters written out, and an end to its length.

Owns which characters a terminal, a log or a page may take for commands, or shows as nothing, and
how they are written instead. Every writer of text for people asks here.
"""

import re
from typing import Final

LONGEST_TEXT: Final = 1_024
"""Characters of one reason of others that are shown; the rest is cut."""
LONGEST_MESSAGE: Final = 16_384
"""Characters of a message that may hold several."""

# C0, DEL and C1; what orders letters from right to left or joins and parts them unseen; separators
# of lines and paragraphs; halves of characters; tags. Not variation selectors, which emoji have.
_HIDDEN: Final = (
    "\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_CONTROLS: Final = re.compile(f"[\x00-\x1f{_HIDDEN}]")
# A new line is one in these texts, and a tab a tab.
_CONTROLS_IN_LINES: Final = re.compile(f"[\x00-\x08\x0b-\x1f{_HIDDEN}]")


def counted(count: int, noun: str) -> str:
    """`1 pod`, `1,200 pods`: how many there are of what is called *noun*."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def printable(text: str) -> str:
    """*text* on one line, with each control character written out: `\\x1b`, `\\u202e`."""
    return text if text.isprintable() else _CONTROLS.sub(_written_out, text)


def printable_lines(text: str) -> str:
    """The same of text of several lines, which may have tabs.

    JSON stays the JSON that it was: what may be in it is written out as in JSON.
    """
    return text if text.isprintable() else _CONTROLS_IN_LINES.sub(_written_out, text)


def printable_json(document: bytes) -> bytes:
    """A JSON *document* of the same meaning that has no control characters."""
    if document.isascii() and b"\x7f" not in document:
        return document  # an encoder has written out what is below a space
    return printable_lines(document.decode(errors="surrogatepass")).encode()


def short(text: str) -> str:
    """`printable(text)`, cut to `LONGEST_TEXT` characters, as reasons and messages are."""
    shown = printable(text[: LONGEST_TEXT + 1])
    return shown if len(shown) <= LONGEST_TEXT else shown[: LONGEST_TEXT - 4] + " ..."


def message(text: str) -> str:
    """`printable_lines(text)`, cut to `LONGEST_MESSAGE` characters."""
    shown = printable_lines(text[: LONGEST_MESSAGE + 1])
    return shown if len(shown) <= LONGEST_MESSAGE else shown[: LONGEST_MESSAGE - 4] + " ..."


def _written_out(found: re.Match[str]) -> str:
    # Not by `unicode_escape`: a codec is a file, and the sandbox cannot open any.
    code = ord(found[0])
    if code < 0x20:
        return f"\\x{code:02x}"
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
