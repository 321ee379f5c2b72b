"""Small parts that know nothing of Kubernetes or of policies.

Owns what Python's library lacks here: a clock that tests can move, a heap with removal, JSON with
repeated keys or too deep nesting refused, watching a folder, limits of a process. Nothing in it
imports another folder of the engine. No reading order: each module stands for itself.
"""
