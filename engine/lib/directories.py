"""Lists directories and the files in them.

Owns which of them count. The content of files is the caller's business.
"""

from collections.abc import Collection, Iterator
from pathlib import Path


def walk(root: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """*root* and every directory in it, except hidden ones and links to a parent.

    Hidden ones are a mounted ConfigMap's earlier versions, or a version control's.
    """
    if root.resolve() in above:
        return
    yield root
    above = (*above, root.resolve())
    for child in sorted(root.iterdir()):
        if child.is_dir() and not child.name.startswith("."):
            yield from walk(child, above)


def files_in(directory: Path, suffixes: Collection[str]) -> list[Path]:
    """The files of *directory* itself with one of *suffixes*, by name, but for hidden ones.

    Pipes are left out, and so are dangling links: a mounted ConfigMap briefly has one where a key
    was removed.
    """
    return sorted(
        child
        for child in directory.iterdir()
        if child.suffix in suffixes and not child.name.startswith(".") and child.is_file()
    )
