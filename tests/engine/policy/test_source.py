"""A directory of policy files, as a mounted ConfigMap and as a plain folder."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.policy.source import DirectorySource, Reading


class _Listener:
    """Collects what a source reports."""

    def __init__(self) -> None:
        self.readings: asyncio.Queue[Reading] = asyncio.Queue()

    async def next(self) -> Reading:
        return await asyncio.wait_for(self.readings.get(), 20)


@contextlib.asynccontextmanager
async def _listening(source: DirectorySource) -> AsyncIterator[_Listener]:
    listener = _Listener()
    task = asyncio.create_task(source.run(listener.readings.put_nowait))
    try:
        yield listener
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _source(directory: Path, poll_seconds: float = 0.2) -> DirectorySource:
    return DirectorySource(directory, settle_seconds=0.02, poll_seconds=poll_seconds)


class _Mount:
    """A ConfigMap as the kubelet mounts it: files behind `..data`, swapped in one step."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._number = 0

    def write(self, files: dict[str, str]) -> None:
        self._number += 1
        version = self.directory / f"..2026_{self._number}"
        version.mkdir()
        for name, text in files.items():
            (version / name).write_text(text)
        data, old = self.directory / "..data", None
        if data.is_symlink():
            old = self.directory / os.readlink(data)
        new = self.directory / "..data_tmp"
        new.symlink_to(version.name)
        new.rename(data)
        for name in files:
            link = self.directory / name
            if not link.is_symlink():
                link.symlink_to(f"..data/{name}")
        for link in self.directory.iterdir():
            if not link.name.startswith("..") and link.name not in files:
                link.unlink()
        if old is not None:
            for path in old.iterdir():
                path.unlink()
            old.rmdir()


# --- reading ---------------------------------------------------------------------------------


def test_policy_files_are_read_and_others_are_not(tmp_path: Path) -> None:
    (tmp_path / "a.star").write_text("x = 1\n")
    (tmp_path / "c.yaml").write_text("a: 1\n")
    (tmp_path / "README.md").write_text("no")
    (tmp_path / ".a.star.swp").write_text("no")
    (tmp_path / ".hidden.star").write_text("no")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "b.star").write_text("no")
    (tmp_path / "dir.star").mkdir()
    reading = DirectorySource(tmp_path).read()
    assert reading.files == {"a.star": "x = 1\n", "c.yaml": "a: 1\n"}
    assert reading.problems == ()


def test_a_mounted_config_map_is_read_behind_its_link(tmp_path: Path) -> None:
    mount = _Mount(tmp_path)
    mount.write({"a.star": "1", "b.star": "2"})
    assert DirectorySource(tmp_path).read().files == {"a.star": "1", "b.star": "2"}
    mount.write({"b.star": "3"})
    assert DirectorySource(tmp_path).read().files == {"b.star": "3"}


def test_a_directory_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert DirectorySource(tmp_path / "no").read() == Reading(None)
    assert DirectorySource(tmp_path).read().files == {}


