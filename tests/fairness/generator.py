"""Random trees of queues: small numbers, in which ties and exhaustion are."""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.json_lines import Plain

_RESOURCES: Final = ("cpu", "memory", "nvidia.com/gpu")
_MOST: Final = 20
_GIBIBYTE: Final = 1 << 30
_Attributes = Callable[[random.Random, list[str], bool, bool], Plain]


def case(scheme: str, seed: int, index: int) -> Plain:
    """The case of this *index* of a *scheme*, one of `SCHEMES`."""
    rng = random.Random(f"{scheme} {seed} {index}")
    made = _MAKERS[scheme](rng)
    return _enlarged(made) if rng.random() < 0.2 else made


def _enlarged(value: Any) -> Any:
    """The same case with memory in bytes, the products of which are too large for a double."""
    if isinstance(value, dict):
        return {
            name: one * _GIBIBYTE + one * 7919 % 1000 if name == "memory" else _enlarged(one)
            for name, one in value.items()
        }
    return [_enlarged(one) for one in value] if isinstance(value, list) else value


def _kueue(rng: random.Random) -> Plain:
    resources = _some(rng, 2)
    paths = _paths(rng, levels=4, roots=rng.choice((1, 1, 2)))
    queues = _queues(rng, paths, resources, _kueue_attributes)
    for queue in queues.values():  # what a queue has no quota of, it cannot run
        nominal = queue["attributes"]["nominal"]
        for pod in queue.get("pods", ()):
            pod["resources"] = {r: v for r, v in pod["resources"].items() if r in nominal}
        if rng.random() < 0.9 and "head" in queue:
            asked = queue["head"]["resources"]
            queue["head"]["resources"] = {r: v for r, v in asked.items() if r in nominal}
        if "head" in queue and not queue["head"]["resources"]:
            del queue["head"]
    return {"args": {}, "total": dict.fromkeys(resources, 1000), "queues": queues}


def _kueue_attributes(
    rng: random.Random, resources: list[str], is_leaf: bool, is_top: bool
) -> Plain:
    if not is_leaf and rng.random() < 0.5:
        nominal = {}
    else:
        nominal = {r: _amount(rng, 0) for r in resources if rng.random() < 0.95}
    limited = [r for r in nominal if not is_top]
    return {
        "nominal": nominal,
        "borrowing_limit": {r: _amount(rng, 0) for r in limited if rng.random() < 0.25},
        "lending_limit": {r: rng.randint(0, nominal[r]) for r in limited if rng.random() < 0.25},
        "weight": rng.choice((0, 500, 1000, 1000, 1000, 2000, 3000, 7000)),
    }


def _koordinator(rng: random.Random) -> Plain:
    resources = _some(rng, 2)
    paths = _paths(rng, levels=4)
    queues = _queues(rng, paths, resources, _koordinator_attributes, sizes=(0, 3))
    total = {r: _amount(rng, 1) * rng.choice((1, 1, 2, 5)) for r in resources}
    return {"args": {"scale_min": rng.random() < 0.5}, "total": total, "queues": queues}


def _koordinator_attributes(
    rng: random.Random, resources: list[str], is_leaf: bool, is_top: bool
) -> Plain:
    # Koordinator's webhook wants the same resources in all.
    most = {r: _amount(rng, 0) * rng.choice((1, 1, 3)) for r in resources}
    found: Plain = {
        "min": {r: rng.randint(0, v) for r, v in most.items() if rng.random() < 0.7},
        "max": most,
        "lends": rng.random() < 0.7,
    }
    if rng.random() < 0.7:
        found["shared_weight"] = {r: rng.randint(0, 5) for r in most if rng.random() < 0.9}
    return found


def _yunikorn(rng: random.Random) -> Plain:
    resources = _some(rng, 3)
    paths = _paths(rng, levels=3)
    queues = _queues(rng, paths, resources, _yunikorn_attributes)
    total = {r: _amount(rng, 1) * 5 for r in resources if r == "cpu" or rng.random() < 0.8}
    return {"args": {"priority_first": rng.random() < 0.5}, "total": total, "queues": queues}


