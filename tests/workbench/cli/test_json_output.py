"""Names of files that are no UTF-8 text are printed and written, and never end in a traceback."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from workbench.cli.main import main

POLICY = '"""Nothing."""\n\ndef filter(pod, node):\n    return None\n'
TEST = (
    'load("@std/testing.star", "asserts", "cluster", "make_node", "make_pod")\n\n'
    "def test_it():\n"
    '    asserts.fits(cluster(make_node("a")), make_pod(), "a")\n'
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "caf\udce9"
    path.mkdir()
    (path / "any.star").write_text(POLICY)
    (path / "any_test.star").write_text(TEST)
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


COMMANDS = [
    pytest.param(["check"], id="check"),
    pytest.param(["test"], id="test"),
    pytest.param(["fmt", "--diff"], id="fmt"),
    pytest.param(["stubs"], id="stubs"),
    pytest.param(["new", "other", "--to"], id="new"),
    pytest.param(["eject", "NodeName", "--to"], id="eject"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_json_is_json_whatever_files_are_called(command: list[str], directory: Path) -> None:
    """What JSON cannot hold of a name was a traceback in six commands."""
    (directory / "ugly.star").write_text("x=1\n")
    got = run(*command, directory, "--output", "json")
    assert got.exception is None or isinstance(got.exception, SystemExit)
    assert "caf\ufffd" in json.dumps(json.loads(got.stdout), ensure_ascii=False)


@pytest.mark.parametrize("output", ["text", "junit"])
def test_a_locale_that_cannot_say_a_name_spells_it_out(output: str, directory: Path) -> None:
    """It was a traceback in most locales, though not in that of containers."""
    got = run("test", directory, "--output", output)
    assert got.exit_code == 0
    assert "caf\\udce9" in got.stdout


def test_reports_of_coverage_name_files_as_they_are_called(directory: Path) -> None:
    lcov, page = directory / "lcov.info", directory / "page.html"
    got = run("test", directory, "--coverage-lcov", lcov, "--coverage-html", page)
    assert got.exit_code == 0
    assert b"caf\xe9/any.star" in lcov.read_bytes()
    assert rb"caf\udce9/any.star" in page.read_bytes()  # a page is UTF-8, and this name is not
