"""Writes the version of `pyproject.toml` into the other files that name it.

Run it with `make version` after an edit of the version there; a test compares.
"""

import argparse
import re
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
#: File: what stands around the version in it, `{}` for the version.
PLACES: Final = {
    "engine/__init__.py": ['__version__ = "{}"'],
    "deploy/base/kustomization.yaml": ["newTag: {}"],
    "deploy/helm/starsched/Chart.yaml": ["version: {}", "appVersion: {}"],
    "deploy/examples/extender/kustomization.yaml": ["newTag: {}"],
    "deploy/kind/README.md": ["starsched:{}"],
    "deploy/static-pod/Dockerfile": ["starsched:{}"],
    "docs/install.md": ["newTag: {}", "/starsched:{}", "refs/tags/v{}"],
    "docs/comparison.md": ["This is {}. "],
}
_VERSION: Final = r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?"


def version() -> str:
    """The version that `pyproject.toml` has."""
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return found


def texts(wanted: str) -> dict[Path, str]:
    """The text of every file that names the version, with *wanted* in it.

    Raises `ValueError` for a file that does not name one where it should.
    """
    found = {}
    for name, places in PLACES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        for place in places:
            before, after = (re.escape(part) for part in place.split("{}"))
            text, count = re.subn(f"({before}){_VERSION}({after})", rf"\g<1>{wanted}\g<2>", text)
            if not count:
                raise ValueError(f"{name}: no `{place.format('VERSION')}`")
        found[ROOT / name] = text
    return found


def main() -> int:
    """Write the files, or print the version, and return the exit code."""
    parser = argparse.ArgumentParser(description="write the version where it is named")
    parser.add_argument("--show", action="store_true", help="print it, and write nothing")
    given = parser.parse_args()
    wanted = version()
    if not re.fullmatch(_VERSION, wanted):
        print(f"version: want MAJOR.MINOR.PATCH, got `{wanted}`", file=sys.stderr)
        return 1
    if given.show:
        print(wanted)
        return 0
    for path, text in texts(wanted).items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
