"""Faults that are planted into the scheduler, to measure what simulated worlds find.

Owns the faults, as a table of replaced source text, and the runner that looks for each: a process
imports one module with the mistake in it and simulates worlds until something is violated. What
must hold is `devkit.faults.invariants`' and the world's.

Begin with `fault`, then `table`; `python -m tests.devkit.faults.planted` runs them.
"""
