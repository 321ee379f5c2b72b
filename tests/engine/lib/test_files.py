"""Small files: replaced as a whole, or not at all."""

import os
from pathlib import Path

import pytest

from engine.lib.files import FILES


def test_a_file_is_replaced_and_its_folder_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    with pytest.raises(FileNotFoundError):
        FILES.read(path)
    for data in (b"one", b"two"):
        FILES.replace(path, data)
        assert FILES.read(path) == data
    assert os.listdir(path.parent) == ["file"]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    FILES.replace(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        FILES.replace(path, b"new")
    assert FILES.read(path) == b"old"
    assert os.listdir(tmp_path) == ["file"]
