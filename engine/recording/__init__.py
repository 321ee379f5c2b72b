"""A record of what was decided, and on what: enough to decide it again."""
