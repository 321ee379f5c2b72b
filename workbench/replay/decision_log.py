"""Reads a decision log.

Owns the order of its lines, and what is said of one that is damaged. Writing them, and the names of
its files, are `engine.recording.log_writer`'s, the
format of entries `engine.recording.entries`', and applying them to a cache `replay`'s.
"""

import contextlib
import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from engine.files.text_places import FileError
from engine.lib.deep_json import UNREADABLE
from engine.lib.open_files import allow_open_files
from engine.recording.entries import UNRECORDED
from engine.recording.log_writer import FORMAT, log_files, number_of

NO_TEXT = msgspec.Raw(b"null")
# Stands for a line that is cut off.
_CUT: Final = b""
# Files that are open in addition to those of a log.
_OTHER_FILES: Final = 64


class LogError(FileError):
    """A log that cannot be read; the message starts with its path."""


class Line(msgspec.Struct, rename={"event": "e", "number": "n", "at": "t", "pod_hash": "podHash"}):
    """An entry as read; see `entries` for which kind has what.

    `place` is its `file:line`; `lacks` says what is missing before it, "" if nothing is.
    """

    number: int
    at: float
    event: str
    format: int = 0
    version: str = ""
    reason: str = ""
    lost: int = 0
    object: msgspec.Raw = NO_TEXT
    kind: str = ""
    of: str = ""
    key: str = ""
    keys: list[str] = []
    uid: str = ""
    node: str = ""
    annotations: dict[str, str] = {}
    undone: bool = False
    facts: msgspec.Raw = NO_TEXT
    labels: list[str] = []
    minor: int = UNRECORDED
    gates: list[str] = []
    kinds: dict[str, str] = {}
    pods: list[tuple[str, str]] = []
    revision: str = ""
    files: dict[str, str] = {}
    config: str | None = None
    state: str = ""
    held: list[str] = []
    queues: int | None = None
    pod: str = ""
    pod_hash: str = ""
    verdict: msgspec.Raw = NO_TEXT
    answers: list[dict[str, Any]] = []
    member: bool = False
    error: str = ""
    place: str = ""
    lacks: str = ""


@dataclass
class Damage:
    """What to report about a log from which entries are missing.

    Attributes:
        cuts: Where a file ends in the middle of an entry, which is left out: `file:line`.
        missing: What is not there between two entries or files, each with the place after it.
        without_queues: The files that lack objects which add queues to a tree: recorded by an older
            version.
    """

    cuts: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    without_queues: list[str] = field(default_factory=list)


class _Head(msgspec.Struct, rename={"event": "e"}):
    event: str = ""


