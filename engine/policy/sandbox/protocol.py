"""The messages between the runtime and the sandbox: calls, answers, failures, frames.

Owns plain data only and imports nothing of the trusted side, so that the child process starts
fast and holds nothing that it does not need. A frame is a 4-byte big-endian length, then msgpack.
"""

import dataclasses
import functools
import math
import mmap
import socket
import struct
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec

from engine.core.framework.owner import Owner
from engine.language.hooks import hook_of
from engine.language.verdicts import wire_of
from engine.lib.confinement import Confinement
from engine.lib.deep_json import UNREADABLE
from engine.lib.printable import short
from engine.policy.errors import Problem

MIB: Final = 1 << 20
# More distinct reasons than this in one call, and they are not constants; unless the pod has as
# much in it that reasons may be made of: one for so many characters of what the hook reads of it.
MAX_REASONS: Final = 64
POD_OF_REASON: Final = 8

# A Starlark module path -> its text.
Files: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a policy may use.

    Attributes:
        steps: Starlark instructions per entry (one node, or one pod for per-pod hooks); counted
            in thousands, so that the same text always stops at the same place.
        call_depth: Nested Starlark calls.
        deadline: Seconds that one call (all its entries) may take before the sandbox is killed.
        address_space: Bytes of address space of each sandbox process.
    """

    steps: int = 5_000_000
    call_depth: int = 64
    deadline: float = 2.0
    address_space: int = 512 * MIB


class Call(NamedTuple):
    """A call of one hook of one instance for a pod and, for per-node hooks, many nodes.

    Attributes:
        instance: Index in `Program.instances`.
        hook: The hook's name.
        pod: JSON object of the pod fields that the hook reads; `b"{}"` if it takes no pod.
        nodes: One JSON object of node fields per entry; for `normalize` one JSON int per entry;
            for `score_all` the nodes that the single answer lists; None for per-pod hooks.
        extra: JSON object of the other parameters that the hook names.
        column: While it is sent, the column that `nodes` are of (see `projected`), or -1.
        ids: Then, which of it they are, as 32-bit ints.
    """

    instance: int
    hook: str
    pod: bytes = b"{}"
    nodes: Sequence[bytes] | None = None
    extra: bytes = b"{}"
    column: int = -1
    ids: bytes = b""


_TRANSIENT: Final = frozenset({"deadline", "killed", "memory"})


@dataclass(frozen=True, slots=True)
class PolicyFailure:
    """A hook that gave no verdict for one entry, with the place and the reason.

    `kind` is one of error (the policy raised), type, range (a verdict that is not one), steps,
    depth, deadline, memory, killed (limits). A failure says nothing about the pod or the node, so
    it must not be remembered as a verdict.

    Other parts of a decision that give no answer have failures of their own, made of this one,
    with another `owner`. What comes from the sandbox is always the policy's.
    """

    policy: str
    hook: str
    file: str
    line: int
    column: int
    message: str
    kind: str
    hint: str = ""

    def __post_init__(self) -> None:
        # They quote what policies and the objects that they were given say.
        object.__setattr__(self, "message", short(self.message))
        object.__setattr__(self, "hint", short(self.hint))

    @property
    def owner(self) -> Owner:
        """Whose fault it is."""
        return Owner.POLICY

    @property
    def token(self) -> str:
        """The reason token of a pod whose attempt it costs."""
        return "PolicyFailed"

    @property
    def subject(self) -> str:
        """The object at fault, as in `resourceclaim default/c`; "" if it is none."""
        return ""

    @property
    def is_transient(self) -> bool:
        """True if it cost the sandbox, so that the same input need not fail again."""
        return self.kind in _TRANSIENT

    @property
    def is_timeout(self) -> bool:
        """True if a limit was hit after long work, during which all other pods waited."""
        return self.is_transient or self.kind == "steps"

    def about(self, subject: str) -> "PolicyFailure":
        """The same failure, naming what was judged: `about("node `node-3`")`."""
        head, wanted, tail = self.message.partition(", want ")
        text = f"{head} for {subject}{wanted}{tail}"
        return dataclasses.replace(self, message=text)

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        text = f"{place}: {self.message}"
        return f"{text}\nhint: {self.hint}" if self.hint else text


# A verdict is plain data whose form depends on the hook; see `evaluator`.
Verdict: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class HookSignature:
    """Where a hook is defined and the parameters that it names, in order."""

    params: tuple[str, ...]
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class InstanceImage:
    """One instance as the worker needs it: found and checked by the trusted side."""

    policy: str
    module: str
    arguments: dict[str, Any]
    argument_types: dict[str, str]
    hooks: dict[str, HookSignature]


@dataclass(frozen=True, slots=True)
class Schema:
    """Type texts of the views, by parameter and field, and of the records in them."""

    records: dict[str, dict[str, str]]
    views: dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class ProgramImage:
    """Everything that a worker is given before the first call."""

    files: dict[str, str]
    instances: tuple[InstanceImage, ...]
    limits: Limits
    schema: Schema

    def failure(self, call: Call, kind: str, message: str, hint: str = "") -> PolicyFailure:
        """A failure of *call*'s hook, at the place where it is defined."""
        instance = self.instances[call.instance]
        signature = instance.hooks[call.hook]
        place = (instance.module, signature.line, signature.column)
        return PolicyFailure(instance.policy, call.hook, *place, message, kind, hint)


