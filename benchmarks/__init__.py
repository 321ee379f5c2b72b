"""Benchmarks: the product beside kube-scheduler on a real control plane, and its core alone.

`docs/performance.md` says what each one measures and how to repeat it. Nothing in `engine` imports
from here.
"""
