"""Telemetry of the process: logs, metrics, and endpoints for probes and pages.

Owns the form of log lines (`logs`), metrics that are counted where something happens (`metrics`),
and the HTTP server of `/healthz`, `/metrics` and the pages (`health`), whose number of connections
is bounded (`connection_limit`). Metrics that are read off the state when they are scraped are in
`engine.pulled_metrics`. Events in the cluster are `binding.event_recorder`'s. Begin with `metrics`.
"""
