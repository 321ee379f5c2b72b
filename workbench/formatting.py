"""Formats Starlark: spaces, quotes, indentation and blank lines; line breaks stay.

Owns the rules of `starsched fmt`. Works on tokens, so that comments keep their places; what it
gives has the syntax tree of what it was given, and that is checked each time.
"""

import ast
import io
import keyword
import tokenize
from dataclasses import dataclass
from typing import Final

from engine.lib.syntax_tree import syntax_tree

_INDENT: Final = "    "
_OPEN: Final = ("(", "[", "{")
_CLOSE: Final = (")", "]", "}")
# After these a `(`, `[` or an operator begins something of its own.
_WORDS: Final = frozenset(keyword.kwlist) - {"None", "True", "False"}
_BINARY: Final = frozenset({"+", "-", "*", "/", "//", "%", "|", "&", "^", "<<", ">>", "**"})
_ALWAYS_SPACED: Final = frozenset(
    {"=", "==", "!=", "<", ">", "<=", ">=", "->", "+=", "-=", "*=", "/=", "//=", "%="}
    | {"|=", "&=", "^=", "<<=", ">>="}
)
_MARKS: Final = frozenset({tokenize.ENCODING, tokenize.ENDMARKER, tokenize.INDENT, tokenize.DEDENT})


class FormatError(ValueError):
    """Text that cannot be formatted; the message has the line."""


@dataclass(slots=True)
class _Token:
    """One token: its text, where it begins and ends, and what it is to the rules."""

    kind: int
    text: str
    start: tuple[int, int]
    end: tuple[int, int]
    is_unary: bool = False


@dataclass(slots=True)
class _Line:
    """A logical line or a comment of its own: its level, text, and blank lines before it."""

    level: int
    text: str
    blanks: int
    is_comment: bool = False
    opens: bool = False


def formatted(text: str) -> str:
    """*text* in the one way of writing. Raises `FormatError` for what does not parse as Python."""
    # Inside a text of several lines, too, which is one token.
    text = text.replace("\r\n", "\n")
    if "\r" in text:
        line = text.count("\n", 0, text.index("\r")) + 1
        raise FormatError(f"{line}: a carriage return alone ends no line: want line feeds")
    try:
        before = _meaning(text)
        tokens = _tokens(text)
    except (SyntaxError, tokenize.TokenError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 0
        raise FormatError(f"{line}: {getattr(error, 'msg', None) or error}") from error
    result = _joined(_spread(_lines(tokens, text.split("\n"))))
    if not _is_same(result, before, _comments(tokens)):
        raise FormatError("0: cannot be formatted without changing it")
    return result


def _is_same(text: str, meaning: str, comments: list[str]) -> bool:
    """Whether *text* still has this syntax tree and these comments."""
    try:
        return _meaning(text) == meaning and _comments(_tokens(text)) == comments
    except (SyntaxError, tokenize.TokenError, ValueError):
        return False


def _meaning(text: str) -> str:
    return ast.dump(syntax_tree(text))


def _comments(tokens: list[_Token]) -> list[str]:
    return [_comment(t.text) for t in tokens if t.kind == tokenize.COMMENT]


def _tokens(text: str) -> list[_Token]:
    """The tokens; an f-string, which newer Pythons take apart, is one."""
    lines = text.split("\n")
    found: list[_Token] = []
    depth, start = 0, (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = tokenize.tok_name[token.type]
        if name == "FSTRING_START":
            start = start if depth else token.start
            depth += 1
        elif name == "FSTRING_END":
            depth -= 1
            if not depth:
                whole = _between(lines, start, token.end)
                found.append(_Token(tokenize.STRING, whole, start, token.end))
        elif not depth:
            found.append(_Token(token.type, token.string, token.start, token.end))
    return found


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]]
    middle = lines[start[0] : end[0] - 1]
    return "\n".join([lines[start[0] - 1][start[1] :], *middle, lines[end[0] - 1][: end[1]]])


# --- lines ---------------------------------------------------------------------------------------


def _lines(tokens: list[_Token], source: list[str]) -> list[_Line]:
    lines: list[_Line] = []
    indents = [0]
    current: list[_Token] = []
    last_row = 0
    for token, next_kind in zip(tokens, _next_kinds(tokens), strict=True):
        if token.kind == tokenize.INDENT:
            indents.append(len(token.text))
        elif token.kind == tokenize.DEDENT:
            indents.pop()
        elif token.kind == tokenize.COMMENT and not current:
            level = _comment_level(token, next_kind, indents)
            blanks = token.start[0] - last_row - 1
            lines.append(_Line(level, _comment(token.text), blanks, is_comment=True))
            last_row = token.start[0]
        elif token.kind == tokenize.NEWLINE:
            if current:
                first = current[0].start[0]
                level = len(indents) - 1
                lines.append(_Line(level, _statement(current, level, source), first - last_row - 1))
                lines[-1].opens = next_kind == tokenize.INDENT
                last_row = token.start[0]
            current = []
        elif token.kind == tokenize.NL:
            if current:
                current.append(token)
        elif token.kind not in _MARKS:
            current.append(token)
    return lines


