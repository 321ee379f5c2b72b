"""The kernel has no clock, no socket, no task, no log and no randomness of its own."""

import ast
from pathlib import Path

import pytest

import engine.core.kernel

FORBIDDEN = {
    "asyncio",
    "datetime",
    "logging",
    "random",
    "secrets",
    "socket",
    "structlog",
    "threading",
    "time",
    "uuid",
}
MODULES = sorted(Path(engine.core.kernel.__path__[0]).glob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_module_of_the_kernel_imports_time_chance_or_io(path: Path) -> None:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            imported.add(node.module.partition(".")[0])
    assert imported.isdisjoint(FORBIDDEN)
