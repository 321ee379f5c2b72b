"""Which policies of one program go on unchanged in the next.

Owns what makes two instances the same: their text with all that it loads, their arguments, their
limits. An answer of such a policy holds under the new program as well, because a hook is a function
of what it is given.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from engine.policy.evaluator import Files, Instance, Program
from engine.policy.syntax import loads_of, parse

Value = TypeVar("Value")

_SHIPPED: Final = "@"


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
    known: Mapping[Any, Value], instances: Mapping[int, int]
) -> Iterator[tuple[Any, Value]]:
    """What is *known* of *instances*, where a key begins with an index: under that of the next."""
    for (instance, *rest), value in known.items():
        if instance in instances:
            yield (instances[instance], *rest), value


def _identity(files: Files, instance: Instance) -> tuple[Any, ...]:
    # As JSON, because to Python 1, 1.0 and True are equal; the order of keys counts, too.
    given = msgspec.json.encode([instance.args, instance.arg_types])
    return instance.policy, instance.module, given, *_texts(files, instance.module)


def _texts(files: Files, module: str) -> list[tuple[str, str]]:
    """The user's files that *module* consists of, with itself; shipped ones load no such file."""
    reached: dict[str, str] = {}
    waiting = [module]
    while waiting:
        path = waiting.pop()
        if path in reached or path.startswith(_SHIPPED) or path not in files:
            continue
        text = reached[path] = files[path]
        tree = parse(text)
        if tree is not None:
            waiting += [load.module for load in loads_of(tree)]
    return sorted(reached.items())
