"""Unit tests of policies (`x_test.star` files): finding them, running them, reporting on them.

Owns the assertions of `@std/testing.star` and what answers them, fixtures and tables of cases,
drawn cases and their shrinking, line coverage, and the confined child process in which a roll-out
runs the tests of an edited policy. It does not choose which tests to run again or print results
(`cli`), and does not decide whether an edit is accepted (`rollout`). Assertions are answered by the
scheduling cycle itself.

Begin with `runner`, then `answers`; `process` and `child` are the two sides of a confined run.
"""
