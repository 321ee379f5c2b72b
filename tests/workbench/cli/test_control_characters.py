"""What others wrote reaches no terminal raw, whichever command prints it."""

import importlib
import json
import os
import pty
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml
from click.testing import CliRunner

from tests.engine.lib.hostile import HOSTILE, HOSTILE_NAME, raw_in, starlark, without_colours
from tests.scripts import sources
from workbench.cli.kubectl_plugin import _Dumper
from workbench.cli.main import COMMANDS, main
from workbench.cli.standard_output import INTERNAL_ERROR, GuardedGroup

_ROOT: Final = Path(__file__).resolve().parents[3]
_BAD: Final = f"{HOSTILE_NAME}.star"

#: What to run of each command, in a folder with files that are hostile all through. A command that
#: talks to a server prints what it cannot read.
_RUNS: Final[dict[str, list[list[str]]]] = {
    "run": [["--config", _BAD, "--kubeconfig", _BAD]],
    "preflight": [["--kubeconfig", _BAD]],
    "demo": [["--scenario", _BAD]],
    "extender": [["--policies", _BAD]],
    "check": [["p"], ["p", "--output", "json"], ["bad"], ["p", "--reads"], [_BAD]],
    "test": [["p"], ["p", "--output", "json"], ["p", "--output", "junit"], [_BAD]],
    "bench": [["p", "--policy", _BAD], [_BAD]],
    "fmt": [["--check", "p"], ["--diff", "p"], ["bad"], [_BAD]],
    "new": [[_BAD, "--hook", _BAD]],
    "stubs": [[_BAD]],
    "eject": [[_BAD]],
    "explain": [
        ["default/web", "--snapshot", "c.yaml", "--policies", "p"],
        ["default/web", "--snapshot", "c.yaml", "--policies", "p", "--output", "json"],
        ["default/gated", "--snapshot", "c.yaml", "--policies", "p"],
        ["default/web", "--snapshot", "c.yaml", "--policies", "fails"],
        [f"default/{HOSTILE_NAME}", "--snapshot", "c.yaml", "--policies", "p"],
        [HOSTILE_NAME, "--snapshot", "c.yaml"],
        ["default/web", "--snapshot", _BAD],
    ],
    "rollout": [["status", "--kubeconfig", _BAD]],
    "shares": [["--kubeconfig", _BAD], [HOSTILE_NAME, "--kubeconfig", _BAD]],
    "simulate": [
        ["c.yaml", "--policies", "p"],
        ["c.yaml", "--policies", "p", "--output", "json"],
        ["c.yaml", "--policies", "bad"],
        [_BAD],
    ],
    "snapshot": [["-", "--kubeconfig", _BAD]],
    "replay": [["c.yaml"], [_BAD]],
    "diff": [["builtin", "p", "--on", "c.yaml"], ["builtin", "p", "--on", _BAD]],
    "compare": [["builtin", "p", "--on", "c.yaml"], ["builtin", _BAD, "--on", "c.yaml"]],
    "plan": [["p", "--kubeconfig", _BAD]],
    "apply": [["p", "--kubeconfig", _BAD]],
    "sweep": [["c.yaml", "--policies", "p", "--to", _BAD, "--seeds", "1"], [_BAD]],
    "conformance": [["c.yaml"], [_BAD]],
    "whatif": [["drain", HOSTILE_NAME, "--kubeconfig", _BAD]],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Policies, tests and a cluster that say hostile things wherever they can."""
    text = starlark(HOSTILE)
    policies = tmp_path / "p"
    policies.mkdir()
    (policies / "gate.star").write_text(
        f"def filter(pod, node):\n    return {text}\n"
        f'def pre_enqueue(pod):\n    return {text} if pod.name == "gated" else None\n'
        f"def score(pod, node):\n    x = 1 # \u202e\x9b1m\n    return x\n"
    )
    (policies / "gate_test.star").write_text(
        'load("@std/testing.star", "asserts")\n'
        f"def test_a():\n    asserts.equal({text}, 1)\n"
        f"def test_b():\n    fail({text})\n"
    )
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / _BAD).write_text(f'def filter(pod, node):\n    return "{HOSTILE_NAME} +\n')
    (tmp_path / "fails").mkdir()
    (tmp_path / "fails" / "f.star").write_text(
        f"def filter(pod, node):\n    return {{{text}: 1}}\ndef score(pod, node): fail({text})\n"
    )
    room = {"cpu": "2", "memory": "4Gi", "pods": "10", f"x/{HOSTILE}": "1"}
    # Of a cluster, so that names that no API server takes are not refused.
    known = {"uid": "1", "resourceVersion": "1"}
    names = ("web", "gated", HOSTILE_NAME)
    pods = [{"name": name, "namespace": "default", **known, "uid": name} for name in names]
    items: list[dict[str, Any]] = [
        {"kind": "Node", "metadata": {"name": HOSTILE, **known}, "status": {"allocatable": room}},
        *(
            {
                "kind": "Pod",
                "metadata": {**meta, "labels": {HOSTILE: HOSTILE}},
                "spec": {"containers": [{"name": HOSTILE, "image": HOSTILE}]},
            }
            for meta in pods
        ),
        {"kind": HOSTILE, "metadata": {"name": HOSTILE}},
    ]
    (tmp_path / "c.yaml").write_text(yaml.safe_dump_all(items))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_is_run() -> None:
    assert _RUNS.keys() == COMMANDS.keys()


@pytest.mark.budget(6, "a whole command")
@pytest.mark.parametrize(
    ("command", "arguments"),
    [pytest.param(c, a, id=f"{c} {i}") for c, runs in _RUNS.items() for i, a in enumerate(runs)],
)
@pytest.mark.usefixtures("folder")
def test_no_command_prints_what_a_terminal_would_obey(command: str, arguments: list[str]) -> None:
    """`explain` printed a policy's reason as it was: it set the window's title and its colours.

    Markup of the library that draws tables was obeyed in some of them, too.
    """
    result = CliRunner().invoke(main, [command, *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.output, command
    assert raw_in(result.output) == []
    assert "\nfake: ok" not in result.output, "a reason begins a line of its own"
    if "json" in arguments:
        json.loads(result.stdout)


@pytest.mark.budget(8, "a process of its own")
@pytest.mark.usefixtures("folder")
def test_a_real_terminal_gets_our_colours_and_no_others() -> None:
    """Through a pseudo-terminal, as an operator has it."""
    ours, theirs = pty.openpty()
    command = ["explain", "default/web", "--snapshot", "c.yaml", "--policies", "p"]
    process = subprocess.Popen(
        [sys.executable, "-m", "workbench.cli.main", *command],
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": str(_ROOT), "TERM": "xterm-256color"},
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 65_536)
        except OSError:
            break
        if not part:
            break
        seen += part
    os.close(ours)
    assert process.wait(60) == 3, seen
    # Progress moves the cursor, and hides it.
    text = re.sub(r"\x1b\[(\?25[hl]|\d*[AK])", "", seen.decode().replace("\r\n", "\n"))
    assert "\x1b[1" in text, "it has colours"
    assert raw_in(without_colours(text).replace("\r", "")) == []
    shown = " ".join(without_colours(text).split())  # not as it is wrapped
    assert r"\x1b]0;owned\x07\x1b[31mred\u202e\x0d\x0afake" in shown
    assert "[bold red]b[/bold red]" in shown


def test_a_traceback_has_none_either(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise ValueError(HOSTILE)

    group = GuardedGroup("x")
    group.add_command(click.Command("fail", callback=fail))
    with pytest.raises(SystemExit) as ended:
        group(["fail"])
    assert ended.value.code == INTERNAL_ERROR
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "owned" in shown
    assert raw_in(shown) == []


def test_every_program_that_is_installed_guards_its_output() -> None:
    """All that it prints goes through `EscapingStream`, its errors included."""
    with (_ROOT / "pyproject.toml").open("rb") as file:
        scripts = tomllib.load(file)["project"]["scripts"]
    for name, place in scripts.items():
        module, _, attribute = place.partition(":")
        assert isinstance(getattr(importlib.import_module(module), attribute), GuardedGroup), name


#: Where something may be written past the guard, and what: a stream of frames, logs (which
#: `telemetry.logs` guards), what restores a terminal, and the tool that nobody else runs.
_PAST_THE_GUARD: Final = {
    "engine/surfaces/cli/terminal.py",
    "workbench/cli/stubs_command.py",
    "engine/testing/child.py",
    "engine/telemetry/logs.py",
    "devkit/faults/command.py",
}


def test_nothing_is_written_past_the_guard() -> None:
    """No `print`, no console of rich's own, no colours of click's, no bytes but in these files."""
    past = re.compile(
        r"(?<![\w.])(?<!def )(print|Console|click\.style|click\.secho)\("
        r"|sys\.(stdout|stderr)\.buffer|sys\.__std"
    )
    found = {
        str(path.relative_to(_ROOT))
        for path in sources("engine", "workbench", "devkit/cluster", "devkit/demo", "devkit/faults")
        if past.search(path.read_text())
    }
    assert found == _PAST_THE_GUARD


def test_yaml_means_the_same() -> None:
    from engine.surfaces.cli.terminal import EscapingStream

    class Kept:
        text = ""

        def write(self, text: str) -> int:
            self.text += text
            return len(text)

    kept = Kept()
    value = {"reason": HOSTILE, HOSTILE: ["zurück", HOSTILE_NAME]}
    yaml.dump(value, EscapingStream(kept), _Dumper, allow_unicode=True)  # type: ignore[arg-type]  # writes
    assert raw_in(kept.text) == []
    assert yaml.safe_load(kept.text) == value
    assert "zurück" in kept.text
