"""The tree of queues on a copy of a cluster: how it stands, and what it would start.

Layers, each on those before: `still_kernel`.
"""
