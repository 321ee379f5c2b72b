"""Starlark to Python: hooks of a typed subset, with every operation as Starlark has it.

`translate` begins at a hook and has what is in it done by `expressions`, `operators` and `methods`,
which share `state`. `kinds` are the types that they work with, `texts` what names mean in a file,
`exports` the constants of files that are loaded, `tidy` shorter forms of what is written,
`hoisting` what is worked out once for a pod, and `operations` what the Python that is made calls.
"""
