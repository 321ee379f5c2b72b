"""Plugins of the runtime: they decide about objects that are held and written."""
