"""Imports one module of the scheduler from other source than its file has."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType

from tests.devkit.faults.planted.fault import ROOT, PlantedFault


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles the source that it was given; nothing of it is cached in files."""

    def __init__(self, fault: PlantedFault) -> None:
        super().__init__(fault.module, str(ROOT / fault.path))
        self._source = fault.source()

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = compile(self._source, self.path, "exec", dont_inherit=True)
        return code


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, fault: PlantedFault) -> None:
        self._fault = fault

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._fault.module:
            return None
        return importlib.util.spec_from_loader(fullname, _Loader(self._fault))


def plant(fault: PlantedFault) -> None:
    """Have *fault* in every import of its module from now on.

    Raises `RuntimeError` if the module is imported already.
    """
    if fault.module in sys.modules:
        raise RuntimeError(f"`{fault.module}` was imported before its fault was planted")
    sys.meta_path.insert(0, _Finder(fault))
