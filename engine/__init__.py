"""starsched: a Kubernetes scheduler whose decisions are Starlark policy files."""

__version__ = "0.1.0"
