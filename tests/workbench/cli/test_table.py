"""How tables and sentences are laid out: nothing is cut, and equal rows are one."""

import threading
from io import StringIO

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from engine.surfaces.cli import progress_bar
from engine.surfaces.cli.console import make_console, say
from engine.surfaces.cli.progress_bar import tracked
from engine.surfaces.cli.terminal import wide_option
from engine.surfaces.cli.working import working
from workbench.cli.table import Column, grouped, numbers, pods_text, print_table, several, stem_of

PLACE = "policies/a-long-directory/rack_spread.star:118"
WHY = "`rack_spread` rejects node-a1: the rack has its share of the pods of this owner already"
COLUMNS: list[str | Column] = ["pods", *numbers("nodes"), "caused by", "why"]


def printed(*rows: tuple[str, ...], width: int = 80) -> list[str]:
    out = StringIO()
    print_table(Console(file=out, width=width), COLUMNS, rows)
    return out.getvalue().splitlines()


def test_what_does_not_fit_is_below_its_row_and_whole() -> None:
    """The column that a reader needs most, a `file:line`, was cut: `policies/rack_s…`."""
    lines = printed(("default/web-0", "3", PLACE, WHY))
    assert lines[0].split() == ["pods", "nodes", "caused", "by"]
    assert lines[1].split() == ["default/web-0", "3", PLACE]
    assert [line[:4] for line in lines[2:]] == ["    "] * 2
    assert " ".join(" ".join(lines[2:]).split()) == f"why: {WHY}"
    assert max(map(len, lines)) <= 80


def test_at_a_wide_terminal_everything_is_side_by_side() -> None:
    (_, row) = printed(("default/web-0", "3", PLACE, WHY), width=200)
    assert row == f"default/web-0      3  {PLACE}  {WHY}"


def test_a_cell_that_is_wider_than_the_terminal_is_whole() -> None:
    lines = printed(("default/" + "w" * 90, "3", "p" * 90, "x"))
    assert any("w" * 90 in line for line in lines)
    assert any("p" * 90 in line for line in lines)


def test_a_column_that_is_empty_everywhere_is_left_out() -> None:
    lines = printed(("default/web-0", "3", "", ""), ("default/web-1", "3", "", "x"))
    assert lines[0].split() == ["pods", "nodes", "why"]


def test_a_title_is_broken_before_a_column_goes_below() -> None:
    out = StringIO()
    titles = [f"NodeResources{name} x1" for name in ("Fit", "BalancedAllocation", "Other", "More")]
    print_table(Console(file=out, width=60), ("node", *numbers(*titles)), [("a", *["100"] * 4)])
    lines = out.getvalue().splitlines()
    assert lines[-1].split() == ["a", "100", "100", "100", "100"]
    assert max(map(len, lines)) <= 60


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        pytest.param("default/web-7d9c8-x2k7q", "default/web-7d9c8-", id="of a ReplicaSet"),
        pytest.param("default/db-0", "default/db-", id="of a StatefulSet"),
        pytest.param("default/worker12", "default/worker", id="numbered"),
        pytest.param("default/web", "default/web", id="alone"),
        pytest.param("kube-system/web", "kube-system/web", id="a dash in the namespace"),
    ],
)
def test_pods_of_one_controller_have_a_stem(name: str, stem: str) -> None:
    assert stem_of(name) == stem


def test_pods_of_a_row_are_counted_and_their_nodes_listed() -> None:
    assert pods_text(["default/ml-a", "default/ml-b"]) == "2 x default/ml-*"
    assert several(["a", "b", "a", "c", "d", "e"]) == "a, b, c, +2"


def test_wide_prints_each_row_by_itself_in_one_line() -> None:
    @click.command()
    @wide_option
    def command() -> None:
        pods = ("default/ml-a", "default/ml-b")
        rows = [(pods_text(group), "1", PLACE, WHY) for group in grouped(pods, stem_of)]
        print_table(make_console(), COLUMNS, rows)

    narrow = CliRunner(env={"COLUMNS": "80"}).invoke(command).output
    wide = CliRunner(env={"COLUMNS": "80"}).invoke(command, ["--wide"]).output
    assert "2 x default/ml-*" in narrow
    firsts = [line.split()[0] for line in wide.splitlines()]
    assert firsts == ["pods", "default/ml-a", "default/ml-b"]


def test_a_sentence_is_wrapped_at_words_on_a_terminal_and_whole_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    say(make_console(), f"  next: {WHY}")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(" ".join(lines).split()) == f"next: {WHY}"
    monkeypatch.delenv("COLUMNS")
    say(make_console(), f"  next: {WHY}")
    assert capsys.readouterr().out == f"  next: {WHY}\n"


class _Stream(StringIO):
    """A terminal, or none, that knows when something is written."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal
        self.is_written = threading.Event()

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        written = super().write(text)
        self.is_written.set()
        return written


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_of_work_that_takes_long_is_shown_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = _Stream(is_terminal=is_terminal)
    monkeypatch.setattr("sys.stderr", stream)
    with working("is quick"):
        pass
    monkeypatch.setattr(progress_bar, "PATIENCE_SECONDS", 0.0)
    with working("explaining"):
        assert stream.is_written.wait(10 if is_terminal else 0.01) == is_terminal
    assert ("explaining" in stream.getvalue()) == is_terminal
    assert "is quick" not in stream.getvalue()
    assert list(tracked([1, 2], "deciding")) == [1, 2]
