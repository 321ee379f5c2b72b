"""The kinds of objects that events are about, where they are not kinds of the API server."""

from typing import Final

ASSIGNED_POD: Final = "AssignedPod"
"""A pod on a node, or nominated to one."""
TARGET_POD: Final = "TargetPod"
"""The waiting pod itself."""
UNSCHEDULED_POD: Final = "UnscheduledPod"
"""Another pod without a node."""
NODE: Final = "Node"
FACTS: Final = "Facts"
"""What is measured or known elsewhere about nodes, pods or the cluster."""
