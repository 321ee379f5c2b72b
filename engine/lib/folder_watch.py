"""Notifications of the operating system that something in a folder changed.

Owns the notifications and their threads. Finding out what changed, and polling where there are no
notifications, is the caller's business.
"""

import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from watchdog.events import (
    EVENT_TYPE_CLOSED_NO_WRITE,
    EVENT_TYPE_OPENED,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver


class FolderWatch:
    """The operating system's notifications for a folder that may come and go.

    Done in a thread of its own that is not waited for: setting notifications up and taking them
    down can block, forever where a folder vanishes at the wrong moment. Then the caller has to
    poll every few seconds.

    Args:
        folder: What is watched; what is in folders inside it is not.
        note: Called after something changed, in a thread of the watch.
    """

    def __init__(self, folder: Path, note: Callable[[], None]) -> None:
        self._folder = folder
        self._note = note
        self._handler = _Handler(note)
        self._observer: BaseObserver | None = None
        self._followed: tuple[int, int] | None = None
        self._wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="folder-watch", daemon=True)

    def follow(self) -> None:
        """Watch the folder that is there now, soon."""
        self._wanted.put(True)

    def __enter__(self) -> "FolderWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._wanted.put(False)

    def _run(self) -> None:
        while self._wanted.get():
            self._follow()
        self._stop()

    def _follow(self) -> None:
        try:
            state = os.stat(self._folder)
        except OSError:
            self._stop()
            return
        if self._followed == (state.st_dev, state.st_ino):
            return
        self._stop()
        observer = Observer()
        try:
            observer.schedule(self._handler, str(self._folder), recursive=False)
            observer.start()
        except OSError:
            return  # no notifications left on this machine
        self._observer = observer
        self._followed = (state.st_dev, state.st_ino)
        self._note()  # what changed before they were on

    def _stop(self) -> None:
        observer, self._observer, self._followed = self._observer, None, None
        if observer is not None:
            observer.stop()


class _Handler(FileSystemEventHandler):
    """Any change triggers a scan; the event itself has too little information."""

    def __init__(self, note: Callable[[], None]) -> None:
        self._note = note

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Called in the observer's thread."""
        # Looking opens files, which is an event too: it must not lead to looking again.
        if event.event_type not in (EVENT_TYPE_OPENED, EVENT_TYPE_CLOSED_NO_WRITE):
            self._note()
