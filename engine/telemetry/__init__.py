"""Telemetry of the process: logs, metrics, and the span that work belongs to.

Owns the form of log lines (`logs`), the table of metrics (`metrics`, and `component_metrics` for
those of every component of Kubernetes; `families` for what a row is), and how a span reaches the
requests and measurements that belong to it (`spans`, `exemplars`). Where those are read that are
read at a scrape is in `engine.surfaces.pulled_metrics`; `engine.io.endpoints` serves
them. Which pods are traced is `engine.io.tracing`'s. Events in the cluster are
`binding.event_recorder`'s. Begin with `metrics`.
"""
