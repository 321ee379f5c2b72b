"""Keeps decoded views of nodes, because decoding a node costs more than most hooks do.

Owns keeping them, frozen, by the text that they were made of, and the modules that run a hook over
them. Nothing depends on what is kept: whatever does not go as it should with frozen views (a hook
that changes what it was given, an invalid verdict) is answered again from the text.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Final

import starlark

from engine.policy.sandbox import drivers
from engine.policy.sandbox.modules import DIALECT, GLOBALS

#: Parts with fewer entries than this are not kept: a run over them costs little.
LEAST: Final = 32

# Characters of JSON whose views are kept; views take some six times as much memory. At most a
# sixth of what the process may have.
_CAPACITY: Final = 12 << 20
_SHARE: Final = 36
# Modules that run one hook over one sequence of parts. Each is small.
_BOUND: Final = 4096


class NodeViews:
    """Frozen views by text, and drivers bound to them; what was not used for longest goes first.

    Args:
        views: The module that makes views.
        address_space: Bytes that the process may take, for all that it does.
    """

    def __init__(self, views: starlark.FrozenModule, address_space: int) -> None:
        self._views = views
        self._capacity = min(_CAPACITY, address_space // _SHARE)
        self._size = 0
        self._nodes: OrderedDict[str, starlark.FrozenModule] = OrderedDict()
        self._bound: OrderedDict[tuple[Hashable, tuple[str, ...]], starlark.FrozenModule] = (
            OrderedDict()
        )
        self._making = starlark.parse("@starsched/nodes.star", drivers.nodes_text(), DIALECT)
        self._binding: dict[int, starlark.AstModule] = {}

    def bound(
        self, hook: Hashable, driver: starlark.FrozenModule, texts: Sequence[str]
    ) -> starlark.FrozenModule:
        """The module whose `go(pod, extra)` asks *driver*'s hook about the nodes of *texts*.

        *hook* names the driver. Raises whatever the interpreter does.
        """
        key = (hook, tuple(texts))
        found = self._bound.get(key)
        if found is not None:
            self._bound.move_to_end(key)
            for text in texts:
                if text in self._nodes:
                    self._nodes.move_to_end(text)
            return found
        loads = {f"{drivers.NODES_MODULE}/{k}": self._of(text) for k, text in enumerate(texts)}
        loads[drivers.RUN_MODULE] = driver
        tree = self._binding.get(len(texts))
        if tree is None:
            tree = starlark.parse("@starsched/bound.star", drivers.bound_text(len(texts)), DIALECT)
            self._binding[len(texts)] = tree
        module = starlark.Module()
        starlark.eval(module, tree, GLOBALS, starlark.FileLoader(lambda name: loads[name]))
        found = self._bound[key] = module.freeze()
        self._trim()
        return found

    @property
    def size(self) -> int:
        """Characters of JSON whose views are kept."""
        return self._size

    def _of(self, text: str) -> starlark.FrozenModule:
        found = self._nodes.get(text)
        if found is not None:
            self._nodes.move_to_end(text)
            return found
        module = starlark.Module()
        module["TEXT"] = text
        starlark.eval(module, self._making, GLOBALS, starlark.FileLoader(lambda _: self._views))
        found = self._nodes[text] = module.freeze()
        self._size += len(text)
        return found

    def _trim(self) -> None:
        gone: set[str] = set()
        while self._size > self._capacity and len(self._nodes) > 1:
            text, _ = self._nodes.popitem(last=False)
            self._size -= len(text)
            gone.add(text)
        if gone:
            for key in [key for key in self._bound if not gone.isdisjoint(key[1])]:
                del self._bound[key]
        while len(self._bound) > _BOUND:
            self._bound.popitem(last=False)
