"""Telemetry of the process: logs and metrics.

Owns the form of log lines (`logs`), metrics that are counted where something happens (`metrics`)
and those of every component of Kubernetes (`component_metrics`). Metrics that are read off the
state when they are scraped are in `engine.pulled_metrics`; `engine.endpoints` serves them. Events
in the cluster are `binding.event_recorder`'s. Begin with `metrics`.
"""
