"""The planted faults, part by part."""

from typing import Final

from tests.devkit.faults.planted.fault import PlantedFault
from tests.devkit.faults.planted.table.binding import BINDING
from tests.devkit.faults.planted.table.caching import CACHING
from tests.devkit.faults.planted.table.election import ELECTION
from tests.devkit.faults.planted.table.kernel import KERNEL
from tests.devkit.faults.planted.table.queueing import QUEUEING
from tests.devkit.faults.planted.table.rollout import ROLLOUT
from tests.devkit.faults.planted.table.watching import WATCHING

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
