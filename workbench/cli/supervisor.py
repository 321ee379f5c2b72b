"""Supervision of commands that run policies in their own process.

Such a command runs in a forked worker, and the process that was started watches it. If a policy
exceeds its time or memory, the worker is killed and the policy named. Nothing less stops a call of
the interpreter's own functions: during it the worker handles no signals, runs no other thread and
counts no steps. A unit test that ends its worker fails, and the remaining tests run in a new
worker, which starts over.

This bounds time and memory only, and costs nothing where a simulation makes a million calls. The
scheduler itself runs policies in `policy.sandbox`, which confines untrusted code.
"""

import os
import select
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import click

from engine.lib.parent_death import die_with
from engine.policy import current_hook
from engine.policy.current_hook import CALL, LEVELS, TEST, CurrentHook

#: Time limit of one call of a hook. Longer than in a scheduler, because coverage slows calls down.
CALL_SECONDS = 30.0
# How much a worker may grow during one call, or during one test.
_MEMORY: Final = 1 << 30
CHECK_SECONDS: Final = 0.1
#: The exit code of a command that was interrupted with Ctrl-C.
INTERRUPTED: Final = 130
# A terminal sends a signal to both processes, `kill` to the supervisor alone. After this many
# checks a signal that the worker has not reported is forwarded to it.
_FORWARD_CHECKS: Final = 3
# After this many checks a call that still runs has ignored the signal.
_IGNORED_CHECKS: Final = 10
_EXIT_CODE: Final = 2

# Signals that end a worker because of what it runs. SIGKILL comes from the kernel's OOM killer.
_EXIT_REASONS: Final = {
    signal.SIGABRT: "ran out of memory",
    signal.SIGBUS: "crashed the interpreter",
    signal.SIGKILL: "was killed by SIGKILL, probably because the machine ran out of memory",
    signal.SIGSEGV: "crashed the interpreter, probably by values that nest too deeply",
}

Handlers = Mapping[signal.Signals, Any]

#: Tests (`file::name`) that ended an earlier worker, and why.
failed_tests: Mapping[str, str] = {}
#: How many test results the earlier workers have printed, counted from the first test.
reported: int = 0


def supervise() -> None:
    """Fork, continue in the worker, and watch it from the calling process.

    Returns in the worker only. The calling process exits with the worker's code or signal, or with
    code 2 and a message if a policy had to be stopped. Call it before any thread is started.
    """
    global failed_tests, reported
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    signal.pthread_sigmask(signal.SIG_BLOCK, before)
    while True:
        progress = new_progress()
        reading, writing = os.pipe()
        worker = fork(progress)
        if worker is None:
            os.close(reading)
            _handle_signals(before, writing)
            return
        os.close(writing)
        status = _watch(worker, reading, before)
        os.close(reading)
        reason = worker.exit_reason(status)
        if reason is None:
            _exit_like(status)
        # With `--watch`, policies may have changed since an earlier run, and its results are void.
        if progress.runs:
            failed_tests, reported = {}, 0
        else:
            reported = max(reported, progress.reported)
        test = progress.text(TEST)
        if worker.is_interrupted or not test or test in failed_tests:
            _exit_because(reason, INTERRUPTED if worker.is_interrupted else _EXIT_CODE)
        failed_tests = {**failed_tests, test: reason}


def new_progress() -> CurrentHook:
    """Shared memory in which a process that is forked afterwards records what it is running."""
    progress = CurrentHook()
    progress.allow(CALL, CALL_SECONDS, _MEMORY)
    progress.allow(TEST, 0.0, _MEMORY)
    return progress