def _next_kinds(tokens: list[_Token]) -> list[int]:
    """Of each token the kind of the next one that is neither a comment nor the end of its line."""
    found = [tokenize.ENDMARKER] * len(tokens)
    kind = tokenize.ENDMARKER
    for index in range(len(tokens) - 1, -1, -1):
        found[index] = kind
        if tokens[index].kind not in (tokenize.NL, tokenize.COMMENT):
            kind = tokens[index].kind
    return found


def _comment_level(comment: _Token, next_kind: int, indents: list[int]) -> int:
    """Of a comment of its own: its column says to which block it belongs."""
    column = comment.start[1]
    if column > indents[-1] and next_kind == tokenize.INDENT:
        return len(indents)
    return max(i for i, indent in enumerate(indents) if indent <= column or i == 0)


def _spread(lines: list[_Line]) -> list[_Line]:
    """Set the blank lines: one at most, none at the head of a block, one around functions."""
    for i, line in enumerate(lines):
        before = lines[i - 1] if i else None
        line.blanks = 0 if before is None or before.opens else min(line.blanks, 1)
        is_docstring = i == 1 and lines[0].text.startswith(('"', "'", "r"))
        if before is None or line.level > 0:
            continue
        if (before.level > 0 and not line.text.startswith(("else", "elif"))) or is_docstring:
            line.blanks = 1
        if line.text.startswith("def "):
            # The comments right above a function go with it.
            head = i
            while head and lines[head].blanks == 0 and lines[head - 1].is_comment:
                if lines[head - 1].level > 0:
                    break
                head -= 1
            if head:
                lines[head].blanks = 1
    return lines


def _joined(lines: list[_Line]) -> str:
    return "".join("\n" * line.blanks + _INDENT * line.level + line.text + "\n" for line in lines)


# --- tokens of one statement ---------------------------------------------------------------------


def _statement(tokens: list[_Token], level: int, source: list[str]) -> str:
    """The text of one logical line. Lines inside brackets stay lines, moved with the first."""
    shift = level * len(_INDENT) - _column(tokens[0], source)
    out: list[str] = []
    brackets: list[str] = []
    before: _Token | None = None
    for token in tokens:
        if token.kind == tokenize.NL:
            continue
        if before is not None and token.start[0] > before.end[0]:
            is_joined = not brackets
            blank = any(not source[row].strip() for row in range(before.end[0], token.start[0] - 1))
            out.append((" \\\n" if is_joined else "\n") + ("\n" if blank else ""))
            out.append(" " * max(0, _column(token, source) + shift))
            _mark(before, token)
        elif before is not None:
            out.append(_space(before, token, brackets))
        if token.text in _CLOSE and token.kind == tokenize.OP:
            brackets.pop()
        out.append(_written(token))
        if token.text in _OPEN and token.kind == tokenize.OP:
            is_index = token.text == "[" and before is not None and _is_value(before)
            brackets.append("index" if is_index else token.text)
        before = token
    return "".join(out)


def _column(token: _Token, source: list[str]) -> int:
    """How far in *token*, the first of its line, stands; a tab is as wide as a level."""
    before = source[token.start[0] - 1][: token.start[1]]
    return token.start[1] if before.strip() else len(before.expandtabs(len(_INDENT)))


def _written(token: _Token) -> str:
    if token.kind == tokenize.COMMENT:
        return _comment(token.text)
    if token.kind == tokenize.STRING:
        return _string(token.text)
    return token.text


def _comment(text: str) -> str:
    text = text.rstrip()
    body = text.lstrip("#")
    if body and not body[0].isspace() and body[0] not in "!:":
        return f"{text[: len(text) - len(body)]} {body}"
    return text


def _string(text: str) -> str:
    """Double quotes, where that takes no escaping."""
    prefix = text[: len(text) - len(text.lstrip("rRbBfFuU"))]
    body = text[len(prefix) :]
    if "f" in prefix.lower() or '"' in body or "\\" in body or not body.startswith("'"):
        return text
    quotes = 3 if body.startswith("'''") and len(body) >= 6 else 1
    return prefix + '"' * quotes + body[quotes:-quotes] + '"' * quotes


def _is_value(token: _Token) -> bool:
    """True if *token* ends a value: what follows may index, call or operate on it."""
    if token.kind == tokenize.NAME:
        return token.text not in _WORDS
    return token.kind in (tokenize.NUMBER, tokenize.STRING) or token.text in _CLOSE


def _mark(before: _Token, token: _Token) -> None:
    token.is_unary = token.text in _BINARY | {"~"} and not _is_value(before)


def _space(before: _Token, token: _Token, brackets: list[str]) -> str:
    """What stands between two tokens of the same line."""
    _mark(before, token)
    a, b = before.text, token.text
    if token.kind == tokenize.COMMENT:
        return "  "
    if before.kind == tokenize.NUMBER and b == ".":
        return " "  # `1.real` would be a fraction and a name
    if a in _OPEN or b in _CLOSE or b in (",", ";") or "." in (a, b) or before.is_unary:
        return ""
    if ":" in (a, b):
        if brackets and brackets[-1] == "index":
            return " " if before.end != token.start else ""  # `a[i:j]`, `a[i + 1 : j]`
        return " " if a == ":" else ""
    if a in (",", ";") or a in _ALWAYS_SPACED or b in _ALWAYS_SPACED:
        return " "
    if a in _BINARY or b in _BINARY:
        return " "
    if b in ("(", "["):
        return "" if _is_value(before) else " "
    return "" if a == "~" else " "
