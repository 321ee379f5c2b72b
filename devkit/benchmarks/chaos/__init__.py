"""`make chaos`: two replicas on a real control plane, with faults between and of all processes.

Owns the proxy with its faults, their plan by seed, the load, and reading the history of the run out
of etcd and the audit log. What must hold is `devkit.faults.invariants`.

Begin with `run`, then `plan`.
"""
