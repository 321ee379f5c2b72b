"""One process that looks for one planted fault: worlds, seed after seed, until one is violated.

Run as `python -m tests.devkit.faults.planted.hunt NAME FIRST_SEED CPU_SECONDS`; without a name,
nothing is planted. Prints a `Hunt` as JSON.
"""

import json
import resource
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from tests.devkit.faults.planted.importing import plant
from tests.devkit.faults.planted.table import ALL

if TYPE_CHECKING:
    from devkit.faults.world import Plan

#: A world that takes so many seconds of CPU longer than it may goes in circles.
GRACE_SECONDS: Final = 30
#: Longer than the longest wait of a pod that nothing wakes, and than the probation of an edit.
REST_SECONDS: Final = 480.0
#: The longest lease.
LEASE: Final = (15.0, 10.0, 2.0)


@dataclass(frozen=True, slots=True)
class Hunt:
    """What came of it.

    Attributes:
        rule: What was violated first; "" if nothing was.
        about, text: See `Violation`.
        seed: Of the world where it was; of the next one if it was nowhere.
        cpu_seconds: That this process took.
    """

    rule: str
    about: str
    text: str
    seed: int
    cpu_seconds: float


def plan_for(seed: int) -> "Plan":
    """A short world in which much happens: every other one has all that a cluster may have.

    Half of those have no extender that binds: it would bind every pod, and the binder none.
    """
    from dataclasses import replace

    from devkit.faults.life import FEATURES
    from devkit.faults.plans import plan_of

    plan = plan_of(seed, 40.0 + 20.0 * ((seed - 1) % 6))
    everything = frozenset(FEATURES) - ({"binding extender"} if seed % 4 == 1 else set())
    features = everything if seed % 2 else plan.features
    return replace(
        plan,
        replicas=min(plan.replicas, 2),
        # Within the rest, there has to be a leader for long.
        lease=min(plan.lease, LEASE),
        features=features,
        pace=min(plan.pace, 3.0),
        every=min(plan.every, 4.0),
        pieces=0,
        rest=REST_SECONDS,
    )


def hunt(first: int, cpu_seconds: float) -> Hunt:
    """Simulate the worlds from seed *first* on, for as many seconds of CPU as given."""
    try:
        from devkit.faults.story import simulated
    except Exception as error:  # the mistake shows at once
        text = f"{type(error).__name__}: {error}"
        return Hunt("the program starts", "import", text, first, time.process_time())
    seed = first
    while True:
        violations = simulated(plan_for(seed)).violations
        if violations:
            return Hunt(*violations[0], seed, time.process_time())
        seed += 1
        if time.process_time() >= cpu_seconds:
            return Hunt("", "", "", seed, time.process_time())


def main(name: str, first: int, cpu_seconds: float) -> None:
    """Look for the fault *name*, and print what came of it."""
    most = int(cpu_seconds) + GRACE_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    if name:
        plant(ALL[name])
    print(json.dumps(asdict(hunt(first, cpu_seconds))))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
