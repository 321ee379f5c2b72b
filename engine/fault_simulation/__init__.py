"""The whole scheduler in a simulated world of faults, and the checks of what it did there.

Owns what must hold however the API server, the network and processes fail (`invariants`). The same
checks judge the simulation and `make chaos`, which breaks a real control plane. It decides nothing
and is no part of a running scheduler.

Begin with `invariants`.
"""
