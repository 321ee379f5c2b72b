"""Looks for many planted faults within a budget of CPU, and adds up what was found.

Owns how the budget is shared out: a third of it equally, half of what is left then equally among
those that were not found, and all of the rest among those that are still missing. Each fault goes
on with the seed where it stopped.
"""

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from tests.devkit.faults.planted.fault import ROOT, PlantedFault
from tests.devkit.faults.planted.hunt import GRACE_SECONDS, Hunt
from tests.devkit.faults.planted.table import PARTS

#: Most faults are found by the first worlds: they leave the others more than their share.
_ROUNDS: Final = 3
#: A process takes so long to import, which is no hunt.
_LEAST_SECONDS: Final = 5.0


@dataclass(slots=True)
class Result:
    """What became of one planted fault.

    Attributes:
        rule, about, text, seed: As of `Hunt`.
        cpu_seconds: Of all processes that looked for it.
    """

    fault: PlantedFault
    part: str
    rule: str = ""
    about: str = ""
    text: str = ""
    seed: int = 1
    cpu_seconds: float = 0.0

    @property
    def is_found(self) -> bool:
        """True if a world was violated."""
        return bool(self.rule)


@dataclass(slots=True)
class Report:
    """The results.

    Attributes:
        results: In the order of the table.
        control: What the program without a fault violates in the worlds that found one.
        control_cpu_seconds: Of the control, which is not part of the budget.
    """

    results: list[Result]
    control: list[Hunt] = field(default_factory=list)
    control_cpu_seconds: float = 0.0

    @property
    def found(self) -> int:
        """How many faults were found."""
        return sum(one.is_found for one in self.results)

    @property
    def cpu_seconds(self) -> float:
        """Of all hunts."""
        return sum(one.cpu_seconds for one in self.results)

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        parts = {
            part: {
                "found": sum(one.is_found for one in self.results if one.part == part),
                "of": sum(one.part == part for one in self.results),
                "cpu_seconds": round(
                    sum(one.cpu_seconds for one in self.results if one.part == part), 1
                ),
            }
            for part in PARTS
        }
        return {
            "found": self.found,
            "of": len(self.results),
            "cpu_seconds": round(self.cpu_seconds, 1),
            "control_cpu_seconds": round(self.control_cpu_seconds, 1),
            "control": [f"seed {one.seed}: {one.rule}: {one.about}" for one in self.control],
            "by_part": parts,
            "by_rule": dict(Counter(one.rule for one in self.results if one.rule).most_common()),
            "faults": [
                {
                    "name": one.fault.name,
                    "part": one.part,
                    "path": one.fault.path,
                    "rule": one.rule,
                    "about": one.about,
                    "text": one.text[:2000],
                    "seed": one.seed,
                    "cpu_seconds": round(one.cpu_seconds, 1),
                    "why_missed": one.fault.why_missed,
                }
                for one in self.results
            ],
        }


def hunted(name: str, first: int, cpu_seconds: float) -> Hunt:
    """What a process finds that looks for the fault *name* ("": none is planted)."""
    module = "tests.devkit.faults.planted.hunt"
    done = subprocess.run(
        [sys.executable, "-m", module, name, str(first), str(cpu_seconds)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return Hunt("the simulation goes on", "", "no end", first, cpu_seconds + GRACE_SECONDS)
    if done.returncode:
        raise RuntimeError(f"`{name}`: exit code {done.returncode}: {done.stderr}")
    return Hunt(**json.loads(done.stdout))


def begun(faults: Sequence[PlantedFault], first: int = 1) -> Report:
    """A report without results, for *faults* in worlds from seed *first* on."""
    part_of = {fault.name: part for part, found in PARTS.items() for fault in found}
    return Report([Result(fault, part_of.get(fault.name, ""), seed=first) for fault in faults])


def run(
    report: Report,
    *,
    budget: float,
    jobs: int,
    on_result: Callable[[Result], None] = lambda _: None,
    hunt: Callable[[str, int, float], Hunt] = hunted,
) -> None:
    """Look for the faults of *report* with *budget* seconds of CPU in all, and fill it in."""
    results = report.results
    for turn in range(_ROUNDS):
        missing = [one for one in results if not one.is_found]
        left = budget - report.cpu_seconds
        share = left / (_ROUNDS - turn) / max(1, len(missing))
        if not missing or share < _LEAST_SECONDS:
            break

        def look(one: Result, share: float = share) -> Result:
            outcome = hunt(one.fault.name, one.seed, share)
            one.rule, one.about, one.text = outcome.rule, outcome.about, outcome.text
            one.seed, one.cpu_seconds = outcome.seed, one.cpu_seconds + outcome.cpu_seconds
            return one

        with ThreadPoolExecutor(jobs) as pool:
            for one in pool.map(look, missing):
                on_result(one)
    for seed in sorted({one.seed for one in results if one.is_found}):
        control = hunt("", seed, 0.0)
        report.control_cpu_seconds += control.cpu_seconds
        if control.rule:
            report.control.append(control)
    for one in results:
        if one.seed in {control.seed for control in report.control}:
            one.rule = ""  # the world fails without it, too
