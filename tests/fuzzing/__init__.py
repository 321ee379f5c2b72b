"""Fuzzing: every parser of input that is not trusted, given inputs that are mutated for coverage.

Owns the targets (`targets`, a function of bytes each), the structure-aware mutations (`mutation`),
the engine around Atheris (`engine`, `__main__`) and the corpora. What an input means is tested
beside the code that reads it; here it must only be survived. Begin reading with `targets.TARGETS`.
"""
