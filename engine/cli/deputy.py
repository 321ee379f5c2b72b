"""A process that computes one thing after the other for the process of a pool, which watches it.

Owns the questions and answers between the two. A process of a pool cannot be the watched one: the
pool knows it by its id.
"""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Generic, NoReturn, TypeVar

from engine.cli.guard import LOOK_SECONDS, fork, new_place

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class PolicyEndedError(Exception):
    """A policy took all time or memory, and was ended; the message names it."""


class Deputy(Generic[Question, Answer]):
    """*function*, computed by another process, that lives as long as this one at most."""

    def __init__(self, function: Callable[[Question], Answer]) -> None:
        ours, theirs = multiprocessing.Pipe()
        ward = fork(new_place())
        if ward is None:
            ours.close()
            serve(function, theirs)
        theirs.close()
        self._pipe = ours
        self._ward = ward
        self._death: str | None = None

    def ask(self, question: Question) -> Answer:
        """What *function* returns or raises. Raises `PolicyEndedError`, from then on always."""
        if self._death is not None:
            raise PolicyEndedError(self._death)
        try:
            self._pipe.send(question)
            while not self._pipe.poll(LOOK_SECONDS):
                self._ward.look()
            answer, error = self._pipe.recv()
        except (EOFError, OSError):
            death = self._ward.death(self._ward.wait())
            self._death = death or "a process that simulated died"
            raise PolicyEndedError(self._death) from None
        if error is not None:
            raise error
        result: Answer = answer
        return result


def serve(function: Callable[[Question], Answer], pipe: Connection) -> NoReturn:
    """Answer until nobody asks. Whatever happens, this process does not go on as its parent."""
    try:
        while True:
            question = pipe.recv()
            answer: tuple[Answer | None, Exception | None]
            try:
                answer = function(question), None
            except Exception as error:
                answer = None, error
            pipe.send(answer)
    except EOFError:
        os._exit(0)
    finally:
        os._exit(1)
