"""Field errors of a manifest: the field, what was wanted and what was found.

Owns the translation of decoding errors. Files and lines are added by callers that know them.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

Steps = tuple[str | int, ...]

_AT: Final = re.compile(r"^(?P<what>.*?)(?: - at `(?P<key>key in )?\$(?P<path>.*)`)?$", re.DOTALL)
_STEP: Final = re.compile(r"\.([^.\[]+)|\[\"([^\"]*)\"\]|\[([^\]\"]+)\]")
_JSON_TYPES: Final = {
    dict: "object", list: "array", str: "str", bool: "bool", int: "int", float: "float",
    type(None): "null",
}  # fmt: skip


def field_error(manifest: Any, text: str) -> tuple[Steps, str]:
    """Where in *manifest* something is wrong, and what: "want `str`, got `1` (int)".

    *text* is the error of the decoder: "Expected `str`, got `int` - at `$.metadata.labels[...]`".
    """
    match = _AT.match(text)
    assert match is not None
    want, _, got = match["what"].removeprefix("Expected ").partition(", got ")
    at = place_of(manifest, match["path"] or "", got.strip("`"))
    if not got:
        return at, match["what"]
    value: Any = manifest
    for step in at:
        value = value[step] if not isinstance(value, dict) or step in value else None
    return at, f"want {want}, got {shown(value)}"


def steps_of(path: str) -> Steps:
    """The keys of a path, as `.spec.taints[0]` or `.limits[cpu]`; indices are texts."""
    return tuple(
        next(group for group in match.groups() if group is not None)
        for match in _STEP.finditer(path)
    )


def place_of(manifest: Any, path: str, got: str) -> Steps:
    """The keys of a path. `[...]` is some entry of a mapping: the first of the type *got*."""
    at: list[str | int] = []
    value = manifest
    for step in steps_of(path):
        if isinstance(value, list) and str(step).isdigit():
            step = int(step)
        elif step == "..." and isinstance(value, dict):
            # In a mapping of mappings the error is further in; the first match will do.
            step = next((k for k, v in value.items() if _JSON_TYPES.get(type(v)) == got), "")
            if not step:
                break
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            at.append(step)
            break
        at.append(step)
    return tuple(at)


def describe_error(manifest: Any, text: str) -> str:
    """A field error as one text: "metadata.labels.x: want `str`, got `1` (int)"."""
    at, what = field_error(manifest, text)
    return f"{written(at)}: {what}" if at else what


def written(path: Iterable[str | int]) -> str:
    """A path as it is usually written: `spec.taints[0].key`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif re.fullmatch(r"[A-Za-z_]\w*", step):
            text += f".{step}" if text else step
        else:
            text += f"[{step}]"
    return text


def shown(value: Any) -> str:
    """A value and its type, cut off where it is long."""
    if value is None:
        return "nothing"
    kind = _JSON_TYPES.get(type(value), type(value).__name__)
    if isinstance(value, dict | list):
        return f"an {kind}"
    text = str(value)
    return f"`{text if len(text) <= 60 else text[:57] + '...'}` ({kind})"
