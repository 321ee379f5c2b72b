"""Parses Python, also from several threads.

CPython 3.11 keeps one recursion counter for all threads while it converts a tree. Two conversions
at a time now and then end in a `SystemError`.
"""

import ast
import threading
from typing import Final

_ONE_AT_A_TIME: Final = threading.Lock()


def syntax_tree(text: str) -> ast.Module:
    """`ast.parse`, for one thread at a time. Raises what that raises."""
    with _ONE_AT_A_TIME:
        return ast.parse(text)
