"""The openb cluster as Kubernetes objects: 1,213 GPU nodes and 8,152 pods of a production cluster.

The data and its origin: `tests/data/openb/README.md`. How GPUs are modelled: Kubernetes counts
extended resources per node in whole numbers, and most pods of the trace want a share of one GPU.
So the resource is the milli-GPU, `alibabacloud.com/gpu-milli`: a node offers 1,000 for each GPU, a
pod asks for `num_gpu * gpu_milli`. Counting whole GPUs instead would round every share up (7,433
GPUs for a cluster of 6,212) and a sixth of the pods would wait although there is capacity for them.
What a number per node cannot express is that a share must come from *one* card, so two halves of
different cards count as a whole one; that needs a policy that packs cards, not a resource. The
accepted models of `gpu_spec` become required node affinity on the node's model label.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devkit.benchmarks import objects
from devkit.benchmarks.objects import Manifest

GPU: Final = "alibabacloud.com/gpu-milli"
GPU_MODEL: Final = "alibabacloud.com/gpu-card-model"
NAMESPACE: Final = "openb"
DATA: Final = Path(__file__).parents[2] / "tests" / "data" / "openb"

#: A kubelet's default; the trace does not say.
_PODS_PER_NODE: Final = "110"


@dataclass(frozen=True, slots=True)
class Trace:
    """Manifests in the order of the files, which for pods is the order of creation."""

    nodes: Sequence[Manifest]
    pods: Sequence[Manifest]


def read_trace(directory: Path = DATA) -> Trace:
    """The whole trace."""
    with (directory / "openb_node_list_gpu_node.csv").open(newline="") as file:
        nodes = [node_from_row(number, row) for number, row in enumerate(csv.DictReader(file))]
    with (directory / "openb_pod_list_default.csv").open(newline="") as file:
        pods = [pod_from_row(row) for row in csv.DictReader(file)]
    return Trace(nodes, pods)


def node_from_row(number: int, row: dict[str, str]) -> Manifest:
    """The node of one line; *number* is its place in the file."""
    gpus = int(row["gpu"] or 0)
    return objects.node(
        number,
        name=row["sn"],
        cpu=f"{row['cpu_milli']}m",
        memory=f"{row['memory_mib']}Mi",
        pods=_PODS_PER_NODE,
        labels={GPU_MODEL: row["model"]} if row["model"] else {},
        extended={GPU: str(1000 * gpus)} if gpus else {},
    )


def pod_from_row(row: dict[str, str]) -> Manifest:
    """The pod of one line."""
    requests = {"cpu": f"{row['cpu_milli']}m", "memory": f"{row['memory_mib']}Mi"}
    gpu_milli = int(row["num_gpu"] or 0) * int(row["gpu_milli"] or 0)
    extended = {GPU: str(gpu_milli)} if gpu_milli else {}
    spec: Manifest = {}
    if row["gpu_spec"]:
        models = {"key": GPU_MODEL, "operator": "In", "values": row["gpu_spec"].split("|")}
        spec["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [models]}]
                }
            }
        }
    return objects.pod(
        row["name"],
        namespace=NAMESPACE,
        labels={"app": "openb", "qos": row["qos"]},
        requests={**requests, **extended},
        limits=extended,  # an extended resource's limit equals its request
        spec=spec,
    )
