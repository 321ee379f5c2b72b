"""Problems of policies and their configuration, as they are reported to users.

Owns the shape of a problem and of the error that carries all of them. Finding problems is the
work of `check`, `config` and `bundle`; failures while a policy runs are `PolicyFailure`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

# Control characters, which a terminal may interpret.
_CONTROLS: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """*text* with each control character escaped (`\\x1b`): it may quote what others wrote."""
    return _CONTROLS.sub(_spelt_out, text)


def _spelt_out(found: re.Match[str]) -> str:
    # Not by `unicode_escape`: a codec is a file, and the sandbox cannot open any.
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 1 << 8 else f"\\u{code:04x}"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing to correct, and where.

    `line` and `column` count from 1; 0 means that the place is not known. For configuration
    documents the message starts with the path inside the document.
    """

    file: str
    line: int
    column: int
    message: str
    hint: str = ""
    severity: str = "error"

    def __str__(self) -> str:
        place = self.file
        if self.line:
            place += f":{self.line}"
            if self.column:
                place += f":{self.column}"
        text = printable(f"{place}: {self.message}" if place else self.message)
        return f"{text}\nhint: {printable(self.hint)}" if self.hint else text


class PolicyErrors(Exception):
    """A bundle, policy or configuration that cannot be used; carries every problem found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: list[Problem] = sorted(set(problems))
        super().__init__("\n".join(str(p) for p in self.problems))


class SandboxDied(PolicyErrors):
    """The sandbox ended or hung while it loaded policies: their doing, or the machine's."""
