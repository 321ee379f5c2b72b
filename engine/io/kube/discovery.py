"""Whether an API server serves a resource, by its discovery documents.

A list that is answered with 404 does not say so by itself: a server that is starting, or whose
definitions of resources are just being installed, answers 404 for what it will serve in a moment.
"""

from typing import Final

import msgspec

from engine.io.kube.client import ApiClient
from engine.io.kube.errors import NotFound, ServerError
from engine.io.kube.resources import Resource
from engine.lib.deep_json import UNREADABLE


class _Version(msgspec.Struct, frozen=True):
    version: str


class _Group(msgspec.Struct, frozen=True):
    versions: list[_Version]


class _Name(msgspec.Struct, frozen=True):
    name: str


class _Resources(msgspec.Struct, frozen=True):
    resources: list[_Name] | None


_decode_group = msgspec.json.Decoder(_Group).decode
_decode_resources = msgspec.json.Decoder(_Resources).decode


#: Seconds for one document: until it is there, it is not said that the resource is refused.
_TIMEOUT: Final = 3.0


async def is_served(client: ApiClient, resource: Resource) -> bool:
    """False only if the server says that it does not have *resource* in this version.

    Raises `ApiError` if that cannot be found out: also if the server lists the version of the group
    and does not know it.
    """
    if resource.group:
        path = f"/apis/{resource.group}"
        try:
            body = await client.request("GET", path, timeout=_TIMEOUT)
        except NotFound:
            return False
        try:
            group = _decode_group(body)
        except UNREADABLE as error:
            raise ServerError(f"want an APIGroup, got {error}", request=f"GET {path}") from error
        if all(one.version != resource.version for one in group.versions):
            return False
    path = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    body = await client.request("GET", path, timeout=_TIMEOUT)
    try:
        found = _decode_resources(body).resources or []
    except UNREADABLE as error:
        raise ServerError(f"want an APIResourceList, got {error}", request=f"GET {path}") from error
    return any(one.name == resource.plural for one in found)
