"""Writes a decision log in a background thread, and rotates its files.

Owns the files `decisions-NNNNNN.jsonl` (or `.jsonl.gz`) of a directory. Entries are encoded and
written while decisions go on; errors are logged and counted, never raised to the caller.
"""

import gzip
import math
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import structlog

from engine.core.caching.objects import object_key
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.recording.entries import (
    NO_OBJECT,
    Entry,
    StateHash,
    assumed_text,
    digest,
    object_text,
)

log = structlog.get_logger(component="record")

#: The version of the log format.
FORMAT: Final = 1
_NAME: Final = re.compile(r"decisions-(\d{6,})\.jsonl(\.gz)?")

#: Entries that may wait to be written; more are dropped, up to the next checkpoint.
MOST_WAITING: Final = 50_000
#: Seconds between two batches. Both threads share the interpreter: waking this one for each entry
#: would delay decisions by more than the entry costs.
BATCH_SECONDS: Final = 0.05
#: The longest time that a written line stays in the buffers of this process, in seconds.
SYNC_SECONDS: Final = 0.5
#: Seconds between two attempts after a failed write.
RETRY_SECONDS: Final = 30.0
# After so many entries, the thread yields the interpreter to decisions.
_STRIDE: Final = 4
# Lines are written once they exceed this size.
_MOST_BUFFERED_BYTES: Final = 128 << 10


def number_of(file: Path) -> int | None:
    """The number of a log's file; None for any other file."""
    found = _NAME.fullmatch(file.name)
    return int(found[1]) if found else None


def log_files(directory: Path) -> list[Path]:
    """The files of the log in *directory*, oldest first."""
    found = [(n, path) for path in directory.iterdir() if (n := number_of(path)) is not None]
    return [path for _, path in sorted(found)]


@dataclass(frozen=True)
class LogSettings:
    """Where a log is written, and its size: at most *files* files of about *file_bytes* each.

    A file grows beyond that until its checkpoint is at most half of it.
    """

    directory: Path
    file_bytes: int = 64 << 20
    files: int = 8
    compress: bool = True


@dataclass
class LogCounts:
    """Counts of entries by outcome, for metrics."""

    written: int = 0
    dropped: int = 0
    checkpoints: int = 0
    failures: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete state, as entries: their kinds and contents."""

    reason: str
    entries: list[tuple[str, Entry]]


def created(path: Path) -> IO[bytes]:
    """A new file at *path*, which only its owner may read. Raises `OSError`."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


