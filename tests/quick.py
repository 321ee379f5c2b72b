"""A pytest plug-in that leaves out what takes long: `-p tests.quick`, as `make check` does.

Left out are the tests that need a built control plane, those that build an image and those marked
`slow`; `make test` runs them all.
"""

import pytest

_SLOW_FIXTURES = frozenset({"control_plane", "own_control_plane", "kustomize", "image", "oracle"})


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        fixtures = _SLOW_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        slow = fixtures or item.get_closest_marker("slow") is not None
        (left_out if slow else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
