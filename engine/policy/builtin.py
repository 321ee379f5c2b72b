"""The policies and shared functions that ship with the runtime.

Owns finding them (next to the package, in a checkout as in an installed wheel) and the two ways of
writing a plugin's name: `NodeResourcesFit`, and `node_resources_fit` for its file.
"""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import engine

KUBERNETES: Final = "@kubernetes/"

#: Policies that ship in addition to kube-scheduler's plugins and run only if a profile names them,
#: by the folder that they are in.
PACKS: Final[Mapping[str, tuple[str, ...]]] = {
    "congestion": ("Congestion",),
    "coscheduling": ("Coscheduling",),
    "gpu": ("FGDScore", "GpuBestFit", "GpuPacking", "GpuShare"),
    "node_metadata": ("NodeMetadata",),
    "pigeon": ("Pigeon",),
    "qos_sort": ("QOSSort",),
    "reward": ("KubeRL",),
    "riya": ("riya",),
    "safe": ("SafeBalance", "SafeOverload"),
    "trimaran": (
        "LoadVariationRiskBalancing",
        "LowRiskOverCommitment",
        "Peaks",
        "TargetLoadPacking",
    ),
}

_ROOT: Final = Path(engine.__file__).parents[1] / "policies"
# Examples for users to start from; nothing may load from them.
_NOT_LOADABLE: Final = frozenset({"examples"})

_ACRONYM: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


@functools.cache
def builtin_files() -> Mapping[str, str]:
    """Every shipped file, tests included: `@kubernetes/node_name.star` to its text."""
    files = {}
    for path in sorted(_ROOT.glob("*/*.star")):
        if path.parent.name not in _NOT_LOADABLE:
            files[f"@{path.parent.name}/{path.name}"] = path.read_text(encoding="utf-8")
    return MappingProxyType(files)


def pack_modules() -> dict[str, str]:
    """The file of every policy of a pack, by the policy's name."""
    return {
        name: f"@{pack}/{pack_stem(name)}.star" for pack, names in PACKS.items() for name in names
    }


def pack_stem(name: str) -> str:
    """The stem of the file of a pack's policy: `qos_sort` for `QOSSort`."""
    return _ACRONYM.sub("_", name).lower()


def file_stem(plugin: str) -> str:
    """The stem of the file of *plugin*: `node_name` for `NodeName`."""
    return _WORD.sub("_", plugin).lower()


def plugin_name(stem: str) -> str:
    """The plugin of the shipped file with this stem: `NodeName` for `node_name`."""
    return "".join(part.capitalize() for part in stem.split("_"))
