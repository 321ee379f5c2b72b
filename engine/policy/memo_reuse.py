"""Which verdicts of one program may be reused under the next.

Owns what makes two policy instances equal: their text with all that it loads, their arguments and
their limits. A verdict of such a policy holds under the new program as well, because a hook is a
pure function of its inputs.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from engine.language.syntax import with_loaded
from engine.policy.evaluator import Files, Instance, Program

Value = TypeVar("Value")

# Entries that are taken over of each kind: some milliseconds, during which nothing is decided.
_MAX_REUSED: Final = 4_096


def unchanged_instances(before: Program, now: Program) -> Mapping[int, int]:
    """The index in *before* -> the index in *now* of each policy that is unchanged."""
    if before.limits != now.limits:
        return {}
    known = {_identity(before.files, one): index for index, one in enumerate(before.instances)}
    found: dict[int, int] = {}
    for index, instance in enumerate(now.instances):
        old = known.get(_identity(now.files, instance))
        if old is not None:
            found[old] = index
    return found


def reusable_entries(
    known: dict[Any, Value], instances: Mapping[int, int], most: int = _MAX_REUSED
) -> Iterator[tuple[Any, Value]]:
    """The entries of *known* that belong to *instances*, under their new indices.

    A key begins with the index of its instance; *instances* maps old to new indices. At most the
    last *most* entries of *known*, in their order.
    """
    last = ((key, value) for key, value in reversed(known.items()) if key[0] in instances)
    for (instance, *rest), value in reversed(list(islice(last, most))):
        yield (instances[instance], *rest), value


def _identity(files: Files, instance: Instance) -> tuple[Any, ...]:
    # As JSON, because to Python 1, 1.0 and True are equal; the order of keys counts, too.
    given = msgspec.json.encode([instance.args, instance.arg_types])
    texts = {file: files[file] for file in with_loaded(files, [instance.module])}
    return instance.policy, instance.module, given, *sorted(texts.items())
