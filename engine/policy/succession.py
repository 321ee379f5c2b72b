"""Which policies of one program go on unchanged in the next.

Owns what makes two instances the same: their text with all that it loads, their arguments, their
limits. An answer of such a policy holds under the new program as well, because a hook is a function
of what it is given.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from engine.language.syntax import with_loaded
from engine.policy.evaluator import Files, Instance, Program

Value = TypeVar("Value")

# What is taken over of each kind: a matter of some milliseconds, in which nothing is decided.
_MOST_CARRIED: Final = 4_096


def unchanged_instances(before: Program, now: Program) -> Mapping[int, int]:
    """The index in *before* -> the index in *now* of each policy that goes on as it was."""
    if before.limits != now.limits:
        return {}
    known = {_identity(before.files, one): index for index, one in enumerate(before.instances)}
    found: dict[int, int] = {}
    for index, instance in enumerate(now.instances):
        old = known.get(_identity(now.files, instance))
        if old is not None:
            found[old] = index
    return found


def carried(
    known: dict[Any, Value], instances: Mapping[int, int], most: int = _MOST_CARRIED
) -> Iterator[tuple[Any, Value]]:
    """What is *known* of *instances*, where a key begins with an index: under that of the next.

    The last *most* entries of *known*, in their order.
    """
    last = ((key, value) for key, value in reversed(known.items()) if key[0] in instances)
    for (instance, *rest), value in reversed(list(islice(last, most))):
        yield (instances[instance], *rest), value


def _identity(files: Files, instance: Instance) -> tuple[Any, ...]:
    # As JSON, because to Python 1, 1.0 and True are equal; the order of keys counts, too.
    given = msgspec.json.encode([instance.args, instance.arg_types])
    texts = {file: files[file] for file in with_loaded(files, [instance.module])}
    return instance.policy, instance.module, given, *sorted(texts.items())
