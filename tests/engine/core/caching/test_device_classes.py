"""Which resources that pods request are served by devices."""

import random

import pytest

from engine.core.caching.device_classes import CLASSES, device_resources
from engine.core.caching.objects import ObjectStore
from engine.core.model.devices import IMPLICIT_RESOURCE_PREFIX, DeviceClass, DeviceClassSpec
from engine.core.model.objects import ObjectMeta

_NAMES = ("gpu", "nic", "fpga")
_RESOURCES = ("example.com/gpu", "example.com/nic", "nowhere.com/gpu", "cpu", "hugepages-2Mi")
_REQUESTED = [*_RESOURCES, *(IMPLICIT_RESOURCE_PREFIX + name for name in _NAMES)]


@pytest.mark.parametrize("seed", range(4))
def test_a_resource_is_a_device_s_while_a_class_names_it_or_is_named_by_it(seed: int) -> None:
    """Classes come, change what they stand for, and go; two may stand for one resource."""
    rng = random.Random(seed)
    store, classes = ObjectStore(), dict[str, str | None]()
    for _ in range(60):
        name = rng.choice(_NAMES)
        if rng.random() < 0.6:
            classes[name] = rng.choice([*_RESOURCES[:2], None])
            spec = DeviceClassSpec(extended_resource_name=classes[name])
            store.put(CLASSES, DeviceClass(ObjectMeta(name=name), spec))
        else:
            classes.pop(name, None)
            store.delete(CLASSES, name)
        want = {one for one in classes.values() if one is not None}
        want |= {IMPLICIT_RESOURCE_PREFIX + name for name in classes}
        requested = rng.sample(_REQUESTED, 6)
        assert device_resources(requested, store) == sorted(want & set(requested))


def test_pods_that_request_no_extended_resource_do_not_depend_on_the_classes() -> None:
    """Else every pod would be tried again with each change of one."""

    class _Unasked(ObjectStore):
        def count(self, kind: str) -> int:
            raise AssertionError(f"asked for {kind}")

    assert device_resources(["cpu", "memory", "hugepages-2Mi"], _Unasked()) == []
