"""Scripts of the project as modules: they are in no package."""

import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]


@functools.cache
def script(path: str) -> ModuleType:
    """The script at *path*, from the project's root."""
    name = "starsched_" + path.removesuffix(".py").replace("/", "_")
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def go_program(name: str) -> Path:
    """The binary of a program of `devkit/tools/go_programs.py`, built if it is missing."""
    path: Path = script("devkit/tools/go_programs.py").binary(name)
    return path


def sources(*folders: str) -> Iterator[Path]:
    """Every Python file below *folders* of the checkout."""
    for folder in folders:
        yield from (ROOT / folder).rglob("*.py")
