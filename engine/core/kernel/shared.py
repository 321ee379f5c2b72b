"""What every part of a kernel works with."""

from dataclasses import dataclass, field

from engine.core.caching.cache import Cache
from engine.core.kernel.instructions import Instruction
from engine.core.kernel.kernel_time import KernelTime
from engine.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Shared:
    """The same objects for all parts of one kernel.

    Attributes:
        cache: Nodes and the pods counted against them.
        metrics: Counted in.
        time: The time of the event that is handled, and what policies have taken since.
        out: Receives the instructions of the event or decision that is under way. The kernel alone
            empties it, in place: each part holds on to this very list.
    """

    cache: Cache
    metrics: Metrics
    time: KernelTime = field(default_factory=KernelTime)
    out: list[Instruction] = field(default_factory=list)
