"""Notifications of a folder, and what they cost where they cannot be had."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.lib import folder_watch
from engine.lib.folder_watch import FolderWatch


def watching() -> set[threading.Thread]:
    """The threads that set notifications up."""
    return {thread for thread in threading.enumerate() if thread.name == "folder-watch"}


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Notifications that are being set up and never are, until the event is set."""
    go_on = threading.Event()

    class Hanging:
        def schedule(self, *_: object, **__: object) -> None:
            go_on.wait()

        def start(self) -> None:
            raise OSError("no notifications left")

    monkeypatch.setattr(folder_watch, "Observer", Hanging)
    yield go_on
    go_on.set()


def test_a_change_is_noted(tmp_path: Path) -> None:
    noted = threading.Event()
    with FolderWatch(tmp_path, noted.set) as watch:
        watch.follow()
        assert noted.wait(10)  # the notifications are on
        noted.clear()
        (tmp_path / "a").write_text("new")
        assert noted.wait(10)


def test_notifications_that_hang_cost_one_thread_however_often_they_are_wanted(
    tmp_path: Path, hanging: threading.Event
) -> None:
    """A facts file's folder was asked for every few seconds, and each time by a new thread."""
    before = watching()
    with FolderWatch(tmp_path, lambda: None) as watch:
        for _ in range(5):
            watch.follow()
        [thread] = watching() - before
    hanging.set()
    thread.join(10)
    assert not thread.is_alive()
