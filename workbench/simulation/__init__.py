"""Workloads in virtual time."""
