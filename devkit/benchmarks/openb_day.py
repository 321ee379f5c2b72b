"""The busiest days of the openb trace, compressed and with tenants, which it does not name.

Owns the day. The trace has no contention: it wants 0.2 % of its GPUs. So of its last 10.4 days the
pods that want GPUs come a hundred times as fast, within 2.5 hours, run for an hour at most, and
share as many GPUs as they want 1.3 times of on average. The names of pods say by a hash to which of
six tenants they belong, of which the first has the most pods, the second half as many, the third a
third; all have the same weight. Only GPUs are looked at, in thousandths, and not their models.
"""

import csv
import hashlib
from collections.abc import Iterator
from typing import Final

from devkit.benchmarks.openb import DATA, GPU
from devkit.benchmarks.queues_day import Tenants, cluster_of, pod_of
from workbench.simulation.workload import Arrival, Workload

NODES: Final = 26
_GPUS: Final = 8
_MILLI: Final = 1000
_DAYS: Final = 10.4
_FASTER: Final = 100
_LONGEST: Final = 3600.0
SECONDS: Final = _DAYS * 86_400 / _FASTER
WEIGHTS: Final = dict.fromkeys(("t1", "t2", "t3", "t4", "t5", "t6"), 1)

_Row = dict[str, str]


def day(seed: int) -> Workload:
    """The pods; *seed* is of the hash that gives them to tenants."""
    cluster = cluster_of(NODES, GPU, _GPUS * _MILLI, WEIGHTS)
    arrivals = [
        Arrival(at, cluster.pod_of(pod_of(tenant_of(row["name"], seed), row["name"], _gpus(row))),
                runs=runs)
        for at, runs, row in _rows()
    ]  # fmt: skip
    return Workload(cluster, arrivals)


def tenant_of(name: str, seed: int) -> str:
    """The tenant of the pod *name*: the n-th has one n-th as many as the first."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    parts = [1 / rank for rank in range(1, len(WEIGHTS) + 1)]
    place = int.from_bytes(digest, "big") / 2**64 * sum(parts)
    for tenant, part in zip(WEIGHTS, parts, strict=True):
        place -= part
        if place < 0:
            return tenant
    return tenant


def _rows() -> Iterator[tuple[float, float, _Row]]:
    """When each pod comes, for how long it runs, and its line; in the order in which they come."""
    with (DATA / "openb_pod_list_default.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    begins = max(int(row["creation_time"]) for row in rows) - _DAYS * 86_400
    for row in sorted(rows, key=lambda row: (int(row["creation_time"]), row["name"])):
        created, deleted = int(row["creation_time"]), int(row["deletion_time"])
        if created > begins and deleted > created and int(row["num_gpu"] or 0):
            yield (created - begins) / _FASTER, min(float(deleted - created), _LONGEST), row


def _gpus(row: _Row) -> dict[str, str]:
    return {GPU: str(int(row["num_gpu"]) * int(row["gpu_milli"]))}


OPENB: Final = Tenants(WEIGHTS, GPU, _MILLI, NODES * _GPUS, SECONDS, day)
