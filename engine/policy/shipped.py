"""The policies and shared functions that ship with the runtime.

Owns finding them (next to the package, in a checkout as in an installed wheel) and how the file of
a plugin is named: `node_resources_fit` for `NodeResourcesFit`.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import engine
from engine.language.syntax import docstring

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

#: Policies that govern the queues of a tree: a QueueTree names them, no profile does.
QUEUE_PACKS: Final[Mapping[str, tuple[str, ...]]] = {
    "fairness": (
        "capacity",
        "capacity_scheduling",
        "drf",
        "elastic_quota",
        "kai_fair",
        "kueue_fair",
        "proportion",
        "yunikorn_fair",
    ),
}

_ROOT: Final = Path(engine.__file__).parents[1] / "policies"
_COOKBOOK: Final = "cookbook"
# Policies for users to start from; nothing may load from them.
_NOT_LOADABLE: Final = frozenset({"examples", _COOKBOOK})

# Where a word begins: `QOSSort` has two.
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A policy of the cookbook: its text and that of its test."""

    text: str
    test: str

    @property
    def does(self) -> str:
        """What it does, in a sentence: the first paragraph of its docstring."""
        return " ".join(docstring(self.text).partition("\n\n")[0].split())


@functools.cache
def shipped_files() -> Mapping[str, str]:
    """Every shipped file, tests included: `@kubernetes/node_name.star` to its text."""
    files = {}
    for path in sorted(_ROOT.glob("*/*.star")):
        if path.parent.name not in _NOT_LOADABLE:
            files[f"@{path.parent.name}/{path.name}"] = path.read_text(encoding="utf-8")
    return MappingProxyType(files)


@functools.cache
def recipes() -> Mapping[str, Recipe]:
    """The policies of the cookbook, by name."""
    found = {}
    for test in sorted((_ROOT / _COOKBOOK).glob("*_test.star")):
        name = test.name.removesuffix("_test.star")
        text = test.with_name(f"{name}.star").read_text(encoding="utf-8")
        found[name] = Recipe(text, test.read_text(encoding="utf-8"))
    return MappingProxyType(found)


def pack_modules() -> dict[str, str]:
    """The file of every policy of a pack, by the policy's name."""
    return {
        name: f"@{pack}/{snake_case(name)}.star"
        for pack, names in (*PACKS.items(), *QUEUE_PACKS.items())
        for name in names
    }


def snake_case(name: str) -> str:
    """*name* in snake_case: `qos_sort` for `QOSSort`, `metadata_key` for `metadataKey`."""
    return _WORD.sub("_", name).lower()
