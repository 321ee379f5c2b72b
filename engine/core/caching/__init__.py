"""What the cluster holds: nodes with the pods counted against them, and snapshots of that.

Owns the assumed pods (counted before the API server confirms them), the generations by which a
snapshot is brought up to date at the cost of what changed, the other objects that decisions read
(`objects`), attachments of volumes, and the counters of pods by topology domain. It has no queue,
decides nothing and does no I/O; `kernel` and the handlers of watches change it between decisions.

Begin with `cache`, whose docstring draws the states of a pod, then `snapshot`. `counters` with its
`counter_*` and `*_column` modules is a part of its own.
"""
