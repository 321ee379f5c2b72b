"""A pytest plug-in that leaves out what takes long: `-p tests.quick`, as `make check` does.

Left out are the tests that need a built control plane, those that build an image, folders whose
tests mostly run whole programs or search for long, and those marked `slow`; `make test` runs them
all.
"""

from pathlib import Path
from typing import Final

import pytest

_SLOW_FIXTURES: Final = frozenset(
    {"control_plane", "own_control_plane", "kustomize", "image", "oracle"}
)
_SLOW_FOLDERS: Final = frozenset(
    {"app", "benchmarks", "cli", "extender_server", "faults", "properties"}
)
_HERE: Final = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        fixtures = _SLOW_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        folder = item.path.relative_to(_HERE).parts[0]
        marked = item.get_closest_marker("slow") is not None
        slow = fixtures or marked or folder in _SLOW_FOLDERS
        (left_out if slow else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
