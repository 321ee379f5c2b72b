"""The scheduling cycle: filter, score, select; pure functions on a snapshot."""
