"""The child process that runs policies, and the evaluator that talks to it.

The trusted side: `process` is the evaluator, which has `children` do the work, taken from a
`warm_pool`. What crosses the border is in `protocol` and `projected`. Begin with `process`, then
`projected`, which draws what a node is on its way to a hook.

The untrusted side: `child` restricts itself and has the `worker` answer, which runs hooks in the
interpreter (`modules`, `drivers`, `node_views`) or, where that gives the same, as
Python (`translations`, `compiled`; see `translation`).
"""
