"""Draws and shrinks values for the properties of tests.

Owns the generators of `@std/generators.star` as plain data (plans), the drawing from them with a
seed, and the search for a simple case among those that fail. Building nodes and pods of what was
drawn is Starlark's; running the test again is `runner`'s.

A plan is an object with `any`: `int` (low, high, unit), `float` (low, high), `bool`, `of`
(shown: how each choice is written), `list` (of: a plan, least, most) or `fields` (of: plans by
name). What is drawn has the plan's shape; of `of` it is the index of the choice.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

Plan = Mapping[str, Any]

MOST_RUNS: Final = 10_000
# How often a bound is drawn instead of anything between: that is where policies fail most.
_BOUNDS: Final = 0.2
# So many of the simplest numbers are tried whatever the number is.
_SMALL: Final = 10


def draw(plan: Plan, rng: random.Random) -> Any:
    """A value of *plan*."""
    match plan["any"]:
        case "int":
            low, high = plan["low"], plan["high"]
            if rng.random() < _BOUNDS:
                return rng.choice((low, high))
            return rng.randint(low, high)
        case "float":
            low, high = plan["low"], plan["high"]
            if rng.random() < _BOUNDS:
                return rng.choice((low, high))
            return _rounded(rng.uniform(low, high), plan)
        case "bool":
            return rng.random() < 0.5
        case "of":
            return rng.randrange(len(plan["shown"]))
        case "list":
            count = rng.randint(plan["least"], plan["most"])
            return [draw(plan["of"], rng) for _ in range(count)]
        case "fields":
            return {name: draw(inner, rng) for name, inner in plan["of"].items()}
    raise ValueError(f"no generator `{plan['any']}`")


def simplest(plan: Plan) -> Any:
    """The value of *plan* that has no simpler one."""
    match plan["any"]:
        case "int" | "float":
            return min(max(plan["low"], 0), plan["high"])
        case "bool":
            return False
        case "of":
            return 0
        case "list":
            return [simplest(plan["of"])] * plan["least"]
    return {name: simplest(inner) for name, inner in plan["of"].items()}


def runs_of(plan: Plan, runs: int, seed: str) -> list[Any]:
    """*runs* values, the simplest first; the same for the same seed."""
    if not 1 <= runs <= MOST_RUNS:
        raise ValueError(f"for_any: want 1..{MOST_RUNS:,} runs, got {runs}")
    rng = random.Random(seed)
    return [simplest(plan), *(draw(plan, rng) for _ in range(runs - 1))]


def shown(plan: Plan, value: Any) -> str:
    """*value* as Starlark writes it."""
    match plan["any"]:
        case "int":
            return f'"{value}{plan["unit"]}"' if plan["unit"] else str(value)
        case "of":
            text: str = plan["shown"][value]
            return text
        case "list":
            return f"[{', '.join(shown(plan['of'], one) for one in value)}]"
        case "fields":
            inner = (f"{name} = {shown(plan['of'][name], one)}" for name, one in value.items())
            return f"({', '.join(inner)})"
    return str(value)


def simpler(plan: Plan, value: Any) -> Iterator[Any]:
    """Values of *plan* that are a step simpler than *value*, the largest steps first."""
    match plan["any"]:
        case "int" | "float":
            yield from _smaller(plan, value)
        case "bool":
            if value:
                yield False
        case "of":
            yield from range(value)
        case "list":
            yield from _shorter(plan, value)
            for index, one in enumerate(value):
                for less in simpler(plan["of"], one):
                    yield [*value[:index], less, *value[index + 1 :]]
        case "fields":
            for name, one in value.items():
                for less in simpler(plan["of"][name], one):
                    yield {**value, name: less}


def shrunk(plan: Plan, value: Any, fails: Callable[[Any], bool | None]) -> Any:
    """The simplest value on the way down from *value* that still *fails* (None: time is up)."""
    while True:
        for candidate in simpler(plan, value):
            answer = fails(candidate)
            if answer is None:
                return value
            if answer:
                value = candidate
                break
        else:
            return value


def _smaller(plan: Plan, value: float) -> Iterator[float]:
    """Towards the simplest number: those next to it, then by halves of the way, last by one."""
    target = simplest(plan)
    distance = value - target
    if plan["any"] == "float":
        tried = {value}
        for part in (0.0, 0.5, 0.9):
            candidate = _rounded(target + distance * part, plan)
            if abs(candidate - target) < abs(distance) and candidate not in tried:
                tried.add(candidate)
                yield candidate
        return
    step, sign = abs(distance), 1 if distance > 0 else -1
    yield from (target + sign * small for small in range(min(_SMALL, step)))
    while step > 1:
        step //= 2
        yield value - sign * step


def _rounded(value: float, plan: Plan) -> float:
    # Few digits: a case that fails is to be read, and written into a test.
    return float(min(max(round(value, 3), plan["low"]), plan["high"]))


def _shorter(plan: Plan, value: list[Any]) -> Iterator[list[Any]]:
    spare = len(value) - plan["least"]
    if spare <= 0:
        return
    if spare > 1:
        yield value[: plan["least"]]
        half = max(plan["least"], len(value) // 2)
        yield value[:half]
        yield value[len(value) - half :]
    for index in range(len(value)):
        yield [*value[:index], *value[index + 1 :]]
