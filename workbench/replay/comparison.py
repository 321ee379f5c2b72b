"""Compares two sets of policies on the same input: per pod, and by the metrics of the whole.

Owns the comparison of simulations and of recorded decisions. Differences are of the second set, as
seen from the first.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from engine.comparing.difference import MOVED, NEWLY_PENDING, Difference, kind_of
from engine.policy.bundle import Bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.recording.entries import Entry
from workbench.comparing.kinds import NEWLY_EVICTED, NEWLY_GONE, OTHER_REASON
from workbench.replay.decision_log import Line
from workbench.replay.replay import Replayer
from workbench.simulation.simulation import Life, Simulation
from workbench.simulation.simulation_report import Recorder, Report, report
from workbench.simulation.sweep import SAME_WITHIN, metrics_of
from workbench.simulation.workload import Workload

# Student's t for 95 % of both sides, by degrees of freedom from 1; of later ones see `_student`.
_T: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


class Change(Difference[str], frozen=True, kw_only=True, omit_defaults=True):
    """A pod with another outcome: its node, or why it has none, before and after.

    Attributes:
        number: Of the recorded decision; None, and not in JSON: it was simulated.
    """

    number: int | None = None


class Delta(msgspec.Struct, frozen=True):
    """A measure with both sets of policies: means over the seeds.

    `margin`: with 95 % confidence the true difference is within so much of `difference`; None for
    a single seed, which allows no conclusion.
    """

    before: float
    after: float
    difference: float
    margin: float | None


class Comparison(msgspec.Struct, frozen=True):
    """The differences that the second set of policies makes.

    Attributes:
        pods: Pods (or recorded decisions) that were compared, for each seed.
        moved, pending_more: The most of any seed: pods on another node; how many more pods than
            before are pending, or went without a node.
        changes: Of the first seed.
        metrics: By name.
    """

    pods: int
    moved: int
    pending_more: int
    changes: tuple[Change, ...]
    metrics: Mapping[str, Delta]


# --- simulations -----------------------------------------------------------------------------


def compare_runs(
    before: Bundle, after: Bundle, workload: Workload, seeds: Sequence[int | None]
) -> Iterator[tuple[list[Change], Report, Report]]:
    """For each seed (None: as written) the changes, and the reports of both runs."""
    for seed in seeds:
        planned = workload if seed is None else workload.shuffled(seed)
        fates_a, report_a = run(before, planned)
        fates_b, report_b = run(after, planned)
        yield list(_changes(fates_a, fates_b)), report_a, report_b


class Fate(msgspec.Struct, frozen=True):
    """The outcome of a pod: its last node, or why it has none, and then how it ended, if it did.

    Why a pod has no node is all that is known of failures and evictions.
    """

    node: str
    reason: str = ""
    end: str = ""
    has_failed: bool = False
    evictions: tuple[str, ...] = ()


def run(bundle: Bundle, workload: Workload) -> tuple[dict[str, Fate], Report]:
    """What becomes of each pod, those of the start too, and of the whole."""
    recorder = Recorder()
    evaluator = InProcessEvaluator(bundle.program)
    try:
        simulation = Simulation(bundle, evaluator, workload, on_moment=recorder)
        simulation.run()
    finally:
        evaluator.close()
    fates = {key: Fate(node) for key, node in simulation.at_start.items()}
    fates |= {key: Fate("", "evicted", NEWLY_EVICTED) for key in simulation.lost_at_start}
    # For a pod that was created again, or whose name another one took.
    fates |= {key: _fate_of(life) for key, life in simulation.lives.items()}
    return fates, report(simulation, recorder.steps)


def _fate_of(life: Life) -> Fate:
    end = NEWLY_EVICTED if life.is_lost else NEWLY_GONE if life.gone_at is not None else ""
    return Fate(life.node, life.reason, end)


def _changes(before: Mapping[str, Fate], after: Mapping[str, Fate]) -> Iterator[Change]:
    for key in dict.fromkeys([*before, *after]):
        old, new = (fates.get(key, Fate("", "it is not there")) for fates in (before, after))
        if change := _change(key, old, new):
            yield change


def _change(pod: str, old: Fate, new: Fate, number: int | None = None) -> Change | None:
    """What changes for *pod*; None if nothing does."""
    kind = kind_of(old, new)
    if kind == NEWLY_PENDING:
        kind = new.end or kind
    if not kind and not old.node and old.reason != new.reason:
        kind = OTHER_REASON
    before, after = old.node or old.reason, new.node or new.reason
    return Change(kind, pod, before, after, number=number) if kind else None


def summed_up(runs: Sequence[tuple[list[Change], Report, Report]]) -> Comparison:
    """The comparison over all seeds."""
    pairs = [(metrics_of(a), metrics_of(b)) for _, a, b in runs]
    names = dict.fromkeys(name for pair in pairs for side in pair for name in side)
    return Comparison(
        pods=max((one.arrived for _, *both in runs for one in both), default=0),
        moved=max((_count(changes, MOVED) for changes, _, _ in runs), default=0),
        pending_more=max((_nodeless(b) - _nodeless(a) for _, a, b in runs), default=0),
        changes=tuple(runs[0][0]) if runs else (),
        metrics={
            name: delta([a.get(name, 0.0) for a, _ in pairs], [b.get(name, 0.0) for _, b in pairs])
            for name in names
        },
    )


def delta(before: Sequence[float], after: Sequence[float]) -> Delta:
    """The difference of paired measurements."""
    a, b = np.array(before, np.float64), np.array(after, np.float64)
    difference = np.where(np.isclose(a, b, rtol=SAME_WITHIN, atol=0.0), 0.0, b - a)
    margin = None
    if len(a) > 1:
        margin = float(_student(len(a) - 1) * difference.std(ddof=1) / math.sqrt(len(a)))
    return Delta(float(a.mean()), float(b.mean()), float(difference.mean()), margin)


def _student(freedom: int) -> float:
    """Student's t for 95 % of both sides, correct to three decimal places."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    # The first terms of its series around that of the normal distribution.
    z = 1.959964
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


def _nodeless(result: Report) -> int:
    return result.pending + result.given_up


def _count(changes: Iterable[Change], kind: str) -> int:
    return sum(change.kind == kind for change in changes)


# --- recorded decisions ----------------------------------------------------------------------


def compare_logs(before: Bundle, after: Bundle, lines: Iterable[Line]) -> Comparison:
    """What both sets decide on each recorded state. Raises like `Replayer.outcomes`."""
    replayers = (Replayer(before), Replayer(after))
    kept = list(lines)
    changes: list[Change] = []
    nodes = [0, 0]
    decisions = 0
    try:
        both = zip(*(replayer.outcomes(kept) for replayer in replayers), strict=True)
        for old, new in both:
            decisions += 1
            fates = _fate(old.replayed), _fate(new.replayed)
            for side, fate in enumerate(fates):
                nodes[side] += bool(fate.node)
            if change := _change(old.pod, *fates, old.number):
                changes.append(change)
    finally:
        for replayer in replayers:
            replayer.close()
    placed = delta([nodes[0]], [nodes[1]])
    pending = delta([decisions - nodes[0]], [decisions - nodes[1]])
    return Comparison(
        pods=decisions,
        moved=_count(changes, MOVED),
        pending_more=nodes[0] - nodes[1],
        changes=tuple(changes),
        metrics={"placed": placed, "pending": pending},
    )


def _fate(entry: Entry) -> Fate:
    return Fate(str(entry.get("node") or ""), str(entry.get("message") or ""))
