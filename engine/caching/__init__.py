"""What the cluster holds: nodes with the pods counted against them, and snapshots of it."""
