"""Policies: sources, bundles, static analysis, views, verdict tables and the sandbox."""