def fork(progress: CurrentHook) -> "Worker | None":
    """Fork a process that records in *progress*: None in it, its `Worker` in the calling one."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return Worker(pid, progress)
    die_with(parent)
    current_hook.current = progress
    return None


class Worker:
    """A watched child process, and how long it has been running the same call or test."""

    def __init__(self, pid: int, progress: CurrentHook) -> None:
        self._pid = pid
        self._progress = progress
        self._seen = dict.fromkeys(LEVELS, 0)
        self._checks = dict.fromkeys(LEVELS, 0)
        self._memory = dict.fromkeys(LEVELS, 0)
        self._reason: str | None = None
        self.is_interrupted = False
        # A signal that the supervisor received, the checks since, and what was running then.
        self._signal = 0
        self._checks_since = 0
        self._at_signal: dict[int, int] = {}
        # Signals that the worker received itself, and the checks since.
        self._received: dict[int, int] = {}

    def check(self) -> None:
        """Kill the worker if what it runs exceeds its time or memory.

        Time is counted in checks, so that none passes while both processes are stopped.
        """
        self._forward_signal()
        resident = _resident_bytes(self._pid)
        for level in LEVELS:
            number = self._progress.number(level)
            if number != self._seen[level]:
                self._seen[level] = number
                self._checks[level] = 0
                self._memory[level] = resident
            elif number:
                self._checks[level] += 1
                seconds = self._progress.seconds(level)
                if self._checks[level] * CHECK_SECONDS > seconds:
                    self._kill(self._timeout(level, seconds))
                elif resident - self._memory[level] > self._progress.memory(level):
                    most = self._progress.memory(level) >> 20
                    self._kill(self._of_call(f"took more than {most} MiB of memory"))

    def on_signal(self, number: int, frame: object) -> None:
        """Signal handler of the supervisor."""
        self._signal, self._checks_since = number, 0
        self._at_signal = {level: self._progress.number(level) for level in LEVELS}

    def note_received(self, numbers: bytes) -> None:
        """Remember that the worker itself has received the signals *numbers*."""
        self._received.update(dict.fromkeys(numbers, 0))

    def wait(self) -> int:
        """Wait for the worker's end; its status."""
        return os.waitpid(self._pid, 0)[1]

    def exit_reason(self, status: int) -> str | None:
        """Why a policy ended the worker; None if it ended for another reason."""
        is_killed = self._reason is None and os.WIFSIGNALED(status)
        if is_killed and any(map(self._progress.number, LEVELS)):
            reason = _EXIT_REASONS.get(signal.Signals(os.WTERMSIG(status)))
            return None if reason is None else self._of_call(reason)
        return self._reason

    def _forward_signal(self) -> None:
        """Forward a signal that only the supervisor received, and kill a call that ignores it."""
        if self._signal:
            self._checks_since += 1
            if self._checks_since == _FORWARD_CHECKS and self._signal not in self._received:
                os.kill(self._pid, self._signal)
            elif self._checks_since > _IGNORED_CHECKS:
                self._signal = 0
                for level, number in self._at_signal.items():
                    if number and number == self._progress.number(level):
                        self.is_interrupted = True
                        self._kill(self._of_call("was interrupted"))
                        break
        self._received = {
            one: checks + 1 for one, checks in self._received.items() if checks < _IGNORED_CHECKS
        }

    def _kill(self, reason: str) -> None:
        if self._reason is None:
            self._reason = reason
            os.kill(self._pid, signal.SIGKILL)

    def _timeout(self, level: int, seconds: float) -> str:
        if level == CALL:
            return self._of_call(f"did not answer within {seconds:g} s")
        call = self._progress.text(CALL) or "a call that cannot be interrupted"
        return f"took longer than {seconds:g} s, in {call}"

    def _of_call(self, what: str) -> str:
        """*what* with the call that it concerns, if any."""
        call = self._progress.text(CALL)
        return f"{call} {what}" if call else what


def _handle_signals(handlers: Handlers, pipe: int) -> None:
    """Install *handlers*, and write each signal to *pipe*.

    The C-level handler writes it, even while the interpreter is busy.
    """
    os.set_blocking(pipe, False)
    signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)


def _watch(worker: Worker, pipe: int, handlers: Handlers) -> int:
    """Check *worker* until it ends, and forward signals; its status.

    *pipe* carries the signals that the worker received, and is closed by its end. Signals that the
    supervisor ignores stay ignored.
    """
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, worker.on_signal)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    try:
        while True:
            if not poll.poll(CHECK_SECONDS * 1000):
                worker.check()
            elif numbers := os.read(pipe, 4096):
                worker.note_received(numbers)
            else:
                return worker.wait()
    finally:
        # Signals from now on are for the next worker.
        signal.pthread_sigmask(signal.SIG_BLOCK, handlers)


def _resident_bytes(pid: int) -> int:
    """Resident memory of a process; 0 without `/proc`."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _exit_like(status: int) -> NoReturn:
    """Exit with the code or signal of *status*."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
        os._exit(128 + number)  # PID 1 of a container is not killed by a default signal action
    os._exit(os.WEXITSTATUS(status))


def _exit_because(reason: str, code: int) -> NoReturn:
    """Exit with *code* and *reason* as the message."""
    if sys.stderr.isatty():
        # A progress bar of the killed worker has hidden the cursor.
        click.echo("\r\x1b[K\x1b[?25h", err=True, nl=False)
    click.ClickException(reason).show()
    os._exit(code)
