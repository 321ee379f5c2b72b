"""kubectl's plugin: the real krew installs it from a release, and it works on its own."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.rendering import ROOT
from tests.scripts import go_program, script, sources

_LAUNCHER = ROOT / "deploy" / "krew" / "kubectl-starsched"


@dataclass(frozen=True)
class Plugin:
    """What krew installed: its folder, and the environment of a shell that finds it."""

    store: Path
    environment: dict[str, str]

    def run(self, *command: str | Path, where: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=where,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )


@pytest.fixture(scope="module")
def plugin(made_release: Path, tmp_path_factory: pytest.TempPathFactory) -> Plugin:
    folder = tmp_path_factory.mktemp("plugin")
    (archive,) = made_release.glob("kubectl-starsched-*.tar.gz")
    krew = folder / "krew"
    manifest = [f"--manifest={made_release / 'starsched.yaml'}", f"--archive={archive}"]
    subprocess.run(
        [go_program("krew"), "install", *manifest],
        env={**os.environ, "KREW_ROOT": str(krew)},
        stdin=subprocess.DEVNULL,
        check=True,
    )
    home = folder / "home"
    home.mkdir()
    # Of our own environment, what says how packages are fetched, and the cache of those fetched.
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PIP_") or name.lower().endswith("_proxy")
    }
    cache = subprocess.run(
        [sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=True
    )
    python = Path(sys.base_prefix) / "bin"
    kept |= {"PIP_CACHE_DIR": cache.stdout.strip(), "HOME": str(home)}
    (store,) = (krew / "store" / "starsched").iterdir()
    return Plugin(store, {**kept, "PATH": f"{krew / 'bin'}:{python}:/usr/bin:/bin"})


@pytest.mark.long("installs every package into an empty environment")
@pytest.mark.timeout(900)
def test_the_wheel_in_an_empty_environment_runs_the_plugin_and_the_demo(
    plugin: Plugin, tmp_path: Path
) -> None:
    # Another project's folder of the same name is not ours.
    for name in ("engine", "workbench"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('not this one')\n")
    # 1. The first call installs what the lock file names, and the wheel.
    first = plugin.run(
        "kubectl-starsched", "queue", "--server", "http://127.0.0.1:1", where=tmp_path
    )
    assert first.returncode == 1
    assert "installing its packages" in first.stderr
    assert "the scheduler could not be asked: Cannot connect to host 127.0.0.1:1" in first.stderr
    # 2. A second one does not, and what it hands over to is ours as well.
    second = plugin.run("kubectl-starsched", "plan", "--help", where=tmp_path)
    assert (second.returncode, second.stderr) == (0, "")
    assert "Usage: " in second.stdout
    # 3. The same environment is that of `pip install`: every declared dependency is satisfied.
    bin_folder = plugin.store / "environment" / "bin"
    version = plugin.run(bin_folder / "starsched", "--version", where=tmp_path)
    assert version.stdout.strip() == f"starsched {script('devkit/tools/version.py').version()}"
    pip = [sys.executable, "-m", "pip", "--python", str(bin_folder / "python")]
    checked = subprocess.run([*pip, "check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    # 4. It tells its story from an empty folder.
    empty = tmp_path / "empty"
    empty.mkdir()
    story = plugin.run(bin_folder / "starsched", "demo", "--output", "json", where=empty)
    assert story.returncode == 0, story.stderr
    assert len(json.loads(story.stdout)["placements"]["after"]) == 9
    assert list(empty.iterdir()) == []
    # 5. Policies and packs are there.
    ejected = plugin.run(bin_folder / "starsched", "eject", "NodeResourcesFit", where=empty)
    shipped = ROOT / "policies" / "kubernetes" / "node_resources_fit.star"
    assert ejected.stdout.strip() == shipped.read_text().strip()


@pytest.mark.slow("starts pip twice")
def test_an_installation_that_fails_says_so_and_is_tried_again(tmp_path: Path) -> None:
    launcher = tmp_path / "kubectl-starsched"
    launcher.write_bytes(_LAUNCHER.read_bytes())
    (tmp_path / "requirements.lock").write_text("nowhere==1.0 --hash=sha256:00\n")
    for _ in range(2):
        said = subprocess.run(
            [sys.executable, launcher],
            env={**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""},
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.returncode == 1
        assert "installing its packages" in said.stderr
        assert "kubectl-starsched: its packages could not be installed: " in said.stderr
        assert "Traceback" not in said.stderr


def test_the_launcher_is_readable_for_older_pythons() -> None:
    """They have to get as far as saying which Python is wanted."""
    ast.parse(_LAUNCHER.read_text(), feature_version=(3, 6))


@pytest.mark.slow("reads every module")
def test_what_is_imported_is_declared() -> None:
    """Not merely brought along by another package, which may stop to."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = {
        canonicalize_name(Requirement(text).name)
        for text in [*project["dependencies"], *extras["dask"], *extras["parquet"]]
    }
    known = packages_distributions()
    undeclared = {}
    for path in sources("engine", "workbench"):
        for top in imported(path.read_text()) - sys.stdlib_module_names - {"engine", "workbench"}:
            brings = {canonicalize_name(name) for name in known.get(top, [top])}
            if not brings & declared:
                undeclared[top] = path.name
    assert undeclared == {}


def imported(text: str) -> set[str]:
    """The top-level names of the modules that a module imports absolutely."""
    if not re.search(r"^\s*(?:from|import) ", text, re.MULTILINE):
        return set()
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found
