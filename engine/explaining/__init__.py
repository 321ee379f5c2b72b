"""Words for decisions: why a node was rejected, and what would help."""
