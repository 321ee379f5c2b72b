"""Lints about format strings: conversions that do not exist, and missing or surplus arguments."""

import ast
import re
from collections.abc import Iterator
from typing import Final

from engine.language.syntax import has_star, short, shown, text_of, walk
from workbench.lint.finding import Finding, PolicySource

_NUMBERS: Final = "doxXeEfFgG"
_KNOWN: Final = f"sr{_NUMBERS}"
_PERCENT: Final = "a percent sign is `%%`"
_WANTED: Final = "want `%s`, `%d` or another single letter: there are no widths and no digits"

# What `format` looks at: an escaped brace, a replacement field, a brace that is neither.
_BRACES: Final = re.compile(r"\{\{|\}\}|\{(?P<place>[^{}]*)\}|[{}]")
_PLACE: Final = re.compile(r"(?P<name>[^.,:!\[\]]*)(![sr])?")
_WANTED_PLACE: Final = (
    "want `{}`, `{0}` or `{name}`, with `!r` at most: there are no widths, digits and fields"
)


def lint_formats(source: PolicySource) -> Iterator[Finding]:
    """Format strings, for `%` or `format`, that fail whenever they are used."""
    for function in source.functions.values():
        for node in walk(function):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
                text = text_of(node.left)
                if text is not None:
                    yield from _percent(source, node, text)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                text = text_of(node.func.value)
                if text is not None and node.func.attr == "format":
                    yield from _formatting(source, node, text)


def _formatting(source: PolicySource, node: ast.Call, text: str) -> Iterator[Finding]:
    """The first thing that is wrong with `text.format(...)`."""
    names: list[str] = []
    for match in _BRACES.finditer(text):
        if match[0] in ("{{", "}}"):
            continue
        if match["place"] is None:
            said = f"`{short(text)}` has a `{match[0]}` that belongs to no place"
            hint = f"a brace is `{2 * match[0]}`"
            yield source.finding("wrong-type", node.func, said, hint, is_error=True)
            return
        place = _PLACE.fullmatch(match["place"])
        if place is None:
            said = f"`{short(text)}` has `{short(match[0])}`, which fills nothing"
            yield source.finding("wrong-type", node.func, said, _WANTED_PLACE, is_error=True)
            return
        names.append(place["name"])
    said = _not_given(names, node)
    if said:
        yield source.finding("wrong-type", node, f"`{short(text)}` has {said}", "", is_error=True)


def _not_given(names: list[str], node: ast.Call) -> str:
    """The replacement field of *names* that *node* gives no value, in words; "" if none."""
    in_turn = names.count("")
    numbered = next((name for name in names if _is_number(name)), None)
    if in_turn and numbered is not None:
        return f"`{{}}` and `{{{numbered}}}`: want all places numbered, or none"
    if not has_star(node.args):
        if in_turn > len(node.args):
            return f"{_places(in_turn)}, and is given {len(node.args)}"
        for name in names:
            if _is_number(name) and (len(name) > 9 or int(name) >= len(node.args)):
                return f"`{{{short(name)}}}`, and is given {len(node.args)}, counted from 0"
    given = {keyword.arg for keyword in node.keywords}
    for name in names:
        if name and not _is_number(name) and not given & {name, None}:  # None is `**values`
            return f"`{{{short(name)}}}`, and is given no `{short(name)}`"
    return ""


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


def _percent(source: PolicySource, node: ast.BinOp, text: str) -> Iterator[Finding]:
    letters = _letters(text)
    wrong = next((letter for letter in letters if letter not in _KNOWN or not letter), None)
    if wrong is not None:
        said = (
            f"`{short(text)}` has `%{wrong}`, which fills nothing"
            if wrong
            else f"`{short(text)}` ends in `%`"
        )
        hint = _PERCENT if wrong in ("", " ") else _WANTED
        yield source.finding("wrong-type", node.left, said, hint, is_error=True)
        return
    given = _given(source, node.right)
    if given is None:
        return
    if len(given) != len(letters):
        said = f"`{short(text)}` has {_places(len(letters))}, and is given {len(given)}"
        hint = ""
        if len(given) == 1 and letters:
            hint = "several values are in brackets: `(x, y)`"
        elif not letters:
            hint = "a place is `%s`"
        yield source.finding("wrong-type", node, said, hint, is_error=True)
        return
    for letter, value in zip(letters, given, strict=True):
        kind = _KINDS.get(source.types.kind_of(value), "")
        if letter in _NUMBERS and kind not in ("", "a number"):
            said = f"`%{letter}` wants a number, `{shown(value)}` is {kind}"
            yield source.finding("wrong-type", value, said, "write `%s`", is_error=True)


def _letters(text: str) -> list[str]:
    """What follows each `%` of *text*, without those of `%%`; "" at its end."""
    found: list[str] = []
    parts = iter(range(len(text)))
    for index in parts:
        if text[index] == "%":
            letter = text[index + 1 : index + 2]
            next(parts, None)
            if letter != "%":
                found.append(letter)
    return found


def _given(source: PolicySource, node: ast.expr) -> list[ast.expr] | None:
    """The values that are formatted; None if their number is not known."""
    if isinstance(node, ast.Tuple):
        return None if has_star(node.elts) else node.elts
    return [node] if _KINDS.get(source.types.kind_of(node), "") else None


_KINDS: Final = {
    "struct": "a struct",
    "list": "a list",
    "dict": "a dict",
    "str": "a text",
    "bool": "True or False",
    "int": "a number",
    "float": "a number",
}


def _places(count: int) -> str:
    return "no places" if count == 0 else f"{count} place{'s' * (count != 1)}"
