"""Python's syntax trees, also from several threads.

CPython 3.11 counts in one place for all threads how deep the tree is that it hands out. Two of them
at a time end in a `SystemError`, now and then.
"""

import ast
import threading
from typing import Final

_ONE_AT_A_TIME: Final = threading.Lock()


def syntax_tree(text: str) -> ast.Module:
    """`ast.parse`, for one thread at a time. Raises what that raises."""
    with _ONE_AT_A_TIME:
        return ast.parse(text)
