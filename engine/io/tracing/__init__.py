"""Traces: one for each sampled pod, from its entry into the queue to its binding.

Owns which pods are traced (`sampling`), what the spans of a trace are (`pod_traces`, made from the
instructions of the kernel as they are carried out), where they are sent (`export`, the one module
that loads OpenTelemetry) and the file that configures it (`configuration`). The kernel knows
nothing of it. How a span gets to the requests and writes that belong to it is
`engine.telemetry.spans`'s.

Begin with `pod_traces`.
"""
