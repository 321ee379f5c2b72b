"""The reads and mistakes of a hook, collected while it is inferred.

Owns the record of fields, keys and summaries that were read and the notes about misuse. Which of
them happens where is `infer`'s.
"""

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from engine.language.modules import World
from engine.language.values import Summary, Text, Thunk, Value, View

#: The path of a view that is read as a whole.
ALL: Final = "*"
#: What facts are not given with unless it is asked for.
_AGE: Final = "age_seconds"
#: The path of a read that is not a field: how old facts are.
AGES: Final = f"facts.{_AGE}"


@dataclass(frozen=True, slots=True, order=True)
class Note:
    """A mistake that was found on the way.

    `kind` is "field" (there is no such field), "change" (what a hook is given is changed),
    "presence" (asks if an entry is there that always is), "unnamed" (asks for an entry that is
    there only where it is named, by a computed name) or "counter" (the hook's counters do not have
    that field). `owner` is a view or record, the hook, or for changes what is changed.
    """

    module: str
    line: int
    column: int
    kind: str
    owner: str
    name: str


class Effects:
    """Reads and notes of one hook.

    Attributes:
        reads: By view the paths that are read: a field, `labels[disk]`, or `ALL`.
        summaries: The fields read of `counts` and `over`, or `ALL`; and under `counters` the
            builtins by which counters may be made.
        notes: Mistakes found in the current pass.
        has_grown: True if a pass found a read that was not there before.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.reads: dict[str, set[str]] = {view: set() for view in world.schema.views}
        self.summaries: dict[str, set[str]] = {"counts": set(), "over": set(), "counters": set()}
        self.notes: set[Note] = set()
        self.has_grown = False
        self.reads_ages = False
        self.reads_manifest = False
        self.facts_escape = False
        # Dict fields that were named, whether they are read or not.
        self.touched: set[tuple[str, str]] = set()
        # Of values that may be views that have escaped: a field, and an entry of it.
        self.named: set[tuple[str, str]] = set()

    def read(self, view: str, path: str) -> None:
        """*path* of *view* is read."""
        if path not in self.reads[view]:
            self.reads[view].add(path)
            self.has_grown = True

    def read_summary(self, summary: Summary, name: str) -> None:
        """A field of an element of `counts`, or of `over`, is read."""
        self.summaries[summary.parameter].add(name)

    def makes_counter(self, builtin: str) -> None:
        """A counter may be made by *builtin*."""
        self.summaries["counters"].add(builtin)

    def read_whole(self, view: str) -> None:
        """*view* escaped to where it cannot be followed: all of it is read."""
        self.read(view, ALL)
        self.facts_escape = True

    def read_dict(self, thunk: Thunk) -> None:
        """All of a dict field is read."""
        self.read(thunk.view, thunk.field)
        self.facts_escape |= self._world.schema.views[thunk.view][thunk.field].fills

    def read_keys(self, thunk: Thunk, key: Value) -> None:
        """The entries of a dict field that *key* may name are read."""
        is_known = bool(key) and all(isinstance(a, Text) for a in key)
        if not is_known:
            self.read(thunk.view, thunk.field)
        if is_known or thunk.field in self._world.named_fields:
            for atom in key:
                if isinstance(atom, Text):
                    self.read(thunk.view, f"{thunk.field}[{atom.value}]")

    def asks_name(self, name: str) -> None:
        """A field *name* is read of whatever it is: facts cannot be followed everywhere."""
        self.reads_ages |= name == _AGE

    def read_everything(self) -> None:
        """The hook cannot be followed: it reads whatever there is, and nothing is noted."""
        for paths in (*self.reads.values(), *self.summaries.values()):
            paths.add(ALL)
        self.reads_ages = True
        self.notes.clear()

    def pass_on(self, others: Iterable["Effects"]) -> None:
        """What escaped here is given to the hooks of *others*, which look at it."""
        for other in others:
            self.named |= other.named
            self.reads_ages |= other.reads_ages and self.facts_escape
            self.reads_manifest |= other.reads_manifest

    def finish(self) -> None:
        """Count a dict field as read that is named and never looked at: it must be there too."""
        for view, field in self.touched:
            if not any(path.partition("[")[0] in (field, ALL) for path in self.reads[view]):
                self.reads[view].add(field)

    def found(self) -> dict[str, set[str]]:
        """All reads by view, with what is given to those alone that ask for it."""
        views = self._world.schema.views
        for view, paths in self.reads.items():
            paths |= {
                f"{name}[{key}]"
                for name, key in self.named
                if name in views[view] and not paths.isdisjoint((ALL, name))
            }
            if ALL in paths and self.reads_manifest and "manifest" in views[view]:
                paths.add("manifest")
        if self.reads_ages:
            for view, paths in self.reads.items():
                fields = (views[view].get(path.partition("[")[0]) for path in paths)
                if ALL in paths or any(field and field.fills for field in fields):
                    paths.add(AGES)
        return self.reads

    # --- notes -------------------------------------------------------------------------------

    def note(self, module: str, node: ast.expr, kind: str, owner: str, name: str = "") -> None:
        """Note a mistake at *node*."""
        # Of `a.b` the name that is wrong is at the end.
        line, offset = node.lineno, node.col_offset
        if isinstance(node, ast.Attribute) and node.end_col_offset is not None:
            line, offset = node.end_lineno or line, node.end_col_offset - len(node.attr.encode())
        self.notes.add(Note(module, line, offset + 1, kind, owner, name))

    def note_presence(self, module: str, node: ast.expr, owners: Value) -> None:
        """*node* asks whether a dict has an entry that is always there, if need be as None."""
        for atom in owners:
            if isinstance(atom, Thunk) and self._world.schema.views[atom.view][atom.field].fills:
                self.note(module, node, "presence", atom.view, atom.field)

    def note_key(self, module: str, node: ast.expr, owners: Value, key: Value) -> None:
        """*node* asks for an entry that is there only where it is named, by another name."""
        for atom in owners:
            if (
                isinstance(atom, Thunk)
                and self._world.schema.views[atom.view][atom.field].is_asked
                and not any(isinstance(a, Text) for a in key)
            ):
                self.note(module, node, "unnamed", atom.view, atom.field)

    def note_change(self, module: str, node: ast.expr, owner: Value) -> None:
        """Note a change of what the hook was given, named by *owner*."""
        names = {
            f"{a.view}.{a.field}" if isinstance(a, Thunk) else "the view"
            for a in owner
            if isinstance(a, Thunk | View)
        }
        self.note(module, node, "change", min(names, default="a part of a view"))
