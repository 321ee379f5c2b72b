"""Problems of policies and their configuration, as they are reported to users.

Owns the shape of a problem and of the error that carries all of them. Finding problems is the
work of `check`, `config` and `bundle`; failures while a policy runs are `PolicyFailure`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from engine.lib.printable import printable


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