class LogWriter:
    """Writes entries in the order in which they are put, in a thread of its own.

    `put` only queues. Each file begins with a `Checkpoint`, put like an entry; `wants_checkpoint`
    says why one is needed: `start`, `size` for a full file, or `failure` after a failed write. It
    is "" if none is.

    Args:
        settings: Where, and how much.
        version: Of the program.
        monotonic: For the time until a failed write is tried again.
        create: Makes a file.
    """

    def __init__(
        self,
        settings: LogSettings,
        version: str,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        create: Callable[[Path], IO[bytes]] = created,
    ) -> None:
        self.settings = settings
        self._monotonic = monotonic
        self._create = create
        self.counts = LogCounts()
        self.wants_checkpoint = "start"
        self._version = version
        self._queue: deque[tuple[float, str, Any]] = deque()
        self._ending = threading.Event()
        self._lines: list[bytes] = []
        self._buffered_bytes = 0
        self._file: IO[bytes] | None = None
        self._raw: IO[bytes] | None = None
        self._full_at = math.inf
        self._number = 0
        self._state = StateHash()
        self._pending: dict[str, str] = {}  # uid -> hash of the pod as last written
        self._retry_at = 0.0
        self._is_synced = True
        self._thread = threading.Thread(target=self._run, name="decision-log", daemon=True)

    # --- called by the event loop ------------------------------------------------------------

    def start(self) -> None:
        """Create the directory and start. Raises `OSError` if the directory is not writable."""
        directory = self.settings.directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = directory / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
        self._thread.start()

    @property
    def is_full(self) -> bool:
        """True if entries arrive faster than they are written."""
        return len(self._queue) >= MOST_WAITING

    @property
    def waiting(self) -> int:
        """The number of entries in the queue."""
        return len(self._queue)

    def put(self, at: float, kind: str, contents: Any) -> None:
        """Queue an entry, or a `Checkpoint`, for writing."""
        self._queue.append((at, kind, contents))

    def close(self, timeout: float = 10.0) -> None:
        """Write the queued entries and stop; gives up after *timeout* seconds."""
        if self._thread.is_alive():
            self._ending.set()
            self._thread.join(timeout)

    # --- in the thread -------------------------------------------------------------------

    def _run(self) -> None:
        sync_at = time.monotonic() + SYNC_SECONDS
        is_ending = False
        while not is_ending:
            # Entries that were queued before `close` are still written.
            is_ending = self._ending.wait(BATCH_SECONDS)
            self.write_waiting()
            if (now := time.monotonic()) >= sync_at:
                self._guarded(self._sync)
                sync_at = now + SYNC_SECONDS
        self.end()

    def write_waiting(self) -> None:
        """Write what is queued."""
        taken = 0
        while self._queue:
            self._guarded(self._take, *self._queue.popleft())
            taken += 1
            if taken % _STRIDE == 0:
                time.sleep(0)  # yield to decisions
        self._guarded(self._write_out)

    def end(self) -> None:
        """Write what is left, and close the file."""
        self._guarded(self._close_file)

    def _guarded(self, work: Any, *args: Any) -> None:
        try:
            work(*args)
        except OSError as error:
            self._broken(error.strerror or str(error))
        except Exception as error:
            log.error("Unexpected exception in the decision log", exc_info=error)
            self._broken(str(error))

    def _broken(self, reason: str) -> None:
        """Abandon the file; entries are dropped until a new one is begun."""
        self.counts.failures += 1
        log.warning(
            "Decision log cannot be written",
            directory=str(self.settings.directory),
            reason=reason,
            retry_seconds=RETRY_SECONDS,
        )
        for file in (self._file, self._raw):
            if file is not None:
                try:
                    file.close()
                except OSError:
                    continue  # already logged
        self._file = self._raw = None
        self._forget_lines()
        self._retry_at = self._monotonic() + RETRY_SECONDS

    def _take(self, at: float, kind: str, contents: Any) -> None:
        if isinstance(contents, Checkpoint):
            self._begin(at, contents)
        elif self._file is None:
            self.counts.dropped += 1
            if self._monotonic() >= self._retry_at:
                self.wants_checkpoint = "failure"
        else:
            self._write(at, kind, contents)

    def _begin(self, at: float, checkpoint: Checkpoint) -> None:
        """Begin a new file with *checkpoint*."""
        self._full_at = math.inf
        self._close_file()
        directory = self.settings.directory
        present = log_files(directory)
        last = (number_of(present[-1]) or 0) if present else 0
        name = f"decisions-{last + 1:06d}.jsonl" + (".gz" if self.settings.compress else "")
        self._raw = self._create(directory / name)
        self._file = self._raw
        if self.settings.compress:
            self._file = gzip.GzipFile("", "wb", 1, self._raw, mtime=0)  # type: ignore[assignment]  # behaves like an IO
        for old in present[: max(0, len(present) + 1 - self.settings.files)]:
            old.unlink(missing_ok=True)
        self._state = StateHash()
        self._pending.clear()
        head = {
            "format": FORMAT,
            "version": self._version,
            "reason": checkpoint.reason,
            "lost": self.counts.dropped,
        }
        self._line(at, "log", head)
        for kind, contents in checkpoint.entries:
            self._write(at, kind, contents)
            time.sleep(0)
        self._write_out()
        self._full_at = max(self.settings.file_bytes, 2 * self._raw.tell())
        self.counts.checkpoints += 1

    def _write(self, at: float, kind: str, contents: Any) -> None:
        """Write one entry, and update the hash of the state."""
        match kind:
            case "node" | "pod" | "object":
                obj = contents["object"]
                text = object_text(obj)
                where = contents["kind"] if kind == "object" else kind
                self._state.put(where, key_of(obj), text)
                if kind == "pod":
                    self._pending.pop(obj.uid, None)
                contents = {**contents, "object": msgspec.Raw(text)}
            case "queue":
                obj = contents["object"]
                text = NO_OBJECT if obj is None else object_text(obj)
                self._state.put_queue(contents["kind"], contents["key"], text)
                contents = {**contents, "object": msgspec.Raw(text)}
            case "pending":
                self._pend(at, contents["object"])
                return
            case "gone":
                self._state.drop(contents["of"], contents["key"])
                if contents["of"] == "pod":
                    self._pending.pop(contents["key"], None)
            case "assume":
                pod = contents.pop("pod", None)
                if pod is not None:
                    self._pend(at, pod)
                self._state.put("pod", contents["uid"], assumed_text(contents["node"]))
            case "forget":
                if contents["undone"]:
                    self._state.drop("pod", contents["uid"])
            case "facts":
                text = msgspec.json.encode(contents["facts"])
                self._state.put_facts(contents["of"], contents["key"], text)
                contents = {**contents, "facts": msgspec.Raw(text)}
            case "typeLabels":
                self._state.put("typeLabels", "", msgspec.json.encode(contents["labels"]))
            case "kubernetes":
                self._state.put_minor(contents["minor"], contents.get("gates", ()))
            case "unknown":
                self._state.put_unknown(contents["kinds"])
            case "nominations":
                for pod in contents.pop("objects"):
                    self._pend(at, pod)
                self._state.put_nominations(contents["pods"])
            case "checkpoint":
                contents = {**contents, "state": str(self._state)}
            case "decision":
                pod = contents.pop("object")
                hashed = self._pend(at, pod)
                contents = {**contents, "podHash": hashed, "state": str(self._state)}
        self._line(at, kind, contents)

    def _pend(self, at: float, pod: Pod) -> str:
        """Write a pending pod unless this version was written before; returns its hash."""
        text = object_text(pod)
        hashed = digest(text)
        if self._pending.get(pod.uid) != hashed:
            self._pending[pod.uid] = hashed
            self._line(at, "pending", {"object": msgspec.Raw(text)})
        return hashed

    def _line(self, at: float, kind: str, contents: Entry) -> None:
        assert self._file is not None
        self._number += 1
        line = msgspec.json.encode({"n": self._number, "t": at, "e": kind, **contents})
        self._lines.append(line)
        self._buffered_bytes += len(line) + 1
        if self._buffered_bytes >= _MOST_BUFFERED_BYTES:
            self._write_out()

    def _write_out(self) -> None:
        """Write the buffered lines in one call: compression then releases the interpreter once."""
        if not self._lines or self._file is None or self._raw is None:
            return
        self._file.write(b"\n".join(self._lines) + b"\n")
        self.counts.written += len(self._lines)
        self.counts.bytes += self._buffered_bytes
        self._forget_lines()
        self._is_synced = False
        if self._raw.tell() >= self._full_at and not self.wants_checkpoint:
            # Requested once; entries go to this file until the new one begins.
            self.wants_checkpoint, self._full_at = "size", math.inf

    def _forget_lines(self) -> None:
        self._lines.clear()
        self._buffered_bytes = 0

    def _sync(self) -> None:
        if not self._is_synced and self._file is not None and self._raw is not None:
            self._file.flush()
            self._raw.flush()
            self._is_synced = True

    def _close_file(self) -> None:
        self._write_out()
        file, raw, self._file, self._raw = self._file, self._raw, None, None
        if file is not None and raw is not None:
            file.close()
            raw.close()


def key_of(obj: Any) -> str:
    """The key of an object among others of its kind: a pod's uid, a node's name."""
    if isinstance(obj, Pod):
        return obj.uid
    return obj.name if isinstance(obj, Node) else object_key(obj)
