"""Where the time went, by stage: a cProfile run summed up over the modules of `engine`.

The time of library and built-in functions counts for the engine module that called them. cProfile
slows down Python calls more than the work inside numpy or the wait for the sandbox, so the shares
are a direction, not a measurement.
"""

import cProfile
import pstats
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[1]
_OUTSIDE: Final = "(outside engine)"

#: Engine modules by stage, the longest prefix wins.
_STAGES: Final[Mapping[str, str]] = {
    "engine.caching": "cache and snapshot",
    "engine.model": "decode objects, request arithmetic",
    "engine.policy.projections": "projections",
    "engine.policy.views": "projections",
    "engine.policy.verdicts": "verdict tables",
    "engine.policy.evaluator": "sandbox (round trips and evaluation)",
    "engine.policy.sandbox": "sandbox (round trips and evaluation)",
    "engine.scheduling.pod_class": "verdict vectors of pod classes",
    "engine.scheduling.node_columns": "projections",
    "engine.scheduling.scoring": "normalise and weigh",
    "engine.scheduling.select_host": "select the node",
    "engine.scheduling.diagnosis": "diagnosis",
    "engine.scheduling.loop": "loop",
    "engine.scheduling": "scheduling cycle",
    "engine.queueing": "queue",
    "engine.event_handlers": "event handlers",
    "engine.watching": "watch",
    "engine.kube": "API client",
    "engine.binding": "binding, events, status",
    "engine.rollout": "policy roll-out",
    "engine.telemetry": "metrics and logs",
    "engine.lib": "clock and heap",
}

_Function = tuple[str, int, str]


def seconds_by_module(profile: cProfile.Profile | Path) -> dict[str, float]:
    """Seconds by engine module, most first; what engine never called is `(outside engine)`."""
    source: Any = str(profile) if isinstance(profile, Path) else profile
    stats: Any = pstats.Stats(source)
    functions: dict[_Function, Any] = stats.stats
    shares: dict[_Function, dict[str, float]] = {}

    def owners(function: _Function, trail: frozenset[_Function]) -> dict[str, float]:
        """Shares of *function*'s own time by engine module; they sum to 1."""
        module = _engine_module(function[0])
        if module is not None:
            return {module: 1.0}
        if function in shares:
            return shares[function]
        callers = functions[function][4]
        weights = {
            caller: entry[2] if isinstance(entry, tuple) else float(entry)
            for caller, entry in callers.items()
            if caller not in trail and caller in functions
        }
        total = sum(weights.values())
        result: dict[str, float] = defaultdict(float)
        if total <= 0:
            result[_OUTSIDE] = 1.0
        else:
            for caller, weight in weights.items():
                for name, share in owners(caller, trail | {function}).items():
                    result[name] += share * weight / total
        if not trail:
            shares[function] = result
        return result

    seconds: dict[str, float] = defaultdict(float)
    for function, (_, _, own, _, _) in functions.items():
        for module, share in owners(function, frozenset()).items():
            seconds[module] += own * share
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def seconds_by_stage(by_module: Mapping[str, float]) -> dict[str, float]:
    """The same by stage, most first."""
    stages: dict[str, float] = defaultdict(float)
    for module, seconds in by_module.items():
        known = [
            prefix for prefix in _STAGES if module == prefix or module.startswith(prefix + ".")
        ]
        stage = _STAGES[max(known, key=len)] if known else module
        stages[stage] += seconds
    return dict(sorted(stages.items(), key=lambda item: -item[1]))


def slowest_functions(profile: cProfile.Profile | Path, count: int = 25) -> list[str]:
    """Lines with the functions that took the most time themselves."""
    source: Any = str(profile) if isinstance(profile, Path) else profile
    stats: Any = pstats.Stats(source)
    rows = sorted(stats.stats.items(), key=lambda item: -item[1][2])[:count]
    return [
        f"{own:8.3f} s own {total:8.3f} s with calls {calls:9d} calls  {_place(function)}"
        for function, (_, calls, own, total, _) in rows
    ]


def _place(function: _Function) -> str:
    file, line, name = function
    module = _engine_module(file)
    if module is not None:
        return f"{module}:{line} {name}"
    return name if file == "~" else f"{Path(file).name}:{line} {name}"


def _engine_module(file: str) -> str | None:
    try:
        relative = Path(file).resolve().relative_to(_ROOT)
    except (ValueError, OSError):
        return None
    if not relative.parts or relative.parts[0] != "engine":
        return None
    return ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
