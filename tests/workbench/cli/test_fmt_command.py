"""`starsched fmt`: what it writes, and when it only looks."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from engine.files.policy_files import read_policy_files
from workbench.cli.main import main


def fmt(*arguments: object, stdin: str | bytes | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["fmt", *map(str, arguments)], input=stdin)
    return result.exit_code, result.output


def test_files_are_written_only_where_they_change(tmp_path: Path) -> None:
    ugly, fine = tmp_path / "sub" / "a.star", tmp_path / "b.star"
    ugly.parent.mkdir()
    ugly.write_text("x=1\n")
    fine.write_text("x = 1\n")
    before = fine.stat().st_mtime_ns
    assert fmt(tmp_path) == (0, "2 file(s): changed 1\n")
    assert ugly.read_text() == "x = 1\n"
    assert fine.stat().st_mtime_ns == before


def test_check_and_diff_only_look(tmp_path: Path) -> None:
    path = tmp_path / "a.star"
    path.write_text("x=1\n")
    code, output = fmt("--check", path)
    assert (code, f"would change {path}" in output) == (1, True)
    code, output = fmt("--diff", path)
    assert code == 1
    assert "-x=1\n+x = 1" in output
    assert path.read_text() == "x=1\n"
    path.write_text("x = 1\n")
    assert fmt("--check", path)[0] == 0


def test_a_file_that_does_not_parse_is_named_and_left(tmp_path: Path) -> None:
    broken, other = tmp_path / "a.star", tmp_path / "b.star"
    broken.write_text("x=(\n")
    other.write_text("x=1\n")
    code, output = fmt(tmp_path)
    assert code == 2
    assert f"{broken}:1: '(' was never closed" in output
    assert (broken.read_text(), other.read_text()) == ("x=(\n", "x = 1\n")


def test_stdin_goes_to_stdout() -> None:
    assert fmt("-", stdin="x=1\n") == (0, "x = 1\n")


def test_programs_read_what_would_change(tmp_path: Path) -> None:
    ugly, broken = tmp_path / "a.star", tmp_path / "b.star"
    ugly.write_text("x=1\n")
    broken.write_text("x=(\n")
    code, output = fmt(tmp_path, "--diff", "--output", "json")
    answer = json.loads(output)
    assert (code, answer["files"], answer["changed"]) == (2, 2, [str(ugly)])
    assert answer["problems"] == [f"{broken}:1: '(' was never closed"]
    assert answer["diffs"][str(ugly)].endswith("-x=1\n+x = 1")
    assert fmt("-", "--output", "json", stdin="x=1\n")[0] == 2


def test_what_does_not_parse_is_reported_as_check_reports_it(tmp_path: Path) -> None:
    """It was `a.star:2: invalid syntax`, without a column or what to write."""
    (tmp_path / "a.star").write_text("def f(x):\n    return !x\n")
    answer = f"{tmp_path}/a.star:2:12: Parse error: invalid input `!`\nhint: write `not`\n"
    assert fmt(tmp_path) == (2, answer + "1 file(s): changed 0\n")
    assert fmt("-", stdin="x = 1\ny++\n")[1].startswith("<stdin>:2:4: Parse error: unexpected")


def test_a_path_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    assert fmt(tmp_path / "no.star")[0] == 2


def test_a_file_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    """Some YAML is Python to a parser: it was written anew. Of other it said what Python says."""
    path = tmp_path / "node.yaml"
    for text in ("kind:   Node\n", "cpu: 4Gi\n"):
        path.write_text(text)
        answer = f"Error: {path}: want a `*.star` file, or a directory with some\n"
        assert fmt(path) == (2, answer)
        assert path.read_text() == text


def test_a_directory_without_policies_is_no_success(tmp_path: Path) -> None:
    """A misspelt directory in CI was "0 file(s): changed 0", exit code 0."""
    code, output = fmt("--check", tmp_path)
    assert (code, "want a directory with `*.star` files, found none" in output) == (2, True)


def test_a_byte_order_mark_and_a_link_in_a_circle_do_no_harm(tmp_path: Path) -> None:
    """The mark was "invalid non-printable character"; the circle gave every file forty times."""
    (tmp_path / "a.star").write_bytes(b"\xef\xbb\xbfx=1\n")
    (tmp_path / "circle").symlink_to(tmp_path)
    assert fmt(tmp_path) == (0, "1 file(s): changed 1\n")
    assert (tmp_path / "a.star").read_bytes() == b"x = 1\n"


def test_links_to_nothing_and_pipes_are_no_policies_to_fmt_and_check(tmp_path: Path) -> None:
    """To `check` they were none, `fmt` failed for the one and waited for the other for ever."""
    (tmp_path / "a.star").write_text("x = 1\n")
    (tmp_path / "gone.star").symlink_to("nothing")
    os.mkfifo(tmp_path / "pipe.star")
    (tmp_path / "folder.star").mkdir()
    assert fmt("--check", tmp_path) == (0, "1 file(s): would change 0\n")
    (files,) = read_policy_files([tmp_path])
    assert list(files.texts) == ["a.star"]


@pytest.mark.parametrize("command", ["fmt", "check", "test"])
def test_a_file_that_is_no_text_is_reported_with_its_line(command: str, tmp_path: Path) -> None:
    """Each command had its own words, most of them those of the decoder."""
    path = tmp_path / "a.star"
    path.write_bytes(b'"""A."""\n\xff\xfe\n')
    result = CliRunner().invoke(main, [command, str(tmp_path)])
    assert result.exit_code == 2
    answer = "want UTF-8 text, got other bytes: 0xff at offset 9"
    assert result.output == f"Error: {path}:2: {answer}\n"


@pytest.mark.parametrize("command", ["check", "test"])
def test_all_files_that_are_no_text_are_reported_at_once(command: str, tmp_path: Path) -> None:
    """The first was named alone, and without the byte; the next one after that was mended."""
    (tmp_path / "a.star").write_bytes(b"# caf\xe9\n")
    (tmp_path / "b.star").write_text('"""B."""\n')
    (tmp_path / "c.star").write_text("x = 1\n", encoding="utf-16")
    result = CliRunner().invoke(main, [command, str(tmp_path)])
    got = result.output.removeprefix("Error: ").replace(f"{tmp_path}/", "").splitlines()
    assert got == [
        "a.star:1: want UTF-8 text, got other bytes: 0xe9 at offset 5",
        "c.star:1: want UTF-8 text, got other bytes: 0xff at offset 0, as UTF-16 begins",
    ]
    assert result.exit_code == 2


def test_standard_input_that_is_no_text_is_reported_with_its_line() -> None:
    """It was a codec that "can't encode" what nobody had asked it to."""
    code, output = fmt("-", stdin=b"x = 1\n\xff\n")
    assert (code, output) == (
        2,
        "Error: <stdin>:2: want UTF-8 text, got other bytes: 0xff at offset 6\n",
    )


def test_lines_inside_a_text_end_as_all_others_do(tmp_path: Path) -> None:
    """A docstring kept the CRLF of an editor on Windows in a file that had LF everywhere else."""
    path = tmp_path / "a.star"
    path.write_bytes(b'"""A.\r\n\r\nB.\r\n"""\r\n\r\nx=1\r\n')
    assert fmt(path) == (0, "1 file(s): changed 1\n")
    assert path.read_bytes() == b'"""A.\n\nB.\n"""\n\nx = 1\n'
