"""Reading a cluster: what cannot be read is told, and costs nothing else."""

import asyncio
import sys
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from engine.io.kube.client import ApiClient
from engine.io.kube.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, Resource
from tests.engine.core.model import test_claim_decoding as claims
from workbench.cli.cluster_reading import list_whole

LEVELS = 5000
DEEP = "[" * LEVELS + "]" * LEVELS
# Python 3.11 builds fewer than 1,000 levels, 3.12 and 3.13 build some 10,000.
IS_BUILT = sys.version_info >= (3, 12)


class OnePage:
    """A server with these objects."""

    def __init__(self, *objects: str) -> None:
        self._items = [msgspec.Raw(one.encode()) for one in objects]

    async def list_pages(self, resource: Resource, **_: Any) -> AsyncIterator[SimpleNamespace]:
        yield SimpleNamespace(items=self._items)


def test_an_object_that_nests_too_deep_is_whole_or_left_out_by_name() -> None:
    """A device class with such parameters ended every snapshot in a traceback."""
    config = f'[{{"opaque": {{"driver": "d", "parameters": {DEEP}}}}}]'
    deep = f'{{"metadata": {{"name": "deep"}}, "spec": {{"config": {config}}}}}'
    client = cast(ApiClient, OnePage(deep, '{"metadata": {"name": "flat"}}'))
    counted: list[int] = []
    found, too_deep = asyncio.run(list_whole(client, DEVICE_CLASSES, counted.append))
    names = [one["metadata"]["name"] for one in found]
    assert (names, too_deep) == ((["deep", "flat"], []) if IS_BUILT else (["flat"], ["deep"]))
    assert counted == [2]
    assert (msgspec.json.encode(found).count(b"[") >= LEVELS) is IS_BUILT


def test_a_claim_that_the_scheduler_cannot_meet_is_marked() -> None:
    """Without its parameters it looked like one that can be met."""

    def item(levels: int, *, is_allocated: bool) -> dict[str, Any]:
        raw = claims.text(levels, is_allocated=is_allocated).decode()
        client = cast(ApiClient, OnePage(raw))
        (found,), _ = asyncio.run(list_whole(client, RESOURCE_CLAIMS, lambda _: None))
        return found

    unallocated = item(LEVELS, is_allocated=False)
    assert unallocated.get("isTooDeep", False) is not IS_BUILT
    assert (msgspec.json.encode(unallocated).count(b"[") >= LEVELS) is IS_BUILT
    assert "isTooDeep" not in item(LEVELS, is_allocated=True)
    assert "isTooDeep" not in item(600, is_allocated=False)