def is_log(path: Path) -> bool:
    """True for a recorded log, a file or a directory of them; also for one that cannot be read.

    A file is one by its name or its first entry: reading it reports what is wrong with the rest.
    """
    if path.is_dir():
        return bool(log_files(path))
    if not path.is_file():
        return False  # a pipe can be read once only
    if number_of(path) is not None:
        return True
    try:
        with path.open("rb") as raw:
            first = next(_lines(path, raw), _CUT)
        return msgspec.json.decode(first, type=_Head).event == "log"
    except (LogError, OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def read_log(path: Path, damage: Damage | None = None) -> Iterator[Line]:
    """The entries of a file, or of all files of a directory in order.

    A file that ends in the middle of a line, as after a crash, ends before it; *damage* gets that,
    and what is missing in between. Raises `LogError`, also for a log that ends before its first
    checkpoint does, which has no decisions.

    What a running scheduler deletes meanwhile is still read: it is open.
    """
    with contextlib.ExitStack() as closing:
        yield from _entries(_open_files(path, closing), Damage() if damage is None else damage)


def _open_files(path: Path, closing: contextlib.ExitStack) -> list[tuple[Path, IO[bytes]]]:
    is_directory = path.is_dir()
    # A file unpacked next to its compressed one is the same file.
    files = list({number_of(f): f for f in log_files(path)}.values()) if is_directory else [path]
    allow_open_files(_OTHER_FILES + len(files))
    opened: list[tuple[Path, IO[bytes]]] = []
    for file in files:
        try:
            opened.append((file, closing.enter_context(file.open("rb"))))
        except OSError as error:
            # The oldest may have been deleted since they were listed.
            if not is_directory or not isinstance(error, FileNotFoundError):
                raise LogError(f"{file}: {error.strerror}") from error
    if not opened:
        raise LogError(f"{path}: want files `decisions-*.jsonl`, found none")
    return opened


def _entries(files: list[tuple[Path, IO[bytes]]], damage: Damage) -> Iterator[Line]:
    decoder = msgspec.json.Decoder(Line)
    number, has_checkpoint = 0, False
    before: Line | None = None
    file_before: Path | None = None
    for file, raw in files:
        number = 0
        for number, text in enumerate(_lines(file, raw), 1):
            if text == _CUT:
                damage.cuts.append(f"{file}:{number}")
                break
            try:
                line = decoder.decode(text)
            except UNREADABLE as error:
                raise LogError(f"{file}:{number}: want an entry of a log: {error}") from error
            if number == 1 and (line.event != "log" or line.format != FORMAT):
                got = f"format {line.format}" if line.event == "log" else f"`{line.event}`"
                wanted = f"want a decision log of format {FORMAT}"
                raise LogError(f"{file}:{number}: {wanted}, got {got}")
            line.place = f"{file}:{number}"
            line.lacks = _files_between(file_before, file) or _entries_between(before, line)
            if line.lacks:
                damage.missing.append(f"{line.place}: {line.lacks}")
            before, file_before = line, file
            if line.event == "checkpoint":
                has_checkpoint = True
                if line.queues is None:
                    damage.without_queues.append(str(file))
            yield line
        if not number:
            damage.cuts.append(f"{file}:1")  # before the first entry was written
    if not has_checkpoint:
        raise LogError(
            f"{file}:{number or 1}: want a whole checkpoint, the log ends before it does"
        )


def _files_between(before: Path | None, file: Path) -> str:
    """Which files are missing before *file*. Only the oldest are ever deleted."""
    last, number = (number_of(one) if one is not None else None for one in (before, file))
    if last is None or number is None or number - last in (0, 1):
        return ""
    return f"{_all('file', last + 1, number - 1)} missing before it"


def _entries_between(before: Line | None, line: Line) -> str:
    """What is missing between two entries. Numbering restarts at each start and each failure."""
    if before is None or (line.event == "log" and line.reason != "size"):
        return ""
    first, last = before.number + 1, line.number - 1
    if first == line.number:
        return ""
    if first > last:
        return f"entry {line.number} comes after entry {before.number}"
    return f"{_all('entry', first, last)} missing before it"


def _all(kind: str, first: int, last: int) -> str:
    return f"{kind} {first} is" if first == last else f"every {kind} from {first} to {last} is"


@contextlib.contextmanager
def making_sense(line: Line) -> Iterator[None]:
    """Raise `LogError`, with the place, if the body cannot apply *line*."""
    try:
        yield
    except KeyError as error:
        raise LogError(f"{place_of(line)}: {error} is missing") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise LogError(f"{place_of(line)}: {error}") from error
    except (AttributeError, IndexError, TypeError) as error:  # plain data of another shape
        raise LogError(f"{place_of(line)}: {type(error).__name__}: {error}") from error


def place_of(line: Line) -> str:
    """Where *line* is, as the start of an error message."""
    return f"{line.place}: entry {line.number} (`{line.event}`)"


def _lines(file: Path, raw: IO[bytes]) -> Iterator[bytes]:
    """The complete lines, then `_CUT` if the last one or the compressed data is cut off."""
    try:
        is_compressed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream: Any = gzip.GzipFile(fileobj=raw) if is_compressed else raw
        try:
            for text in stream:
                if not text.endswith(b"\n"):
                    yield _CUT  # the process died while it was written
                    return
                yield text
        except EOFError:
            yield _CUT  # the same, compressed
    except (OSError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise LogError(f"{file}: {reason}") from error
