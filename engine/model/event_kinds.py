"""The kinds of objects that events are about, where they are not kinds of the API server."""

from typing import Final

POD: Final = "Pod"
"""A pod without a node: the pending pod itself, or another one."""
ASSIGNED_POD: Final = "AssignedPod"
"""A pod on a node, or nominated to one."""
NODE: Final = "Node"
FACTS: Final = "Facts"
"""What is measured or known elsewhere about nodes, pods or the cluster."""