_PACKED_BYTES: Final = 8
# What stands for the score None among packed verdicts; below every score.
NO_SCORE: Final = -(1 << 63) + 2


# A frame that names more objects than this is refused before they are made: they take many times
# its size, in the memory of the scheduler. Honest ones stay far below.
_MOST_ANSWERS: Final = msgspec.Meta(max_length=1 << 16)
_MOST_FAILURES: Final = msgspec.Meta(max_length=1 << 17)
_MOST_TEXTS: Final = msgspec.Meta(max_length=1 << 18)
_MOST_PROBLEMS: Final = msgspec.Meta(max_length=1 << 14)
_NOT_NEGATIVE: Final = msgspec.Meta(ge=0)


class RawAnswer(NamedTuple):
    """One call's answer before decoding: a JSON list with null where `failures` has the entry.

    `reasons` are the distinct reasons in it, for filters; one more than `most_reasons` at most.
    With `packed` it is 64-bit ints, one per entry: scores, of which `NO_SCORE` is None, or places
    in `verdicts`, which then has each distinct verdict once. There are no failures among those.
    `nanoseconds` is how long it took, if that was asked.
    """

    verdicts: bytes
    failures: Annotated[list[tuple[int, PolicyFailure]], _MOST_FAILURES]
    reasons: Annotated[Sequence[str], _MOST_TEXTS] = ()
    packed: bytes = b""
    nanoseconds: Annotated[int, _NOT_NEGATIVE] = 0


Answers: TypeAlias = Annotated[list[RawAnswer], _MOST_ANSWERS]
"""What a frame of answers has."""


