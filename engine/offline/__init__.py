"""The engine without a cluster: simulating workloads, explaining pods, comparing decisions.

Owns clusters and workloads read from files or decision logs, virtual time, decisions about single
pods, explanations and remedies, costs of hooks, and the texts that `starsched new` and `stubs`
write. It does not talk to an API server, decide anything itself (the kernel and the scheduling
cycle do) or print; unit tests of policies are in `policy_testing`.

Begin with `cluster_file` and `world`, which make a snapshot of manifests; then `simulation` for
workloads over time, or `explanation` for one pod.
"""
