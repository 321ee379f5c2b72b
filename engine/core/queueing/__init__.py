"""Every pod that wants a node, and when it is tried.

This folder owns pending pods from their first sight until they are bound or deleted: the order in
which they are tried (by sort key), where each of them waits (active, in backoff, unschedulable,
gated, in flight, being bound), and which event brings a rejected pod back. It also owns the
throttle, which holds back pods whose policies waste time, and the nominations of nodes. It keeps
no record of placed pods (that is `caching`), asks no policy and sends nothing: sort keys, gates and
hints are passed in, and the scheduling loop reports outcomes.

Begin with `transitions.py`, the table of all moves of a pod. `scheduling_queue.py` makes these
moves, as kube-scheduler's scheduling queue does; `places.py` and the files of the single places
hold the pods. `events.py` derives cluster events from an old and a new object, and `hints/` says
which of them may help which rejected pod. `throttle.py` stands by itself.
"""
