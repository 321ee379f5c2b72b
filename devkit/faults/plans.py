"""Plans of worlds: chosen by a seed, written as JSON, and made smaller where one fails.

Owns which worlds there are. Each run has some kinds of faults and some features, not all: what
always happens hides what seldom does.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import msgspec

from devkit.faults.faults import all_kinds
from devkit.faults.life import FEATURES
from devkit.faults.world import Plan

#: Lease, renew deadline and retry period, in seconds.
_LEASES: Final = ((15.0, 10.0, 2.0), (15.0, 10.0, 2.0), (4.0, 3.0, 1.0), (120.0, 90.0, 20.0))


def plan_of(seed: int, seconds: float | None = None) -> Plan:
    """The plan of *seed*; with *seconds* of faults if they are given."""
    rng = random.Random(f"{seed}/plan")
    features = frozenset(name for name in FEATURES if rng.random() < 0.6)
    faults = frozenset(name for name in sorted(all_kinds()) if rng.random() < 0.5)
    chosen = _log_uniform(rng, 120.0, 2400.0)
    return Plan(
        seed,
        round(seconds if seconds is not None else chosen, 1),
        replicas=rng.choice((1, 2, 2, 3)),
        lease=rng.choice(_LEASES),
        features=features,
        faults=faults,
        pace=round(_log_uniform(rng, 1.0, 30.0), 2),
        every=round(_log_uniform(rng, 0.1, 20.0), 2),
        nodes=rng.randint(2, 8),
        pieces=rng.choice((0, 0, 0, 1000, 30)),
        servers=rng.choice((1, 1, 2)),
    )


def _log_uniform(rng: random.Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def encode(plan: Plan) -> bytes:
    """*plan* as JSON, sets in order."""
    return msgspec.json.format(msgspec.json.encode(plan, order="deterministic"), indent=2)


def decode(raw: bytes) -> Plan:
    """The plan that `encode` wrote. Raises `msgspec.DecodeError` or `msgspec.ValidationError`."""
    return msgspec.json.decode(raw, type=Plan)


# --- smaller ---------------------------------------------------------------------------------


def smaller(plan: Plan, fails: Callable[[Plan], bool], most: int = 200) -> Plan:
    """The smallest plan found, with *most* trials, that still *fails*; *plan* does."""
    trials = 0
    while trials < most:
        for candidate in _simpler(plan):
            trials += 1
            if fails(candidate):
                plan = candidate
                break
            if trials >= most:
                break
        else:
            return plan
    return plan


def _simpler(plan: Plan) -> Iterator[Plan]:
    """Plans with a little less of something, those with much less first."""
    for name in ("faults", "features"):
        has = sorted(getattr(plan, name))
        size = len(has)
        while size:
            for start in range(0, len(has), size):
                left = frozenset(has[:start] + has[start + size :])
                yield _with(plan, name, left)
            size //= 2
    for share in (0.25, 0.5, 0.8):
        if plan.seconds > 20:
            yield replace(plan, seconds=round(plan.seconds * share, 1))
    if plan.replicas > 1:
        yield replace(plan, replicas=plan.replicas - 1)
    if plan.pieces:
        yield replace(plan, pieces=0)
    if plan.servers > 1:
        yield replace(plan, servers=1)
    for factor in (4.0, 2.0):
        if plan.every < 60:
            yield replace(plan, every=plan.every * factor)
        if plan.pace < 60:
            yield replace(plan, pace=plan.pace * factor)


def _with(plan: Plan, name: str, left: frozenset[str]) -> Plan:
    return replace(plan, faults=left) if name == "faults" else replace(plan, features=left)
