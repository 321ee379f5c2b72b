"""All hooks of a program that run as Python, each made when it is first called.

Owns which hooks those are, and why the others are not. It never fails: a hook that cannot be
translated, for whatever reason, runs in the interpreter.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from engine.policy.sandbox.compiled import CompiledHook
from engine.policy.sandbox.protocol import Call, ProgramImage, RawAnswer, Verdict
from engine.policy.sandbox.translation import exports
from engine.policy.sandbox.translation.kinds import SchemaTypes, Untranslatable
from engine.policy.sandbox.translation.texts import Texts


class Translations:
    """The translated hooks of a program.

    *constants* are those of the instances' files, one for each, and *loaded* those of the files
    that they load, as `exports` writes them.
    """

    def __init__(
        self, image: ProgramImage, constants: list[str], loaded: Mapping[str, str]
    ) -> None:
        self._image = image
        self._schema = SchemaTypes(image.schema)
        self._constants = constants
        self._loaded = loaded
        self._values: dict[str, Mapping[str, Any]] = {}
        self._texts: dict[int, Texts] = {}
        self._hooks: dict[tuple[int, str], CompiledHook | str] = {}

    def answer(self, call: Call) -> RawAnswer | None:
        """The answer to *call*, to be sent; None leaves it to the interpreter."""
        hook = self._hook(call)
        return None if isinstance(hook, str) else hook.answer(call)

    def verdicts(self, call: Call) -> Sequence[Verdict] | None:
        """The answer to *call*, decoded; None leaves it to the interpreter."""
        hook = self._hook(call)
        return None if isinstance(hook, str) else hook.verdicts(call)

    def _hook(self, call: Call) -> CompiledHook | str:
        key = (call.instance, call.hook)
        hook = self._hooks.get(key)
        if hook is None:
            hook = self._hooks[key] = self._made(*key)
        return hook

    def obstacle(self, instance: int, hook: str) -> str:
        """Why a hook is not translated, or ""."""
        key = (instance, hook)
        if key not in self._hooks:
            self._hooks[key] = self._made(*key)
        found = self._hooks[key]
        return found if isinstance(found, str) else ""

    def _made(self, index: int, hook: str) -> CompiledHook | str:
        instance = self._image.instances[index]
        texts = self._texts.get(index)
        if texts is None:
            texts = self._texts[index] = Texts(
                self._image.files, lambda path: self._constants_of(index, path)
            )
        try:
            return CompiledHook(
                texts,
                instance.module,
                hook,
                instance.hooks[hook],
                self._schema,
                self._image.limits.steps,
                bounded="normalize" not in instance.hooks,
            )
        except Untranslatable as error:
            return str(error)
        except Exception as error:  # the interpreter runs it all the same
            return f"{type(error).__name__}: {error}"

    def _constants_of(self, index: int, path: str) -> Mapping[str, Any]:
        if path == self._image.instances[index].module:
            text = self._constants[index]
        else:
            text = self._loaded.get(path, "")
        found = self._values.get(text)
        if found is None:
            found = self._values[text] = exports.read(text) if text else {}
        return found
