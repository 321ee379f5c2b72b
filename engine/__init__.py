"""starsched: a Kubernetes scheduler whose decisions are Starlark policy files.

The folders are layers; `pyproject.toml` lists them from top to bottom, and a lower one never
imports a higher one. The modules beside the folders put them together: `app` is the running
scheduler, `informers` and `event_handlers` turn watches into events of the kernel,
`leader_election` says who may bind, `extender_calls` asks extenders, `pulled_metrics` and
`state_dump` show the state. Begin with the figure of `docs/architecture.md`, then `kernel`.
"""

__version__ = "0.1.0"
