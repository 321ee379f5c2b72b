"""The commands that serve: the scheduler, the extender, and what they need."""
