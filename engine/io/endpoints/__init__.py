"""HTTP: what the process answers, to which callers, and where it listens.

Owns the table of routes, authentication, authorization and the two listeners. What a route answers
comes from functions that the application passes in.
"""
