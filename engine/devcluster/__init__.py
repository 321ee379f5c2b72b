"""An embedded API server for demo, simulation and tests: a verified fake."""

from engine.devcluster.cluster import DevCluster
from engine.devcluster.faults import Fault, Faults
from engine.devcluster.fleet import (
    Kubelets,
    NamespaceController,
    example_cluster,
    make_node,
    make_pod,
)

__all__ = [
    "DevCluster",
    "Fault",
    "Faults",
    "Kubelets",
    "NamespaceController",
    "example_cluster",
    "make_node",
    "make_pod",
]
