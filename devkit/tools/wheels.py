"""Fetches the wheels that the image holds, for each platform that it is built for.

The versions and hashes are those of `requirements.lock`, the Python is the one of `Dockerfile`. The
wheels go to `${XDG_CACHE_HOME:-~/.cache}/starsched/wheels/<hash>/<platform>/`, outside the
checkout. Nothing in them is run, so every platform's are fetched on any machine.

Run it with the names of platforms (all of them without), or call `wheels`.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
#: Platform as container engines name it: the machine as wheels name it.
PLATFORMS: Final = {"amd64": "x86_64", "arm64": "aarch64"}
#: The minor version of glibc 2 in the image's Debian: no wheel may need a newer one.
GLIBC: Final = 41


def wheels(platform: str) -> Path:
    """The folder with the wheels for *platform*; fetches them if it is missing.

    Raises `CalledProcessError` if a package of the lock file has no wheel for it.
    """
    target = _cache() / platform
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    print(f"wheels: fetching those for {platform} (once)", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        fetched = Path(scratch) / platform
        command = [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
            *("--require-hashes", "--only-binary", ":all:", "--no-deps", "--dest", str(fetched)),
            *("--implementation", "cp", "--python-version", image_python()),
            *(word for tag in _tags(PLATFORMS[platform]) for word in ("--platform", tag)),
            *("--requirement", str(ROOT / "requirements.lock")),
        ]
        subprocess.run(command, check=True)
        try:
            fetched.rename(target)
        except OSError:
            # Another process was faster; its folder is as good.
            if not target.is_dir():
                raise
    return target


def image_python() -> str:
    """The minor version of Python in the image, such as `3.13`."""
    found = re.search(r"^ARG PYTHON_IMAGE=\S*python:(\d+\.\d+)", _dockerfile(), re.MULTILINE)
    if found is None:
        raise SystemExit("wheels: the Dockerfile names no `PYTHON_IMAGE=...python:MAJOR.MINOR`")
    return found[1]


def _tags(machine: str) -> list[str]:
    # pip takes a newer name for exactly what it says, and the old one for all before it.
    newer = [f"manylinux_2_{minor}_{machine}" for minor in range(17, GLIBC + 1)]
    return [*newer, f"manylinux2014_{machine}"]


def _cache() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256((ROOT / "requirements.lock").read_bytes())
    digest.update(f"{image_python()} {GLIBC}".encode())
    return base / "starsched" / "wheels" / digest.hexdigest()[:12]


def _dockerfile() -> str:
    return (ROOT / "Dockerfile").read_text()


if __name__ == "__main__":
    for each in sys.argv[1:] or PLATFORMS:
        print(wheels(each))
