"""Directories and those in them.

Owns which of them count. What is in them is for those who read it.
"""

from collections.abc import Iterator
from pathlib import Path


def walk(root: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """*root* and every directory in it, but for hidden ones, and for links to where they are in.

    Hidden ones are a mounted ConfigMap's earlier versions, or a version control's.
    """
    if root.resolve() in above:
        return
    yield root
    above = (*above, root.resolve())
    for child in sorted(root.iterdir()):
        if child.is_dir() and not child.name.startswith("."):
            yield from walk(child, above)
