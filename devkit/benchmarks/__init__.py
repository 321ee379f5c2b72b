"""Benchmarks: comparisons with kube-scheduler on a real control plane, and of the core alone.

`docs/performance.md` says what each one measures and how to repeat it. Nothing in `engine` imports
from here.
"""
