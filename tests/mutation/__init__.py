"""Mutation testing: small faults in the engine, and whether the quick tests notice them.

`make mutants` (`python -m tests.mutation GROUP...`) makes random mutants of each group of files, of
a seed, and runs for each the quick tests that reach the mutated line. `mutants` makes them, `run`
traces which test reaches which line and runs them inside one pytest session, and `explained.toml`
lists the mutants that no test can kill, with the reason.
"""
