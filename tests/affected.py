"""A pytest plug-in for the tests that a change concerns: `-p tests.affected`, as `make fast` does.

Compares the working tree with the place where it left `main`. Chosen are the tests of the folders
with a changed file (`engine/rollout` -> `tests/engine/rollout`), each test file that imports a
changed module and, where those are few, each that imports a module that imports one. What is
further away is left to `make check`.
"""

import functools
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import grimp
import pytest

#: More test files than these import something that imports a module that all of the engine uses:
#: they would take minutes.
_MOST_INDIRECT: Final = 40
_ROOT: Final = Path(__file__).resolve().parent.parent
_PACKAGES: Final = ("engine", "workbench", "devkit", "tests")
#: Folders whose tests are elsewhere, or nowhere near an import.
_TESTS_OF: Final = {
    "policies": ("tests/policies", "tests/packs"),
    "docs": ("tests/docs", "tests/monitoring"),
    "deploy": ("tests/deploy", "tests/monitoring"),
}


def changed_files(root: Path = _ROOT) -> list[str]:
    """Paths of what differs from the place where the working tree left `main`, new files too."""
    base = "HEAD"
    for branch in ("main", "origin/main"):
        if found := _git(root, "merge-base", "HEAD", branch, check=False):
            (base,) = found
            break
    changed = _git(root, "diff", "--name-only", "--relative", base)
    return sorted({*changed, *_git(root, "ls-files", "--others", "--exclude-standard")})


def _git(root: Path, *arguments: str, check: bool = True) -> list[str]:
    done = subprocess.run(
        ["git", *arguments], cwd=root, check=check, capture_output=True, text=True
    )
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []


def module_of(path: str) -> str:
    """The module in the file *path*: `engine.core.model.pod` of `engine/core/model/pod.py`."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def test_paths(changed: Iterable[str], importers: dict[str, set[str]]) -> set[str]:
    """Folders and files of tests that *changed* concerns.

    Args:
        changed: Paths from the root of the checkout.
        importers: Module -> the modules that import it.
    """
    chosen: set[str] = set()
    for path in changed:
        top, _, rest = path.partition("/")
        if top == "tests" and "/" in rest:
            chosen.add(path.rpartition("/")[0])
        elif top in _PACKAGES and path.endswith(".py"):
            chosen.update(_folder_of_tests(path))
        chosen.update(_TESTS_OF.get(top, ()))
        module = module_of(path)
        direct = importers.get(module, set())
        chosen.update(_test_files({module, *direct}))
        indirect = _test_files(set().union(*(importers.get(one, set()) for one in direct)))
        if len(indirect) <= _MOST_INDIRECT:
            chosen.update(indirect)
    return chosen


def _folder_of_tests(path: str) -> list[str]:
    """The folder below `tests` that mirrors the module or folder of *path*, or its nearest one."""
    mirrored = Path("tests", path).with_suffix("")
    at_least = 3  # `tests/engine/rollout`; all of `tests/engine` is what `make check` is for
    while len(mirrored.parts) >= at_least:
        if any((_ROOT / mirrored).glob("test_*.py")):
            return [str(mirrored)]
        mirrored = mirrored.parent
    return []


def _test_files(modules: Iterable[str]) -> set[str]:
    return {one.replace(".", "/") + ".py" for one in modules if one.startswith("tests.")}


def _importers() -> dict[str, set[str]]:
    graph = grimp.build_graph(*_PACKAGES, cache_dir=str(_ROOT / ".import_linter_cache"))
    return {one: graph.find_modules_that_directly_import(one) for one in graph.modules}


@functools.cache
def _chosen() -> frozenset[str]:
    return frozenset(test_paths(changed_files(), _importers()))


def pytest_report_header() -> str:
    return f"affected by the change: {', '.join(sorted(_chosen())) or 'nothing'}"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    # Not collected at all: that takes longer than the tests that are left.
    if not collection_path.name.startswith("test_"):
        return None
    path = collection_path.relative_to(_ROOT)
    return None if any(str(one) in _chosen() for one in (path, *path.parents)) else True


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Nothing that the change concerns is no failure.
    if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
