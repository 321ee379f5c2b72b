"""Which devices a claim gets (dynamic resource allocation). Pure: no I/O, no clock, no randomness.

Owns the pools that ResourceSlices describe (`pools`), selectors and the CEL evaluator behind them
(`selectors`; `expressions`, `evaluation`, `functions`, `values`), and the search for an allocation
that satisfies requests, constraints and shared counters (`search`). Results are equal to those of
kube-scheduler's structured allocator, which `tests/parity` checks.

It neither watches claims nor writes them: `plugins.dynamic_resources` calls it during a decision,
and `binding.claim_writer` writes the result. Begin with `planning`, then `search`.
"""
