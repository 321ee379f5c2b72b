"""The kinds of faults: one file a family, each kind one entry of its `KINDS`.

Owns what can go wrong and how it is arranged. A new kind is a function that arranges one fault of
it, in an entry of a file of this folder: nothing else has to be touched.
"""

import importlib
import pkgutil

from devkit.faults.faults.kind import FaultKind


def all_kinds() -> dict[str, FaultKind]:
    """Every kind of every file here, by name."""
    found: dict[str, FaultKind] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda one: one.name):
        kinds = getattr(importlib.import_module(f"{__name__}.{module.name}"), "KINDS", ())
        for kind in kinds:
            assert kind.name not in found, f"two kinds are called `{kind.name}`"
            found[kind.name] = kind
    return found


__all__ = ["FaultKind", "all_kinds"]
