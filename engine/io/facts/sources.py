"""Sources of facts while the scheduler runs: a file or a ConfigMap.

Owns getting at the text and noticing that it changed. Decoding it is `readings`', storing it
`LiveFacts`'. No source ends by itself, and no error of one stops the scheduler: what cannot be read
is logged and tried again, and until then the facts grow old.
"""

import asyncio
import contextlib
import os
import stat
from collections import deque
from pathlib import Path
from typing import Final

from engine.core.model.objects import ConfigMap, decode
from engine.io.facts.readings import MAX_BYTES, Document, read_document
from engine.io.facts.source import ProblemLog, Report
from engine.io.kube.client import ApiClient
from engine.io.kube.resources import CONFIG_MAPS
from engine.io.watching.informer import Decoding, Handlers, Informer
from engine.io.watching.reflector import WatchCounts, WatchOptions
from engine.lib.background import cancelled
from engine.lib.clock import Clock
from engine.lib.folder_watch import FolderWatch
from engine.policy.fact_config import ConfigMapFacts, FileFacts

_POLL_SECONDS: Final = 5.0
# What is larger takes longer to read than other tasks can wait: 8 MB take seconds.
_LARGE_BYTES: Final = 32 << 10


class FileSource:
    """A facts document in a file, watched through the operating system and by polling.

    The folder is watched rather than the file, so that a file that is replaced, and a mounted
    ConfigMap, are followed. Values without a time are as old as the file. A file that is gone
    has no facts; one that is not a document keeps its last facts.
    """

    def __init__(
        self, config: FileFacts, clock: Clock, *, poll_seconds: float = _POLL_SECONDS
    ) -> None:
        self._path = Path(config.path)
        self._clock = clock
        self._poll_seconds = poll_seconds
        #: True while a document is there and not reported yet.
        self.is_reading = False
        self._problems = ProblemLog(self.name)

    @property
    def name(self) -> str:
        """`file:path`."""
        return f"file:{self._path}"

    @property
    def failures(self) -> int:
        """How often it could not be read, or was malformed."""
        return self._problems.count

    async def run(self, report: Report) -> None:
        """Read the file now and whenever it changes, until cancelled."""
        changed = asyncio.Event()
        loop = asyncio.get_running_loop()

        def note() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(changed.set)

        seen: object = object()
        with FolderWatch(self._path.parent, note) as watch:
            while True:
                changed.clear()
                watch.follow()
                stamp = await asyncio.to_thread(_stamp, self._path)
                if stamp != seen:
                    # One that cannot be read may become readable without a change.
                    seen = stamp if await self._read(report) else object()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll_seconds):
                        await changed.wait()

    async def _read(self, report: Report) -> bool:
        """Read the file and report its facts. False if that is worth another try."""
        try:
            text, written_at = await asyncio.to_thread(_read_file, self._path)
        except FileNotFoundError:
            report({})
            return True
        except (OSError, ValueError) as error:
            self._problems.report("Cannot read facts", str(error))
            return not isinstance(error, OSError)
        self.is_reading = True
        try:
            document = await _document(text, self._clock.now(), written_at)
        finally:
            self.is_reading = False
        _report_problems(document, self._problems)
        if document.readings or not document.problems:
            report(document.readings)
        return True


def _stamp(path: Path) -> object:
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino


def _read_file(path: Path) -> tuple[bytes, float]:
    # Never wait for the writer of a pipe: a thread that does keeps the process from exiting.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            got = "a named pipe" if stat.S_ISFIFO(state.st_mode) else "a device"
            raise ValueError(f"want a regular file, got {got}")
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise ValueError(f"want at most {MAX_BYTES:,} bytes")
    return text, state.st_mtime


async def _document(text: str | bytes, now: float, measured_at: float | None = None) -> Document:
    """What `read_document` makes of *text*; in a thread if it is large."""
    if len(text) <= _LARGE_BYTES:
        return read_document(text, measured_at=measured_at, now=now)
    return await asyncio.to_thread(read_document, text, measured_at=measured_at, now=now)


def _report_problems(document: Document, problems: ProblemLog) -> None:
    if document.problems:
        problems.report("Malformed facts", "; ".join(document.problems))
    else:
        problems.clear()


class ConfigMapSource:
    """A facts document in a ConfigMap: the keys that end with `.json`, or the one that is named.

    A key that is not a document keeps its last facts, as a file does.
    """

    def __init__(self, config: ConfigMapFacts, client: ApiClient, clock: Clock) -> None:
        self._config = config
        self._client = client
        self._clock = clock
        self._problems = ProblemLog(self.name)
        self._watched: list[WatchCounts] = []
        #: True while a document is there and not reported yet.
        self.is_reading = False

    @property
    def name(self) -> str:
        """`configmap:namespace/name`."""
        return f"configmap:{self._config.namespace}/{self._config.name}"

    @property
    def failures(self) -> int:
        """How often it could not be watched, or part of it was malformed."""
        return self._problems.count + sum(counts.failures for counts in self._watched)

    async def run(self, report: Report) -> None:
        """Watch the ConfigMap until cancelled. A missing one reports no facts, at once."""
        config = self._config
        is_there = False
        known: dict[str, Document] = {}  # by key
        # What is to be read, the newest alone; before it None if it was gone in between.
        waiting: deque[ConfigMap | None] = deque()
        arrived = asyncio.Event()

        def has(found: ConfigMap) -> None:
            nonlocal is_there
            is_there = True
            if waiting and waiting[-1] is not None:
                waiting.pop()
            waiting.append(found)
            self.is_reading = True
            arrived.set()

        def gone() -> None:
            waiting.clear()
            waiting.append(None)
            arrived.set()

        async def read(found: ConfigMap | None) -> None:
            nonlocal known
            if found is None:
                known = {}
                report({})
                return
            before, known = known, {}
            # Values without a time are as old as what the runtime knows of them: no age at all.
            merged = Document()
            for key in sorted(found.data):
                if key == config.key or (not config.key and key.endswith(".json")):
                    document = await _document(found.data[key], self._clock.now())
                    if document.problems and not document.readings and key in before:
                        document.readings = before[key].readings
                    known[key] = document
                    merged.problems += [f"{key}: {problem}" for problem in document.problems]
                    for subject, readings in document.readings.items():
                        merged.readings.setdefault(subject, {}).update(readings)
            if found.data and not known:
                want = f"the key `{config.key}`" if config.key else "a key that ends with `.json`"
                got = ", ".join(f"`{key}`" for key in sorted(found.data))
                merged.problems.append(f"want {want}, got {got}")
            _report_problems(merged, self._problems)
            report(merged.readings)

        async def read_on() -> None:
            while True:
                await arrived.wait()
                arrived.clear()
                while waiting:
                    await read(waiting.popleft())
                self.is_reading = False

        informer = Informer[ConfigMap](
            self._client,
            CONFIG_MAPS,
            Decoding(lambda raw: decode(ConfigMap, raw)),
            Handlers(
                on_add=has, on_update=lambda _old, new: has(new), on_delete=lambda _old: gone()
            ),
            on_synced=lambda: None if is_there else gone(),
            options=WatchOptions(
                namespace=config.namespace, field_selector=f"metadata.name={config.name}"
            ),
        )
        self._watched.append(informer.counts)
        tasks = [asyncio.ensure_future(informer.run()), asyncio.ensure_future(read_on())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self.is_reading = False
            await cancelled(tasks)