def _yunikorn_attributes(
    rng: random.Random, resources: list[str], is_leaf: bool, is_top: bool
) -> Plain:
    return {
        "guaranteed": {r: _amount(rng, 0) for r in resources if rng.random() < 0.4},
        "max": {r: _amount(rng, 0) for r in resources if rng.random() < 0.3},
        "priority": rng.choice((0, 0, 0, 1, -1)),
        "priority_policy": rng.choice(("default", "default", "default", "fence")),
    }


def _capacity(rng: random.Random) -> Plain:
    resources = _some(rng, 3)
    paths = dict.fromkeys("abcdef"[: rng.randint(1, 6)], True)
    queues = _queues(rng, paths, resources, _capacity_attributes, sizes=(0, 3))
    return {"args": {}, "total": dict.fromkeys(resources, 1000), "queues": queues}


def _capacity_attributes(
    rng: random.Random, resources: list[str], is_leaf: bool, is_top: bool
) -> Plain:
    names = [*resources, "ephemeral-storage", "pods"]
    found: Plain = {"min": {r: _amount(rng, 0) for r in names if rng.random() < 0.85}}
    if rng.random() < 0.7:
        found["max"] = {r: _amount(rng, 5) for r in names if rng.random() < 0.9}
    if rng.random() < 0.05:
        del found["min"]
    return found


def _some(rng: random.Random, most: int) -> list[str]:
    return list(_RESOURCES[: rng.randint(1, most)])


def _amount(rng: random.Random, least: int) -> int:
    return rng.choice((least, rng.randint(least, _MOST), rng.randint(least, 5)))


def _paths(rng: random.Random, levels: int, roots: int = 0) -> dict[str, bool]:
    """Paths of queues, and if each is a leaf. *roots*: how many have others under them."""
    found: dict[str, bool] = {}

    def grow(path: str, level: int) -> None:
        found[path] = True
        if level < levels and ((level == 1 and roots) or rng.random() < 0.4):
            found[path] = False
            for name in "abcd"[: rng.randint(1, 4 if level < 3 else 2)]:
                grow(f"{path}/{name}", level + 1)

    # Now and then many side by side, as there are more remainders then.
    for name in "pqrstuvwxyzabc"[: roots or rng.choice((1, 2, 3, 3, 4, 5, 14))]:
        grow(name, 1)
    return found


def _queues(
    rng: random.Random,
    paths: Mapping[str, bool],
    resources: list[str],
    attributes: _Attributes,
    sizes: tuple[int, int] = (0, 4),
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    created = 0
    for path, is_leaf in paths.items():
        queue = found[path] = {"attributes": attributes(rng, resources, is_leaf, "/" not in path)}
        if not is_leaf:
            continue
        queue["pods"] = [
            {"name": f"{path}-{n}", "resources": _asked(rng, resources), "created_at": n}
            for n in range(rng.randint(*sizes))
        ]
        if rng.random() < 0.85:
            created += rng.randint(0, 1)
            queue["head"] = {
                "name": f"{path}-head",
                "resources": _asked(rng, resources),
                "priority": rng.choice((0, 0, 0, 1)),
                "created_at": created,
            }
    return found


def _asked(rng: random.Random, resources: list[str]) -> dict[str, int]:
    some = [r for r in resources if rng.random() < 0.8] or resources[:1]
    return {r: _amount(rng, 1) for r in some}


_MAKERS: Final[Mapping[str, Callable[[random.Random], Plain]]] = {
    "kueue": _kueue,
    "koordinator": _koordinator,
    "yunikorn": _yunikorn,
    "capacity": _capacity,
}
#: What there are cases of.
SCHEMES: Final = tuple(_MAKERS)
