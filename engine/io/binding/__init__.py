"""Carrying a decision out: bindings, evictions, and the events and conditions that report them.

Owns the requests and their retries: exactly one binding takes effect however requests fail
(`binder`), what plugins write before a binding (`volume_binder`, `claim_writer`), evictions for
preemption (`preemptor`, `eviction`), the PodScheduled condition (`pod_status`), and events, which
wait while there is something to bind (`event_recorder`, `deferred_writer`). What is to be carried
out was decided in `scheduling`; what an outcome means for the pod is the kernel's.

Begin with `binder`, whose docstring has the argument for "exactly once", then `binding_cycle`.
"""
