"""The whole scheduler in a simulated world of faults, and the checks of what it did there.

Owns the world (hosts with clocks and event loops of their own, the network between them, sandbox
processes that are none, disks, an extender and a Prometheus server, users and controllers, all in
virtual time and of one seed) and what must hold however the API server, the network and processes
fail (`invariants`). The same checks judge `make chaos`, which breaks a real control plane. It owns
no part of the scheduler: what runs here is what runs in a cluster.

Begin with `world`; a new kind of fault is one entry in a file of `faults`.
"""