@pytest.mark.parametrize(
    ("content", "want"),
    [
        pytest.param(
            b"x = 1\n\xff\xfe",
            "a.star:2: want UTF-8 text, got other bytes: 0xff at offset 6",
            id="bytes",
        ),
        pytest.param(
            b"\xef\xbb\xbfx = 1\n\xff",
            "a.star:2: want UTF-8 text, got other bytes: 0xff at offset 9",
            id="bytes after a byte order mark",
        ),
        pytest.param(
            b"#" * ((1 << 20) + 1), "a.star: want at most 1,048,576 bytes in a file", id="too big"
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_a_problem_not_an_absence(
    tmp_path: Path, content: bytes, want: str
) -> None:
    (tmp_path / "a.star").write_bytes(content)
    (tmp_path / "b.star").write_text("x = 1\n")
    reading = DirectorySource(tmp_path).read()
    (problem,) = reading.problems
    assert str(problem).startswith(want)
    assert reading.files == {"b.star": "x = 1\n"}


def test_a_link_that_leads_nowhere_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "a.star").symlink_to(tmp_path / "no")
    (problem,) = DirectorySource(tmp_path).read().problems
    assert "a link that leads nowhere" in problem.message


def test_a_byte_order_mark_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "a.star").write_bytes(b"\xef\xbb\xbfx = 1\n")
    assert DirectorySource(tmp_path).read().files == {"a.star": "x = 1\n"}


def test_the_version_follows_the_content(tmp_path: Path) -> None:
    (tmp_path / "a.star").write_text("x = 1\n")
    source = DirectorySource(tmp_path)
    first = source.read().version
    (tmp_path / "a.star").write_text("x = 2\n")
    assert source.read().version != first
    (tmp_path / "a.star").write_text("x = 1\n")
    assert source.read().version == first


# --- watching --------------------------------------------------------------------------------


# The polling time decides who notices: the operating system's notifications, or looking.
@pytest.mark.parametrize("poll_seconds", [60.0, 0.05], ids=["notified", "polling"])
async def test_changes_of_a_folder_are_reported(tmp_path: Path, poll_seconds: float) -> None:
    async with _listening(_source(tmp_path, poll_seconds)) as listener:
        assert (await listener.next()).files == {}
        (tmp_path / "a.star").write_text("x = 1\n")
        assert (await listener.next()).files == {"a.star": "x = 1\n"}
        (tmp_path / "a.star").unlink()
        assert (await listener.next()).files == {}


@pytest.mark.parametrize("poll_seconds", [60.0, 0.05], ids=["notified", "polling"])
async def test_the_swap_of_a_mounted_config_map_is_reported(
    tmp_path: Path, poll_seconds: float
) -> None:
    mount = _Mount(tmp_path)
    mount.write({"a.star": "1"})
    async with _listening(_source(tmp_path, poll_seconds)) as listener:
        assert (await listener.next()).files == {"a.star": "1"}
        mount.write({"a.star": "2", "b.star": "2"})
        assert (await listener.next()).files == {"a.star": "2", "b.star": "2"}


async def test_versions_of_a_mounted_config_map_are_never_mixed(tmp_path: Path) -> None:
    mount = _Mount(tmp_path)
    names = [f"p{n}.star" for n in range(20)]
    mount.write(dict.fromkeys(names, "0"))
    source = _source(tmp_path, 0.01)
    async with _listening(source) as listener:
        for number in range(1, 30):
            await asyncio.to_thread(mount.write, dict.fromkeys(names, str(number)))
        seen: set[str] = set()
        while "29" not in seen:
            reading = await listener.next()
            assert reading.files is not None
            if not reading.problems:
                seen = set(reading.files.values())
                assert len(seen) == 1


async def test_a_directory_that_is_created_again_is_followed(tmp_path: Path) -> None:
    directory = tmp_path / "policies"
    async with _listening(_source(directory, 0.05)) as listener:
        assert (await listener.next()).files is None
        directory.mkdir()
        assert (await listener.next()).files == {}
        directory.rmdir()
        assert (await listener.next()).files is None
        directory.mkdir()
        (directory / "a.star").write_text("x = 1\n")
        reading = await listener.next()
        if not reading.files:
            reading = await listener.next()
        assert reading.files == {"a.star": "x = 1\n"}


async def test_a_file_that_is_only_touched_is_not_reported(tmp_path: Path) -> None:
    (tmp_path / "a.star").write_text("x = 1\n")
    async with _listening(_source(tmp_path, 0.05)) as listener:
        await listener.next()
        os.utime(tmp_path / "a.star")
        (tmp_path / "README.md").write_text("no")
        (tmp_path / "b.star").write_text("y = 1\n")
        reading = await listener.next()
        assert reading.files == {"a.star": "x = 1\n", "b.star": "y = 1\n"}
        assert listener.readings.empty()


async def test_reading_does_not_lead_to_reading_again(tmp_path: Path) -> None:
    """Opening files to read them was an event, and so the folder was read ten times a second."""

    class Counting(DirectorySource):
        reads = 0

        def read(self) -> Reading:
            self.reads += 1
            return super().read()

    source = Counting(tmp_path, settle_seconds=0.01, poll_seconds=60.0)
    async with _listening(source) as listener:
        await listener.next()
        for number in range(10):
            (tmp_path / "a.star").write_text(f"x = {number}\n")
            await listener.next()
        assert source.reads <= 3 * 11


async def test_a_source_ends_when_it_is_cancelled_amid_changes(tmp_path: Path) -> None:
    for number in range(20):
        async with _listening(_source(tmp_path, 0.001)) as listener:
            (tmp_path / "a.star").write_text(f"x = {number}\n")
            await listener.next()
            (tmp_path / "a.star").write_text(f"y = {number}\n")
