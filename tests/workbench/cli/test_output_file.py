"""What a command cannot write is told by name, and what was there is there still."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from engine.surfaces.cli.output_file import naming, write_file
from tests.workbench.cli.test_explain_command import NODE, pod
from workbench.cli.main import main


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["simulate", "CLUSTER", "--steps", "LINK"], id="simulate"),
        pytest.param(["test", "DIR", "--coverage-html", "LINK"], id="test"),
        pytest.param(["snapshot", "LINK"], id="snapshot"),
    ],
)
def test_a_link_to_itself_is_reported(command: list[str], tmp_path: Path) -> None:
    """It was a traceback."""
    link, cluster = tmp_path / "link", tmp_path / "cluster.yaml"
    link.symlink_to(link)
    cluster.write_text(yaml.safe_dump_all([NODE, pod("p", "1")]))
    words = {"LINK": str(link), "CLUSTER": str(cluster), "DIR": str(tmp_path)}
    got = CliRunner().invoke(main, [words.get(word, word) for word in command])
    assert got.exit_code == 2
    assert got.stderr.endswith(f"Error: {link}: too many levels of symbolic links\n")


LONG = "x = 1\n" * 1000


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Let no file grow beyond *size* bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("before", ["y" * 3000, "y" * 9000, ""])
@pytest.mark.parametrize("after", [LONG, "short", ""])
def test_a_file_is_what_was_written(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "a"
    path.write_text(before)
    path.chmod(0o640)
    link = tmp_path / "b"
    link.symlink_to("a")
    write_file(link, after)
    assert (path.read_text(), path.stat().st_mode & 0o777) == (after, 0o640)
    assert link.is_symlink()


def test_a_file_that_has_no_space_to_grow_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("before")
    with room_for(4096), pytest.raises(OSError, match="large") as caught:
        write_file(path, LONG)
    assert (path.read_text(), caught.value.filename) == ("before", str(path))


def test_of_a_new_file_without_space_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with room_for(4096), pytest.raises(OSError, match="large"):
        write_file(path, LONG)
    assert not path.exists()


def test_what_is_no_plain_file_is_written_to() -> None:
    reader, writer = os.pipe()
    write_file(Path(f"/dev/fd/{writer}"), b"text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    os.close(writer)


def test_an_error_that_names_a_file_names_it_still() -> None:
    with pytest.raises(OSError, match="other") as caught, naming(Path("this")):
        Path("/no/other").read_bytes()
    assert caught.value.filename == "/no/other"


def test_formatting_costs_no_policy_where_there_is_no_disk_space(tmp_path: Path) -> None:
    """It cut them off at the last block that there was, and did not say which."""
    path = tmp_path / "a.star"
    text = "def f(a,b):\n  return a+b\n" * 157
    path.write_text(text)
    with room_for(4096):
        result = CliRunner().invoke(main, ["fmt", str(path)])
    assert (result.exit_code, path.read_text()) == (2, text)
    assert result.output == f"Error: {path}: file too large\n"


@pytest.mark.parametrize("option", ["--steps=/dev/full", "--chart={}/missing.svg"])
def test_the_file_that_cannot_be_written_is_named(option: str, tmp_path: Path) -> None:
    cluster, full = tmp_path / "c.yaml", tmp_path / "missing.svg"
    cluster.write_text(yaml.safe_dump_all([NODE, pod("p", "1")]))
    full.symlink_to("/dev/full")
    result = CliRunner().invoke(main, ["simulate", str(cluster), option.format(tmp_path)])
    name = option.format(tmp_path).partition("=")[2]
    assert result.exit_code == 2
    assert result.stderr.endswith(f"Error: {name}: no space left on device\n")
