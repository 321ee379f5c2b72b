"""The planted faults, part by part."""

from typing import Final

from tests.fault_simulation.planted.fault import PlantedFault
from tests.fault_simulation.planted.table.binding import BINDING
from tests.fault_simulation.planted.table.caching import CACHING
from tests.fault_simulation.planted.table.election import ELECTION
from tests.fault_simulation.planted.table.kernel import KERNEL
from tests.fault_simulation.planted.table.queueing import QUEUEING
from tests.fault_simulation.planted.table.rollout import ROLLOUT
from tests.fault_simulation.planted.table.watching import WATCHING

PARTS: Final[dict[str, tuple[PlantedFault, ...]]] = {
    "kernel": KERNEL,
    "cache": CACHING,
    "queue": QUEUEING,
    "binding": BINDING,
    "watching": WATCHING,
    "leader election": ELECTION,
    "roll-out": ROLLOUT,
}
ALL: Final = {fault.name: fault for part in PARTS.values() for fault in part}
