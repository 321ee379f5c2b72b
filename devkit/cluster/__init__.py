"""An embedded API server for demo, conformance and tests: a verified fake.

Owns a store of objects with resourceVersions (`store`), the API's verbs (`api`, with `patch` and
`pods`), its HTTP interface (`server`, `watches`, `lists`, `tables`, `discovery`), faults to inject
(`faults`), and what kubelets (`fleet`) and controllers (`controllers`) would do. What becomes of a
manifest on its way into the store, and which kinds there are, is in `engine.core.manifests`. It has
no users.

One suite of contract tests runs against it and against the real API server: what it answers is
right by that suite, not by inspection. Begin with `cluster`, the API of tests, then `api`.
"""

from devkit.cluster.cluster import DevCluster
from devkit.cluster.controllers import Controllers
from devkit.cluster.faults import Fault, Faults
from devkit.cluster.fleet import Kubelets, example_cluster, make_node, make_pod

__all__ = [
    "Controllers",
    "DevCluster",
    "Fault",
    "Faults",
    "Kubelets",
    "example_cluster",
    "make_node",
    "make_pod",
]
