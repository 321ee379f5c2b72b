"""Telemetry of the process: logs, metrics, and the span that work belongs to.

Owns the form of log lines (`logs`), metrics that are counted where something happens (`metrics`)
and those of every component of Kubernetes (`component_metrics`), and how a span reaches the
requests and measurements that belong to it (`spans`, `exemplars`). Metrics that are read off the
state when they are scraped are in `engine.surfaces.pulled_metrics`; `engine.io.endpoints` serves
them. Which pods are traced is `engine.io.tracing`'s. Events in the cluster are
`binding.event_recorder`'s. Begin with `metrics`.
"""
