"""Live answers: why a pod waits, what it was decided, and what the scheduler works with.

Owns the records that the endpoints serve as JSON, and assembling them from the running scheduler's
state. How they are served, and how they are shown, is not here.
"""
