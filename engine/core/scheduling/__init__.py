"""The scheduling cycle: one pod, one snapshot, one node or the reasons; pure.

Owns filtering, scoring and selecting a node, preemption's choice of victims, the plugins of the
runtime (`plugins`), and the records that a decision leads to (`placement`). It neither queues pods
nor carries decisions out: that is `engine.core.kernel`'s and `engine.io.binding`'s.

Begin with `scheduling_cycle.Scheduler`, then `pod_class`.
"""
