"""A process for commands that run policies themselves, and the one that watches it.

Owns what becomes of a policy that takes all time or memory in such a command: its process is ended
and the policy named. Nothing else ends a call of the interpreter's own functions: it takes no
signal, gives no other thread a turn and counts no steps. A unit test that ends its process fails,
and the others run in the next one, which begins again from the start.

Production asks policies through `policy.sandbox`, whose walls are those of untrusted text; this
bounds time and memory alone, and costs nothing where a simulation asks a million times.
"""

import os
import select
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import click

from engine.lib.parent_death import die_with
from engine.policy import whereabouts
from engine.policy.whereabouts import CALL, LEVELS, TEST, Whereabouts

#: What one call of a hook may take at least: more than in a scheduler, as lines may be counted.
CALL_SECONDS = 30.0
# And what its process may grow by meanwhile, or during one test.
_MEMORY: Final = 1 << 30
LOOK_SECONDS: Final = 0.1
#: The exit code of a command that Ctrl-C ended.
INTERRUPTED: Final = 130
# After so many looks a signal is passed on that came here alone; those at a terminal come to both.
_PASSING_LOOKS: Final = 3
# After so many, what was going on at a signal has not taken notice of it.
_DEAF_LOOKS: Final = 10
_EXIT_CODE: Final = 2

# What kills a process over what it does, and what that means. SIGKILL: the machine has no memory.
_DEATHS: Final = {
    signal.SIGABRT: "ran out of memory",
    signal.SIGBUS: "crashed the interpreter",
    signal.SIGKILL: "was ended by SIGKILL, as a machine does that runs out of memory",
    signal.SIGSEGV: "crashed the interpreter, as values that nest too deep do",
}

Handlers = Mapping[signal.Signals, Any]

#: Tests (`file::name`) that ended a process before this one, and why.
lost: Mapping[str, str] = {}
#: How many results of tests they have told, from the first on.
told: int = 0


def guard() -> None:
    """Have what follows run in a process of its own, with this one watching.

    Returns in the new process. The one that called ends with it, by the same code or signal; if a
    policy had to be ended, with code 2 and its name. To be called before there are threads.
    """
    global lost, told
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    signal.pthread_sigmask(signal.SIG_BLOCK, before)
    while True:
        place = new_place()
        reading, writing = os.pipe()
        ward = fork(place)
        if ward is None:
            os.close(reading)
            _answer_signals(before, writing)
            return
        os.close(writing)
        status = _watch(ward, reading, before)
        os.close(reading)
        death = ward.death(status)
        if death is None:
            _end_like(status)
        # What ended an earlier run may have been mended since, and its results are of the past.
        lost, told = ({}, 0) if place.runs else (lost, max(told, place.told))
        test = place.text(TEST)
        if ward.is_interrupted or not test or test in lost:
            _end_over(death, INTERRUPTED if ward.is_interrupted else _EXIT_CODE)
        lost = {**lost, test: death}


def new_place() -> Whereabouts:
    """Where a process that is forked from now on can tell what it is at."""
    place = Whereabouts()
    place.allow(CALL, CALL_SECONDS, _MEMORY)
    place.allow(TEST, 0.0, _MEMORY)
    return place


