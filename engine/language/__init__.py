"""What the policy language is, and what a policy's text means, found without running it.

Owns the table of the language: one entry for each builtin (`table`), each hook (`hooks`) and each
form of a verdict (`verdicts`). Checks, lints, the sandbox's drivers, translation, stubs for editors
and the tables of the documents are made from these entries, so a new builtin is one entry with its
implementation, and a test.

Owns the meaning of a text as well: `syntax` parses it, `resolve` finds what its names and calls
mean, and `modules` has the top level of its files. `infer` works out what each expression may be
(`values`), by the rules of `evaluate`, and what it reads (`effects`); `typing` gives the types of
one file's expressions. `flow` knows what branches, loops, exits and conditions mean for variables.
What follows from that is the business of others: reads, checks and lints in `engine.policy`; the
translation of hooks in `policy.sandbox`, which follows one hook statement by statement with the
same values.

Does not run policies (`policy.sandbox`), and knows nothing of pods and nodes but the names and
types of the fields that it is given. Begin with `table` for the first half, with `values` for the
second.
"""
