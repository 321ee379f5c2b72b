"""Mutations that keep an input's form, so that it gets past the first check.

Owns the changes of trees. A tree takes over parts of the seeds, which makes them the dictionary:
field names, enumerations and whole objects come from there.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from tests.fuzzing.forms import Form

#: Values at the edges of what a reader expects.
ODD: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 1, -1, 0.5, -0.0, 1e308, 1e-320, float("nan"), float("inf")),
    *((1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63), (1 << 64) - 1),
    *("", " ", "0", "-1", "1e400", "9" * 40, "1Ei", "1m", "NaN", "*", "/", ".", "a/b/c", "\0"),
    *("\n", "é", "\u2028", "\U0001f600", "null", "true", "a" * 300, "2026-01-01T00:00:00Z"),
    *("9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", [], {}, [None], {"": None}, [[]]),
)
_DEPTHS: Final = (10, 70, 300)
_MOST_CHANGES: Final = 4

_Place = tuple[Any, Any]  # a list and an index, or a dict and a key


class Mutator:
    """Mutates inputs in one of *forms*; *seeds* are where parts and names come from."""

    def __init__(self, forms: Sequence[Form], seeds: Iterable[bytes]) -> None:
        self._forms = forms
        self._parts: dict[Any, list[Any]] = defaultdict(list)
        self._names: list[str] = []
        self._all: list[Any] = []
        for seed in seeds:
            for form in dict.fromkeys(forms):
                if (tree := _read(form, seed)) is not None:
                    self._learn(tree)

    def _learn(self, tree: Any) -> None:
        for inside, key in _places(tree):
            part = inside[key]
            self._all.append(part)
            if isinstance(key, str):
                self._parts[key].append(part)
                self._names.append(key)

    def mutated(self, data: bytes, rng: random.Random) -> bytes | None:
        """*data* with some changes; None if it has none of the forms."""
        form = rng.choice(self._forms)
        tree = _read(form, data)
        if tree is None:
            return None
        holder = [tree]
        try:
            for _ in range(rng.randint(1, _MOST_CHANGES)):
                self._change(holder, rng)
            return form.write(holder[0])
        except Exception:  # the form cannot say it, or it has become too deep
            return None

    def _change(self, holder: list[Any], rng: random.Random) -> None:
        places = list(_places(holder))
        inside, key = rng.choice(places)
        match rng.randrange(8):
            case 0 | 1:
                inside[key] = _copied(self._part(key, rng))
            case 2:
                inside[key] = _copied(rng.choice(ODD))
            case 3:
                inside[key] = _close_to(inside[key], rng)
            case 4:
                if inside is not holder:
                    del inside[key]
            case 5:
                self._add(inside, key, rng)
            case 6:
                other, at = rng.choice(places)
                inside[key] = _copied(other[at])
            case 7:
                part = inside[key]
                for _ in range(rng.choice(_DEPTHS) if rng.random() < 0.1 else 1):
                    part = [part] if isinstance(key, int) else {str(key): part}
                inside[key] = part

    def _part(self, key: Any, rng: random.Random) -> Any:
        alike = self._parts.get(key)
        if alike and rng.random() < 0.7:
            return rng.choice(alike)
        return rng.choice(self._all or ODD)

    def _add(self, inside: Any, key: Any, rng: random.Random) -> None:
        if isinstance(inside, list):
            part = inside[key] if rng.random() < 0.5 else self._part(key, rng)
            inside.insert(rng.randint(0, len(inside)), _copied(part))
        elif self._names:
            name = rng.choice(self._names)
            inside[name] = _copied(self._part(name, rng))


def _read(form: Form, data: bytes) -> Any:
    try:
        return form.read(data)
    except Exception:  # of another form
        return None


def _places(tree: Any) -> Iterator[_Place]:
    stack = [tree]
    while stack:
        inside = stack.pop()
        if isinstance(inside, dict | list):
            for key in list(inside) if isinstance(inside, dict) else range(len(inside)):
                yield inside, key
                stack.append(inside[key])


def _copied(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: _copied(inner) for key, inner in part.items()}
    return [_copied(inner) for inner in part] if isinstance(part, list) else part


def _close_to(part: Any, rng: random.Random) -> Any:
    """A value of the kind of *part*, not far from it."""
    if isinstance(part, bool):
        return not part
    if isinstance(part, int | float):
        return rng.choice((part + 1, part - 1, -part, part * 1000, str(part)))
    if isinstance(part, str | bytes):
        at = rng.randint(0, len(part))
        odd = str(rng.choice(ODD))
        return part[:at] + (odd.encode() if isinstance(part, bytes) else odd) + part[at:]  # type: ignore[operator]  # of one kind
    return [part] if isinstance(part, dict) else list(part) * 2 if isinstance(part, list) else ""
