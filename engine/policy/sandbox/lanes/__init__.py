"""Translated hooks for many nodes at once: each operation is one of numpy's over all of them.

`values` are the numbers that a hook computes with in place of a node's, `objects` what is no number
and where numbers are read from, `functions` what translated hooks call. `plans` are ways through a
hook that can be gone again without it, and `runs` says which nodes go together.
"""
