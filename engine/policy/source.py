"""Policy texts in a directory: read whole, and read again when something changed.

Owns the mounted ConfigMap (files behind the `..data` link, which is swapped in one step) and any
local folder. A snapshot is never a mix of two versions of a mounted ConfigMap. The ConfigMap
through the API is another source, of the same protocol; what the texts mean is `bundle`'s.
"""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from engine.lib import utf8
from engine.lib.folder_watch import FolderWatch
from engine.policy.errors import Problem
from engine.policy.file_names import MAX_BYTES, MAX_FILES, SUFFIXES

# The link of a mounted ConfigMap to its version in force.
_DATA_LINK: Final = "..data"
# A mounted version may vanish while it is read; then there is a newer one.
_ATTEMPTS: Final = 5
# A folder that is never quiet is read all the same, after this many settling times.
_MAX_SETTLING: Final = 20


@dataclass(frozen=True, slots=True)
class Reading:
    """What a source holds at a moment.

    Attributes:
        files: Text by file name; None if the source itself is not there.
        version: Changes when the files do.
        problems: What could not be read. Then the files are not complete: a policy that is left
            out decides as much as one that is there, so they must not be used.
    """

    files: Mapping[str, str] | None
    version: str = ""
    problems: tuple[Problem, ...] = ()


class Source(Protocol):
    """Reports the policy texts, at first and whenever they change."""

    async def run(self, on_reading: Callable[[Reading], None]) -> None:
        """Call *on_reading* with the state now and after each change, until cancelled."""
        ...


class DirectorySource:
    """The policy files of one directory (not of those inside it), watched.

    Changes are noticed through the operating system's notifications; where those fail, and for
    what they do not report (links that lead elsewhere, a directory that is created again), by
    looking every *poll_seconds*. Changes that come within *settle_seconds* of each other are one.
    """

    def __init__(
        self, directory: Path, *, settle_seconds: float = 0.1, poll_seconds: float = 5.0
    ) -> None:
        self.directory = directory
        self._settle_seconds = settle_seconds
        self._poll_seconds = poll_seconds

    def read(self) -> Reading:
        """The files as they are now."""
        for _ in range(_ATTEMPTS):
            before = self._version_in_force()
            try:
                reading = _read(self.directory if before is None else before)
            except FileNotFoundError:
                if not self.directory.is_dir():
                    return Reading(None)
                continue
            except OSError as error:
                return Reading({}, "", (_unreadable(self.directory, error),))
            if before == self._version_in_force():
                return reading
        problem = Problem(str(self.directory), 0, 0, "changes faster than it can be read")
        return Reading({}, "", (problem,))

    async def run(self, on_reading: Callable[[Reading], None]) -> None:
        """Call *on_reading* with the files now and after each change, until cancelled."""
        changed = asyncio.Event()
        loop = asyncio.get_running_loop()

        def note() -> None:
            # From the observer's thread, which may outlive the loop by a moment.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(changed.set)

        last: Reading | None = None
        with FolderWatch(self.directory, note) as watch:
            while True:
                changed.clear()
                watch.follow()
                fingerprint = await asyncio.to_thread(self._fingerprint)
                reading = await asyncio.to_thread(self.read)
                if reading != last:
                    last = reading
                    on_reading(reading)
                await self._wait(changed, fingerprint)

    async def _wait(self, changed: asyncio.Event, fingerprint: object) -> None:
        """Return when something has changed, and is quiet again."""
        while True:
            # (Not `wait_for`: it can swallow a cancellation that comes with the event.)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_seconds):
                    await changed.wait()
            changed.clear()
            # Notifications say too much: of other files, and of ours without a difference.
            if await asyncio.to_thread(self._fingerprint) != fingerprint:
                break
        for _ in range(_MAX_SETTLING):
            try:
                async with asyncio.timeout(self._settle_seconds):
                    await changed.wait()
            except TimeoutError:
                return
            changed.clear()

    def _version_in_force(self) -> Path | None:
        """Where the `..data` link of a mounted ConfigMap leads; None if there is no such link."""
        link = self.directory / _DATA_LINK
        try:
            return self.directory / os.readlink(link)
        except OSError:
            return None

    def _fingerprint(self) -> object:
        """Something that differs when the files may differ; cheap enough to look at often."""
        try:
            entries = sorted(name for name in os.listdir(self.directory) if _is_policy_file(name))
        except OSError:
            return None
        states: list[tuple[str, int, int, int]] = []
        for name in entries:
            try:
                state = os.stat(self.directory / name)
                states.append((name, state.st_mtime_ns, state.st_size, state.st_ino))
            except OSError:
                states.append((name, 0, 0, 0))
        return self._version_in_force(), states


def _is_policy_file(name: str) -> bool:
    # Hidden names are a mounted ConfigMap's versions, or an editor's.
    return name.endswith(SUFFIXES) and not name.startswith(".")


def _read(directory: Path) -> Reading:
    """The policy files of *directory*. Raises OSError if the directory cannot be read."""
    files: dict[str, str] = {}
    problems: list[Problem] = []
    sha = hashlib.sha256()
    names = sorted(name for name in os.listdir(directory) if _is_policy_file(name))
    if len(names) > MAX_FILES:
        problems.append(
            Problem(str(directory), 0, 0, f"want at most {MAX_FILES:,} files, got {len(names):,}")
        )
    for name in names[:MAX_FILES]:
        path = directory / name
        try:
            if path.is_symlink() and not path.exists():
                problems.append(Problem(name, 0, 0, "cannot be read: a link that leads nowhere"))
                continue
            if path.exists() and not path.is_file():
                continue  # a directory, a device: not ours to open
            with path.open("rb") as stream:
                raw = stream.read(MAX_BYTES + 1)  # to say that it is too large
        except FileNotFoundError:
            raise
        except OSError as error:
            problems.append(_unreadable(Path(name), error))
            continue
        sha.update(f"{name}\0{len(raw)}\0".encode(errors="surrogateescape"))
        sha.update(raw)
        if len(raw) > MAX_BYTES:
            message = f"want at most {MAX_BYTES:,} bytes in a file, got more"
            problems.append(Problem(name, 0, 0, message))
            continue
        try:
            files[name] = raw.decode().removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            problems.append(Problem(name, line, 0, utf8.describe_error(error)))
    return Reading(files, sha.hexdigest()[:12], tuple(problems))


def no_text(raw: str) -> str:
    """What is said of a file among the `binaryData` of a ConfigMap; *raw* is its base64."""
    message = "want UTF-8 text under `data`, got `binaryData`"
    found = utf8.wrong_byte_of_base64(raw)
    return f"{message}: {found}" if found else message


def _unreadable(path: Path, error: OSError) -> Problem:
    return Problem(str(path), 0, 0, f"cannot be read: {error.strerror or error}")
