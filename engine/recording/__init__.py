"""Recordings: what was decided, and on what, so that it can be decided again.

Owns the form of a decision log (`entries`) and writing one (`recorder`, `log_writer`). A log holds
the events of a kernel and its decisions; it starts with a checkpoint of the cluster. It takes no
part in decisions. Reading a log, and deciding it again, is `workbench.replay`'s.

Begin with `entries`, then `recorder.Recorder.handled`.
"""