def fork(place: Whereabouts) -> "Ward | None":
    """Fork: None in the new process, which tells *place* what it is at; there, who watches it."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return Ward(pid, place)
    die_with(parent)
    whereabouts.current = place
    return None


class Ward:
    """A process that is watched: what it is at for how long, and what it has to be ended for."""

    def __init__(self, pid: int, place: Whereabouts) -> None:
        self._pid = pid
        self._place = place
        self._seen = dict.fromkeys(LEVELS, 0)
        self._looks = dict.fromkeys(LEVELS, 0)
        self._memory = dict.fromkeys(LEVELS, 0)
        self._death: str | None = None
        self.is_interrupted = False
        # A signal that came, the looks since then, and what was going on.
        self._signal = 0
        self._looks_since = 0
        self._at_signal: dict[int, int] = {}
        # Signals that came to the process itself, and the looks since then.
        self._heard: dict[int, int] = {}

    def look(self) -> None:
        """See what it is at, and end it if that has lasted, or taken, too much.

        Time is counted in looks, so that none passes while both are stopped.
        """
        self._pass_on()
        resident = _resident_bytes(self._pid)
        for level in LEVELS:
            number = self._place.number(level)
            if number != self._seen[level]:
                self._seen[level] = number
                self._looks[level] = 0
                self._memory[level] = resident
            elif number:
                self._looks[level] += 1
                seconds = self._place.seconds(level)
                if self._looks[level] * LOOK_SECONDS > seconds:
                    self._end(self._late(level, seconds))
                elif resident - self._memory[level] > self._place.memory(level):
                    most = self._place.memory(level) >> 20
                    self._end(self._of_call(f"took more than {most} MiB of memory"))

    def forward(self, number: int, frame: object) -> None:
        """A signal came here: a terminal sends it to both, others to one."""
        self._signal, self._looks_since = number, 0
        self._at_signal = {level: self._place.number(level) for level in LEVELS}

    def hear(self, numbers: bytes) -> None:
        """Signals came to the process."""
        self._heard.update(dict.fromkeys(numbers, 0))

    def wait(self) -> int:
        """The status that it ends with."""
        return os.waitpid(self._pid, 0)[1]

    def death(self, status: int) -> str | None:
        """What it died of, if a policy did that."""
        if self._death is None and os.WIFSIGNALED(status) and any(map(self._place.number, LEVELS)):
            how = _DEATHS.get(signal.Signals(os.WTERMSIG(status)))
            return None if how is None else self._of_call(how)
        return self._death

    def _pass_on(self) -> None:
        """See that a signal that came here came there, and is taken notice of."""
        if self._signal:
            self._looks_since += 1
            if self._looks_since == _PASSING_LOOKS and self._signal not in self._heard:
                os.kill(self._pid, self._signal)
            elif self._looks_since > _DEAF_LOOKS:
                self._signal = 0
                for level, number in self._at_signal.items():
                    if number and number == self._place.number(level):
                        self.is_interrupted = True
                        self._end(self._of_call("was interrupted"))
                        break
        self._heard = {one: looks + 1 for one, looks in self._heard.items() if looks < _DEAF_LOOKS}

    def _end(self, death: str) -> None:
        if self._death is None:
            self._death = death
            os.kill(self._pid, signal.SIGKILL)

    def _late(self, level: int, seconds: float) -> str:
        if level == CALL:
            return self._of_call(f"did not answer within {seconds:g} s")
        call = self._place.text(CALL) or "a call that cannot be interrupted"
        return f"took longer than {seconds:g} s, in {call}"

    def _of_call(self, how: str) -> str:
        """*how* with the call that it is said of, if there is one."""
        call = self._place.text(CALL)
        return f"{call} {how}" if call else how


def _answer_signals(handlers: Handlers, pipe: int) -> None:
    """Take signals as *handlers* say, and say in *pipe* that they have come.

    That is said at once, whatever the interpreter is busy with.
    """
    os.set_blocking(pipe, False)
    signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)


def _watch(ward: Ward, pipe: int, handlers: Handlers) -> int:
    """Look after *ward* until it ends, and pass signals on; its status.

    *pipe* says what signals it got itself, and that it ended. What is ignored stays ignored.
    """
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, ward.forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    try:
        while True:
            if not poll.poll(LOOK_SECONDS * 1000):
                ward.look()
            elif numbers := os.read(pipe, 4096):
                ward.hear(numbers)
            else:
                return ward.wait()
    finally:
        # What comes now is for the next one.
        signal.pthread_sigmask(signal.SIG_BLOCK, handlers)


def _resident_bytes(pid: int) -> int:
    """Memory of a process; 0 where that cannot be told."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _end_like(status: int) -> NoReturn:
    """End this process as another one with this status did."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
        os._exit(128 + number)  # the first process of a container takes no signal
    os._exit(os.WEXITSTATUS(status))


def _end_over(death: str, code: int) -> NoReturn:
    """End this process because of a policy."""
    if sys.stderr.isatty():
        # A progress bar hides the cursor, and was not asked to show it again.
        click.echo("\r\x1b[K\x1b[?25h", err=True, nl=False)
    click.ClickException(death).show()
    os._exit(code)
