"""Recordings: what was decided, and on what, so that it can be decided again.

Owns the form of a decision log (`entries`), writing one (`recorder`, `log_writer`), and deciding it
again, by the same policies or others (`replay`, `comparison`). A log holds the events of a kernel
and its decisions; it starts with a checkpoint of the cluster. It takes no part in decisions, and
reading the lines of a log is `engine.recording.decision_log`'s.

Begin with `entries`, then `recorder.Recorder.handled` and `replay.Replayer`.
"""
