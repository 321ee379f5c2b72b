"""Builds of one commit give the same files, whenever and wherever they are made."""

import hashlib
import os
import re
import shutil
import stat
from pathlib import Path

import pytest

from tests.deploy.conftest import ARGUMENTS
from tests.deploy.image import build, sent_to_the_engine
from tests.deploy.rendering import ROOT

#: What the builds install instead of everything: pure Python, one with compiled modules, and one
#: that pip itself imports where it is installed.
_FEW = ("attrs", "click", "msgspec")


def context(folder: Path, mode: int, changed_at: float) -> Path:
    """A checkout with files of that *mode* and time, which asks for few packages."""
    for name in ["Dockerfile", ".dockerignore", *sent_to_the_engine(ROOT)]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    lock = folder / "requirements.lock"
    entries = re.split(r"^(?=[\w.-]+==)", lock.read_text(), flags=re.MULTILINE)
    lock.write_text("".join(one for one in entries if one.partition("==")[0] in _FEW))
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)
            os.utime(path, (changed_at, changed_at))
    return folder


def files_of(tree: Path) -> dict[str, tuple[int, float, str]]:
    """Path -> mode, time, and hash or target, of everything that our layer has."""
    found = {}
    for path in [tree, *tree.rglob("*")]:
        status = path.lstat()
        content = ""
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        name = path.relative_to(tree).as_posix()
        found[name] = (stat.S_IMODE(status.st_mode), status.st_mtime, content)
    return found


@pytest.mark.long("builds the image twice")
def test_two_builds_of_one_commit_give_the_same_layer(tmp_path: Path) -> None:
    layers = []
    for mode, changed_at in ((0o644, 1.6e9), (0o600, 1.7e9)):
        folder = context(tmp_path / f"context-{mode:o}", mode, changed_at)
        # In one place, because the stand-in for an image has that place's name in it.
        workspace = tmp_path / "build"
        image = build(workspace, folder, ARGUMENTS)
        layers.append(files_of(image.tree / "opt/starsched"))
        for stage in (image.tree, workspace / "stage-build"):
            shutil.rmtree(stage)
    first, second = layers
    assert len([name for name in first if name.endswith(".pyc")]) > 100
    assert {
        name for name in first.keys() | second.keys() if first.get(name) != second.get(name)
    } == set()
