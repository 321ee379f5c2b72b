"""The discovery documents: version, API groups and resources.

Owns as much of them as is enough for clients that look resources up before they use them
(`kubectl`, client libraries).
"""

from typing import Any

from devkit.cluster.kinds import KINDS
from engine.core.manifests.kinds import Kind

Json = dict[str, Any]

VERSION: Json = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.2",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "embedded",
}
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_SUBRESOURCES: dict[str, tuple[str, str, str, list[str]]] = {
    # name: group, version and kind of what is sent (empty: the resource's own), verbs
    "binding": ("", "v1", "Binding", ["create"]),
    "eviction": ("policy", "v1", "Eviction", ["create"]),
    "finalize": ("", "", "", ["update"]),
    "resize": ("", "", "", ["get", "patch", "update"]),
    "status": ("", "", "", ["get", "patch", "update"]),
}


def api_versions() -> Json:
    """The document at `/api`."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def _group(name: str) -> Json:
    versions = list(dict.fromkeys(kind.version for kind in KINDS if kind.group == name))
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def groups() -> Json:
    """The document at `/apis`."""
    names = list(dict.fromkeys(kind.group for kind in KINDS if kind.group))
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in names]}


def group(name: str) -> Json | None:
    """The document at `/apis/<group>`, None if there is no such group."""
    if not name or all(kind.group != name for kind in KINDS):
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}


def resources(group_name: str, version: str) -> Json | None:
    """The document of a group version, None if there is no such group version."""
    served = [kind for kind in KINDS if (kind.group, kind.version) == (group_name, version)]
    if not served:
        return None
    listed: list[Json] = []
    for kind in served:
        listed.append(_resource(kind))
        listed += (_subresource(kind, name) for name in kind.subresources)
    if not group_name:
        listed.append(
            {
                "name": "bindings",
                "singularName": "binding",
                "namespaced": True,
                "kind": "Binding",
                "verbs": ["create"],
            }
        )
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": served[0].api_version,
        "resources": sorted(listed, key=lambda resource: str(resource["name"])),
    }


def _resource(kind: Kind) -> Json:
    described: Json = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _VERBS,
    }
    if kind.short_names:
        described["shortNames"] = list(kind.short_names)
    if kind.categories:
        described["categories"] = list(kind.categories)
    return described


def _subresource(kind: Kind, name: str) -> Json:
    group_name, version, sent, verbs = _SUBRESOURCES[name]
    described: Json = {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": sent or kind.kind,
        "verbs": verbs,
    }
    if group_name:
        described |= {"group": group_name, "version": version}
    return described


def openapi_index() -> Json:
    """The document at `/openapi/v3`."""
    bases = dict.fromkeys(kind.base_path.strip("/") for kind in KINDS)
    return {"paths": {base: {"serverRelativeURL": f"/openapi/v3/{base}"} for base in bases}}


def openapi(base: str) -> Json | None:
    """The OpenAPI document of a group version, None if there is none.

    It holds what `kubectl apply` looks for before it relies on validation by the server, and no
    schemas.
    """
    served = [kind for kind in KINDS if kind.base_path.strip("/") == base]
    if not served:
        return None
    paths = {}
    for kind in served:
        path = kind.path("{namespace}" if kind.namespaced else "", "{name}")
        identity = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        paths[path] = {
            "patch": {
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": identity,
                "parameters": [
                    {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
                ],
                "responses": {"200": {"description": "OK"}},
            }
        }
    info = {"title": "Kubernetes", "version": str(VERSION["gitVersion"])}
    return {"openapi": "3.0.0", "info": info, "paths": paths}
