"""Reflectors and informers: the cluster's objects as a stream of changes."""
