"""A supervised worker: a child process that computes answers for a process of a pool.

Owns the exchange of questions and answers between the two. A process of a pool cannot itself be the
supervised one, because the pool knows it by its process id.
"""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Generic, NoReturn, TypeVar

from workbench.cli.supervisor import CHECK_SECONDS, fork, new_progress

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class PolicyEndedError(Exception):
    """A policy exceeded its time or memory, and its process was killed; the message names it."""


class SupervisedWorker(Generic[Question, Answer]):
    """Computes *function* in a child process, which ends with this one at the latest."""

    def __init__(self, function: Callable[[Question], Answer]) -> None:
        ours, theirs = multiprocessing.Pipe()
        worker = fork(new_progress())
        if worker is None:
            ours.close()
            serve(function, theirs)
        theirs.close()
        self._pipe = ours
        self._worker = worker
        self._exit_reason: str | None = None

    def ask(self, question: Question) -> Answer:
        """What *function* returns or raises. Raises `PolicyEndedError`, from then on always."""
        if self._exit_reason is not None:
            raise PolicyEndedError(self._exit_reason)
        try:
            self._pipe.send(question)
            while not self._pipe.poll(CHECK_SECONDS):
                self._worker.check()
            answer, error = self._pipe.recv()
        except (EOFError, OSError):
            reason = self._worker.exit_reason(self._worker.wait())
            self._exit_reason = reason or "a process that simulated died"
            raise PolicyEndedError(self._exit_reason) from None
        if error is not None:
            raise error
        result: Answer = answer
        return result


def serve(function: Callable[[Question], Answer], pipe: Connection) -> NoReturn:
    """Answer until the pipe is closed. Exits in any case: the parent's code must not run twice."""
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
