"""Which extended resources are served by devices, according to the device classes."""

from collections.abc import Iterable
from typing import Final

from engine.core.caching.objects import ObjectStore
from engine.core.model.devices import IMPLICIT_RESOURCE_PREFIX, DeviceClass

CLASSES: Final = "deviceclasses"


def device_resources(requested: Iterable[str], objects: ObjectStore) -> list[str]:
    """Those of *requested* that a device class stands for, in alphabetical order."""
    # Looked at in this order, so that pods that ask for none do not depend on the classes.
    named = [name for name in requested if "/" in name]
    if not named or not objects.count(CLASSES):
        return []
    return sorted(name for name in named if _is_backed(name, objects))


def _is_backed(resource: str, objects: ObjectStore) -> bool:
    if resource.startswith(IMPLICIT_RESOURCE_PREFIX):
        return objects.get(CLASSES, resource.removeprefix(IMPLICIT_RESOURCE_PREFIX)) is not None
    return bool(objects.indexed(CLASSES, _extended_resource, resource))


def _extended_resource(device_class: DeviceClass) -> str:
    return device_class.spec.extended_resource_name or ""
