"""The targets by name; what each does with an input is its module's.

Owns the table. A target calls the entry point that the product uses, lets the documented errors
pass, and raises for anything else that is worth a report. A module is imported only when its target
is used: to instrument all of the engine takes half a minute.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.fuzzing.forms import FRAMES, JSON, JSON_LINES, TOKENS, YAML, Form


@dataclass(frozen=True)
class Target:
    """What is fuzzed.

    Attributes:
        forms: In which an input is mutated, in addition to its bytes; one may be there repeatedly.
        most_bytes: The size of the largest input.
    """

    forms: tuple[Form, ...]
    most_bytes: int = 4_096


TARGETS: Final = {
    "policies": Target((TOKENS,)),
    "configuration": Target((YAML, YAML, TOKENS)),
    "manifests": Target((YAML, YAML, YAML, TOKENS)),
    "watches": Target((JSON_LINES, JSON_LINES, JSON_LINES, TOKENS), 8_192),
    "http": Target((TOKENS,)),
    "extenders": Target((JSON, JSON, TOKENS)),
    "recordings": Target((JSON_LINES, JSON_LINES, JSON_LINES, TOKENS), 16_384),
    "facts": Target((JSON, JSON, TOKENS)),
    "sandbox": Target((FRAMES,)),
}


def runner_of(target: str) -> Callable[[bytes], None]:
    """The function of *target* that takes an input, and raises for a defect."""
    run: Callable[[bytes], None] = importlib.import_module(f"{__name__}.{target}").run
    return run
