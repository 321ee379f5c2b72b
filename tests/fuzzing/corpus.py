"""The corpora: for each target a folder of inputs, small and readable, in the repository.

Owns where inputs lie. `found-*` are inputs that once failed.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

CORPORA: Final = Path(__file__).parent / "corpora"


def corpus_of(target: str) -> Path:
    """The folder of a target's inputs."""
    return CORPORA / target


def inputs_of(target: str) -> Iterator[Path]:
    """The inputs of a target, in order."""
    return iter(sorted(path for path in corpus_of(target).iterdir() if path.is_file()))
