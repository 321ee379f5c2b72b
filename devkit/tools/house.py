"""Writes the figure of the house into docs/architecture.md, from the import contracts.

The floors are those of `[tool.importlinter]` in pyproject.toml, which `make lint` holds the imports
to, so the figure cannot be out of date. Run it with `make docs`.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "architecture.md"
BEGIN: Final = "<!-- made from the import contracts by `make docs` -->\n"
END: Final = "<!-- end of what is made -->\n"
#: The names of the contracts that the figure shows.
PACKAGES: Final = "Three packages"
FLOORS: Final = "The floors of the scheduler"
_GAP: Final = "   "
_WIDTH: Final = 76


def page() -> str:
    """The page as it should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join([f"{before}{BEGIN}```text", *_figure(), f"```\n{END}{after}"])


def _figure() -> Iterator[str]:
    contracts = {
        one["name"]: one["layers"]
        for one in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
            "contracts"
        ]
        if "layers" in one
    }
    *above, ground = contracts[PACKAGES]
    for package in above:
        folders = sorted(path.name for path in (ROOT / package).iterdir() if path.is_dir())
        yield from _line(package, [name for name in folders if not name.startswith("_")])
        yield ""
    for number, floor in enumerate(contracts[FLOORS]):
        places = [_place(name.strip()) for name in floor.split(":")]
        yield from _line("" if number else ground, places)


def _place(module: str) -> str:
    """The folder or file of *module*, below its package."""
    _, _, rest = module.partition(".")
    path = rest.replace(".", "/")
    return path if (ROOT / module.replace(".", "/")).is_dir() else f"{path}.py"


def _line(title: str, places: list[str]) -> Iterator[str]:
    """*places* on as few lines as they need."""
    line = f"{title:12}"
    for place in places:
        if len(line) + len(place) > _WIDTH:
            yield line.rstrip()
            line = " " * 12
        line += place + _GAP
    yield line.rstrip()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