def most_reasons(call: Call) -> int:
    """How many distinct reasons the answer to *call* may have."""
    if len(call.pod) < MAX_REASONS * POD_OF_REASON:  # of characters it has no more
        return MAX_REASONS
    return max(MAX_REASONS, len(call.pod.decode()) // POD_OF_REASON)


class Packed(Sequence[Any]):
    """Verdicts as an array, which reads like the list of them.

    `numbers` are scores if there are no `kinds`, else places in `kinds`, the distinct verdicts.
    """

    __slots__ = ("kinds", "numbers")

    def __init__(self, numbers: "array[int]", kinds: list[Verdict]) -> None:
        self.numbers = numbers
        self.kinds = kinds

    def plain(self) -> list[Verdict]:
        """The list."""
        if self.kinds:
            return [self.kinds[place] for place in self.numbers.tolist()]
        return [None if number == NO_SCORE else number for number in self.numbers.tolist()]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        return self.plain()[index]

    def __iter__(self) -> Iterator[Verdict]:
        return iter(self.plain())

    def __eq__(self, other: object) -> bool:
        return self.plain() == (other.plain() if isinstance(other, Packed) else other)

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        return repr(self.plain())


def unpacked(answer: RawAnswer) -> RawAnswer:
    """The same answer without `packed`."""
    if not answer.packed:
        return answer
    verdicts = msgspec.json.encode(list(decode_answer(answer)))
    return RawAnswer(verdicts, answer.failures, answer.reasons)


def decode_answer(answer: RawAnswer) -> Sequence[Verdict | PolicyFailure]:
    """The verdicts of one call, one per entry, failures in their places."""
    if answer.packed:
        kinds = msgspec.json.decode(answer.verdicts)
        return Packed(array("q", answer.packed), kinds)
    verdicts: list[Verdict | PolicyFailure] = msgspec.json.decode(answer.verdicts)
    for index, failure in answer.failures:
        verdicts[index] = failure
    return verdicts


_KINDS_OF_FAILURE: Final = frozenset(
    {"error", "type", "range", "steps", "depth", "deadline", "memory", "killed"}
)


@functools.cache
def _decoder(hook: str, *, is_normalized: bool) -> Callable[[bytes], list[Any]]:
    """A decoder of the verdicts of *hook*; it takes longer to make than most answers to decode."""
    wire = wire_of(hook_of(hook).forms_for(is_normalized=is_normalized))
    return msgspec.json.Decoder(list[wire]).decode  # type: ignore[valid-type]  # made here


def check_answer(answer: RawAnswer, call: Call, count: int, image: ProgramImage) -> None:
    """Raises `msgspec.DecodeError` unless *answer* has *count* verdicts of *call*'s hook.

    The sender runs policies and may be hostile. It could give any legal verdict, so this does not
    ask if a verdict is true: it keeps what this process cannot work with away from it.
    """
    hook = hook_of(call.hook)
    is_normalized = "normalize" in image.instances[call.instance].hooks
    try:
        kinds = _decoder(hook.name, is_normalized=is_normalized)(answer.verdicts)
    except UNREADABLE as error:
        raise msgspec.DecodeError(f"verdicts that cannot be read: {error}") from error
    failed: set[int] = set()
    if answer.packed:
        if answer.failures:
            raise msgspec.DecodeError("failures next to numbers")
        bounds = hook.forms_for(is_normalized=is_normalized)[0].bounds
        _check_numbers(answer.packed, kinds, count, bounds, may_be_none=hook.may_return_none)
    elif len(kinds) != count:
        raise msgspec.DecodeError(f"want {count} verdicts, got {len(kinds)}")
    elif answer.failures:
        failed = _failed(answer, call, count, image)
    if not hook.may_return_none and None in kinds:
        missing = (place for place, kind in enumerate(kinds) if kind is None)
        if any(place not in failed for place in missing):
            raise msgspec.DecodeError("no verdict")


def _check_numbers(
    packed: bytes,
    kinds: list[Any],
    count: int,
    bounds: tuple[int, int] | None,
    *,
    may_be_none: bool,
) -> None:
    """Raises unless *packed* are *count* scores within *bounds*, or places in *kinds*."""
    if len(packed) != count * _PACKED_BYTES:
        raise msgspec.DecodeError(f"want {count} numbers, got {len(packed) / _PACKED_BYTES:g}")
    if (bounds is None) is not bool(kinds):
        raise msgspec.DecodeError("numbers that are neither scores nor places")
    low, high = bounds or (0, len(kinds) - 1)
    numbers: Sequence[int] = array("q", packed)
    if numbers and not (low <= min(numbers) and max(numbers) <= high):
        if bounds is not None and may_be_none:
            numbers = [number for number in numbers if number != NO_SCORE]
        if not all(low <= number <= high for number in numbers):
            raise msgspec.DecodeError("a number out of range")


def _failed(answer: RawAnswer, call: Call, count: int, image: ProgramImage) -> set[int]:
    """The entries that failed according to *answer*. Raises for a failure that cannot be."""
    wanted = image.instances[call.instance].policy, call.hook
    for index, failure in answer.failures:
        if not 0 <= index < count:
            raise msgspec.DecodeError("a failure of an entry that is not there")
        if (failure.policy, failure.hook) != wanted or failure.kind not in _KINDS_OF_FAILURE:
            raise msgspec.DecodeError("a failure of another policy, hook or kind")
    return {index for index, _ in answer.failures}


def encode_answer(entries: Sequence[Verdict | PolicyFailure]) -> RawAnswer:
    """The answer that `decode_answer` makes *entries* of."""
    failures = [(i, entry) for i, entry in enumerate(entries) if isinstance(entry, PolicyFailure)]
    plain = [None if isinstance(entry, PolicyFailure) else entry for entry in entries]
    return RawAnswer(msgspec.json.encode(plain), failures)


# --- the wire ----------------------------------------------------------------------------------


class Greeting(msgspec.Struct, frozen=True, omit_defaults=True):
    """A child's report while it loads its program.

    The first has the `confinement` that is in force. `loading` is the instance that it is about to
    load; then it is `ready`, or there are `problems` and it ends.
    """

    confinement: Confinement | None = None
    loading: int = -1
    ready: bool = False
    problems: Annotated[list[Problem], _MOST_PROBLEMS] = []


class ChannelClosedError(Exception):
    """The other side is gone."""


_HEADER: Final = 4
_CHUNK: Final = 1 << 18
# A larger frame is refused: the memory for it would be ours.
_MOST: Final = 1 << 28
_MICROS: Final = 1_000_000
_TIMEVAL: Final = struct.Struct("ll")


class Channel:
    """Frames over a stream socket. For one reader and one writer.

    A frame of more than *most* bytes is taken for the end.

    Receiving blocks. Time-outs are the kernel's: with Python's own, each frame would take more
    system calls.
    """

    def __init__(self, sock: socket.socket, most: int = _MOST) -> None:
        self._socket = sock
        self._most = most
        # What came and was not taken: `_buffer[_start:_end]`.
        self._buffer = bytearray(_CHUNK)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._encode = msgspec.msgpack.Encoder().encode_into
        self._out = bytearray(_CHUNK)
        self._timeout: float | None = None
        sock.settimeout(None)

    def fileno(self) -> int:
        """The socket's descriptor, to wait for several channels."""
        return self._socket.fileno()

    @property
    def has_more(self) -> bool:
        """True if bytes came that are not taken yet."""
        return self._end > self._start

    def wait_at_most(self, seconds: float | None) -> None:
        """From now on, give up when the other side does nothing for *seconds*; None: wait.

        So does a frame that has begun and is not whole after as long.
        """
        if seconds != self._timeout:
            self._timeout = seconds
            whole, part = divmod(0 if seconds is None else max(1, int(seconds * _MICROS)), _MICROS)
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self._socket.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL.pack(whole, part))

    def send(self, message: Any) -> None:
        """Send one frame. Raises `ChannelClosedError`, or `TimeoutError` if it is not taken."""
        out = self._out
        self._encode(message, out, _HEADER)
        out[:_HEADER] = (len(out) - _HEADER).to_bytes(_HEADER, "big")
        try:
            self._socket.sendall(out)
        except BlockingIOError as error:
            raise TimeoutError("the other side does not read") from error
        except OSError as error:
            raise ChannelClosedError(str(error)) from error
        finally:
            if len(out) > 4 * _CHUNK:
                self._out = bytearray(_CHUNK)

    def receiver(self, kind: Any) -> Callable[[], Any]:
        """A function that gives the next frame, decoded as *kind*.

        It raises `TimeoutError`, `ChannelClosedError` when the other side is gone, and
        `msgspec.DecodeError` for a frame that is not a *kind*.
        """
        decode = msgspec.msgpack.Decoder(kind).decode

        def receive() -> Any:
            start, end = self._frame()
            try:
                return decode(self._view[start:end])
            except UNREADABLE as error:
                raise msgspec.DecodeError(f"a frame that is no message: {error}") from error
            finally:
                self._start = end

        return receive

    def close(self) -> None:
        """Close the socket; the other side sees the end."""
        self._socket.close()

    def _frame(self) -> tuple[int, int]:
        """Where in the buffer the next frame is."""
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._buffer) > 4 * _CHUNK:
                self._resize(_CHUNK)  # a large answer must not keep its memory for ever
        needed = _HEADER
        until = math.inf
        while True:
            have = self._end - self._start
            if have >= _HEADER:
                head = self._view[self._start : self._start + _HEADER]
                needed = _HEADER + int.from_bytes(head, "big")
                if needed > self._most:
                    raise ChannelClosedError(f"the other side announced {needed} bytes")
                if have >= needed:
                    return self._start + _HEADER, self._start + needed
            if self._start + needed > len(self._buffer) or self._end == len(self._buffer):
                self._resize(max(needed, _CHUNK))
            if time.monotonic() > until:
                raise TimeoutError("the other side sends too slowly")
            self._read()
            if until == math.inf and self._timeout is not None:
                until = time.monotonic() + self._timeout

    def _read(self) -> None:
        try:
            count = self._socket.recv_into(self._view[self._end :])
        except BlockingIOError as error:
            raise TimeoutError("the other side does not answer") from error
        except OSError as error:
            raise ChannelClosedError(str(error)) from error
        if not count:
            raise ChannelClosedError("the other side closed")
        self._end += count

    def _resize(self, size: int) -> None:
        """Move what is not taken to the beginning of a buffer of at least *size*."""
        rest = bytes(self._view[self._start : self._end])
        self._view.release()
        if size != len(self._buffer):
            self._buffer = bytearray(max(size, len(rest)))
        self._buffer[: len(rest)] = rest
        self._view = memoryview(self._buffer)
        self._start, self._end = 0, len(rest)


class Progress:
    """Which call of a request a child is at: a number in memory that both processes see.

    It costs no message, and it is still there when the child is not.
    """

    SIZE: Final = 4

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, self.SIZE)

    @property
    def position(self) -> int:
        """The index of the call. Written by a process that is not trusted."""
        return int.from_bytes(self._memory[: self.SIZE], "big")

    @position.setter
    def position(self, index: int) -> None:
        self._memory[: self.SIZE] = index.to_bytes(self.SIZE, "big")

    def close(self) -> None:
        """Release the memory."""
        self._memory.close()
