"""The originals of fair sharing as child processes: cases in, their answers out."""

from collections.abc import Iterable
from typing import Any, Final

from tests.json_lines import JsonLines, Plain
from tests.scripts import go_program, script

ORIGINALS: Final[tuple[str, ...]] = script("devkit/tools/go_programs.py").ORIGINALS


class Original(JsonLines):
    """The code of one of `ORIGINALS`, started once and asked often.

    A case is a tree of queues: `total`, `args`, and `queues` by their paths, each with its
    `attributes`, `pods` that run and a `head` that waits. Cpu is in millicores. What is answered is
    at the function `answer` of the original's file in `tests/fairness/oracle`.
    """

    def __init__(self, name: str) -> None:
        super().__init__([go_program(f"fairness-{name}")])

    def answers(self, cases: Iterable[Plain]) -> list[Any]:
        """The answer to each of *cases*. Raises `ValueError` for one that has none."""
        found = []
        for answer in self.ask(cases):
            if "error" in answer:
                raise ValueError(answer["error"])
            found.append(answer["answer"])
        return found
