"""Writes the types of the API, as kube-apiserver publishes them, for reading manifests strictly.

Run by `make openapi`, against the control plane of `make controlplane`. Keeps the kinds of
`engine.core.manifests.kinds` in the versions that are read, and of each schema what says which
values are accepted and how patches merge them: types, formats, members, enums, defaults and the
keys of lists. Texts are left out.
"""

import gzip
import json
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from engine.core.manifests.kinds import KINDS  # noqa: E402  # needs the path
from engine.core.manifests.schema import DOCUMENT  # noqa: E402
from tests.controlplane import ControlPlane  # noqa: E402

Json = dict[str, Any]

_KEPT: Final = (
    "type",
    "format",
    "enum",
    "default",
    "required",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
)
_REF: Final = "#/components/schemas/"
# Groups of pods are in versions that are served on request.
_EVERYTHING: Final = ("--runtime-config=api/all=true", "--feature-gates=AllAlpha=true,AllBeta=true")


def trimmed(schema: Json) -> Json:
    """*schema* with the members that say which values are accepted."""
    # A reference next to a default is wrapped in an `allOf` of one.
    for one in schema.get("allOf", ()):
        schema = {**one, **{key: value for key, value in schema.items() if key != "allOf"}}
    kept = {key: schema[key] for key in _KEPT if key in schema}
    if "$ref" in schema:
        kept["$ref"] = schema["$ref"].removeprefix(_REF)
    if "oneOf" in schema:
        kept["oneOf"] = [trimmed(one) for one in schema["oneOf"]]
    for member in ("items", "additionalProperties"):
        if isinstance(schema.get(member), dict):
            kept[member] = trimmed(schema[member])
    if "properties" in schema:
        kept["properties"] = {
            name: trimmed(value) for name, value in sorted(schema["properties"].items())
        }
    return kept


def references(schema: Any) -> list[str]:
    """The names of the schemas that *schema* refers to."""
    if isinstance(schema, list):
        return [name for one in schema for name in references(one)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
    return own + [name for value in schema.values() for name in references(value)]


def document(groups: dict[str, Json], version: str) -> Json:
    """The trimmed document; *groups* are those of the server, by the path of their version."""
    kinds: dict[str, str] = {}
    schemas: dict[str, Json] = {}
    for path in sorted({kind.base_path.lstrip("/") for kind in KINDS}):
        known = groups[path]["components"]["schemas"]
        wanted = {}
        for name, schema in known.items():
            for one in schema.get("x-kubernetes-group-version-kind", ()):
                group = f"{one['group']}/" if one["group"] else ""
                wanted[f"{group}{one['version']}", one["kind"]] = name
        for kind in KINDS:
            if kind.base_path.lstrip("/") == path:
                kinds[f"{kind.api_version} {kind.kind}"] = wanted[kind.api_version, kind.kind]
        left = [kinds[key] for key in kinds if kinds[key] in known]
        while left:
            name = left.pop()
            if name not in schemas:
                schemas[name] = trimmed(known[name])
                left += references(schemas[name])
    return {"version": version, "kinds": kinds, "schemas": dict(sorted(schemas.items()))}


def written(found: Json) -> bytes:
    """The bytes of the file: the same document gives the same bytes."""
    text = json.dumps(found, separators=(",", ":"), sort_keys=True)
    return gzip.compress(text.encode(), 9, mtime=0)


def main() -> None:
    """Write the document of the newest supported minor version of Kubernetes."""
    with ControlPlane(apiserver_args=_EVERYTHING) as plane:
        version = plane.request("GET", "/version")["gitVersion"]
        paths = plane.request("GET", "/openapi/v3")["paths"]
        needed = {kind.base_path.lstrip("/") for kind in KINDS}
        groups = {
            path: plane.request("GET", paths[path]["serverRelativeURL"]) for path in sorted(needed)
        }
    raw = written(document(groups, version))
    DOCUMENT.write_bytes(raw)
    print(f"{DOCUMENT.relative_to(ROOT)}: {version}, {len(raw):,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
