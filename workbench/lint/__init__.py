"""Warnings about policies that run but do not do what was meant.

Owns the rules and the comments that silence them. A rule is a function from a file to findings; it
asks `PolicySource.types` what an expression is, and says nothing where that is not certain. What
cannot run at all is reported by `engine.policy.check`. Begin with `finding`, then `linter`.
"""
