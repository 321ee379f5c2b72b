"""Starlark modules: dialect, globals, and the loading of a file with everything that it loads.

Owns the rules of `load`: `"x.star"` is a file in the folder of the policy, `"@std/x.star"` and
`"@kubernetes/x.star"` ship with the runtime, and nothing else can be reached.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import starlark

from engine.language import json_numbers, prelude
from engine.policy.errors import PolicyErrors, Problem
from engine.policy.sandbox import messages
from engine.policy.sandbox.protocol import Files, Limits
from engine.policy.sandbox.translation import exports

Natives = Mapping[str, Callable[..., Any]]

ARGUMENTS_MODULE: Final = "@starsched/arguments.star"

# Constants that take longer to write out are not worth it.
_STEPS_TO_SPELL: Final = 200_000


def _dialect(*, is_own: bool = False) -> starlark.Dialect:
    dialect = starlark.Dialect.standard()
    dialect.enable_f_strings = True
    dialect.enable_types = starlark.DialectTypes.ENABLE
    dialect.enable_load_reexport = False
    dialect.enable_positional_only_arguments = is_own
    return dialect


DIALECT: Final = _dialect()
#: Of the runtime's own text, which says what a builtin takes by place alone.
_OWN_DIALECT: Final = _dialect(is_own=True)
GLOBALS: Final = starlark.Globals.extended_by(
    [
        starlark.LibraryExtension.StructType,
        starlark.LibraryExtension.RecordType,
        starlark.LibraryExtension.EnumType,
        starlark.LibraryExtension.Json,
        starlark.LibraryExtension.Typing,
    ]
)


class Budget:
    """Counts a run's instructions, a thousand at a time, and says when to stop."""

    def __init__(self, limits: Limits) -> None:
        self._left = 0
        self.options = starlark.EvalOptions(
            check_cancelled=self._is_spent,
            # The runtime's own drivers take two levels.
            max_callstack_size=limits.call_depth + 2,
        )

    def allow(self, steps: int) -> starlark.EvalOptions:
        """Start a run of at most *steps* instructions."""
        self._left = max(1, steps // 1000)
        return self.options

    def _is_spent(self) -> bool:
        self._left -= 1
        return self._left < 0


class LoadError(Exception):
    """A `load` that cannot be done; the interpreter adds the place."""


class Modules:
    """The frozen modules of one set of files, each loaded once.

    Args:
        files: Module path to text.
        limits: Steps and depth for the top level of each file.
        natives: Extra functions for single modules, by module path (test harnesses use it).
        keeps_constants: Keep what the top levels assign, for the translation of hooks.
    """

    def __init__(
        self,
        files: Files,
        limits: Limits,
        natives: Mapping[str, Natives] | None = None,
        *,
        keeps_constants: bool = False,
    ) -> None:
        self._files = files
        self._limits = limits
        self._natives = dict(natives or {})
        self._budget = Budget(limits)
        self._frozen: dict[str, starlark.FrozenModule] = {}
        self._failed: dict[str, PolicyErrors] = {}
        self._loading: list[str] = []
        self._frozen[prelude.MODULE] = self.run_private(
            prelude.MODULE, prelude.text(), natives=prelude.natives()
        )
        names = ", ".join(f'"{name}"' for name in prelude.names())
        self._prelude = starlark.parse(
            "@starsched/prelude.star",
            f'load("{prelude.MODULE}", {names}, json = "{json_numbers.EXPORTED}")',
            DIALECT,
        )
        self._plain_arguments = self.arguments_module("{}", "")
        self._exporter: starlark.FrozenModule | None = None
        if keeps_constants:
            self._exporter = self.run_private(exports.MODULE, exports.TEXT)
        #: The constants of the file that was run last, as `exports` writes them; "" if it cannot.
        self.constants = ""
        #: The same for each file that another one loads.
        self.loaded_constants: dict[str, str] = {}

    def load(self, path: str) -> starlark.FrozenModule:
        """The module at *path*, with default arguments. Raises `PolicyErrors`."""
        frozen = self._frozen.get(path)
        if frozen is None:
            if path in self._failed:
                raise self._failed[path]
            try:
                frozen = self._frozen[path] = self.instantiate(path, self._plain_arguments)
                self.loaded_constants[path] = self.constants
            except PolicyErrors as error:
                self._failed[path] = error
                raise
        return frozen

    def instantiate(self, path: str, arguments: starlark.FrozenModule) -> starlark.FrozenModule:
        """Run the file at *path* afresh with these arguments. Raises `PolicyErrors`."""
        self._loading.append(path)
        try:
            tree = self._parse(path)
            for needed in dict.fromkeys(load.module_id for load in tree.loads()):
                # Loaded here rather than in the interpreter's callback: its errors stay whole.
                if self._refusal(path, needed) is None:
                    self.load(needed)
            module = starlark.Module()
            for name, native in self._natives.get(path, {}).items():
                module.add_callable(name, native)
            self._prepare(module, arguments)
            starlark.eval_with(
                self._budget.allow(self._limits.steps),
                module,
                tree,
                GLOBALS,
                file_loader=starlark.FileLoader(lambda needed: self._resolve(path, needed)),
            )
            if self._exporter is not None:
                self.constants = self._written_constants(module, path)
            return module.freeze()
        except PolicyErrors:
            raise
        except BaseException as error:
            raise _as_errors(error, path) from error
        finally:
            self._loading.pop()

    def arguments_module(
        self,
        given: str,
        convert: str,
        loads: Mapping[str, starlark.FrozenModule] | None = None,
    ) -> starlark.FrozenModule:
        """A module whose `plugin_args` overrides defaults with the JSON object *given*.

        *convert* is Starlark text that defines `_convert(name, value)`, or empty for values as
        they are; *loads* is what it may load.
        """
        text = (
            f'load("{prelude.MODULE}", "bind_arguments")\n'
            f"{convert or 'def _convert(name, value): return value'}\n"
            f"_GIVEN = json.decode({_literal(given)})\n"
            "def plugin_args(**defaults):\n"
            "    return bind_arguments(_GIVEN, defaults, _convert)\n"
        )
        return self.run_private(ARGUMENTS_MODULE, text, loads)

    def run_private(
        self,
        path: str,
        text: str,
        loads: Mapping[str, starlark.FrozenModule] | None = None,
        natives: Natives | None = None,
    ) -> starlark.FrozenModule:
        """Run Starlark of the runtime itself; it may load from *loads* and private modules."""
        module = starlark.Module()
        for name, native in (natives or {}).items():
            module.add_callable(name, native)
        known = {**self._frozen, **(loads or {})}
        starlark.eval(
            module,
            starlark.parse(path, text, _OWN_DIALECT),
            GLOBALS,
            starlark.FileLoader(lambda needed: known[needed]),
        )
        return module.freeze()

    def _written_constants(self, module: starlark.Module, path: str) -> str:
        """What the file at *path* assigned, while its own names can still be named."""
        exporter = self._exporter
        assert exporter is not None
        try:
            reader = exports.reader_text(self._files[path])
            value: Any = starlark.eval_with(
                self._budget.allow(min(self._limits.steps, _STEPS_TO_SPELL)),
                module,
                starlark.parse(exports.MODULE, reader, DIALECT),
                GLOBALS,
                file_loader=starlark.FileLoader(lambda _: exporter),
            ).value
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException:
            return ""  # the hooks of this file run in the interpreter only
        return str(value)

    def _parse(self, path: str) -> starlark.AstModule:
        text = self._files.get(path)
        if text is None:
            raise PolicyErrors([Problem(path, 0, 0, f"no file `{path}`")])
        return starlark.parse(path, text, DIALECT)

    def _prepare(self, module: starlark.Module, arguments: starlark.FrozenModule) -> None:
        # Evaluated in the module before its own text: names are there, lines are not shifted,
        # and the file may still define a name of its own.
        starlark.eval(
            module, self._prelude, GLOBALS, starlark.FileLoader(lambda needed: self._frozen[needed])
        )
        load = starlark.parse(
            "@starsched/prelude.star", f'load("{ARGUMENTS_MODULE}", "plugin_args")', DIALECT
        )
        starlark.eval(module, load, GLOBALS, starlark.FileLoader(lambda _: arguments))

    def _resolve(self, path: str, needed: str) -> starlark.FrozenModule:
        refusal = self._refusal(path, needed)
        if refusal is not None:
            raise LoadError(refusal)
        return self.load(needed)

    def _refusal(self, path: str, needed: str) -> str | None:
        """Why *path* may not load *needed*, or None."""
        if needed in self._loading:
            cycle = [*self._loading[self._loading.index(needed) :], needed]
            return f"files load each other in a circle: {' -> '.join(cycle)}"
        return load_refusal(self._files, path, needed)


def load_refusal(files: Files, path: str, needed: str) -> str | None:
    """Why the file *path* may not load *needed* from *files*, or None. Circles aside."""
    if needed.startswith(messages.PRIVATE):
        return f"no file `{needed}` to load"
    if path.startswith("@") and not needed.startswith("@"):
        return f"a shipped file may only load shipped files, got `{needed}`"
    if needed not in files:
        return (
            f"no file `{needed}` to load: want a file of the same folder (`x.star`), "
            "`@std/x.star` or `@kubernetes/x.star`"
        )
    return None


def _as_errors(error: BaseException, path: str) -> PolicyErrors:
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        raise error
    found = messages.read(error, path)
    problem = Problem(found.file, found.line, found.column, found.message, found.hint)
    return PolicyErrors([problem])


def _literal(text: str) -> str:
    """*text* as a Starlark string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\0") + '"'
