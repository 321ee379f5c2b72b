"""The child process that runs policies, and the evaluator that talks to it.

The trusted side: `process` is the evaluator, which has `children` do the work, started as `blank`
ones; large requests are spread (`spreading`). What
crosses the border is in `protocol`, `projected` and `parts`.

The untrusted side: `child` puts up its walls and has the `worker` answer, which runs hooks in the
interpreter (`modules`, `drivers`, `node_views`) or, where that gives the same, as
Python (`translations`, `compiled`; see `translation`).
"""
