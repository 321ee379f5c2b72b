"""Time by stage: a cProfile run summed up over the modules of `engine`.

The time of library and built-in functions counts for the engine module that called them. cProfile
slows down Python calls more than the work inside numpy or the wait for the sandbox, so the shares
are a direction, not a measurement.
"""

import cProfile
import functools
import pstats
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[2]
_OUTSIDE: Final = "(outside engine)"
_ROUNDS: Final = 40

#: Engine modules by stage, the longest prefix wins.
_STAGES: Final[Mapping[str, str]] = {
    "engine.core.caching": "cache and snapshot",
    "engine.core.model": "decode objects, request arithmetic",
    "engine.policy.projections": "projections",
    "engine.policy.views": "projections",
    "engine.policy.view_fields": "projections",
    "engine.policy.pod_views": "projections",
    "engine.policy.node_views": "projections",
    "engine.policy.volume_views": "projections",
    "engine.policy.device_views": "projections",
    "engine.policy.attributes": "projections",
    "engine.policy.verdicts": "verdict tables",
    "engine.policy.evaluator": "sandbox (round trips and evaluation)",
    "engine.policy.sandbox": "sandbox (round trips and evaluation)",
    "engine.core.scheduling.pod_class": "verdict vectors of pod classes",
    "engine.core.scheduling.node_columns": "projections",
    "engine.core.scheduling.scoring": "normalise and weigh",
    "engine.core.scheduling.select_host": "select the node",
    "engine.core.scheduling.diagnosis": "diagnosis",
    "engine.core.scheduling": "scheduling cycle",
    "engine.core.queueing": "queue",
    "engine.core.kernel": "kernel",
    "engine.io.informers": "watch",
    "engine.surfaces.pulled_metrics": "metrics and logs",
    "engine.io.event_handlers": "event handlers",
    "engine.io.watching": "watch",
    "engine.io.kube": "API client",
    "engine.io.binding": "binding, events, status",
    "engine.rollout": "policy roll-out",
    "engine.telemetry": "metrics and logs",
    "engine.lib": "clock and heap",
    "engine.app": "application",
    "workbench.cli": "event loop: waiting, sockets, TLS",
}

_Function = tuple[str, int, str]


def seconds_by_module(profile: cProfile.Profile | Path) -> dict[str, float]:
    """Seconds by engine module, most first; what engine never called is `(outside engine)`."""
    functions = _functions(profile)
    modules = {function: _engine_module(function[0]) for function in functions}
    seconds: dict[str, float] = defaultdict(float)
    # Time that is on its way up the callers until it meets a module of the engine. A function of
    # a library hands on its own time by the time it spent for each caller. Library functions may
    # call each other in circles; what has not arrived after some rounds never will.
    pending = {function: entry[2] for function, entry in functions.items()}
    for _ in range(_ROUNDS):
        moving: dict[_Function, float] = defaultdict(float)
        for function, own in pending.items():
            module = modules[function]
            if module is not None:
                seconds[module] += own
                continue
            callers = {c: e[3] for c, e in functions[function][4].items() if c in functions}
            total = sum(callers.values())
            if total <= 0:
                seconds[_OUTSIDE] += own
                continue
            for caller, spent in callers.items():
                moving[caller] += own * spent / total
        pending = moving
    seconds[_OUTSIDE] += sum(pending.values())
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
    rows = sorted(_functions(profile).items(), key=lambda item: -item[1][2])[:count]
    return [
        f"{own:8.3f} s own {total:8.3f} s with calls {calls:9d} calls  {_place(function)}"
        for function, (_, calls, own, total, _) in rows
    ]


def _functions(profile: cProfile.Profile | Path) -> dict[_Function, Any]:
    """(calls, calls, own seconds, seconds with callees, callers) by function."""
    stats: Any = pstats.Stats(str(profile) if isinstance(profile, Path) else profile)
    found: dict[_Function, Any] = stats.stats
    return found


def _place(function: _Function) -> str:
    file, line, name = function
    module = _engine_module(file)
    if module is not None:
        return f"{module}:{line} {name}"
    return name if file == "~" else f"{Path(file).name}:{line} {name}"


@functools.cache
def _engine_module(file: str) -> str | None:
    try:
        relative = Path(file).resolve().relative_to(_ROOT)
    except (ValueError, OSError):
        return None
    if not relative.parts or relative.parts[0] not in ("engine", "workbench", "devkit"):
        return None
    return ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
