"""Kubernetes objects as the scheduler reads them: frozen, no I/O."""
