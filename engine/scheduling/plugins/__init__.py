"""Plugins of the runtime: decisions about objects that are held and written, beside the policies."""
